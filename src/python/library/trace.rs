//! `Trace`: the events of a live run or of a recording, one after the other.

use std::{os::fd::RawFd, sync::Arc, time::Instant};

use perf_prof_events::column::Plan;
use perf_prof_session::{engine::ExitStatus, plan::RunPlan, recording::columns::ColumnRun, spine::About};
use perf_prof_system::mutex::Mutex;
use pyo3::{
    exceptions::PyResourceWarning,
    gc::{PyTraverseError, PyVisit},
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{
    background::LOOK_FOR_SIGNALS,
    columns::{Batches, ROWS},
    errors::{exception, named},
    forks::Generation,
    messages, options,
    origin::Origin,
    queue::{Delivery, Entry, EventBatch, Queue, Taken},
    run_thread::{Enabling, Opened, Opening, RunThread},
};
use crate::script::{EventClass, Table, ksym_of, stats_of, usym_of};

/// Opens events, or the recording `input`, and starts to deliver them. `options` are keyword arguments of
/// `perf_prof.trace` or `perf_prof.replay`, and `forms` maps each possible keyword to the types that its value may
/// have.
#[pyfunction]
#[pyo3(signature = (selectors, options, forms, input = None))]
pub fn open_trace(
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
    input: Option<&Bound<'_, PyAny>>,
) -> PyResult<Trace> {
    let function = if input.is_some() { "replay" } else { "trace" };
    let on_lost = options.get_item("on_lost")?.filter(|on_lost| !on_lost.is_none());
    let plan = options::plan(function, input, options::Arguments { selectors, keywords: options, forms })?;
    Trace::open(selectors.py(), plan, on_lost.map(Bound::unbind))
}

/// The events of a live run or of a recording: an iterator of PerfEvent, a context manager, and for asyncio an
/// asynchronous iterator.
///
/// Iteration waits without the GIL. Ctrl-C raises KeyboardInterrupt. Iteration ends when the traced tasks, the
/// command or the recording end, or after stop(). An event may be kept longer than its trace. Several threads may
/// use a trace.
#[pyclass(module = "perf_prof", frozen, weakref)]
pub struct Trace {
    queue: Arc<Queue>,
    run: Arc<About>,
    classes: Vec<EventClass>,
    on_lost: Mutex<Option<Py<PyAny>>>,
    /// The id of the process that opened the trace, for messages.
    pid: u32,
    generation: Generation,
    thread: Mutex<RunThread>,
    origin: Origin,
    /// The batch that was taken from the queue, and the number of events that the program has received.
    taken: Mutex<TakenEvents>,
}

#[derive(Default)]
struct TakenEvents {
    batch: EventBatch,
    /// The index of the first entry that has not been delivered yet.
    next: usize,
    delivered: u64,
    state: Progress,
    /// The exit status; `None` until the run has ended.
    status: Option<u8>,
    /// An exception that the next call will raise. The call that met the exception returned the events that came before
    /// it.
    pending: Option<PyErr>,
}

/// The state of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Open,
    /// All events have been delivered.
    Ended,
    /// The program has closed the trace.
    Closed,
}

/// The result of a wait.
pub enum Waited {
    /// `taken` contains entries.
    Entries,
    /// The time is over, and `taken` contains no entries.
    Timeout,
    /// There are no more events.
    End,
}

impl Trace {
    fn open(py: Python<'_>, plan: RunPlan, on_lost: Option<Py<PyAny>>) -> PyResult<Trace> {
        let delivery = if plan.input().is_some() { Delivery::WhenAsked } else { Delivery::AtOnce };
        let mut thread = open_run(py, plan, delivery)?;
        let classes = thread.run.events.iter().map(|event| EventClass::of(py, event, &thread.run.context));
        let trace = Trace {
            queue: thread.queue.clone(),
            run: thread.run.clone(),
            classes: classes.collect::<PyResult<_>>()?,
            on_lost: Mutex::new(on_lost),
            pid: std::process::id(),
            generation: Generation::current(),
            origin: match delivery {
                Delivery::AtOnce => Origin::live(),
                Delivery::WhenAsked => Origin::recording(thread.parts.take()),
            },
            thread: Mutex::new(thread),
            taken: Mutex::default(),
        };
        messages::warn(py)?;
        Ok(trace)
    }

