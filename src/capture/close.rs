//! Closes many tracepoints without making the user wait.
//!
//! When the last descriptor of a tracepoint is closed, the kernel needs about 40 ms, for one tracepoint after the
//! other: `perf_trace_event_unreg()` in `kernel/trace/trace_event_perf.c` waits until all CPUs have left the
//! tracepoint. A process that exits has to wait for all of its tracepoints. So a child process gets copies of the
//! descriptors, and closes its copies after perf-prof has closed its own. Then only the child has to wait.

use std::{collections::HashSet, os::fd::OwnedFd, sync::Arc};

use perf_prof_format::abi::PERF_TYPE_TRACEPOINT;
use perf_prof_system::close_in_child;

use super::{Capture, EventRequest, open::Descriptor, threads::State};

/// If at most this many different tracepoints are open, perf-prof closes them itself, because nobody notices the delay.
const MAX_CLOSED_DIRECTLY: usize = 4;

/// What is needed to close the events of a capture.
#[derive(Debug)]
pub(super) struct Closing {
    /// The number of different tracepoints that are open.
    tracepoints: usize,
    /// The indices of the events that have a definition in tracefs. The event must be closed before its definition can
    /// be removed.
    defined: Vec<usize>,
}

impl Capture {
    /// Closes some events for good, because BPF programs count them instead. `events` contains the indices of their
    /// requests. The rings stay. Must be called before the capture is started or split, and not for events in groups.
    pub fn close_events(&mut self, events: &[usize]) {
        let State::Idle(reader) = &mut self.reader else { return };
        reader.descriptors = Arc::default();
        let Some(descriptors) = Arc::get_mut(&mut self.descriptors) else { return };
        let is_closed = |descriptor: &Descriptor| descriptor.event.is_some_and(|event| events.contains(&event));
        let places: Vec<usize> = (0..descriptors.len()).filter(|&at| !is_closed(&descriptors[at])).collect();
        let closed = descriptors.extract_if(.., |descriptor| is_closed(descriptor));
        let closed: Vec<OwnedFd> = closed.map(|descriptor| descriptor.into_parts().1).collect();
        // If there is only one event, its program keeps the tracepoint open, so the close is quick. If there are
        // several, some of them may have no program.
        if events.len() > 1 {
            close_in_child::close(closed);
        }
        // The epoll set watches each ring through its dummy event. The dummy event stays, but its index changes.
        reader.watched.iter_mut().for_each(|watched| *watched = places.partition_point(|&place| place < *watched));
        reader.descriptors = Arc::clone(&self.descriptors);
        let closed = self.ids.extract_if(.., |(_, event)| events.contains(event));
        self.closed_ids.extend(closed.map(|(id, _)| id));
    }

    /// Returns the ids of the closed events. Samples with these ids may still arrive: a child that the script has just
    /// forked keeps its copies of the descriptors for a moment.
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

    /// Closes the descriptors, either directly or in a child process. Each descriptor comes with the index of its event
    /// (`None` for a dummy event).
    pub fn close(&self, descriptors: impl Iterator<Item = (Option<usize>, OwnedFd)>) {
        let is_defined = |event: Option<usize>| event.is_some_and(|event| self.defined.contains(&event));
        let descriptors: Vec<OwnedFd> =
            descriptors.filter(|&(event, _)| !is_defined(event)).map(|(_, fd)| fd).collect();
        if self.tracepoints - self.defined.len() > MAX_CLOSED_DIRECTLY {
            close_in_child::close(descriptors);
        }
    }
}
