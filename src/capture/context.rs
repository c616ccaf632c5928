//! Keeps tasks from exchanging their events, which probes of programs do not stand.
//!
//! When a CPU goes from a task to one that has inherited the same events, the kernel exchanges the two tasks' contexts
//! instead of what is on (`perf_event_context_sched_out()` in kernel/events/core.c). Then the events of the one end with
//! the other. But a probe of a program goes by the task that an event was made for: where no event is left of a task whose
//! memory it is, it takes its breakpoints out of that memory (`__uprobe_perf_filter()` in kernel/trace/trace_uprobe.c). So a
//! child whose thread had ended, or a grandchild's parent, came to have no probes any more, nor had its later children.

use std::os::fd::OwnedFd;

use super::{
    EventRequest,
    attach::{Attachment, To},
    attr::Follow,
    open::open_event,
};
use crate::{
    abi::{
        PERF_COUNT_SW_DUMMY, PERF_SAMPLE_READ, PERF_SAMPLE_TID, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
        perf_event_attr,
    },
    sys::{definition::Probed, perf::Attach},
};

/// Has each thread of `on`, and all tasks that they create, keep its own context, when events are inherited that need it.
/// It has to come before these are opened, and to stay as long.
pub(super) fn keep(events: &[EventRequest], on: &[Attachment<'_>], follow: Follow) -> Vec<OwnedFd> {
    if follow == Follow::Nothing || !events.iter().any(is_probe_of_a_program) {
        return Vec::new();
    }
    let mut threads: Vec<u32> =
        on.iter().filter_map(|on| if let To::Thread(tid) = on.to { Some(tid) } else { None }).collect();
    threads.sort_unstable();
    threads.dedup();
    // Kernels before Linux 6.12 refuse it; there nothing can be done.
    threads.into_iter().filter_map(|tid| open_event(&attr(), Attach::Thread(tid, None), None).ok()).collect()
}

fn is_probe_of_a_program(event: &EventRequest) -> bool {
    let is_file = |probed: &Probed| matches!(probed, Probed::File(..));
    event.event.kind == PERF_TYPE_TRACEPOINT && event.definition.as_ref().is_some_and(|found| is_file(&found.probed))
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
