//! Closes many tracepoints without making the user wait.
//!
//! Closing the last descriptor of a tracepoint takes the kernel about 40 ms, for one tracepoint after the other
//! (`perf_trace_event_unreg()` in `kernel/trace/trace_event_perf.c` waits until all CPUs have left the tracepoint). A
//! process that exits has to wait for all of its tracepoints. So a child process gets copies of the descriptors and
//! closes its copies after perf-prof has closed its own. Then only the child has to wait.

use std::{collections::HashSet, os::fd::OwnedFd, sync::Arc};

use perf_prof_format::abi::PERF_TYPE_TRACEPOINT;
use perf_prof_system::close_in_child;

use super::{Capture, EventRequest, open::Descriptor, threads::State};

/// If at most this many different tracepoints are open, perf-prof closes them itself. The delay is too short to notice.
const MAX_CLOSED_DIRECTLY: usize = 4;

/// The facts that are needed to close the events of a capture.
#[derive(Debug)]
pub(super) struct Closing {
    /// The number of different tracepoints.
    tracepoints: usize,
    /// The indices of the events that have a definition in tracefs. A definition can be removed only after its event is
    /// closed.
    defined: Vec<usize>,
}

impl Capture {
    /// Closes some events for good, because BPF programs count them instead. `events` are the indices of their
    /// requests. The rings stay. Must be called before anything is started or split, and not for events in groups.
    pub fn close_events(&mut self, events: &[usize]) {
        let State::Idle(reader) = &mut self.reader else { return };
        reader.descriptors = Arc::default();
        let Some(descriptors) = Arc::get_mut(&mut self.descriptors) else { return };
        let is_closed = |descriptor: &Descriptor| descriptor.event.is_some_and(|event| events.contains(&event));
        let places: Vec<usize> = (0..descriptors.len()).filter(|&at| !is_closed(&descriptors[at])).collect();
        let closed = descriptors.extract_if(.., |descriptor| is_closed(descriptor));
        let closed: Vec<OwnedFd> = closed.map(|descriptor| descriptor.into_parts().1).collect();
        // If there is a single event, its program keeps the tracepoint open, so closing the event is quick. Of several
        // events, some may have no program of their own.
        if events.len() > 1 {
            close_in_child::close(closed);
        }
        // Each ring is watched through its dummy, which stays but gets a new index.
        reader.watched.iter_mut().for_each(|watched| *watched = places.partition_point(|&place| place < *watched));
        reader.descriptors = Arc::clone(&self.descriptors);
        let closed = self.ids.extract_if(.., |(_, event)| events.contains(event));
        self.closed_ids.extend(closed.map(|(id, _)| id));
    }

    /// Returns the ids of the closed events. They may still have samples: a child that the script forked meanwhile keeps
    /// its copies of the descriptors for a moment.
    pub fn closed_ids(&self) -> &[u64] {
        &self.closed_ids
    }
}

impl Closing {
    pub fn for_events(events: &[EventRequest]) -> Closing {
        let tracepoints = || events.iter().enumerate().filter(|(_, event)| event.event.kind == PERF_TYPE_TRACEPOINT);
        Closing {
            tracepoints: tracepoints().map(|(_, event)| event.event.config).collect::<HashSet<_>>().len(),
            defined: tracepoints().filter(|(_, event)| event.definition.is_some()).map(|(index, _)| index).collect(),
        }
    }

    /// Closes the descriptors, either directly or in a child process. Each descriptor comes with the index of its
    /// event.
    pub fn close(&self, descriptors: impl Iterator<Item = (Option<usize>, OwnedFd)>) {
        let is_defined = |event: Option<usize>| event.is_some_and(|event| self.defined.contains(&event));
        let descriptors: Vec<OwnedFd> =
            descriptors.filter(|&(event, _)| !is_defined(event)).map(|(_, fd)| fd).collect();
        if self.tracepoints - self.defined.len() > MAX_CLOSED_DIRECTLY {
            close_in_child::close(descriptors);
        }
    }
}
