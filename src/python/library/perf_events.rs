//! `perf.evlist`: events that a program opens by their attrs. The program reads their rings one record after the other.

use std::{
    ffi::CString,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_capture::{Owners, Place, PolledEvent, PolledRings, Values};
use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{TrailerLayout, record_type},
};
use perf_prof_session::{live::polled, selectors};
use perf_prof_system::{CallError, mmap::page_size, mutex::Mutex, perf};
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
    types::{PyBytes, PyTuple},
};
use rustc_hash::FxHashMap;

use super::errors::{exception, named};
use crate::script::{EventClass, Evsels};

/// Adds the classes and functions of this file to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<OpenPerfEvent>()?;
    module.add_class::<PerfRings>()?;
    module.add_function(wrap_pyfunction!(parse_perf_events, module)?)?;
    module.add_function(wrap_pyfunction!(open_perf_event, module)?)?;
    module.add_function(wrap_pyfunction!(map_perf_rings, module)?)
}

/// Returns the error of a system call as the OSError that programs expect.
fn os_error(error: &CallError) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// A parsed event: its name, its attr, its filter, and the system and name of a tracepoint.
type Parsed<'py> = (String, Bound<'py, PyBytes>, Option<String>, Option<(String, String)>);

/// Parses a list of selectors and returns the events.
#[pyfunction]
fn parse_perf_events<'py>(py: Python<'py>, text: &str) -> PyResult<Vec<Parsed<'py>>> {
    let events = selectors::parse(text).map_err(|error| named(py, "SelectorError", &error.to_string()))?;
    let found = polled::resolve(events).map_err(|error| exception(py, &error))?;
    let parsed = found.into_iter().map(|of| (of.name, PyBytes::new(py, &of.attr), of.filter, of.tracepoint));
    Ok(parsed.collect())
}

/// Opens an event on each of the places. A place is a pair of a CPU and a thread; at most one of the two is None.
#[pyfunction]
fn open_perf_event(
    py: Python<'_>,
    attr: &[u8],
    places: Vec<(Option<u32>, Option<u32>)>,
    filter: Option<String>,
) -> PyResult<OpenPerfEvent> {
    let attr = perf::attr_of_bytes(attr);
    let filter = filter.map(CString::new).transpose()?;
    let places: Vec<Place> = places.into_iter().map(|(cpu, thread)| Place { cpu, thread }).collect();
    if places.iter().any(|place| place.cpu.is_none() && place.thread.is_none()) {
        return Err(PyValueError::new_err(
            "no CPU and no thread is given; an event is opened on CPUs, on threads, or on both",
        ));
    }
    let opened = py.detach(|| PolledEvent::open(&attr, filter.as_deref(), &places));
    Ok(OpenPerfEvent(Arc::new(opened.map_err(|error| os_error(&error))?)))
}

/// An event that is open.
#[pyclass(module = "perf_prof", frozen)]
pub struct OpenPerfEvent(Arc<PolledEvent>);

#[pymethods]
impl OpenPerfEvent {
    /// Returns the ids of the event, one for each place.
    fn ids(&self) -> Vec<u64> {
        self.0.ids()
    }

    /// Starts counting and sampling.
    fn enable(&self) -> PyResult<()> {
        self.0.enable().map_err(|error| os_error(&error))
    }

    /// Stops counting and sampling.
    fn disable(&self) -> PyResult<()> {
        self.0.disable().map_err(|error| os_error(&error))
    }

    /// Returns value, enabled time, running time, id and number of lost samples of the event at a place. Returns None
    /// if the event is not open there.
    fn read(&self, cpu: Option<u32>, thread: Option<u32>) -> PyResult<Option<[u64; 5]>> {
        let values = self.0.read(Place { cpu, thread }).map_err(|error| os_error(&error))?;
        Ok(values.map(|Values { value, enabled, running, id, lost }| [value, enabled, running, id, lost]))
    }
}

/// An event as Python passes it: the open event, its name, its attr, the system and name of a tracepoint, and its
/// evsel.
type Given<'py> = (Py<OpenPerfEvent>, String, Vec<u8>, Option<(String, String)>, Bound<'py, PyAny>);

