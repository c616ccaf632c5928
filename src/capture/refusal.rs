//! Why the kernel denies permission to trace, and what would help. `perf_event_open()` returns only EACCES or EPERM, so
//! perf-prof finds the reason itself.

use std::fmt;

use perf_prof_format::abi::{PERF_SAMPLE_PHYS_ADDR, PERF_TYPE_TRACEPOINT};
use perf_prof_system::procfs;

use super::{Config, EventRequest, SideBand, SideBandRecords, attach::AttachTo};

/// Why the kernel denies permission to trace something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The value of `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// The reason.
    pub cause: Cause,
}

/// The reason why permission was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No reason was found: the sysctl allows the request, or a capability of the process overrides the sysctl. There
    /// are tracepoints that the kernel lets nobody sample.
    Unknown,
    /// No reason was found, and the event is not a tracepoint. Only something outside of perf can forbid the event, for
    /// example a security module.
    Forbidden,
    /// The sysctl `kernel.perf_event_paranoid` is too high for the request.
    Level {
        /// The highest value of the sysctl that would allow the request.
        needed: i32,
        /// Why the request needs this value.
        needed_for: NeededFor,
    },
    /// The task belongs to another user.
    Foreign {
        /// The task's thread id.
        tid: u32,
    },
    /// CAP_PERFMON is missing. The request needs it whatever the value of the sysctl is.
    Capability {
        /// What needs the capability, for the message: a noun in the plural.
        what: &'static str,
    },
}

/// What needs a lower `kernel.perf_event_paranoid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededFor {
    /// To sample a tracepoint, because its data comes from the kernel.
    Tracepoint,
    /// To trace everything that runs on a CPU. With the present value, the user can trace only their own processes.
    CpusAlone,
    /// To trace everything that runs on a CPU. With the present value, the user cannot trace this event in their own
    /// processes either.
    Cpus,
    /// To trace the kernel.
    Kernel,
    /// To trace anything.
    Anything,
}

/// How an event is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The event is only counted. A count reveals nothing of a tracepoint's data.
    Counted,
    /// The event is sampled.
    Sampled,
}

/// The rights on which the kernel's decision depends.
struct Rights {
    paranoid: Option<i32>,
    capable: bool,
    /// The id of the thread to trace, if the thread belongs to another user.
    foreign: Option<u32>,
}

impl Refusal {
    /// Returns why the kernel refused `request`. `to` is what perf-prof tried to attach the event to; `None` if this is
    /// not known.
    pub(super) fn explain(request: &EventRequest, purpose: Purpose, to: Option<AttachTo<'_>>) -> Refusal {
        let own = procfs::owner(std::process::id());
        let foreign = match to {
            // A thread that has exited has no owner.
            Some(AttachTo::Thread(tid)) if procfs::owner(tid).is_some_and(|owner| Some(owner) != own) => Some(tid),
            _ => None,
        };
        let rights = Rights { paranoid: procfs::perf_event_paranoid(), capable: procfs::is_perfmon_capable(), foreign };
        Refusal { paranoid: rights.paranoid, cause: cause(request, purpose, to, &rights) }
    }
}

/// Returns a refusal if the namespace records are the reason why the kernel refused an event.
pub(super) fn of_namespaces(side_band: &SideBand) -> Option<Refusal> {
    let refused = side_band.namespaces == SideBandRecords::Delivered && !procfs::is_perfmon_capable();
    let cause = Cause::Capability { what: "namespace records" };
    refused.then(|| Refusal { paranoid: procfs::perf_event_paranoid(), cause })
}

