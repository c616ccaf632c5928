//! Checks of permissions: what the kernel's sysctls and this process's capabilities allow.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use perf_prof_format::abi::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, perf_event_attr};
use perf_prof_system::{
    capability::{self, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYSLOG},
    perf, procfs,
};

use super::Check;

pub(super) fn may_trace() -> bool {
    procfs::is_perfmon_capable()
}

/// Whether users without CAP_PERFMON and CAP_SYS_ADMIN can open events on their own processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnProcessEvents {
    /// The event can be opened.
    Opens,
    /// The kernel refuses the event. Kernels of some distributions refuse it if `kernel.perf_event_paranoid` is above
    /// 2.
    Refused,
}

/// Checks which events this user may open (`perf_allow_kernel()` and similar functions in
/// `include/linux/perf_event.h`).
pub(super) fn perf_events() -> Check {
    let opens = || {
        let config = PERF_COUNT_SW_DUMMY.into();
        let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config, ..Default::default() };
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        if perf::open(&attr, perf::Attach::Thread(0, None)).is_ok() {
            OwnProcessEvents::Opens
        } else {
            OwnProcessEvents::Refused
        }
    };
    check_paranoid_level(procfs::perf_event_paranoid(), may_trace(), opens)
}

fn check_paranoid_level(level: Option<i32>, may_trace: bool, own: impl Fn() -> OwnProcessEvents) -> Check {
    let name = "perf events";
    let Some(level) = level else {
        return Check::fail(name, "this kernel has no perf events (CONFIG_PERF_EVENTS)", None);
    };
    let is = format!("kernel.perf_event_paranoid is {level}");
    if level < 0 {
        return Check::ok(name, format!("{is}: all users may trace"));
    }
    if may_trace {
        return Check::ok(name, format!("{is}; it does not limit perf-prof, which has CAP_PERFMON or CAP_SYS_ADMIN"));
    }
    let is = format!("{is}, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN");
    if own() == OwnProcessEvents::Refused {
        let mend = "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=2, or a lower level";
        return Check::fail(
            name,
            format!("{is}: the kernel refuses even events of this user's own processes"),
            Some(mend),
        );
    }
    let allowed = match level {
        0 => "this user may trace CPUs and its own processes; the only tracepoints are system calls of these processes",
        1 => "this user may trace its own processes; the only tracepoints are their system calls",
        _ => "this user may trace only the user space of its own processes, without tracepoints",
    };
    let mend = "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL";
    Check::warn(name, format!("{is}: {allowed}; {}", what_lower_levels_allow(level)), Some(mend))
}

/// Returns a text that says for each lower value of `kernel.perf_event_paranoid` which further events it allows.
/// Tracepoints of system calls are not in the text, because they need no lower value: every user who may trace a task
/// in the kernel may read their data (`perf_trace_event_perm()` in `kernel/trace/trace_event_perf.c`,
/// TRACE_EVENT_FL_CAP_ANY).
fn what_lower_levels_allow(level: i32) -> String {
    let steps = [
        (1, "level 1 also allows kernel events and system calls of these processes"),
        (0, "level 0 also allows events on CPUs"),
        (-1, "level -1 allows all tracepoints"),
    ];
    steps.iter().filter(|(step, _)| *step < level).map(|(_, text)| *text).collect::<Vec<_>>().join(", ")
}

/// Returns the command that allows all tracepoints.
pub(super) fn tracepoint_fix(level: Option<i32>) -> String {
    match level {
        Some(level) if level > -1 => "sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=-1".to_owned(),
        _ => "sudo perf-prof ...".to_owned(),
    }
}

pub(super) fn capabilities() -> Check {
    let known = [("CAP_PERFMON", CAP_PERFMON), ("CAP_SYS_ADMIN", CAP_SYS_ADMIN), ("CAP_SYS_PTRACE", CAP_SYS_PTRACE)];
    let (held, missing): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, number)| capability::has(*number));
    let names = |set: &[(&str, u32)]| set.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let name = "capabilities";
    if !held.is_empty() && !procfs::is_in_first_user_namespace() {
        let detail = format!("{} are valid only in this user namespace; perf events ignore them", names(&held));
        return Check::warn(name, detail, Some("run perf-prof ... as root outside of the user namespace"));
    }
    if missing.is_empty() {
        return Check::ok(name, format!("perf-prof has {}", names(&held)));
    }
    let detail = format!("perf-prof does not have {}", names(&missing));
    if may_trace() && capability::has(CAP_SYS_PTRACE) {
        return Check::ok(name, format!("perf-prof has {}, which is enough", names(&held)));
    }
    Check::warn(name, format!("{detail}: processes of other users cannot be traced"), Some("sudo perf-prof ..."))
}

/// Checks whether perf-prof may load BPF programs, which add up events in the kernel.
pub(super) fn in_kernel() -> Check {
    let name = "tables in the kernel";
    match perf_prof_in_kernel::load::check() {
        Ok(()) => Check::ok(name, "the kernel can add up events and pair system calls (--in-kernel)"),
        Err(refusal) => {
            let mend = (!capability::has(CAP_SYS_ADMIN)).then_some("sudo perf-prof ...");
            let detail =
                format!("{refusal}; events are added up in perf-prof, which gives the same result at a higher cost");
            Check::warn(name, detail, mend)
        }
    }
}

