//! Copies and pickles of events: complete by themselves, also in another process.
//!
//! What is pickled is the record with the text of its format and what the attr says of samples, so that the class can be
//! made again where it is not known, and what only the run could tell: the task's name, the wall clock, the names of the
//! call chain.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyTuple},
};

use super::{
    access,
    class::Class,
    methods::event,
    object::{self, Detached},
};
use crate::{
    event::{Context, EventType, Format, Frame, Origin},
    record::{SampleFormat, SampleLayout},
    symbol::Slot,
    tracefs::{EventFormat, NoKernel},
};

/// What tells one class from another: kind (a tracepoint's system, or none), name or text of the format, alias, what the
/// attr says of samples.
type Identity = (Option<String>, String, Option<String>, [u64; 6]);

/// Classes of detached events by what they are of.
static CLASSES: Mutex<Option<HashMap<Identity, &'static Class>>> = Mutex::new(None);

/// `event.__reduce__()`: how `copy` and `pickle` take an event apart.
pub fn reduce<'py>(
    object: &Bound<'py, PyAny>,
    _: &Bound<'py, PyTuple>,
    _: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let this = event(object);
    let frames = access::resolve(this);
    let frames = frames.iter().map(|frame| taken_apart(frame));
    let comm = access::comm(this).map(|comm| PyBytes::new(py, &comm));
    let identity = identity(&this.class().event);
    let state = (PyBytes::new(py, this.record()), comm, access::realtime(this), PyList::new(py, frames)?);
    let restore = py.import("perf_prof")?.getattr("_restore")?;
    (restore, (identity, state)).into_pyobject(py).map(Bound::into_any)
}

type StateArgument = (Vec<u8>, Option<Vec<u8>>, i64, Vec<FrameParts>);
/// Address, symbol, offset, dso, the process of a user frame and whether it was inlined, file and line.
type FrameParts = (u64, String, u64, String, Option<(i32, bool)>, Option<(String, u32)>);

fn taken_apart(frame: &Frame) -> FrameParts {
    let origin = match frame.origin {
        Origin::Kernel => None,
        Origin::User { pid } => Some((pid, false)),
        Origin::Inlined { pid } => Some((pid, true)),
    };
    let srcline = frame.srcline.as_ref().map(|(file, line)| (file.to_string(), *line));
    (frame.addr, frame.symbol.to_string(), frame.offset, frame.dso.to_string(), origin, srcline)
}

fn put_together((addr, symbol, offset, dso, origin, srcline): FrameParts) -> Frame {
    let origin = match origin {
        None => Origin::Kernel,
        Some((pid, false)) => Origin::User { pid },
        Some((pid, true)) => Origin::Inlined { pid },
    };
    let srcline = srcline.map(|(file, line)| (file.into(), line));
    Frame {
        addr,
        symbol: symbol.into(),
        offset,
        origin,
        dso: dso.into(),
        dso_offset: 0,
        srcline,
        slot: Slot::default(),
    }
}

/// `perf_prof._restore(identity, state)`: puts an event together again.
#[pyfunction]
#[pyo3(name = "_restore")]
pub fn restore(py: Python<'_>, identity: Identity, state: StateArgument) -> PyResult<Py<PyAny>> {
    let (record, comm, realtime, frames) = state;
    if record.len() > usize::from(u16::MAX) {
        return Err(PyValueError::new_err("no record is larger than 65535 bytes"));
    }
    let frames = frames.into_iter().map(|parts| Arc::new(put_together(parts))).collect();
    object::detached(py, class(py, identity)?, &record, Detached { comm, realtime, frames })
}

fn identity(event: &EventType) -> Identity {
    let SampleFormat { sample_type, read_format, branch_sample_type, regs_user, regs_intr, period } =
        event.layout.format;
    let samples = [sample_type, read_format, branch_sample_type, regs_user, regs_intr, period];
    match &event.format {
        Format::Tracepoint(format) => {
            (Some(format.system.clone()), format.text().to_owned(), event.alias.clone(), samples)
        }
        Format::Source(format) => (None, format.name.clone(), event.alias.clone(), samples),
    }
}

fn event_type((system, text, alias, samples): Identity) -> PyResult<EventType> {
    let format = match system {
        Some(system) => match EventFormat::parse(&system, &text) {
            Ok(format) => Format::Tracepoint(Arc::new(format)),
            Err(error) => return Err(PyValueError::new_err(error.to_string())),
        },
        None => Format::source(text),
    };
    let [sample_type, read_format, branch_sample_type, regs_user, regs_intr, period] = samples;
    let samples = SampleFormat { sample_type, read_format, branch_sample_type, regs_user, regs_intr, period };
    // Its frames were found before.
    Ok(EventType { alias, format, layout: SampleLayout::of(samples), max_stack: None })
}

fn class(py: Python<'_>, key: Identity) -> PyResult<&'static Class> {
    let known =
        |classes: &mut Option<HashMap<Identity, &'static Class>>| classes.get_or_insert_default().get(&key).copied();
    // Making a class runs Python, which may come back here: the lock is not held meanwhile.
    if let Some(class) = known(&mut CLASSES.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(class);
    }
    let class = Class::new(py, event_type(key.clone())?, Arc::new(Context::new(Box::new(NoKernel), 0)))?;
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key, class);
    Ok(class)
}

/// Makes a run's class known, so that copies within the run are of the very same class.
pub fn remember(class: &'static Class) {
    let key = identity(&class.event);
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().entry(key).or_insert(class);
}
