//! Closes many tracepoints without making the user wait.
//!
//! Closing the last descriptor of a tracepoint takes the kernel about 40 ms, one tracepoint after the other
//! (`perf_trace_event_unreg()` in `kernel/trace/trace_event_perf.c` waits until all CPUs have left the tracepoint), and
//! a process that exits waits for all of its own. So a child holds copies of the descriptors: it is the last, and pays
//! instead of us.

use std::collections::HashSet;

use super::{EventRequest, open::Descriptor};
use crate::{abi::PERF_TYPE_TRACEPOINT, sys::holder};

/// So many different tracepoints are closed at once; it is not noticed.
const FEW: usize = 4;

/// How many different tracepoints there are.
pub(super) fn distinct(events: &[EventRequest]) -> usize {
    let tracepoints = events.iter().filter(|event| event.event.kind == PERF_TYPE_TRACEPOINT);
    tracepoints.map(|event| event.event.config).collect::<HashSet<_>>().len()
}

/// Closes the descriptors of `distinct` tracepoints, now or soon.
pub(super) fn close(descriptors: Vec<Descriptor>, distinct: usize) {
    if distinct > FEW {
        holder::close_elsewhere(descriptors.into_iter().map(|descriptor| descriptor.fd).collect());
    }
}
