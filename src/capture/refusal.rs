//! Why the kernel lets somebody not trace something, and what would: `perf_event_open()` says EACCES or EPERM for all of it.

use std::fmt;

use super::{Config, EventRequest, SideBand, Telling, attach::To};
use crate::{
    abi::{PERF_SAMPLE_PHYS_ADDR, PERF_TYPE_TRACEPOINT},
    sys::procfs,
};

/// Why the kernel does not let us trace something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// What is in the way.
    pub cause: Cause,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing that could be seen: the sysctl allows it, or a capability that goes before it is in force.
    Unknown,
    /// The sysctl.
    Level {
        /// What it has to be at most.
        needed: i32,
        /// What is asked of it.
        asks: Asks,
    },
    /// The task is another user's.
    Foreign {
        /// Its thread id.
        tid: u32,
    },
    /// The capability is asked for, whatever the sysctl says.
    Capability {
        /// What for.
        what: &'static str,
    },
}

/// What an event asks of `kernel.perf_event_paranoid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// To sample a tracepoint, whose data are the kernel's.
    Tracepoint,
    /// To see what CPUs do, whoever runs there; alone it would be allowed.
    CpusAlone,
    /// The same, and more.
    Cpus,
    /// To see the kernel.
    Kernel,
    /// To trace at all.
    Anything,
}

/// What is done with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is counted, which tells nothing of a tracepoint's data.
    Counted,
    /// It has samples.
    Sampled,
}

/// What the kernel looks at.
struct Rights {
    paranoid: Option<i32>,
    capable: bool,
    /// A thread of another user that is to be traced.
    foreign: Option<u32>,
}

impl Refusal {
    /// Why `request` was refused where it was to be attached to; `None` where nothing says.
    pub(super) fn of(request: &EventRequest, of_use: Use, to: Option<To<'_>>) -> Refusal {
        let foreign = match to {
            Some(To::Thread(tid)) if procfs::owner(tid) != procfs::owner(std::process::id()) => Some(tid),
            _ => None,
        };
        let rights = Rights { paranoid: procfs::perf_event_paranoid(), capable: procfs::is_perfmon_capable(), foreign };
        Refusal { paranoid: rights.paranoid, cause: cause(request, of_use, to, &rights) }
    }
}

/// Whether an event was refused because it is to tell of namespaces.
pub(super) fn of_namespaces(side_band: &SideBand) -> Option<Refusal> {
    let refused = side_band.namespaces == Telling::Told && !procfs::is_perfmon_capable();
    let cause = Cause::Capability { what: "which namespaces tasks are in is" };
    refused.then(|| Refusal { paranoid: procfs::perf_event_paranoid(), cause })
}

