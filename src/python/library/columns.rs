//! `Batches`: the events of a trace as columns, some thousand rows at a time.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use perf_prof_events::{
    column::{BatchLimit, Columns, Plan, Row},
    event::Context,
};
use perf_prof_session::recording::columns::{ColumnBatch, ColumnRun, Next, PartError};
use perf_prof_system::{fork_lock, memory, mutex::Mutex};
use pyo3::{
    exceptions::{PyMemoryError, PyRuntimeError, PyValueError},
    gc::{PyTraverseError, PyVisit},
    prelude::*,
    types::PyCapsule,
};

use super::{
    background::{Internal, LOOK_FOR_SIGNALS},
    errors::{exception, named},
    messages,
    queue::{Entry, EventBatch},
    trace::{Trace, Waited},
};
use crate::script::{Batch, Table, stream_capsule};

/// The default number of rows of a batch.
pub const ROWS: usize = 1 << 16;

/// A table must leave memory free on the machine and in the cgroup: half of the run's memory budget, but at least
/// `LEAST_RESERVE` and at most `MOST_RESERVE` bytes.
const LEAST_RESERVE: usize = 32 << 20;
const MOST_RESERVE: usize = 1 << 30;

/// The batches of a trace: an iterator of Batch. polars, duckdb and others read it as one table, a batch at a time.
#[pyclass(module = "perf_prof", frozen)]
pub struct Batches {
    trace: Py<Trace>,
    schema: SchemaRef,
    every: Option<Duration>,
    /// `None` while a thread has taken the rows to fill a batch.
    rows: Mutex<Option<Rows>>,
    limit: usize,
}

/// The rows of the next batch, and events that were taken from the trace but are not in a row yet.
struct Rows {
    columns: Columns,
    left: (EventBatch, usize),
    decoded: Decoded,
}

/// Whether threads decode the rows from a recording.
enum Decoded {
    /// The first batch decides.
    Undecided,
    By(Arc<ColumnRun>),
    /// No: the rows come from the events of the trace.
    No,
}

/// How far a batch of events has been appended to the columns.
struct Appended {
    next: usize,
    samples: usize,
    /// The times between which events were lost, if the entry before `next` reports a loss.
    lost: Option<(u64, u64)>,
}

