//! What the kernel's sysctls and our capabilities let us see: what is said follows what both are.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use super::Check;
use crate::{
    abi::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, perf_event_attr},
    sys::{
        perf,
        procfs::{self, CAP_PERFMON, CAP_SYS_ADMIN},
    },
};

// Numbers of `include/uapi/linux/capability.h`.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYSLOG: u32 = 34;

pub(super) fn may_trace() -> bool {
    procfs::is_perfmon_capable()
}

/// What a user may do who has no capability that goes before the sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Events of his own processes open.
    Opens,
    /// They do not, as in kernels of some distributions above 2.
    Refused,
}

/// Who may open events, see `perf_allow_kernel()` and its like in `include/linux/perf_event.h`.
pub(super) fn perf_events() -> Check {
    let opens = || {
        let config = PERF_COUNT_SW_DUMMY.into();
        let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config, ..Default::default() };
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        if perf::open(&attr, perf::Attach::Thread(0, None)).is_ok() { Own::Opens } else { Own::Refused }
    };
    by_level(procfs::perf_event_paranoid(), may_trace(), opens)
}

fn by_level(level: Option<i32>, may_trace: bool, own: impl Fn() -> Own) -> Check {
    let name = "perf events";
    let Some(level) = level else {
        return Check::fail(name, "this kernel has no perf events (CONFIG_PERF_EVENTS)", None);
    };
    let is = format!("kernel.perf_event_paranoid is {level}");
    if level < 0 {
        return Check::ok(name, format!("{is}: all may trace"));
    }
    if may_trace {
        return Check::ok(name, format!("{is}, our capabilities go before it"));
    }
    let is = format!("{is} and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force");
    if own() == Own::Refused {
        let mend = "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=2, or less";
        return Check::fail(name, format!("{is}: not even our own processes' events open"), Some(mend));
    }
    let allowed = match level {
        0 => "whole CPUs and our own processes, but of tracepoints only those of system calls in our own processes",
        1 => "our own processes, of tracepoints only those of system calls",
        _ => "user space of our own processes, no tracepoints",
    };
    let mend = "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL";
    Check::warn(name, format!("{is}: {allowed}; {}", lower(level)), Some(mend))
}

/// What each lower level adds. Of system calls, data of tracepoints are for everybody who sees the kernel's side of a task
/// (`perf_trace_event_perm()` in `kernel/trace/trace_event_perf.c`, TRACE_EVENT_FL_CAP_ANY).
fn lower(level: i32) -> String {
    let steps = [
        (1, "at 1 the kernel's side and their system calls too"),
        (0, "at 0 whole CPUs"),
        (-1, "at -1 all tracepoints"),
    ];
    steps.iter().filter(|(step, _)| *step < level).map(|(_, text)| *text).collect::<Vec<_>>().join(", ")
}

/// What lets us have all tracepoints.
pub(super) fn mend_of_tracepoints(level: Option<i32>) -> String {
    match level {
        Some(level) if level > -1 => "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=-1".to_owned(),
        _ => "sudo perf-prof ...".to_owned(),
    }
}

pub(super) fn capabilities() -> Check {
    let known = [("CAP_PERFMON", CAP_PERFMON), ("CAP_SYS_ADMIN", CAP_SYS_ADMIN), ("CAP_SYS_PTRACE", CAP_SYS_PTRACE)];
    let (held, missing): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, number)| procfs::has_capability(*number));
    let names = |set: &[(&str, u32)]| set.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let name = "capabilities";
    if !held.is_empty() && !procfs::is_in_first_user_namespace() {
        let detail = format!("{} are those of a user namespace, which count for nothing here", names(&held));
        return Check::warn(name, detail, Some("perf-prof ... as root outside of it"));
    }
    if missing.is_empty() {
        return Check::ok(name, format!("{} are in force", names(&held)));
    }
    let detail = format!("{} not in force", names(&missing));
    if may_trace() && procfs::has_capability(CAP_SYS_PTRACE) {
        return Check::ok(name, format!("{} in force; {detail} and not needed", names(&held)));
    }
    Check::warn(name, format!("{detail}: other users' processes stay closed"), Some("sudo perf-prof ..."))
}

/// What rules whether addresses of the kernel are shown, by `kallsyms_show_value()` in `kernel/ksyms_common.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbols {
    /// `kernel.kptr_restrict`.
    restrict: Option<i32>,
    /// `kernel.perf_event_paranoid`.
    level: Option<i32>,
    /// Whether CAP_SYSLOG is in force.
    is_capable: bool,
}

/// Whether addresses of the kernel can be named.
pub(super) fn kernel_symbols() -> Check {
    let name = "kernel symbols";
    let restrict = fs::read_to_string("/proc/sys/kernel/kptr_restrict").ok().and_then(|text| text.trim().parse().ok());
    let is_capable = procfs::has_capability(CAP_SYSLOG) && procfs::is_in_first_user_namespace();
    let symbols = Symbols { restrict, level: procfs::perf_event_paranoid(), is_capable };
    let mut line = String::new();
    // The first symbols may lie at address 0 by right (per-CPU variables), the rest never.
    let read = fs::File::open("/proc/kallsyms").map(|file| {
        BufReader::new(file).lines().map_while(Result::ok).find(|line| line.contains(" T ")).map(|found| line = found)
    });
    let hidden = line.split(' ').next().is_none_or(|address| address.bytes().all(|byte| byte == b'0'));
    match read {
        Err(error) => Check::warn(name, format!("/proc/kallsyms: {error}; stacks show addresses only"), None),
        Ok(_) if hidden => symbols.hidden(),
        Ok(_) => Check::ok(name, format!("readable ({})", symbols.levels())),
    }
}

