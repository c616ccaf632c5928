//! Where a trace gets its events from: from the queue of its run, or from columns that threads decode from a recording.
//! The first call that takes events decides.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use perf_prof_events::column::Plan;
use perf_prof_recordings::PerfDataError;
use perf_prof_session::{
    recording::columns::{ColumnParts, ColumnRun},
    spine::About,
};
use perf_prof_system::{fork_lock, mutex::Mutex};
use pyo3::prelude::*;

use super::{errors::exception, queue::Queue};

/// The origin of a trace's events. A thread that holds the lock of `state` never waits for the GIL.
pub struct Origin {
    /// True if the events come from the queue. Never becomes false again.
    is_queue: AtomicBool,
    state: Mutex<State>,
}

struct State {
    from: From,
    /// Columns with names of tasks and symbols that the run's context does not contain yet. `None` if the context
    /// contains all names.
    names: Option<Arc<ColumnRun>>,
    is_stopped: bool,
}

enum From {
    /// Not decided yet. The parts are `None` if the recording cannot be decoded in parts.
    Undecided(Option<Box<ColumnParts>>),
    Columns(Arc<ColumnRun>),
    Queue,
}

impl Origin {
    /// Returns the origin of live events: the queue.
    pub fn live() -> Origin {
        let state = State { from: From::Queue, names: None, is_stopped: false };
        Origin { is_queue: true.into(), state: Mutex::new(state) }
    }

    /// Returns the origin for a recording. The run of the recording waits until the program takes events.
    pub fn recording(parts: Option<Box<ColumnParts>>) -> Origin {
        let state = State { from: From::Undecided(parts), names: None, is_stopped: false };
        Origin { is_queue: false.into(), state: Mutex::new(state) }
    }

    /// Switches to the queue. The queue then starts with the first event that the program has not received in a column.
    #[inline]
    pub fn use_queue(&self, py: Python<'_>, queue: &Queue, run: &About) {
        if !self.is_queue.load(Relaxed) {
            py.detach(|| self.start_queue(queue, run));
        }
    }

    #[cold]
    fn start_queue(&self, queue: &Queue, run: &About) {
        let mut state = self.state.lock();
        let skipped = match std::mem::replace(&mut state.from, From::Queue) {
            From::Undecided(_) | From::Queue => 0,
            From::Columns(columns) => {
                let taken = columns.close();
                // The run now reads the recording from its start. So it counts all events again and passes all names to
                // the context.
                run.stats.clear();
                state.names = None;
                taken
            }
        };
        queue.start(skipped);
        self.is_queue.store(true, Relaxed);
    }

    /// Starts threads that decode columns. Returns `None` if the recording cannot be decoded in parts, or if the
    /// program has already taken events.
    pub fn start_columns(
        &self,
        py: Python<'_>,
        plan: &Plan,
        rows: usize,
        run: &About,
    ) -> PyResult<Option<Arc<ColumnRun>>> {
        if self.is_queue.load(Relaxed) || plan.needs_symbols {
            return Ok(None);
        }
        let offset = if plan.needs_realtime { run.context.realtime(0) } else { Some(0) };
        let Some(offset) = offset else { return Ok(None) };
        let started = py.detach(|| {
            let mut state = self.state.lock();
            let State { from: From::Undecided(parts), is_stopped: false, .. } = &mut *state else { return Ok(None) };
            let Some(parts) = parts.take() else { return Ok(None) };
            let columns = Arc::new(ColumnRun::start(*parts, plan.clone(), rows, run.stats.clone(), offset)?);
            state.from = From::Columns(columns.clone());
            state.names = Some(columns.clone());
            Ok(Some(columns))
        });
        started.map_err(|error: PerfDataError| exception(py, &error.into()))
    }

    /// Returns whether the events still come from `columns`.
    pub fn is_columns(&self, columns: &Arc<ColumnRun>) -> bool {
        matches!(&self.state.lock().from, From::Columns(from) if Arc::ptr_eq(from, columns))
    }

    /// Passes the names of tasks and symbols from the columns to the run's context. Does so only once.
    pub fn tell_names(&self, py: Python<'_>, run: &About) -> PyResult<()> {
        if self.is_queue.load(Relaxed) {
            return Ok(());
        }
        let told = py.detach(|| {
            let names = self.state.lock().names.take();
            // Looking up symbols takes locks. If the process forked meanwhile, these locks would stay locked in the
            // child.
            let _held = fork_lock::hold();
            names.map_or(Ok(()), |columns| columns.tell_names(&run.context))
        });
        told.map_err(|error| exception(py, &error.into()))
    }

    /// Lets threads finish the parts that they are decoding. Starts no further parts.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        if let From::Columns(columns) = &state.from {
            columns.stop();
        }
    }

    /// Ends the decoding of columns and its threads.
    pub fn close(&self) {
        if let From::Columns(columns) = &self.state.lock().from {
            columns.close();
        }
    }
}
