//! Reads the names of Python functions as soon as a sample is read from its ring. When the sample is delivered, in the order
//! of time, the process may have ended.

use std::sync::Arc;

use perf_prof_capture::{Capture, Preview};
use perf_prof_events::event::{Context, EventType, Sample};
use perf_prof_format::record::{Chunk, EventIds, Record, TrailerLayout};
use perf_prof_system::fork_lock;

use super::select::Selected;

/// Follows the interpreters of processes, and reads the names of the functions that they run.
pub struct ReadAhead {
    context: Arc<Context>,
    ids: EventIds,
    types: Vec<EventType>,
    /// The offset of the time in records other than samples.
    trailer: TrailerLayout,
}

impl ReadAhead {
    /// Creates a value for the samples of a capture.
    pub fn new(context: &Arc<Context>, selected: &[Selected], capture: &Capture) -> ReadAhead {
        let types = selected.iter().enumerate().map(|(at, event)| event.event_type(capture.layout(at))).collect();
        let (ids, trailer) = (EventIds::new(capture.ids()), capture.trailer());
        ReadAhead { context: Arc::clone(context), ids, types, trailer }
    }

    fn record(&self, record: &[u8]) {
        let parsed = Record::parse(record);
        if parsed != Record::Sample {
            return self.context.follow_interpreter(&parsed, self.trailer.time(record).unwrap_or(0));
        }
        let id = self.types.first().and_then(|event| event.layout.id(record));
        let event = id.and_then(|id| self.ids.event(id)).and_then(|at| self.types.get(at));
        if let Some(event) = event {
            self.context.read_functions_ahead(&Sample { event, record });
        }
    }
}

impl Preview for ReadAhead {
    fn look(&mut self, chunk: &Chunk) {
        // A child that a script forks must not find a lock of the context held.
        let _held = fork_lock::hold();
        chunk.records().for_each(|record| self.record(record));
    }
}
