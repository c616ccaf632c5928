//! Prevents the kernel from swapping the perf event contexts of two tasks. A swap breaks uprobes. After a swap, some
//! events may also stay off when they are turned on.
//!
//! When a CPU switches between two tasks that have inherited the same events, the kernel does not switch the events.
//! Instead, the kernel swaps the contexts of the two tasks (`perf_event_context_sched_out()` in kernel/events/core.c).
//! Each task then has the events that were created for the other task. So the events that were created for one task end
//! when the other task exits.
//!
//! A task that is created during the enable ioctl may inherit events that are off: inherit_event() reads the state of
//! the creator's events before it waits for the lock that the ioctl holds. After a swap, the creator itself has these
//! events that are off. Then every task that it creates later inherits events that are off. This was measured on a
//! process that only creates threads. When its events were turned on 1,000 times, some events stayed off in 50 to 290
//! cases. Without swaps, its events were turned on 12,000 times, and no event stayed off: the lock of the creator's own
//! context then keeps the ioctl and the creation of a task apart. Preventing swaps costs 1.8 us at each switch between
//! tasks that have inherited the same events. So swaps are prevented no longer than necessary.
//!
//! A uprobe depends on the task that its event was created for. When no task that uses an address space has an event of
//! the uprobe any more, the kernel removes the uprobe's breakpoints from this address space (`__uprobe_perf_filter()`
//! in kernel/trace/trace_uprobe.c). So after a swap, a child could lose its uprobes when one of its threads exited. A
//! grandchild could lose its uprobes when its parent exited. Children that were created later had no uprobes either.
//!
//! Since Linux 6.12, the kernel does not swap a context that contains an inherited event whose samples contain counts
//! (PERF_SAMPLE_READ). So perf-prof opens such an event for each thread; the event never samples. For `-p` the event is
//! open until the selected events are on. With uprobes, and with `--control` and `--delay`, it is open until the end.
//! Before Linux 6.12 this does not help, and perf-prof only turns the events on several times. With swaps, children
//! lost their uprobes silently: 17 of 17 calls were missed.

use std::os::fd::OwnedFd;

use perf_prof_format::abi::{
    PERF_COUNT_SW_DUMMY, PERF_SAMPLE_READ, PERF_SAMPLE_TID, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};
use perf_prof_system::{CallError, perf::Attach, probe_definition::ProbedCode};

use super::{
    ChildEvents, Contexts, EventRequest,
    attach::{AttachTo, Attachment},
    attr::Follow,
    open::open_event,
};

/// The events that prevent the kernel from swapping the contexts of tasks.
#[derive(Debug, Default)]
pub(super) struct KeptContexts {
    /// The descriptors of these events. They are open as long as swaps have to be prevented.
    events: Vec<OwnedFd>,
    until: KeepUntil,
    /// `Complete` if the kernel can be prevented from swapping contexts. Otherwise, events of children may be missing.
    pub of_children: ChildEvents,
}

/// How long swaps of contexts have to be prevented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeepUntil {
    /// Not at all, because no inherited events are turned on.
    #[default]
    Opened,
    /// Until the events are on.
    Enabled,
    /// As long as the events are open. Used for uprobes, and for events that are turned on and off repeatedly.
    Closed,
}

/// Prevents swaps of the contexts of each thread in `on`, and of each task that these threads create. `until` says for
/// how long; for inherited uprobes it is always [`KeepUntil::Closed`]. Must be called before the events are opened.
pub(super) fn keep(events: &[EventRequest], on: &[Attachment<'_>], follow: Follow, until: KeepUntil) -> KeptContexts {
    let are_probes = events.iter().any(is_probe_of_a_program);
    let until = if are_probes { KeepUntil::Closed } else { until };
    if follow == Follow::Nothing || until == KeepUntil::Opened {
        return KeptContexts::default();
    }
    let mut threads: Vec<u32> =
        on.iter().filter_map(|on| if let AttachTo::Thread(tid) = on.to { Some(tid) } else { None }).collect();
    threads.sort_unstable();
    threads.dedup();
    let kept =
        KeptContexts::from_opened(threads.into_iter().map(|tid| open_event(&attr(), Attach::Thread(tid, None), None)));
    let of_children = if are_probes { kept.of_children } else { ChildEvents::Complete };
    KeptContexts { until, of_children, ..kept }
}

impl KeptContexts {
    /// Called when the events and all their inherited copies are on.
    pub fn enabled(&mut self) {
        if self.until == KeepUntil::Enabled {
            self.events.clear();
        }
    }

    /// Collects the results of opening an event from [`attr`] on each thread. Kernels before Linux 6.12 refuse this
    /// event; on these kernels, nothing prevents swaps.
    fn from_opened(opened: impl Iterator<Item = Result<OwnedFd, CallError>>) -> KeptContexts {
        let mut kept = KeptContexts::default();
        for result in opened {
            match result {
                Ok(fd) => kept.events.push(fd),
                // The thread has exited, so it creates no more children.
                Err(error) if error.errno() == libc::ESRCH => {}
                Err(_) => kept.of_children = ChildEvents::MayBeMissing,
            }
        }
        kept
    }
}

fn is_probe_of_a_program(event: &EventRequest) -> bool {
    let is_file = |probed: &ProbedCode| matches!(probed, ProbedCode::File(_));
    let is_of_program = event.contexts == Contexts::Own
        || event.definition.as_ref().is_some_and(|definition| is_file(&definition.probed));
    event.event.kind == PERF_TYPE_TRACEPOINT && is_of_program
}

/// Returns the attr of an event that prevents swaps of its context. The kernel does not swap a context that contains an
/// inherited event with PERF_SAMPLE_READ, because the counts in its samples have to stay with their task. This event
/// never samples.
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

    /// Kernels before Linux 6.12 refuse the event that prevents swaps. A message then has to say that events may be
    /// missing.
    #[test]
    fn a_kernel_that_cannot_keep_contexts_is_reported() {
        let of_children = |errnos: &[i32]| {
            let refused = |&errno: &i32| Err(CallError::new("perf_event_open", io::Error::from_raw_os_error(errno)));
            KeptContexts::from_opened(errnos.iter().map(refused)).of_children
        };
        assert_eq!(of_children(&[]), ChildEvents::Complete);
        assert_eq!(of_children(&[libc::ESRCH]), ChildEvents::Complete);
        assert_eq!(of_children(&[libc::ESRCH, libc::EINVAL]), ChildEvents::MayBeMissing);
    }

    #[test]
    fn probes_defined_by_others_count_as_probes() {
        let tracepoint = EventRequest::tracepoint("uprobes:mine", 1);
        assert!(!is_probe_of_a_program(&tracepoint));
        assert!(is_probe_of_a_program(&EventRequest { contexts: Contexts::Own, ..tracepoint }));
    }
}
