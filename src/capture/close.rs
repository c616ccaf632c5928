//! Closes many tracepoints without making the user wait.
//!
//! Closing the last descriptor of a tracepoint takes the kernel about 40 ms, one tracepoint after the other
//! (`perf_trace_event_unreg()` in `kernel/trace/trace_event_perf.c` waits until all CPUs have left the tracepoint), and
//! a process that exits waits for all of its own. So a child holds copies of the descriptors until we have exited, and
//! pays instead of us.

use std::{collections::HashSet, os::fd::AsRawFd};

use super::{EventRequest, open::Descriptor};
use crate::sys::holder;

/// So many different tracepoints are closed at once; it is not noticed.
const FEW: usize = 4;

/// How many different tracepoints there are.
pub(super) fn distinct(events: &[EventRequest]) -> usize {
    events.iter().map(|event| event.tracepoint).collect::<HashSet<_>>().len()
}

/// Closes the descriptors of `distinct` tracepoints, now or soon.
pub(super) fn close(descriptors: Vec<Descriptor>, distinct: usize) {
    if distinct <= FEW {
        return;
    }
    let all: Vec<_> = descriptors.iter().map(|descriptor| descriptor.fd.as_raw_fd()).collect();
    if holder::hold_until_exit(&all).is_ok() {
        // Ours stay open until we exit: closing them now would be quick, as there are others, but is not needed, and
        // where the child is killed it would be slow.
        std::mem::forget(descriptors);
    }
}
