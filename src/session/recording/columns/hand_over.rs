//! Passes batches from the threads that decode parts to the program, in the order of the parts.

use std::{
    collections::VecDeque,
    sync::{Condvar, MutexGuard, PoisonError},
    time::Duration,
};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use perf_prof_events::event::{Flow, Stop};
use perf_prof_recordings::PerfDataError;
use perf_prof_system::{budget::Budget, mutex::Mutex};
use thiserror::Error;

use crate::dividing::PartCounts;

/// The maximum memory of all waiting batches, in bytes. The maximum is lower if little memory is available. When the
/// maximum is reached, only the part whose batches the program is taking is still decoded.
const WAITING_BYTES: usize = 24 << 20;

/// A batch of rows.
#[derive(Debug)]
pub struct ColumnBatch {
    /// The rows.
    pub rows: RecordBatch,
    /// The losses that happened before or among the events of the rows. Each loss is between two times: start and end.
    pub lost: Vec<(u64, u64)>,
}

/// Why a part cannot be decoded.
#[derive(Debug, Error)]
pub enum PartError {
    /// The recording is damaged or cannot be read.
    #[error(transparent)]
    Recording(#[from] PerfDataError),
    /// A column has more bytes than Arrow can count.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A defect of perf-prof.
    #[error("internal error: {0}")]
    Panic(String),
}

/// The warnings and losses at the end of a part.
#[derive(Debug, Default)]
pub(super) struct PartEnd {
    pub counts: PartCounts,
    /// Warnings about this part.
    pub warnings: Vec<String>,
    /// The losses after the last row. Each loss is between two times: start and end.
    pub losses: Vec<(u64, u64)>,
}

/// The next item for the program.
#[derive(Debug)]
pub enum Next {
    /// A batch of rows.
    Batch(ColumnBatch),
    /// No item has arrived yet.
    Nothing,
    /// There are no more items.
    End,
    /// A part cannot be decoded. Nothing comes after it.
    Failed(PartError),
}

/// The next item, or the end of a part.
pub(super) enum Taken {
    Batch(ColumnBatch),
    PartEnd(Result<PartEnd, PartError>),
    Nothing,
    End,
    Closed,
}

/// The batches of all parts.
pub(super) struct HandOver {
    state: Mutex<State>,
    /// Notified at each change of the state.
    changed: Condvar,
    /// The maximum number of parts in `begun`.
    ahead: usize,
    /// The limit, in bytes, for the memory of all waiting batches.
    waiting: usize,
}

#[derive(Default)]
struct State {
    /// The parts that a thread has begun and that the program has not taken completely, in their order.
    begun: VecDeque<Begun>,
    /// The number of parts before those in `begun`.
    done: usize,
    /// The number of all parts.
    parts: usize,
    memory: usize,
    /// The number of rows that the program has taken.
    taken: u64,
    is_closed: bool,
}

#[derive(Default)]
struct Begun {
    batches: VecDeque<ColumnBatch>,
    end: Option<Result<PartEnd, PartError>>,
}

fn memory(batch: &ColumnBatch) -> usize {
    batch.rows.get_array_memory_size()
}

impl HandOver {
    /// Creates the object for this many parts. At most `ahead` parts may be begun at a time.
    pub fn new(parts: usize, ahead: usize, budget: &Budget) -> HandOver {
        let waiting = WAITING_BYTES.min(budget.share() / 2);
        HandOver { state: Mutex::new(State { parts, ..State::default() }), changed: Condvar::new(), ahead, waiting }
    }

    fn wait_while(&self, is_to_wait: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.state.lock(), |state| is_to_wait(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the next part that is not decoded yet, and returns its number. Waits while `ahead` parts are begun.
    pub fn begin(&self) -> Option<usize> {
        let is_enough = |state: &State| {
            !state.is_closed && state.begun.len() >= self.ahead && state.done + state.begun.len() < state.parts
        };
        let mut state = self.wait_while(is_enough);
        let part = state.done + state.begun.len();
        if state.is_closed || part >= state.parts {
            return None;
        }
        state.begun.push_back(Begun::default());
        Some(part)
    }

    /// Adds a batch of a part. Waits while too much memory is in use, but not if the program waits for this batch.
    pub fn push(&self, part: usize, batch: ColumnBatch) -> Flow {
        let must_wait = |state: &State| {
            let is_first = part == state.done && state.begun.front().is_some_and(|begun| begun.batches.is_empty());
            !state.is_closed && state.memory > self.waiting && !is_first
        };
        let mut state = self.wait_while(must_wait);
        if state.is_closed {
            return Flow::Break(Stop::Interrupted);
        }
        let at = part - state.done;
        state.memory += memory(&batch);
        if let Some(begun) = state.begun.get_mut(at) {
            begun.batches.push_back(batch);
        }
        drop(state);
        self.changed.notify_all();
        Flow::Continue(())
    }

    /// Stores the end of a part, or the error that ended it.
    pub fn end(&self, part: usize, end: Result<PartEnd, PartError>) {
        let mut state = self.state.lock();
        let at = part - state.done;
        if let Some(begun) = state.begun.get_mut(at) {
            begun.end = Some(end);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the next item. Waits at most for `time`.
    pub fn take(&self, time: Duration) -> Taken {
        let is_idle = |state: &mut State| {
            let is_empty = |begun: &Begun| begun.batches.is_empty() && begun.end.is_none();
            !state.is_closed && state.done < state.parts && state.begun.front().is_none_or(is_empty)
        };
        let (mut state, _) =
            self.changed.wait_timeout_while(self.state.lock(), time, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed || state.done >= state.parts {
            return if state.is_closed { Taken::Closed } else { Taken::End };
        }
        let Some(begun) = state.begun.front_mut() else { return Taken::Nothing };
        let taken = match (begun.batches.pop_front(), begun.end.take()) {
            (Some(batch), end) => {
                begun.end = end;
                state.memory -= memory(&batch);
                state.taken += batch.rows.num_rows() as u64;
                Taken::Batch(batch)
            }
            (None, Some(end)) => {
                state.begun.pop_front();
                state.done += 1;
                Taken::PartEnd(end)
            }
            (None, None) => return Taken::Nothing,
        };
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// Lets no thread claim another part. Parts that were begun are still decoded.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.parts = state.parts.min(state.done + state.begun.len());
        drop(state);
        self.changed.notify_all();
    }

    /// Drops everything. Returns the number of rows that the program has taken.
    pub fn close(&self) -> u64 {
        let mut state = self.state.lock();
        state.is_closed = true;
        let (dropped, taken) = (std::mem::take(&mut state.begun), state.taken);
        drop(state);
        drop(dropped);
        self.changed.notify_all();
        taken
    }
}