/// Finds out why the kernel refused the event, by the rules in `perf_event_open()` and `perf_uprobe_event_init()` in
/// kernel/events/core.c, and in `perf_trace_event_perm()` in kernel/trace/trace_event_perf.c.
fn cause(request: &EventRequest, purpose: Purpose, to: Option<AttachTo<'_>>, rights: &Rights) -> Cause {
    let unknown = if request.event.kind == PERF_TYPE_TRACEPOINT { Cause::Unknown } else { Cause::Forbidden };
    if rights.capable {
        return unknown;
    }
    if matches!(request.event.config1, Config::Text(_)) {
        return Cause::Capability { what: "probes" };
    }
    let sample_type = request.samples.sample_type;
    let of_kernel = !request.excluded.kernel || sample_type & PERF_SAMPLE_PHYS_ADDR != 0;
    let (needed, needed_for) = match (request.event.kind, purpose) {
        // A tracepoint that is only counted reveals no data. So the rules for kernel events apply.
        (PERF_TYPE_TRACEPOINT, Purpose::Sampled) => (-1, NeededFor::Tracepoint),
        _ if of_kernel => (1, NeededFor::Kernel),
        _ => (2, NeededFor::Anything),
    };
    let allows = |needed: i32| rights.paranoid.is_some_and(|level| level <= needed);
    match (to, rights.foreign) {
        (Some(AttachTo::Cpu | AttachTo::Cgroup(..)), _) if needed > 0 && !allows(0) => {
            Cause::Level { needed: 0, needed_for: if allows(needed) { NeededFor::CpusAlone } else { NeededFor::Cpus } }
        }
        (_, Some(tid)) if allows(needed) => Cause::Foreign { tid },
        _ if allows(needed) => unknown,
        _ => Cause::Level { needed, needed_for },
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.paranoid.map_or("unreadable".to_owned(), |level| level.to_string());
        match self.cause {
            Cause::Unknown => write!(
                f,
                "kernel.perf_event_paranoid is {level} and the request is allowed, so either the kernel lets nobody sample \
                 this event (such as irq_vectors:irq_work_exit), or a security module or a container's seccomp profile forbids it"
            ),
            Cause::Forbidden => write!(
                f,
                "kernel.perf_event_paranoid is {level} and the request is allowed, so a security module or a container's \
                 seccomp profile forbids it"
            ),
            Cause::Foreign { tid } => write!(
                f,
                "task {tid} belongs to another user or has more rights than perf-prof, and CAP_PERFMON is missing; run as \
                 root, or as that user"
            ),
            Cause::Capability { what } => write!(
                f,
                "{what} need CAP_PERFMON, which is missing; run as root, or give the capability to {}",
                ForGroup("cap_perfmon")
            ),
            Cause::Level { needed, needed_for } => {
                // To sample tracepoints, the user also needs to read tracefs.
                let capabilities = match needed_for {
                    NeededFor::Tracepoint => "cap_perfmon,cap_dac_read_search",
                    _ => "cap_perfmon",
                };
                write!(
                    f,
                    "kernel.perf_event_paranoid is {level} and CAP_PERFMON is missing; run as root, run `sysctl \
                     kernel.perf_event_paranoid={needed}`, or give the capability to {}",
                    ForGroup(capabilities)
                )?;
                match needed_for {
                    NeededFor::CpusAlone => {
                        f.write_str("; your own processes need none of this: select them with -p, or give a command")
                    }
                    NeededFor::Tracepoint | NeededFor::Cpus | NeededFor::Kernel | NeededFor::Anything => Ok(()),
                }
            }
        }
    }
}