/// The rules are those of `perf_event_open()` in kernel/events/core.c, of `perf_trace_event_perm()` and of
/// `perf_uprobe_event_init()` in kernel/trace/trace_event_perf.c and kernel/events/core.c.
fn cause(request: &EventRequest, of_use: Use, to: Option<To<'_>>, rights: &Rights) -> Cause {
    if rights.capable {
        return Cause::Unknown;
    }
    if matches!(request.event.config1, Config::Text(_)) {
        return Cause::Capability { what: "probes are" };
    }
    let sample_type = request.samples.sample_type;
    let of_kernel = !request.excluded.kernel || sample_type & PERF_SAMPLE_PHYS_ADDR != 0;
    let (needed, asks) = match (request.event.kind, of_use) {
        // Of those that are counted there are no data to see, so they are as any event of the kernel.
        (PERF_TYPE_TRACEPOINT, Use::Sampled) => (-1, Asks::Tracepoint),
        _ if of_kernel => (1, Asks::Kernel),
        _ => (2, Asks::Anything),
    };
    let allows = |needed: i32| rights.paranoid.is_some_and(|level| level <= needed);
    match (to, rights.foreign) {
        (Some(To::Cpu | To::Cgroup(_)), _) if needed > 0 && !allows(0) => {
            Cause::Level { needed: 0, asks: if allows(needed) { Asks::CpusAlone } else { Asks::Cpus } }
        }
        (_, Some(tid)) if allows(needed) => Cause::Foreign { tid },
        _ if allows(needed) => Cause::Unknown,
        _ => Cause::Level { needed, asks },
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.paranoid.map_or("unreadable".to_owned(), |level| level.to_string());
        match self.cause {
            Cause::Unknown => write!(
                f,
                "kernel.perf_event_paranoid is {level} and what is asked for is allowed, so it is an event that the kernel \
                 lets nobody sample (as irq_vectors:irq_work_exit), or a security module or a container's seccomp profile \
                 forbids it"
            ),
            Cause::Foreign { tid } => write!(
                f,
                "task {tid} is another user's, or has more rights than we have, and CAP_PERFMON is missing; run as root, or \
                 as that user"
            ),
            Cause::Capability { what } => write!(
                f,
                "{what} for CAP_PERFMON alone, which is missing; run as root, or give the executable the capability \
                 (`setcap cap_perfmon,cap_dac_read_search+ep`)"
            ),
            Cause::Level { needed, asks } => {
                // Who may sample tracepoints has to find them in tracefs first.
                let capabilities = match asks {
                    Asks::Tracepoint => "cap_perfmon,cap_dac_read_search",
                    _ => "cap_perfmon",
                };
                write!(
                    f,
                    "kernel.perf_event_paranoid is {level} and CAP_PERFMON is missing; run as root, give the executable the \
                     capability (`setcap {capabilities}+ep`), or lower it with `sysctl kernel.perf_event_paranoid={needed}`"
                )?;
                match asks {
                    Asks::CpusAlone => {
                        f.write_str("; your own processes need none of that: name them with -p, or a command")
                    }
                    Asks::Tracepoint | Asks::Cpus | Asks::Kernel | Asks::Anything => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::{
        abi::PERF_TYPE_SOFTWARE,
        capture::{Excluded, PerfEvent},
    };

    fn check(request: &EventRequest, to: Option<To<'_>>, rights: &Rights, expected: Expect) {
        let refusal = Refusal { paranoid: rights.paranoid, cause: cause(request, Use::Sampled, to, rights) };
        expected.assert_eq(&refusal.to_string());
    }

    fn clock(no_kernel: bool) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_SOFTWARE, ..PerfEvent::default() };
        EventRequest {
            excluded: Excluded { kernel: no_kernel, ..Excluded::default() },
            ..EventRequest::new("cpu-clock", event)
        }
    }

    /// It was told to lower it to 0, or to -1 for what is only counted.
    #[test]
    fn a_level_is_named_only_where_a_lower_one_helps() {
        let at = |paranoid: i32, foreign: Option<u32>| Rights { paranoid: Some(paranoid), foreign, ..PLAIN };
        let (tracepoint, own) = (EventRequest::tracepoint("sched:sched_switch", 1), Some(To::Thread(7)));
        let of_kernel = |needed: i32, asks: Asks| Cause::Level { needed, asks };
        let foreign = Cause::Foreign { tid: 7 };
        for (request, of_use, to, rights, expected) in [
            (&clock(false), Use::Sampled, Some(To::Cpu), at(-1, None), Cause::Unknown),
            (&clock(false), Use::Sampled, Some(To::Cpu), at(0, None), Cause::Unknown),
            (&clock(false), Use::Sampled, Some(To::Cpu), at(1, None), of_kernel(0, Asks::CpusAlone)),
            (&tracepoint, Use::Counted, own, at(2, None), of_kernel(1, Asks::Kernel)),
            (&tracepoint, Use::Counted, own, at(1, None), Cause::Unknown),
            (&tracepoint, Use::Counted, own, at(1, Some(7)), foreign.clone()),
            (&tracepoint, Use::Counted, Some(To::Cpu), at(1, None), of_kernel(0, Asks::CpusAlone)),
            (&tracepoint, Use::Counted, Some(To::Cpu), at(0, None), Cause::Unknown),
            (&tracepoint, Use::Sampled, own, at(0, Some(7)), of_kernel(-1, Asks::Tracepoint)),
            (&tracepoint, Use::Sampled, own, at(-1, Some(7)), foreign),
        ] {
            let given = format!("{} {of_use:?} at {:?}", request.name, rights.paranoid);
            assert_eq!(cause(request, of_use, to, &rights), expected, "{given}");
        }
    }

    const PLAIN: Rights = Rights { paranoid: Some(2), capable: false, foreign: None };

    #[test]
    fn what_a_plain_user_lacks_follows_from_what_was_asked_for() {
        let own = Some(To::Thread(7));
        check(
            &clock(false),
            own,
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, give the executable the capability (`setcap cap_perfmon+ep`), or lower it with `sysctl kernel.perf_event_paranoid=1`"
            ],
        );
        check(
            &clock(true),
            Some(To::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, give the executable the capability (`setcap cap_perfmon+ep`), or lower it with `sysctl kernel.perf_event_paranoid=0`; your own processes need none of that: name them with -p, or a command"
            ],
        );
        check(
            &clock(false),
            Some(To::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, give the executable the capability (`setcap cap_perfmon+ep`), or lower it with `sysctl kernel.perf_event_paranoid=0`"
            ],
        );
        check(
            &EventRequest::tracepoint("sched:sched_switch", 1),
            Some(To::Cpu),
            &PLAIN,
            expect![
                "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, give the executable the capability (`setcap cap_perfmon,cap_dac_read_search+ep`), or lower it with `sysctl kernel.perf_event_paranoid=-1`"
            ],
        );
        check(
            &clock(true),
            own,
            &Rights { foreign: Some(7), ..PLAIN },
            expect![
                "task 7 is another user's, or has more rights than we have, and CAP_PERFMON is missing; run as root, or as that user"
            ],
        );
        // Some distributions' kernels know levels above 2, at which nobody may trace anything.
        check(
            &clock(true),
            own,
            &Rights { paranoid: Some(4), ..PLAIN },
            expect![
                "kernel.perf_event_paranoid is 4 and CAP_PERFMON is missing; run as root, give the executable the capability (`setcap cap_perfmon+ep`), or lower it with `sysctl kernel.perf_event_paranoid=2`"
            ],
        );
        check(
            &EventRequest::tracepoint("irq_vectors:irq_work_exit", 1),
            None,
            &Rights { capable: true, ..PLAIN },
            expect![
                "kernel.perf_event_paranoid is 2 and what is asked for is allowed, so it is an event that the kernel lets nobody sample (as irq_vectors:irq_work_exit), or a security module or a container's seccomp profile forbids it"
            ],
        );
    }
}