/// Maps the rings of events. `pages` is the size of the data of each ring in pages, rounded up to a power of two.
#[pyfunction]
fn map_perf_rings(py: Python<'_>, events: Vec<Given<'_>>, pages: usize) -> PyResult<PerfRings> {
    let bytes = pages.max(1).checked_next_power_of_two().and_then(|pages| pages.checked_mul(page_size()));
    let bytes = bytes
        .ok_or_else(|| PyValueError::new_err(format!("rings of {pages} pages are too large; give fewer pages")))?;
    let context = Arc::new(polled::context().map_err(|error| exception(py, &error))?);
    let (mut known, mut ids, mut evsels) = (Vec::new(), FxHashMap::default(), Vec::new());
    for (at, (opened, name, attr, tracepoint, evsel)) in events.iter().enumerate() {
        let tracepoint = tracepoint.as_ref().map(|(system, name)| (system.as_str(), name.as_str()));
        let event = polled::event_type(name, attr, tracepoint).map_err(|error| exception(py, &error))?;
        let trailer = TrailerLayout::new(event.layout.format.sample_type);
        let class = EventClass::of_perf(py, &event, &context)?;
        let of_event = opened.get().0.ids();
        ids.extend(of_event.iter().map(|&id| (id, at)));
        evsels.push((class.class(), of_event, evsel.clone().unbind()));
        known.push(KnownEvent { class, trailer });
    }
    context.slot.put(Box::new(Evsels::new(py, evsels.into_iter())));
    let opened = events.iter().map(|(opened, ..)| opened.get().0.clone()).collect();
    let rings = PolledRings::map(opened, bytes).map_err(|error| os_error(&error))?;
    Ok(PerfRings { owners: rings.owners().clone(), rings: Mutex::new((rings, Vec::new())), events: known, ids })
}

struct KnownEvent {
    class: EventClass,
    trailer: TrailerLayout,
}

/// The rings of events.
#[pyclass(module = "perf_prof", frozen)]
pub struct PerfRings {
    owners: Owners,
    /// The rings, and a buffer for a record.
    rings: Mutex<(PolledRings, Vec<u8>)>,
    events: Vec<KnownEvent>,
    /// The index of the event for each id.
    ids: FxHashMap<u64, usize>,
}

#[pymethods]
impl PerfRings {
    /// Returns the descriptors of the rings.
    fn descriptors(&self) -> Vec<i32> {
        self.owners.numbers()
    }

    /// Waits until rings contain records, at most `timeout` ms; a negative timeout means no limit. Returns how many
    /// rings contain records.
    fn poll(&self, py: Python<'_>, timeout: i64) -> PyResult<usize> {
        let until = u64::try_from(timeout).ok().map(|timeout| Instant::now() + Duration::from_millis(timeout));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match py.detach(|| self.owners.poll(left)) {
                // As in Python itself, a signal whose handler raises nothing does not end the wait.
                Err(error) if error.errno() == libc::EINTR => py.check_signals()?,
                result => return result.map_err(|error| os_error(&error)),
            }
        }
    }

    /// Returns whether there is a ring of the CPU. None asks for a ring of any CPU.
    fn has(&self, cpu: Option<u32>) -> bool {
        self.rings.lock().0.has(cpu)
    }

    /// Returns the next record of a CPU; None if there is none. A sample is returned as an event. Any other record is
    /// returned as its bytes, with the members of its sample id and the index of its event.
    fn read<'py>(&self, py: Python<'py>, cpu: Option<u32>) -> PyResult<Option<Bound<'py, PyAny>>> {
        while let Some(record) = self.next(cpu) {
            let is_sample = record_type(&record) == PERF_RECORD_SAMPLE;
            let Some(at) = self.event_of(&record, is_sample) else { continue };
            let event = &self.events[at];
            let taken = if is_sample {
                event.class.event(py, &record)?.into_bound(py)
            } else {
                let of = event.trailer.sample_id(&record);
                let id = (of.pid_tid, of.time, of.id, of.stream_id, of.cpu);
                let all = (PyBytes::new(py, &record), id, at).into_pyobject(py)?;
                all.cast_into::<PyTuple>()?.into_any()
            };
            self.rings.lock().1 = record;
            return Ok(Some(taken));
        }
        Ok(None)
    }
}

impl PerfRings {
    /// Takes the next record of a CPU out of its ring. The lock is released before Python objects are made, because
    /// making them may run code of the program.
    fn next(&self, cpu: Option<u32>) -> Option<Vec<u8>> {
        let mut rings = self.rings.lock();
        let (rings, record) = &mut *rings;
        rings.next(cpu, record).then(|| std::mem::take(record))
    }

    /// Returns the index of the event that a record belongs to. If there are several events, a sample begins with the
    /// id of its event, and any other record ends with this id. In records that belong to no event, the kernel writes
    /// the id 0.
    fn event_of(&self, record: &[u8], is_sample: bool) -> Option<usize> {
        if self.events.len() == 1 {
            return Some(0);
        }
        let id = if is_sample { record.get(8..)?.first_chunk() } else { record.last_chunk() };
        let at = self.ids.get(&id.map_or(0, |id| u64::from_ne_bytes(*id))).copied();
        at.or((!is_sample).then_some(0))
    }
}