impl Symbols {
    fn levels(&self) -> String {
        let shown = |level: Option<i32>| level.map_or("unreadable".to_owned(), |level| level.to_string());
        let restrict = format!("kernel.kptr_restrict is {}", shown(self.restrict));
        // It is looked at where the other one does not decide.
        match self.restrict {
            Some(0) if !self.is_capable => {
                format!("{restrict}, kernel.perf_event_paranoid is {}", shown(self.level))
            }
            _ => restrict,
        }
    }

    fn hidden(&self) -> Check {
        let lower = match self.level {
            Some(..=1) => "",
            _ => " kernel.perf_event_paranoid=1",
        };
        let mend = match (self.restrict, self.is_capable) {
            (Some(2..), true) => Some("sudo sysctl kernel.kptr_restrict=1".to_owned()),
            (Some(2..), false) => Some("sudo sysctl kernel.kptr_restrict=1, and sudo perf-prof ...".to_owned()),
            (Some(1), false) => Some(format!("sudo perf-prof ..., or sudo sysctl kernel.kptr_restrict=0{lower}")),
            (Some(0), false) if !lower.is_empty() => Some(format!("sudo perf-prof ..., or sudo sysctl{lower}")),
            // By these they would be shown.
            _ => None,
        };
        let detail = format!("hidden from us ({}); the kernel's frames show addresses only", self.levels());
        Check::warn("kernel symbols", detail, mend.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn shown(checks: impl IntoIterator<Item = Check>, expected: Expect) {
        let mend = |mend: Option<String>| mend.map_or_else(String::new, |mend| format!("  {mend}\n"));
        let text = |check: Check| format!("{}: {}\n{}", check.state, check.detail, mend(check.mend));
        expected.assert_eq(&checks.into_iter().map(text).collect::<String>());
    }

    /// It was `kernel.perf_event_paranoid=-1` at every level, whatever was asked for.
    #[test]
    fn each_level_was_said_to_leave_no_tracepoints() {
        let levels = [4, 2, 1, 0, -1].map(Some);
        shown(
            levels.into_iter().map(|level| by_level(level, false, || Own::Opens)),
            expect![[r#"
            warn: kernel.perf_event_paranoid is 4 and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force: user space of our own processes, no tracepoints; at 1 the kernel's side and their system calls too, at 0 whole CPUs, at -1 all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 2 and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force: user space of our own processes, no tracepoints; at 1 the kernel's side and their system calls too, at 0 whole CPUs, at -1 all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 1 and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force: our own processes, of tracepoints only those of system calls; at 0 whole CPUs, at -1 all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 0 and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force: whole CPUs and our own processes, but of tracepoints only those of system calls in our own processes; at -1 all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            ok: kernel.perf_event_paranoid is -1: all may trace
        "#]],
        );
        shown(
            [(Some(4), false), (Some(2), true), (None, false)]
                .map(|(level, may_trace)| by_level(level, may_trace, || Own::Refused)),
            expect![[r#"
                fail: kernel.perf_event_paranoid is 4 and neither CAP_PERFMON nor CAP_SYS_ADMIN is in force: not even our own processes' events open
                  sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=2, or less
                ok: kernel.perf_event_paranoid is 2, our capabilities go before it
                fail: this kernel has no perf events (CONFIG_PERF_EVENTS)
            "#]],
        );
    }

    /// What hid them was another one, and who did that had changed nothing.
    #[test]
    fn kptr_restrict_was_to_be_0_where_it_was() {
        let rows = [(0, 2, false), (0, 1, false), (1, 2, false), (1, 1, false), (2, 2, false), (2, 2, true)];
        let symbols = rows.map(|(restrict, level, is_capable)| Symbols {
            restrict: Some(restrict),
            level: Some(level),
            is_capable,
        });
        shown(
            symbols.map(|symbols| symbols.hidden()),
            expect![[r#"
            warn: hidden from us (kernel.kptr_restrict is 0, kernel.perf_event_paranoid is 2); the kernel's frames show addresses only
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=1
            warn: hidden from us (kernel.kptr_restrict is 0, kernel.perf_event_paranoid is 1); the kernel's frames show addresses only
            warn: hidden from us (kernel.kptr_restrict is 1); the kernel's frames show addresses only
              sudo perf-prof ..., or sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1
            warn: hidden from us (kernel.kptr_restrict is 1); the kernel's frames show addresses only
              sudo perf-prof ..., or sudo sysctl kernel.kptr_restrict=0
            warn: hidden from us (kernel.kptr_restrict is 2); the kernel's frames show addresses only
              sudo sysctl kernel.kptr_restrict=1, and sudo perf-prof ...
            warn: hidden from us (kernel.kptr_restrict is 2); the kernel's frames show addresses only
              sudo sysctl kernel.kptr_restrict=1
        "#]],
        );
    }
}