    /// Returns at most `limit` events that wait for the program. Waits for the first event until `until`. If an
    /// exception occurs after the first event, this call returns the events before the exception, and the next call
    /// raises the exception.
    fn take<'py>(
        &self,
        py: Python<'py>,
        until: Option<Instant>,
        limit: usize,
    ) -> PyResult<(Bound<'py, PyList>, Waited)> {
        self.check_process(py)?;
        let events = PyList::empty(py);
        // Takes only the batches that are in the queue when the first event arrives. Otherwise new batches could make
        // the list endless.
        let mut batches = None;
        loop {
            let next = self.next_taken(py).and_then(|event| match event {
                Some(event) => events.append(event).map(|()| None),
                None if batches == Some(0) => Ok(Some(Waited::Entries)),
                None => {
                    let until = if events.is_empty() { until } else { Some(Instant::now()) };
                    let waited = self.wait(py, until)?;
                    let left = batches.get_or_insert_with(|| self.queue.waiting() + 1);
                    *left -= 1;
                    Ok(if let Waited::Entries = waited { None } else { Some(waited) })
                }
            });
            match next {
                Ok(None) if events.len() < limit => {}
                Ok(waited) => return Ok((events, waited.unwrap_or(Waited::Entries))),
                Err(error) if events.is_empty() => return Err(error),
                Err(error) => {
                    self.taken.lock().pending = Some(error);
                    return Ok((events, Waited::Entries));
                }
            }
        }
    }

    /// Fails in a forked child, because the run's thread exists only in the parent.
    pub fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.generation.is_this() {
            return Ok(());
        }
        let text = format!(
            "this trace is closed here: process {} opened it, and this is a forked child; open another trace in the child",
            self.pid
        );
        Err(named(py, "ClosedError", &text))
    }

    /// Fails if the program has closed the trace. `__next__` does not use this check but ends the iteration, because
    /// another thread may close the trace at any time.
    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        if self.taken.lock().state == Progress::Closed {
            return Err(named(py, "ClosedError", "this trace is closed"));
        }
        Ok(())
    }

    /// Waits for entries until `until`, without the GIL. Signal handlers of the program can run meanwhile.
    pub fn wait(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Waited> {
        self.check_process(py)?;
        self.origin.use_queue(py, &self.queue, &self.run);
        loop {
            let state = {
                let mut taken = self.taken.lock();
                if let Some(error) = taken.pending.take() {
                    return Err(error);
                }
                if taken.next < taken.batch.entries.len() {
                    return Ok(Waited::Entries);
                }
                if taken.state == Progress::Open {
                    match self.queue.take() {
                        Taken::Batch(batch) => {
                            (taken.batch, taken.next) = (batch, 0);
                            drop(taken);
                            messages::warn(py)?;
                            return Ok(Waited::Entries);
                        }
                        Taken::Nothing => {}
                        Taken::End => taken.state = Progress::Ended,
                    }
                }
                taken.state
            };
            if state != Progress::Open {
                self.finish(py)?;
                return Ok(Waited::End);
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Ok(Waited::Timeout);
            }
            let next_look = now + LOOK_FOR_SIGNALS;
            py.detach(|| self.queue.wait(until.map_or(next_look, |until| until.min(next_look))));
            py.check_signals()?;
        }
    }

    /// Called when there are no more events. The first call raises the error that ended the run, if there is one.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let end = py.detach(|| self.thread.lock().end());
        messages::warn(py)?;
        match end {
            Some(Err(error)) => Err(exception(py, &error)),
            Some(Ok(ExitStatus(status))) => {
                self.taken.lock().status = Some(status);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Starts threads that decode the columns of `plan`. Returns `None` if the recording cannot be decoded in parts, or
    /// if the program has already taken events.
    pub fn start_columns(&self, py: Python<'_>, plan: &Plan, rows: usize) -> PyResult<Option<Arc<ColumnRun>>> {
        self.origin.start_columns(py, plan, rows, &self.run)
    }

    /// Returns whether the events still come from `columns`.
    pub fn is_of_columns(&self, columns: &Arc<ColumnRun>) -> bool {
        self.origin.is_columns(columns)
    }

    /// Adds the rows of columns to the number of delivered events.
    pub fn count_rows(&self, rows: usize) {
        self.taken.lock().delivered += rows as u64;
    }

    /// Called after the last columns.
    pub fn end_columns(&self, py: Python<'_>) {
        {
            let mut taken = self.taken.lock();
            if taken.state == Progress::Open {
                taken.state = Progress::Ended;
            }
        }
        self.queue.requests.end_now();
        self.queue.close();
        py.detach(|| {
            self.origin.close();
            self.thread.lock().close();
        });
    }

    /// Returns the run of this trace.
    pub fn run(&self) -> &Arc<About> {
        &self.run
    }

    /// Takes the batch out of the trace. Also returns the index of the first entry that has not been delivered yet.
    pub fn take_batch(&self) -> (EventBatch, usize) {
        let mut taken = self.taken.lock();
        (std::mem::take(&mut taken.batch), std::mem::take(&mut taken.next))
    }

    /// Puts a batch back into the trace. The entries before `next` have been delivered, among them `samples` events. If
    /// another thread has put back a batch in the meantime, returns this batch to the caller.
    pub fn put_back(&self, batch: EventBatch, next: usize, samples: usize) -> Option<(EventBatch, usize)> {
        let mut taken = self.taken.lock();
        taken.delivered += samples as u64;
        match taken.state {
            Progress::Closed => None,
            _ if taken.next < taken.batch.entries.len() => (next < batch.entries.len()).then_some((batch, next)),
            _ => {
                (taken.batch, taken.next) = (batch, next);
                None
            }
        }
    }

    /// Calls `on_lost`, if there is one.
    pub fn tell_lost(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<()> {
        let on_lost = self.on_lost.lock().as_ref().map(|on_lost| on_lost.clone_ref(py));
        on_lost.map_or(Ok(()), |on_lost| on_lost.call1(py, (start, end)).map(|_| ()))
    }

    /// Returns the next event of the batch. Calls `on_lost` for each loss before this event.
    fn next_taken(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            let mut taken = self.taken.lock();
            let Some(&entry) = taken.batch.entries.get(taken.next) else { return Ok(None) };
            taken.next += 1;
            match entry {
                Entry::Sample { event, start, size } => {
                    taken.delivered += 1;
                    return self.classes[event as usize].event(py, taken.batch.record(start, size)).map(Some);
                }
                Entry::Lost { start, end } => {
                    drop(taken);
                    self.tell_lost(py, start, end)?;
                }
                Entry::Interval | Entry::Other { .. } => {}
            }
        }
    }
}

#[pymethods]
impl Trace {
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().check_open(slf.py())?;
        Ok(slf)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.check_process(py)?;
        loop {
            if let Some(event) = self.next_taken(py)? {
                return Ok(Some(event));
            }
            if let Waited::End = self.wait(py, None)? {
                return Ok(None);
            }
        }
    }

    /// Returns a list of all events that are there. Waits for the first one, at most timeout seconds. The list is
    /// empty after that time, and at the end. Raises ClosedError after close().
    #[pyo3(signature = (timeout = None))]
    fn read<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        self.check_open(py)?;
        Ok(self.take(py, options::timeout(timeout)?, usize::MAX)?.0)
    }

    /// Returns at most `limit` events that are there, or None after the end. Does not wait.
    fn _take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        let (events, waited) = self.take(py, Some(Instant::now()), limit)?;
        Ok(if matches!(waited, Waited::End) && events.is_empty() { None } else { Some(events) })
    }

    /// Returns an iterator of Batch: some rows, with a column for each name. Each batch has `rows` events; the last one has
    /// fewer. A large recording is decoded in parts, and the last batch of each part may have fewer too. With `every`, in
    /// seconds, a batch also ends after this time if it has events. Without columns, there is a column for each field.
    #[pyo3(signature = (columns = None, *, rows = 65536, every = None))]
    fn batches(
        slf: Py<Self>,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        rows: usize,
        every: Option<f64>,
    ) -> PyResult<Batches> {
        Batches::new(py, slf, columns.as_deref(), rows, every)
    }

    /// Returns all events until the end as a Table, with a column for each name. Without columns, there is a column for each
    /// field.
    #[pyo3(signature = (columns = None))]
    fn table(slf: Py<Self>, py: Python<'_>, columns: Option<Vec<String>>) -> PyResult<Table> {
        Batches::new(py, slf, columns.as_deref(), ROWS, None)?.table(py)
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().check_open(slf.py())?;
        slf.py().import("perf_prof._asyncio")?.call_method1("events_of", (slf,))
    }

    /// Returns a descriptor for select() and poll(). It is readable when there are events, and at the end. It can
    /// also be readable when there is nothing; then read(0) returns an empty list.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.check_open(py)?;
        self.origin.use_queue(py, &self.queue, &self.run);
        Ok(self.queue.ready_fd())
    }

    /// Ends the trace after the events that were recorded until now: iteration delivers them and ends. Any thread
    /// and any signal handler may call it.
    fn stop(&self) {
        if self.generation.is_this() {
            self.queue.requests.end();
            self.origin.stop();
        }
    }

    /// Ends the trace at once, and drops what was recorded. Further calls have no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.generation.is_this() {
            return Ok(());
        }
        let dropped = {
            let mut taken = self.taken.lock();
            (taken.state, taken.next) = (Progress::Closed, 0);
            std::mem::take(&mut taken.batch)
        };
        drop(dropped);
        // The queue is ended before the lock of the thread is taken. Another thread may hold this lock while it waits
        // for the end of the run.
        self.queue.requests.end_now();
        self.queue.close();
        let end = py.detach(|| {
            self.origin.close();
            let mut thread = self.thread.lock();
            thread.close();
            thread.end()
        });
        if let Some(Ok(ExitStatus(status))) = end {
            self.taken.lock().status = Some(status);
        }
        messages::warn(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The garbage collector may run while another method holds the lock. While a method runs, the object is in use,
        // so it need not be visited.
        self.on_lost.try_lock().map_or(Ok(()), |on_lost| visit.call(&*on_lost))
    }

    fn __clear__(&self) {
        let dropped = self.on_lost.lock().take();
        drop(dropped);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    /// the number of events that were delivered so far
    #[getter]
    fn delivered(&self) -> u64 {
        self.taken.lock().delivered
    }

    /// the number of events that were lost so far; exact when the iteration has ended
    #[getter]
    fn lost(&self) -> u64 {
        self.run.stats.total_lost()
    }

    /// the exit status of the command of exec, or 0 without one, when all events were delivered; None before. 128 and the
    /// signal's number if a signal ended the command
    #[getter]
    fn status(&self) -> Option<u8> {
        self.taken.lock().status
    }

    /// True after close() and after the with statement, and in a forked child
    #[getter]
    fn closed(&self) -> bool {
        !self.generation.is_this() || self.taken.lock().state == Progress::Closed
    }

    /// Returns the counts so far, as perf_prof.stats() does in a script. Delivered events may still wait for the
    /// program, so their number can be higher than that of `delivered`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_of(py, &self.run)
    }

    /// Returns 'symbol+0xoffset' for a kernel address of this trace, or '0x...' if it has no symbol.
    fn ksym(&self, py: Python<'_>, addr: u64) -> PyResult<String> {
        self.origin.tell_names(py, &self.run)?;
        Ok(ksym_of(&self.run, addr))
    }

    /// Returns 'symbol+0xoffset' for an address in a process of this trace, 'dso+0xoffset' if there is no symbol,
    /// and '0x...' if nothing is mapped at the address.
    fn usym(&self, py: Python<'_>, pid: u32, addr: u64) -> PyResult<String> {
        self.origin.tell_names(py, &self.run)?;
        Ok(usym_of(&self.run, pid, addr))
    }

    /// Returns True if pid, tid or exec of this trace selects the thread tid, or if none of them is given. Use it with
    /// all_cpus=True, which delivers the events of all tasks.
    fn is_target(&self, py: Python<'_>, tid: i32) -> PyResult<bool> {
        self.origin.tell_names(py, &self.run)?;
        Ok(self.run.context.is_target(tid))
    }

    /// Returns the process id of the thread tid, or None if this trace does not know it.
    fn process_of(&self, py: Python<'_>, tid: i32) -> PyResult<Option<i32>> {
        self.origin.tell_names(py, &self.run)?;
        Ok(self.run.context.process(tid))
    }

    fn __repr__(&self) -> String {
        let names: Vec<String> = self.run.events.iter().map(|event| event.shown_name()).collect();
        let state = match self.taken.lock().state {
            Progress::Open => "open",
            Progress::Ended => "ended",
            Progress::Closed => "closed",
        };
        format!("<perf_prof.Trace of {}, {state}>", names.join(", "))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let thread = self.thread.get_mut();
        if !self.generation.is_this() {
            return thread.forget();
        }
        let taken = self.taken.get_mut();
        let was_open = taken.state == Progress::Open;
        Python::attach(|py| {
            let raised = PyErr::take(py);
            if was_open {
                let text = c"a perf_prof.Trace was not closed; use it in a with statement, or call close()";
                if let Err(error) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), text, 1) {
                    error.write_unraisable(py, None);
                }
            }
            py.detach(|| {
                self.origin.close();
                thread.close();
            });
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

/// Starts a run and waits until its events are enabled.
pub fn open_run(py: Python<'_>, plan: RunPlan, delivery: Delivery) -> PyResult<RunThread> {
    messages::collect();
    let opening = Opening::start(plan, delivery, Enabling::AtOnce).map_err(|error| exception(py, &error))?;
    wait_for(py, opening)
}

/// Waits until the events of a run are enabled.
pub fn wait_for(py: Python<'_>, mut opening: Opening) -> PyResult<RunThread> {
    loop {
        match py.detach(move || opening.wait(LOOK_FOR_SIGNALS)) {
            Opened::Now(opened) => return opened.map_err(|error| exception(py, &error)),
            Opened::Later(later) => opening = later,
        }
        if let Err(raised) = py.check_signals() {
            opening.abandon();
            return Err(raised);
        }
    }
}