/// The settings that decide whether the kernel shows its addresses (`kallsyms_show_value()` in
/// `kernel/ksyms_common.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbols {
    /// `kernel.kptr_restrict`.
    restrict: Option<i32>,
    /// `kernel.perf_event_paranoid`.
    level: Option<i32>,
    /// True if this process has CAP_SYSLOG.
    is_capable: bool,
}

/// Checks whether kernel addresses can be turned into symbols.
pub(super) fn kernel_symbols() -> Check {
    let name = "kernel symbols";
    let restrict = fs::read_to_string("/proc/sys/kernel/kptr_restrict").ok().and_then(|text| text.trim().parse().ok());
    let is_capable = capability::has(CAP_SYSLOG) && procfs::is_in_first_user_namespace();
    let symbols = Symbols { restrict, level: procfs::perf_event_paranoid(), is_capable };
    let mut line = String::new();
    // The address of a function (`T`) is never 0. The first symbols of the file may really have the address 0, because
    // they are per-CPU variables.
    let read = fs::File::open("/proc/kallsyms").map(|file| {
        BufReader::new(file).lines().map_while(Result::ok).find(|line| line.contains(" T ")).map(|found| line = found)
    });
    let hidden = line.split(' ').next().is_none_or(|address| address.bytes().all(|byte| byte == b'0'));
    match read {
        Err(error) => Check::warn(name, format!("/proc/kallsyms: {error}; kernel frames have addresses only"), None),
        Ok(_) if hidden => symbols.hidden(),
        Ok(_) => Check::ok(name, format!("readable ({})", symbols.levels())),
    }
}

impl Symbols {
    fn levels(&self) -> String {
        let shown = |level: Option<i32>| level.map_or("unreadable".to_owned(), |level| level.to_string());
        let restrict = format!("kernel.kptr_restrict is {}", shown(self.restrict));
        // The kernel uses perf_event_paranoid only if kptr_restrict is 0 and CAP_SYSLOG is missing.
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
            // With these settings the kernel shows addresses, so no setting has to change.
            _ => None,
        };
        let detail = format!("hidden from this user ({}); kernel frames have addresses only", self.levels());
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

    /// Each value of the sysctl allows different events, so the advice must not always be
    /// `kernel.perf_event_paranoid=-1`.
    #[test]
    fn the_advice_depends_on_the_level() {
        let levels = [4, 2, 1, 0, -1].map(Some);
        shown(
            levels.into_iter().map(|level| check_paranoid_level(level, false, || OwnProcessEvents::Opens)),
            expect![[r#"
            warn: kernel.perf_event_paranoid is 4, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN: this user may trace only the user space of its own processes, without tracepoints; level 1 also allows kernel events and system calls of these processes, level 0 also allows events on CPUs, level -1 allows all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 2, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN: this user may trace only the user space of its own processes, without tracepoints; level 1 also allows kernel events and system calls of these processes, level 0 also allows events on CPUs, level -1 allows all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 1, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN: this user may trace its own processes; the only tracepoints are their system calls; level 0 also allows events on CPUs, level -1 allows all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            warn: kernel.perf_event_paranoid is 0, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN: this user may trace CPUs and its own processes; the only tracepoints are system calls of these processes; level -1 allows all tracepoints
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=LEVEL
            ok: kernel.perf_event_paranoid is -1: all users may trace
        "#]],
        );
        shown(
            [(Some(4), false), (Some(2), true), (None, false)]
                .map(|(level, may_trace)| check_paranoid_level(level, may_trace, || OwnProcessEvents::Refused)),
            expect![[r#"
                fail: kernel.perf_event_paranoid is 4, and perf-prof has neither CAP_PERFMON nor CAP_SYS_ADMIN: the kernel refuses even events of this user's own processes
                  sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=2, or a lower level
                ok: kernel.perf_event_paranoid is 2; it does not limit perf-prof, which has CAP_PERFMON or CAP_SYS_ADMIN
                fail: this kernel has no perf events (CONFIG_PERF_EVENTS)
            "#]],
        );
    }

    /// If `kernel.kptr_restrict` is 0 already, another setting hides the symbols. The advice must name the other
    /// setting.
    #[test]
    fn the_advice_names_the_setting_that_hides_symbols() {
        let rows = [(0, 2, false), (0, 1, false), (1, 2, false), (1, 1, false), (2, 2, false), (2, 2, true)];
        let symbols = rows.map(|(restrict, level, is_capable)| Symbols {
            restrict: Some(restrict),
            level: Some(level),
            is_capable,
        });
        shown(
            symbols.map(|symbols| symbols.hidden()),
            expect![[r#"
            warn: hidden from this user (kernel.kptr_restrict is 0, kernel.perf_event_paranoid is 2); kernel frames have addresses only
              sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=1
            warn: hidden from this user (kernel.kptr_restrict is 0, kernel.perf_event_paranoid is 1); kernel frames have addresses only
            warn: hidden from this user (kernel.kptr_restrict is 1); kernel frames have addresses only
              sudo perf-prof ..., or sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1
            warn: hidden from this user (kernel.kptr_restrict is 1); kernel frames have addresses only
              sudo perf-prof ..., or sudo sysctl kernel.kptr_restrict=0
            warn: hidden from this user (kernel.kptr_restrict is 2); kernel frames have addresses only
              sudo sysctl kernel.kptr_restrict=1, and sudo perf-prof ...
            warn: hidden from this user (kernel.kptr_restrict is 2); kernel frames have addresses only
              sudo sysctl kernel.kptr_restrict=1
        "#]],
        );
    }
}
