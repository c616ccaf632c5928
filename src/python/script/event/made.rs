//! Event objects that `make_event` creates, and what `run_script` has to know about event objects.

use std::sync::{Arc, LazyLock};

use perf_prof_events::event::{Context, EventType, Frame, Processes, Sample, frames, reader::KeptFacts};
use perf_prof_format::tracefs::NoKernel;
use perf_prof_symbols::symbol::{Options, RecordedBinaries};
use pyo3::prelude::*;

use super::{access, base::base_type, detached::class_of, input::input_of, methods::event, object};

/// The context of made events. It looks up no names, because the processes of made events do not run on this machine.
static CONTEXT: LazyLock<Arc<Context>> = LazyLock::new(|| Arc::new(made_context()));

/// Returns a context for made events. It contains no symbols, and the clock of the events is the wall clock.
pub fn made_context() -> Context {
    let binaries = RecordedBinaries::default();
    Context::new(Box::new(NoKernel), 0).with_symbol_options(Options::default(), Processes::Recorded(binaries))
}

/// Returns the frames of a made event as a script gets them, innermost frame first. They have no symbols.
pub fn unnamed_frames(event: &EventType, record: &[u8]) -> Vec<Arc<Frame>> {
    frames(&Sample { event, record }, &CONTEXT)
}

/// Creates the event object of a record. `facts` contains what the record does not contain, such as the comm.
pub fn made(py: Python<'_>, event: &EventType, record: &[u8], facts: KeptFacts) -> PyResult<Py<PyAny>> {
    object::detached(py, class_of(py, event)?, &CONTEXT, record, facts)
}

/// Returns the event type and the record of an event object, and the facts that the record does not contain. Returns
/// `None` if the object is not an event.
pub fn kept_event(object: &Bound<'_, PyAny>) -> PyResult<Option<(EventType, Vec<u8>, KeptFacts)>> {
    if !object.is_instance(base_type(object.py())?)? {
        return Ok(None);
    }
    let this = event(object);
    Ok(Some((this.class().event.clone(), this.record().to_vec(), input_of(this).kept())))
}

/// What `run_script` has to know about an event object.
pub struct Seen {
    /// The event type.
    pub event: EventType,
    /// The time in nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process id.
    pub pid: i32,
    /// The thread id.
    pub tid: i32,
    /// The comm of the task.
    pub comm: Option<Vec<u8>>,
}

/// Returns what `run_script` has to know about an event object; `None` if the object is not an event.
pub fn seen(object: &Bound<'_, PyAny>) -> PyResult<Option<Seen>> {
    if !object.is_instance(base_type(object.py())?)? {
        return Ok(None);
    }
    let this = event(object);
    let sample = this.sample();
    let (pid, tid) = sample.pid_tid();
    let comm = access::comm(this);
    Ok(Some(Seen { event: this.class().event.clone(), time: sample.time(), cpu: sample.cpu(), pid, tid, comm }))
}
