//! What a plain user's events come down to: user space, where the kernel keeps what happens inside of it to itself. Knows
//! nothing of what becomes of the events.

use std::fmt;

use super::{
    events::Selected,
    plan::{Capture, Target},
};
use crate::{
    abi::{
        PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CGROUP_SWITCHES, PERF_COUNT_SW_CONTEXT_SWITCHES,
        PERF_COUNT_SW_CPU_MIGRATIONS, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
    },
    capture::{EventRequest, PerfEvent},
    event::Format,
    profiler::RunningMachine,
    spec::{EventKind, EventSpec},
    sys::{output, procfs, tracefs::Tracefs},
};

/// What is left of events of which a part was asked for that only others may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The names of what is left.
    events: Vec<String>,
    cause: Cause,
}

/// Why the kernel keeps its side to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cause {
    /// `kernel.perf_event_paranoid`, which is this.
    Level(i32),
    /// Nothing that could be seen.
    #[default]
    Unknown,
}

impl Cause {
    fn of(level: Option<i32>, is_capable: bool) -> Cause {
        level.filter(|&level| level > 1 && !is_capable).map_or(Cause::Unknown, Cause::Level)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Level(level) => write!(
                f,
                "kernel.perf_event_paranoid is {level} and CAP_PERFMON is missing; the kernel's side takes root, or 1 at most"
            ),
            Cause::Unknown => f.write_str(
                "the kernel refuses its side, though sysctl and capabilities allow it: a security module or a container's \
                 seccomp profile forbids it",
            ),
        }
    }
}

/// Limits events to user space if the kernel's side is not for us: perf does that too, and calls them so.
pub fn limit(selected: &mut [Selected]) -> Limits {
    if RunningMachine.sees_kernel() {
        return Limits::default();
    }
    let cause = Cause::of(procfs::perf_event_paranoid(), procfs::is_perfmon_capable());
    Limits { cause, ..to_user_space(selected, |event| RunningMachine.tells_sides(event)) }
}

fn to_user_space(selected: &mut [Selected], tells_sides: impl Fn(&PerfEvent) -> bool) -> Limits {
    let mut limits = Limits::default();
    let have_both = selected.iter_mut().filter(|event| has_both_sides(&event.request));
    for event in have_both.filter(|event| tells_sides(&event.request.event)) {
        let Format::Source(_) = event.format else { continue };
        let name = event.format.name();
        // Letters behind others, and behind a PMU's terms, need no mark of their own.
        let mark = if name.contains([':', '/']) { "" } else { ":" };
        let limited = format!("{name}{mark}u");
        (event.request.excluded.kernel, event.request.excluded.hv) = (true, true);
        event.request.name.clone_from(&limited);
        event.format = Format::source(limited.clone());
        limits.events.push(limited);
    }
    limits
}

/// Whether it happens in the kernel and in programs, and both were asked for.
fn has_both_sides(request: &EventRequest) -> bool {
    let in_kernel_alone = request.event.kind == PERF_TYPE_TRACEPOINT || is_of_kernel(&request.event);
    !in_kernel_alone && request.definition.is_none() && !request.excluded.kernel && !request.excluded.user
}

/// Whether it is the kernel alone that has such an event, so that in user space there is nothing to see.
fn is_of_kernel(event: &PerfEvent) -> bool {
    const OF_KERNEL: [u64; 4] = [
        PERF_COUNT_SW_CONTEXT_SWITCHES,
        PERF_COUNT_SW_CPU_MIGRATIONS,
        PERF_COUNT_SW_BPF_OUTPUT,
        PERF_COUNT_SW_CGROUP_SWITCHES,
    ];
    event.kind == PERF_TYPE_SOFTWARE && OF_KERNEL.contains(&event.config)
}

/// Leaves those out that nobody asked for by name and that are not for us.
pub fn leave_out(selected: &mut Vec<Selected>) {
    if !RunningMachine.sees_kernel() {
        selected.retain(|event| !is_of_kernel(&event.request.event));
    }
}

