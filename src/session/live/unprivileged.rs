//! Limits events to user space if the user may not trace the kernel.

use std::{fmt, sync::Arc};

use perf_prof_capture::{EventRequest, PerfEvent};
use perf_prof_events::event::{Format, OtherFormat};
use perf_prof_format::{
    abi::{
        PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CGROUP_SWITCHES, PERF_COUNT_SW_CONTEXT_SWITCHES,
        PERF_COUNT_SW_CPU_MIGRATIONS, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
    },
    spec::{EventKind, EventSpec},
};
use perf_prof_system::{output, procfs, tracefs::Tracefs};

use super::select::Selected;
use crate::{
    plan::{Capture, Target},
    selectors::RunningMachine,
};

/// The events that were limited to user space because the user may not trace the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedEvents {
    /// The names of the limited events.
    events: Vec<String>,
    cause: Cause,
}

/// The reason why the user may not trace the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cause {
    /// `kernel.perf_event_paranoid` has this value, which is too high.
    Level(i32),
    /// `kernel.perf_event_paranoid` and the capabilities allow it, so the reason is unknown.
    #[default]
    Unknown,
}

impl Cause {
    fn from_settings(level: Option<i32>, is_capable: bool) -> Cause {
        level.filter(|&level| level > 1 && !is_capable).map_or(Cause::Unknown, Cause::Level)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Level(level) => write!(
                f,
                "kernel.perf_event_paranoid is {level} and CAP_PERFMON is missing; events in the kernel need root, \
                 CAP_PERFMON or a level of at most 1"
            ),
            Cause::Unknown => f.write_str(
                "the kernel refuses events in the kernel, although kernel.perf_event_paranoid and the capabilities \
                 allow them; a security module or a container's seccomp profile may forbid them",
            ),
        }
    }
}

/// Limits events to user space if this process may not trace the kernel, and adds the modifier `u` to the names of
/// these events, as perf does.
pub fn limit_to_user_space(selected: &mut [Selected]) -> LimitedEvents {
    if RunningMachine.can_trace_kernel() {
        return LimitedEvents::default();
    }
    let cause = Cause::from_settings(procfs::perf_event_paranoid(), procfs::is_perfmon_capable());
    LimitedEvents { cause, ..to_user_space(selected, |event| RunningMachine.can_exclude(event)) }
}

fn to_user_space(selected: &mut [Selected], tells_sides: impl Fn(&PerfEvent) -> bool) -> LimitedEvents {
    let mut limits = LimitedEvents::default();
    let have_both = selected.iter_mut().filter(|event| has_both_sides(&event.request));
    for event in have_both.filter(|event| tells_sides(&event.request.event)) {
        let Format::Other(format) = &event.format else { continue };
        let name = &format.name;
        // If the name already has modifiers or PMU terms, `u` is appended without another colon.
        let mark = if name.contains([':', '/']) { "" } else { ":" };
        let limited = format!("{name}{mark}u");
        (event.request.excluded.kernel, event.request.excluded.hv) = (true, true);
        event.request.name.clone_from(&limited);
        event.format = Format::Other(Arc::new(OtherFormat { name: limited.clone(), raw: format.raw }));
        limits.events.push(limited);
    }
    limits
}

/// Returns whether the event happens both in the kernel and in programs, and neither was excluded.
fn has_both_sides(request: &EventRequest) -> bool {
    let in_kernel_alone = request.event.kind == PERF_TYPE_TRACEPOINT || is_kernel_only(&request.event);
    !in_kernel_alone && request.definition.is_none() && !request.excluded.kernel && !request.excluded.user
}

/// Returns whether the event happens only in the kernel, so that it cannot be limited to user space.
fn is_kernel_only(event: &PerfEvent) -> bool {
    const OF_KERNEL: [u64; 4] = [
        PERF_COUNT_SW_CONTEXT_SWITCHES,
        PERF_COUNT_SW_CPU_MIGRATIONS,
        PERF_COUNT_SW_BPF_OUTPUT,
        PERF_COUNT_SW_CGROUP_SWITCHES,
    ];
    event.kind == PERF_TYPE_SOFTWARE && OF_KERNEL.contains(&event.config)
}

/// Removes the events that happen only in the kernel, if this process may not trace the kernel. This is only done for
/// default events, which the user did not select.
pub fn remove_kernel_only_events(selected: &mut Vec<Selected>) {
    if !RunningMachine.can_trace_kernel() {
        selected.retain(|event| !is_kernel_only(&event.request.event));
    }
}

