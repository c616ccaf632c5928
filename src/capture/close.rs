//! Closes many tracepoints without making the user wait.
//!
//! Closing the last descriptor of a tracepoint takes the kernel about 40 ms, one tracepoint after the other
//! (`perf_trace_event_unreg()` in `kernel/trace/trace_event_perf.c` waits until all CPUs have left the tracepoint), and
//! a process that exits waits for all of its own. So a child holds copies of the descriptors: it is the last, and pays
//! instead of us.

use std::{collections::HashSet, os::fd::OwnedFd};

use super::EventRequest;
use crate::{abi::PERF_TYPE_TRACEPOINT, sys::holder};

/// So many different tracepoints are closed at once; it is not noticed.
const FEW: usize = 4;

/// How events are closed.
#[derive(Debug)]
pub(super) struct Closing {
    /// How many different tracepoints there are.
    tracepoints: usize,
    /// The events whose definition can be removed only when they are closed.
    defined: Vec<usize>,
}

impl Closing {
    pub fn of(events: &[EventRequest]) -> Closing {
        let tracepoints = || events.iter().enumerate().filter(|(_, event)| event.event.kind == PERF_TYPE_TRACEPOINT);
        Closing {
            tracepoints: tracepoints().map(|(_, event)| event.event.config).collect::<HashSet<_>>().len(),
            defined: tracepoints().filter(|(_, event)| event.definition.is_some()).map(|(index, _)| index).collect(),
        }
    }

    /// Closes the descriptors, now or soon. Each comes with the event that it is of.
    pub fn close(&self, descriptors: impl Iterator<Item = (Option<usize>, OwnedFd)>) {
        let is_defined = |event: Option<usize>| event.is_some_and(|event| self.defined.contains(&event));
        let descriptors: Vec<OwnedFd> =
            descriptors.filter(|&(event, _)| !is_defined(event)).map(|(_, fd)| fd).collect();
        if self.tracepoints - self.defined.len() > FEW {
            holder::close_elsewhere(descriptors);
        }
    }
}
