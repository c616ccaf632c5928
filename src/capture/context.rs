//! Keeps tasks from exchanging their events, which neither probes of programs stand nor being turned on.
//!
//! When a CPU goes from a task to one that has inherited the same events, the kernel exchanges the two tasks' contexts
//! instead of what is on (`perf_event_context_sched_out()` in kernel/events/core.c). Then the events of the one end with
//! the other.
//!
//! A task that is created while events are turned on may inherit them turned off: inherit_event() looks at the creator's
//! state before it waits for the lock that the ioctl holds. With an exchange the creator gets these, and whatever it creates
//! from then on has them off as well. Of 1,000 times that the events of a process were turned on which did nothing but
//! create threads, 50 to 290 left it so; of 12,000 in which contexts were kept, none: then the ioctl and the creator
//! exclude each other by the lock of the creator's own context. Keeping them takes 1.8 us at each switch between such
//! tasks, so it lasts no longer than it has to.
//!
//! And a probe of a program goes by the task that an event was made for: where no event is left of a task whose
//! memory it is, it takes its breakpoints out of that memory (`__uprobe_perf_filter()` in kernel/trace/trace_uprobe.c). So a
//! child whose thread had ended, or a grandchild's parent, came to have no probes any more, nor had its later children.

use std::os::fd::OwnedFd;

use super::{
    Contexts, EventRequest, OfChildren,
    attach::{Attachment, To},
    attr::Follow,
    open::open_event,
};
use crate::{
    abi::{
        PERF_COUNT_SW_DUMMY, PERF_SAMPLE_READ, PERF_SAMPLE_TID, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
        perf_event_attr,
    },
    sys::{CallError, definition::Probed, perf::Attach},
};

/// What keeps tasks' contexts their own.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Held for as long as they are to be kept.
    events: Vec<OwnedFd>,
    until: Until,
    /// Whether it does.
    pub of_children: OfChildren,
}

/// Until when contexts have to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Until {
    /// They need not be: nothing is turned on that has been inherited.
    #[default]
    Opened,
    /// Until the events are on.
    Enabled,
    /// As long as there are events: they are probes, or turned on and off.
    Closed,
}

/// Has each thread of `on`, and all tasks that they create, keep its own context, `until` then, or for as long as inherited
/// probes need it. It has to come before the events are opened.
pub(super) fn keep(events: &[EventRequest], on: &[Attachment<'_>], follow: Follow, until: Until) -> Kept {
    let are_probes = events.iter().any(is_probe_of_a_program);
    let until = if are_probes { Until::Closed } else { until };
    if follow == Follow::Nothing || until == Until::Opened {
        return Kept::default();
    }
    let mut threads: Vec<u32> =
        on.iter().filter_map(|on| if let To::Thread(tid) = on.to { Some(tid) } else { None }).collect();
    threads.sort_unstable();
    threads.dedup();
    let kept = Kept::of(threads.into_iter().map(|tid| open_event(&attr(), Attach::Thread(tid, None), None)));
    let of_children = if are_probes { kept.of_children } else { OfChildren::Complete };
    Kept { until, of_children, ..kept }
}

impl Kept {
    /// The events are on, and inherited so.
    pub fn enabled(&mut self) {
        if self.until == Until::Enabled {
            self.events.clear();
        }
    }

    /// What comes of opening one on each thread. Kernels before Linux 6.12 refuse it, and there nothing can be done.
    fn of(opened: impl Iterator<Item = Result<OwnedFd, CallError>>) -> Kept {
        let mut kept = Kept::default();
        for result in opened {
            match result {
                Ok(fd) => kept.events.push(fd),
                // It has exited and creates no children.
                Err(error) if error.errno() == libc::ESRCH => {}
                Err(_) => kept.of_children = OfChildren::MayBeMissing,
            }
        }
        kept
    }
}

fn is_probe_of_a_program(event: &EventRequest) -> bool {
    let is_file = |probed: &Probed| matches!(probed, Probed::File(..));
    let is_of_program = event.contexts == Contexts::Own
        || event.definition.as_ref().is_some_and(|definition| is_file(&definition.probed));
    event.event.kind == PERF_TYPE_TRACEPOINT && is_of_program
}

/// A context with an inherited event whose samples would read counters is not exchanged, since those have to be the task's
/// own. This one never has a sample.
fn attr() -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_DUMMY.into(),
        sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_READ,
        ..Default::default()
    };
    attr.set_disabled(1);
    attr.set_inherit(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Before Linux 6.12 that was not said at all.
    #[test]
    fn a_kernel_that_lets_no_context_be_kept_is_told_of() {
        let of_children = |errnos: &[i32]| {
            let refused = |&errno: &i32| Err(CallError::new("perf_event_open", io::Error::from_raw_os_error(errno)));
            Kept::of(errnos.iter().map(refused)).of_children
        };
        assert_eq!(of_children(&[]), OfChildren::Complete);
        assert_eq!(of_children(&[libc::ESRCH]), OfChildren::Complete);
        assert_eq!(of_children(&[libc::ESRCH, libc::EINVAL]), OfChildren::MayBeMissing);
    }

    #[test]
    fn a_probe_of_a_program_is_one_whoever_has_defined_it() {
        let tracepoint = EventRequest::tracepoint("uprobes:mine", 1);
        assert!(!is_probe_of_a_program(&tracepoint));
        assert!(is_probe_of_a_program(&EventRequest { contexts: Contexts::Own, ..tracepoint }));
    }
}