/// The advice to give these capabilities to an executable file. Everybody who may execute the file gets them, so the
/// file must be executable for one group only. chgrp and chmod come first: when the owner or the group of a file
/// changes, the kernel removes the capabilities of the file (capabilities(7)).
struct ForGroup(&'static str);

impl fmt::Display for ForGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForGroup(capabilities) = self;
        write!(
            f,
            "a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap {capabilities}+ep FILE`, where "
        )?;
        f.write_str("FILE is the executable)")
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use perf_prof_format::abi::PERF_TYPE_SOFTWARE;

    use super::*;
    use crate::{Excluded, PerfEvent};

    fn check(request: &EventRequest, to: Option<AttachTo<'_>>, rights: &Rights, expected: Expect) {
        let refusal = Refusal { paranoid: rights.paranoid, cause: cause(request, Purpose::Sampled, to, rights) };
        expected.assert_eq(&refusal.to_string());
    }

    fn clock(no_kernel: bool) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_SOFTWARE, ..PerfEvent::default() };
        EventRequest {
            excluded: Excluded { kernel: no_kernel, ..Excluded::default() },
            ..EventRequest::new("cpu-clock", event)
        }
    }

    /// The message must suggest the highest value that allows the request. So it must not suggest -1 for an event that
    /// is only counted.
    #[test]
    fn the_suggested_level_would_allow_the_request() {
        let at = |paranoid: i32, foreign: Option<u32>| Rights { paranoid: Some(paranoid), foreign, ..PLAIN };
        let (tracepoint, own) = (EventRequest::tracepoint("sched:sched_switch", 1), Some(AttachTo::Thread(7)));
        let of_kernel = |needed: i32, needed_for: NeededFor| Cause::Level { needed, needed_for };
        let foreign = Cause::Foreign { tid: 7 };
        for (request, purpose, to, rights, expected) in [
            (&clock(false), Purpose::Sampled, Some(AttachTo::Cpu), at(-1, None), Cause::Forbidden),
            (&clock(false), Purpose::Sampled, Some(AttachTo::Cpu), at(0, None), Cause::Forbidden),
            (&clock(false), Purpose::Sampled, Some(AttachTo::Cpu), at(1, None), of_kernel(0, NeededFor::CpusAlone)),
            (&tracepoint, Purpose::Counted, own, at(2, None), of_kernel(1, NeededFor::Kernel)),
            (&tracepoint, Purpose::Counted, own, at(1, None), Cause::Unknown),
            (&tracepoint, Purpose::Counted, own, at(1, Some(7)), foreign.clone()),
            (&tracepoint, Purpose::Counted, Some(AttachTo::Cpu), at(1, None), of_kernel(0, NeededFor::CpusAlone)),
            (&tracepoint, Purpose::Counted, Some(AttachTo::Cpu), at(0, None), Cause::Unknown),
            (&tracepoint, Purpose::Sampled, own, at(0, Some(7)), of_kernel(-1, NeededFor::Tracepoint)),
            (&tracepoint, Purpose::Sampled, own, at(-1, Some(7)), foreign),
        ] {
            let given = format!("{} {purpose:?} at {:?}", request.name, rights.paranoid);
            assert_eq!(cause(request, purpose, to, &rights), expected, "{given}");
        }
    }

    const PLAIN: Rights = Rights { paranoid: Some(2), capable: false, foreign: None };

    #[test]
    fn refusals_name_what_the_request_needs() {
        let own = Some(AttachTo::Thread(7));
        check(
            &clock(false),
            own,
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=1`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
            ],
        );
        check(
            &clock(true),
            Some(AttachTo::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=0`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable); your own processes need none of this: select them with -p, or give a command"
            ],
        );
        check(
            &clock(false),
            Some(AttachTo::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=0`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
            ],
        );
        check(
            &EventRequest::tracepoint("sched:sched_switch", 1),
            Some(AttachTo::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=-1`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon,cap_dac_read_search+ep FILE`, where FILE is the executable)"
            ],
        );
        check(
            &clock(true),
            own,
            &Rights { foreign: Some(7), ..PLAIN },
            expect![
                "task 7 belongs to another user or has more rights than perf-prof, and CAP_PERFMON is missing; run as root, or as that user"
            ],
        );
        // The kernels of some distributions have values above 2, with which plain users may trace nothing.
        check(
            &clock(true),
            own,
            &Rights { paranoid: Some(4), ..PLAIN },
            expect![
                "kernel.perf_event_paranoid is 4 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=2`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
            ],
        );
        check(
            &EventRequest::tracepoint("irq_vectors:irq_work_exit", 1),
            None,
            &Rights { capable: true, ..PLAIN },
            expect![
                "kernel.perf_event_paranoid is 2 and the request is allowed, so either the kernel lets nobody sample this event (such as irq_vectors:irq_work_exit), or a security module or a container's seccomp profile forbids it"
            ],
        );
    }
}