impl Limits {
    /// Says what is left of the events, once it is sure that they can be had so. However quiet it is to be: what a script
    /// prints under its own headings does not tell that half is missing.
    pub fn say(&self) {
        if !self.events.is_empty() {
            output::say(self);
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only what happens in user space is seen ({}), as {}", self.events.join(", "), self.cause)
    }
}

/// Where the tracepoints of these events are found. Other events need none of it.
pub fn tracefs(plan: &Capture) -> anyhow::Result<Tracefs> {
    let is_in_tracefs = |spec: &&EventSpec| matches!(spec.kind, EventKind::Tracepoint { .. });
    match (Tracefs::find(), plan.events.iter().find(is_in_tracefs)) {
        (Ok(found), _) => Ok(found),
        (Err(_), None) => Ok(Tracefs::expected()),
        (Err(error), Some(spec)) => {
            let level = procfs::perf_event_paranoid().filter(|_| !procfs::is_perfmon_capable());
            let too = level.and_then(|level| asked_too(spec, &plan.target, level)).unwrap_or_default();
            Err(anyhow::anyhow!("{}: {error}{too}", spec.selector))
        }
    }
}

/// What has to be allowed beside tracefs: whoever opens that to all should know that it is not enough.
fn asked_too(spec: &EventSpec, target: &Target, level: i32) -> Option<String> {
    let of_tasks = matches!(target, Target::Processes(_) | Target::Threads(_) | Target::Workload(_));
    if of_tasks && is_of_system_calls(spec) {
        let is = format!(
            "; and kernel.perf_event_paranoid is {level}: tracepoints of system calls are for root, for CAP_PERFMON"
        );
        return (level > 1).then(|| format!("{is}, or in one's own processes for all at 1"));
    }
    (level > -1).then(|| {
        format!(
            "; and kernel.perf_event_paranoid is {level}: tracepoints are for root, for CAP_PERFMON, or for all at -1 (to \
             count them, at 1 in one's own processes and at 0 on CPUs)"
        )
    })
}

/// Whether its data are for everybody who sees the kernel's side of a task: so they are of the events with
/// TRACE_EVENT_FL_CAP_ANY (`include/linux/syscalls.h`, `include/trace/events/syscalls.h`).
fn is_of_system_calls(spec: &EventSpec) -> bool {
    let systems = ["syscalls", "raw_syscalls"];
    matches!(&spec.kind, EventKind::Tracepoint { system, .. } if systems.contains(&system.as_str()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::{abi::PERF_COUNT_SW_DUMMY, session::events, spec::parse_events};

    fn selected(list: &str) -> Vec<Selected> {
        let plan = Capture { events: parse_events(list).unwrap(), ..Capture::default() };
        events::resolve(&plan, &Tracefs::expected()).unwrap()
    }

    /// It was the sysctl in any case.
    #[test]
    fn the_level_is_named_where_it_is_the_cause() {
        let causes = [(Some(2), false), (Some(1), false), (Some(2), true), (None, false)];
        let causes: Vec<String> =
            causes.iter().map(|&(level, is_capable)| Cause::of(level, is_capable).to_string()).collect();
        assert!(causes[0].starts_with("kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing"));
        assert!(causes[1..].iter().all(|cause| cause.starts_with("the kernel refuses its side")), "{causes:?}");
    }

    /// It was -1 whatever was asked for.
    #[test]
    fn system_calls_of_own_processes_were_said_to_need_another_level() {
        let needed = |event: &str, target: &Target, level: i32| {
            let text = asked_too(&parse_events(event).unwrap()[0], target, level)?;
            text.contains(&format!("is {level}: ")).then(|| if text.ends_with("for all at 1") { 1 } else { -1 })
        };
        let own = Target::Processes(vec![1]);
        for event in ["syscalls:*", "raw_syscalls:sys_enter"] {
            assert_eq!([2, 1, 0, -1].map(|level| needed(event, &own, level)), [Some(1), None, None, None]);
            assert_eq!([2, 0, -1].map(|level| needed(event, &Target::AllCpus, level)), [Some(-1), Some(-1), None]);
        }
        assert_eq!([2, 0, -1].map(|level| needed("sched:*", &own, level)), [Some(-1), Some(-1), None]);
    }

    #[test]
    fn events_of_both_sides_come_down_to_user_space() {
        let mut events = selected(
            "task-clock,page-faults:u,cpu-clock:k,mem:0x1000:w,context-switches,cgroup-switches,r00c0,dummy//alias=d/",
        );
        let limits = to_user_space(&mut events, |event| event.config != u64::from(PERF_COUNT_SW_DUMMY));
        let now: Vec<String> = events
            .iter()
            .map(|event| {
                assert_eq!(event.format.name(), event.request.name);
                let excluded = event.request.excluded;
                format!("{} {}{}", event.request.name, u8::from(excluded.kernel), u8::from(excluded.hv))
            })
            .collect();
        expect![[r#"
            task-clock:u 11
            page-faults:u 11
            cpu-clock:k 01
            mem:u 11
            context-switches 00
            cgroup-switches 00
            r00c0:u 11
            dummy 00"#]]
        .assert_eq(&now.join("\n"));
        expect![[r#"["task-clock:u", "mem:u", "r00c0:u"]"#]].assert_eq(&format!("{:?}", limits.events));
    }
}