impl LimitedEvents {
    /// Reports which events were limited to user space, after they were opened. The message is printed even with `-q`,
    /// because the output of a script does not show that the kernel's part is missing.
    pub fn report(&self) {
        if !self.events.is_empty() {
            output::say(self);
        }
    }
}

impl fmt::Display for LimitedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only events in user space are seen ({}), because {}", self.events.join(", "), self.cause)
    }
}

/// Finds tracefs. If tracefs cannot be read, fails only if the plan contains a tracepoint. Other events do not need
/// tracefs.
pub fn tracefs(plan: &Capture) -> anyhow::Result<Tracefs> {
    let is_in_tracefs = |spec: &&EventSpec| matches!(spec.kind, EventKind::Tracepoint { .. } | EventKind::Span(_));
    match (Tracefs::find(), plan.events.iter().find(is_in_tracefs)) {
        (Ok(found), _) => Ok(found),
        (Err(_), None) => Ok(Tracefs::at_usual_place()),
        (Err(error), Some(spec)) => {
            let level = procfs::perf_event_paranoid().filter(|_| !procfs::is_perfmon_capable());
            let too = level.and_then(|level| paranoid_level_hint(spec, &plan.target, level)).unwrap_or_default();
            let text = format!("{}: {error}{too}", spec.selector);
            Err(anyhow::Error::new(error).context(text))
        }
    }
}

/// Returns the end of an error message about tracefs: the permission that is needed too. Without this hint, users might
/// make tracefs readable for all, and then find that events are still refused.
fn paranoid_level_hint(spec: &EventSpec, target: &Target, level: i32) -> Option<String> {
    let of_tasks = matches!(target, Target::Processes(_) | Target::Threads(_) | Target::Workload(_));
    if of_tasks && is_of_system_calls(spec) {
        let is = format!(
            "; and kernel.perf_event_paranoid is {level}: tracepoints of system calls need root or CAP_PERFMON"
        );
        return (level > 1).then(|| format!("{is}, or level 1 for your own processes"));
    }
    (level > -1).then(|| {
        format!(
            "; and kernel.perf_event_paranoid is {level}: tracepoints need root, CAP_PERFMON or level -1 (if they \
             are only counted, level 1 for your own processes and level 0 for CPUs)"
        )
    })
}

/// Returns whether the event is a tracepoint of a system call. Every user who may trace a task in the kernel may also
/// use these tracepoints, because they have TRACE_EVENT_FL_CAP_ANY (`include/linux/syscalls.h`,
/// `include/trace/events/syscalls.h`).
fn is_of_system_calls(spec: &EventSpec) -> bool {
    let systems = ["syscalls", "raw_syscalls"];
    matches!(&spec.kind, EventKind::Tracepoint { system, .. } if systems.contains(&system.as_str()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use perf_prof_format::{abi::PERF_COUNT_SW_DUMMY, spec::parse_events};

    use super::*;
    use crate::live::select::resolve;

    fn selected(list: &str) -> Vec<Selected> {
        let plan = Capture { events: parse_events(list).unwrap(), ..Capture::default() };
        resolve(&plan, &Tracefs::at_usual_place()).unwrap().events
    }

    /// The message blames the sysctl only if the sysctl is the cause.
    #[test]
    fn the_level_is_named_only_if_it_is_the_cause() {
        let causes = [(Some(2), false), (Some(1), false), (Some(2), true), (None, false)];
        let causes: Vec<String> =
            causes.iter().map(|&(level, is_capable)| Cause::from_settings(level, is_capable).to_string()).collect();
        assert!(causes[0].starts_with("kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing"));
        assert!(causes[1..].iter().all(|cause| cause.starts_with("the kernel refuses events")), "{causes:?}");
    }

    /// System calls of a user's own processes need only level 1. Other tracepoints and targets need level -1.
    #[test]
    fn system_calls_of_own_processes_need_level_1() {
        let needed = |event: &str, target: &Target, level: i32| {
            let text = paranoid_level_hint(&parse_events(event).unwrap()[0], target, level)?;
            text.contains(&format!("is {level}: ")).then(|| if text.ends_with("your own processes") { 1 } else { -1 })
        };
        let own = Target::Processes(vec![1]);
        for event in ["syscalls:*", "raw_syscalls:sys_enter"] {
            assert_eq!([2, 1, 0, -1].map(|level| needed(event, &own, level)), [Some(1), None, None, None]);
            assert_eq!([2, 0, -1].map(|level| needed(event, &Target::AllCpus, level)), [Some(-1), Some(-1), None]);
        }
        assert_eq!([2, 0, -1].map(|level| needed("sched:*", &own, level)), [Some(-1), Some(-1), None]);
    }

    #[test]
    fn events_of_both_sides_are_limited_to_user_space() {
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