impl Batches {
    pub fn new(
        py: Python<'_>,
        trace: Py<Trace>,
        columns: Option<&[String]>,
        rows: usize,
        every: Option<f64>,
    ) -> PyResult<Batches> {
        trace.get().check_open(py)?;
        if rows == 0 {
            return Err(PyValueError::new_err("rows=0: a batch has at least one row"));
        }
        let time = |seconds: f64| match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => Err(PyValueError::new_err(format!("every={seconds}: not a time in seconds"))),
        };
        let every = every.map(time).transpose()?;
        let run = trace.get().run();
        let plan = Plan::new(columns, &run.events, &run.is_delivered)
            .map_err(|error| named(py, "OptionError", &error.to_string()))?;
        let schema = plan.schema.clone();
        // With `every`, a batch must be returned after this time, even if the batch is not full. Threads that decode a
        // recording cannot return a batch early.
        let decoded = if every.is_none() { Decoded::Undecided } else { Decoded::No };
        let (limit, left) = (rows, (EventBatch::default(), 0));
        let columns = Columns::new(plan, BatchLimit::new(limit, run.context.budget(), 1));
        let rows = Rows { columns, left, decoded };
        Ok(Batches { trace, schema, every, rows: Mutex::new(Some(rows)), limit })
    }

    /// Returns all remaining rows as a table.
    pub fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let reserve = (self.trace.get().run().context.budget().bytes() / 2).clamp(LEAST_RESERVE, MOST_RESERVE);
        let (mut batches, mut bytes, mut count) = (Vec::new(), 0, 0);
        while let Some(rows) = self.next_rows(py)? {
            bytes += rows.get_array_memory_size();
            count += rows.num_rows();
            batches.push(rows);
            if memory::available().is_some_and(|left| left < reserve) {
                return Err(PyMemoryError::new_err(format!(
                    "table() needs more memory than is available: the first {count} rows take {} MiB; name the columns that \
                     you need, or use batches()",
                    bytes >> 20
                )));
            }
        }
        Ok(Table::new(self.schema.clone(), batches))
    }

    fn next_rows(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let Some(mut rows) = self.rows.lock().take() else {
            return Err(PyRuntimeError::new_err("another thread reads from these batches; read them in one thread"));
        };
        let filled = self.fill(py, &mut rows);
        *self.rows.lock() = Some(rows);
        filled
    }

    fn fill(&self, py: Python<'_>, rows: &mut Rows) -> PyResult<Option<RecordBatch>> {
        let trace = self.trace.get();
        if let Decoded::Undecided = rows.decoded {
            let columns = trace.start_columns(py, rows.columns.plan(), self.limit)?;
            rows.decoded = columns.map_or(Decoded::No, Decoded::By);
        }
        if let Decoded::By(columns) = &rows.decoded {
            if let Some(next) = self.next_decoded(py, columns)? {
                return Ok(next);
            }
            rows.decoded = Decoded::No;
        }
        let end_of_wait = || self.every.and_then(|every| Instant::now().checked_add(every));
        let mut until = end_of_wait();
        let take = |rows: &mut Rows| rows.columns.take().map(Some).map_err(|error| failed(py, &error));
        loop {
            let is_late = until.is_some_and(|until| until <= Instant::now());
            if rows.columns.room() == 0 || (is_late && !rows.columns.is_empty()) {
                return take(rows);
            }
            if rows.left.1 < rows.left.0.entries.len() {
                self.append(py, rows)?;
                continue;
            }
            match trace.wait(py, until)? {
                Waited::Entries => {
                    rows.left = trace.take_batch();
                    self.append(py, rows)?;
                }
                Waited::Timeout => until = if rows.columns.is_empty() { end_of_wait() } else { until },
                Waited::End if rows.columns.is_empty() => return Ok(None),
                Waited::End => return take(rows),
            }
        }
    }

    /// Returns the next batch that threads have decoded. Returns `Some(None)` after the last batch. Returns `None` if
    /// the program has taken events from the trace since the last call.
    fn next_decoded(&self, py: Python<'_>, columns: &Arc<ColumnRun>) -> PyResult<Option<Option<RecordBatch>>> {
        let trace = self.trace.get();
        loop {
            trace.check_process(py)?;
            py.check_signals()?;
            let next = py.detach(|| columns.next(LOOK_FOR_SIGNALS));
            messages::warn(py)?;
            match next {
                Next::Batch(ColumnBatch { rows, lost }) => {
                    trace.count_rows(rows.num_rows());
                    lost.into_iter().try_for_each(|(start, end)| trace.tell_lost(py, start, end))?;
                    if rows.num_rows() != 0 {
                        return Ok(Some(Some(rows)));
                    }
                }
                Next::Nothing => {}
                Next::End if !trace.is_of_columns(columns) => return Ok(None),
                Next::End => {
                    trace.end_columns(py);
                    return Ok(Some(None));
                }
                Next::Failed(error) => {
                    trace.end_columns(py);
                    return Err(match error {
                        PartError::Recording(error) => exception(py, &error.into()),
                        PartError::Arrow(error) => failed(py, &error),
                        PartError::Panic(text) => exception(py, &Internal(text).into()),
                    });
                }
            }
        }
    }

    /// Appends events to the columns, without the GIL. Events for which the batch has no room go back to the trace, so
    /// that the program can also get them by iteration.
    fn append(&self, py: Python<'_>, rows: &mut Rows) -> PyResult<()> {
        let trace = self.trace.get();
        let (batch, next) = mem::take(&mut rows.left);
        let context = &trace.run().context;
        let (batch, appended) = py.detach(|| {
            let appended = append(&mut rows.columns, &batch, next, context);
            (batch, appended)
        });
        let Appended { next, samples, lost } = appended.map_err(|error| failed(py, &error))?;
        rows.left = trace.put_back(batch, next, samples).unwrap_or_default();
        lost.map_or(Ok(()), |(start, end)| trace.tell_lost(py, start, end))
    }
}

fn append(columns: &mut Columns, batch: &EventBatch, first: usize, context: &Context) -> Result<Appended, ArrowError> {
    let entries = batch.entries.get(first..).unwrap_or_default();
    let room = columns.room();
    let mut appended = Appended { next: first, samples: 0, lost: None };
    let mut rows = Vec::with_capacity(entries.len().min(room));
    for &entry in entries {
        if rows.len() == room {
            break;
        }
        appended.next += 1;
        match entry {
            Entry::Sample { event, start, size } => {
                rows.push(Row { event: event as usize, record: batch.record(start, size) });
            }
            Entry::Lost { start, end } => {
                appended.lost = Some((start, end));
                break;
            }
            Entry::Interval | Entry::Other { .. } => {}
        }
    }
    appended.samples = rows.len();
    // Looking up symbols takes locks. If the process forked meanwhile, these locks would stay locked in the child.
    let held = columns.plan().needs_symbols.then(fork_lock::hold);
    columns.append(&rows, context)?;
    drop(held);
    Ok(appended)
}

fn failed(py: Python<'_>, error: &ArrowError) -> PyErr {
    named(py, "Error", &error.to_string())
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        Ok(self.next_rows(py)?.map(Batch::new))
    }

    /// the names of the columns
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Table::new(self.schema.clone(), Vec::new()).schema_capsule(py)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        slf: Py<Self>,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The Arrow protocol allows a producer with a single schema to ignore the requested schema.
        let _ = requested_schema;
        let schema = slf.get().schema.clone();
        stream_capsule(py, Box::new(Reader { batches: slf, schema }))
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Batches: {}>", self.column_names().join(", "))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.trace)
    }
}

/// Reads the batches for another library, when this library requests them.
struct Reader {
    batches: Py<Batches>,
    schema: SchemaRef,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = Python::try_attach(|py| self.batches.get().next_rows(py))?;
        rows.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
