//! The Python class `perf.sample_event`. Its events have the attributes of perf's Python module, in addition to those
//! of `perf_prof.PerfEvent`. A value is looked up when it is read.

use std::{collections::hash_map::Entry, ffi::c_void, path::Path, sync::Arc};

use perf_prof_events::event::{NO_DATA_SOURCE, PerfFrame, Sample, perf_chain, perf_ip};
use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_STACK_USER},
    record::{SampleLayout, SampleMember},
    tracefs::Field,
};
use pyo3::{
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyString, PyTuple, PyType},
};
use rustc_hash::FxHashMap;

use super::{
    super::{
        perf_module::{Callchain, branch_stack},
        perf_script::{FrameObjects, line_of, source_of},
    },
    attributes::Getter,
    base::{base_type, new_type},
    class::Class,
    fast,
    members::{self, member},
    methods::{event, into_raw_or_raise},
    object::EventObject,
};

const DOC: &std::ffi::CStr = c"A sample, as perf's Python module has it. A value is looked up when it is read.

The fields of a tracepoint are attributes too. What was not recorded has the value that perf gives it. Everything that
perf_prof.PerfEvent has is there as well: event['field'], event._comm, event.print().";

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PerfMember {
    Evsel,
    Type,
    Pid,
    Tid,
    Id,
    Period,
    /// A number of the record. The second member is the value of the attribute if the number was not recorded.
    Number(SampleMember, u64),
    /// A number that only decoded hardware traces contain. perf-prof does not decode hardware traces.
    OfTraces,
    Weight,
    RawBuf,
    Dso,
    DsoBid,
    MapStart,
    MapEnd,
    MapPgoff,
    Symbol,
    SymStart,
    SymEnd,
    Brstack,
    Callchain,
}

/// All values, with their names and descriptions.
const MEMBERS: [(&str, PerfMember, &str); 27] = [
    ("evsel", PerfMember::Evsel, "event (evsel)"),
    ("sample_pid", PerfMember::Pid, "process id (int), -1 if it was not recorded"),
    ("sample_tid", PerfMember::Tid, "thread id (int), -1 if it was not recorded"),
    ("sample_time", PerfMember::Number(SampleMember::Time, u64::MAX), "time of the perf clock in ns (int)"),
    ("sample_id", PerfMember::Id, "id of the event (int)"),
    ("sample_stream_id", PerfMember::Number(SampleMember::StreamId, u64::MAX), "id of the event on its CPU (int)"),
    ("sample_period", PerfMember::Period, "sample period (int)"),
    ("sample_cpu", PerfMember::Number(SampleMember::Cpu, u32::MAX as u64), "CPU (int)"),
    ("sample_ip", PerfMember::Number(SampleMember::Ip, 0), "address of the instruction (int)"),
    ("sample_addr", PerfMember::Number(SampleMember::Addr, 0), "address of the accessed data (int)"),
    ("sample_phys_addr", PerfMember::Number(SampleMember::PhysAddr, 0), "physical address of the data (int)"),
    ("sample_weight", PerfMember::Weight, "cost of the access (int)"),
    ("sample_data_src", PerfMember::Number(SampleMember::DataSrc, NO_DATA_SOURCE), "source of the data (int)"),
    ("sample_insn_count", PerfMember::OfTraces, "instructions, of decoded traces (int)"),
    ("sample_cyc_count", PerfMember::OfTraces, "cycles, of decoded traces (int)"),
    ("type", PerfMember::Type, "RECORD_SAMPLE (int)"),
    ("raw_buf", PerfMember::RawBuf, "data of the tracepoint (bytes)"),
    ("dso", PerfMember::Dso, "file of the instruction (str or None)"),
    ("dso_long_name", PerfMember::Dso, "file of the instruction (str or None)"),
    ("dso_bid", PerfMember::DsoBid, "build id of the file (str or None)"),
    ("map_start", PerfMember::MapStart, "first address of the mapping (int or None)"),
    ("map_end", PerfMember::MapEnd, "address after the mapping (int or None)"),
    ("map_pgoff", PerfMember::MapPgoff, "offset of the mapping in the file (int or None)"),
    ("symbol", PerfMember::Symbol, "function of the instruction (str or None)"),
    ("sym_start", PerfMember::SymStart, "start of the function, in a file its offset (int or None)"),
    ("sym_end", PerfMember::SymEnd, "end of the function (int or None)"),
    ("brstack", PerfMember::Brstack, "branches (branch_stack or None)"),
];
const CALLCHAIN: (&str, PerfMember, &str) =
    ("callchain", PerfMember::Callchain, "call chain, innermost first (callchain or None)");

fn all() -> impl Iterator<Item = (usize, (&'static str, PerfMember, &'static str))> {
    MEMBERS.into_iter().chain([CALLCHAIN]).enumerate()
}

/// The evsel objects of a run. The context of the run stores them in a slot.
#[derive(Default)]
pub struct Evsels {
    /// The evsel of each event, by the address of the class of the event. Equal events have one class: for these
    /// events, the map contains only the evsel of the first event.
    of_classes: FxHashMap<usize, Py<PyAny>>,
    /// The evsels of the other equal events, by the ids that their samples contain.
    of_ids: FxHashMap<u64, Py<PyAny>>,
}

impl Evsels {
    /// Creates the table from the class of each event, its ids, and its evsel.
    pub fn new(py: Python<'_>, events: impl Iterator<Item = (&'static Class, Vec<u64>, Py<PyAny>)>) -> Evsels {
        let mut evsels = Evsels::default();
        for (class, ids, evsel) in events {
            match evsels.of_classes.entry(std::ptr::from_ref(class) as usize) {
                Entry::Vacant(entry) => drop(entry.insert(evsel)),
                Entry::Occupied(_) => evsels.of_ids.extend(ids.into_iter().map(|id| (id, evsel.clone_ref(py)))),
            }
        }
        evsels
    }

    fn of(&self, event: &EventObject) -> Option<&Py<PyAny>> {
        let of_id = || self.of_ids.get(&event.class().event.layout.id(event.record())?);
        let of_id = if self.of_ids.is_empty() { None } else { of_id() };
        of_id.or_else(|| self.of_classes.get(&(std::ptr::from_ref(event.class()) as usize)))
    }
}

/// Returns the class `perf.sample_event`, which is created at the first call.
#[pyfunction]
pub fn perf_sample_event(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    sample_type(py).cloned()
}

/// Returns the class `perf.sample_event`.
pub fn sample_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.get_or_try_init(py, || make(py)).map(|made| made.bind(py))
}

fn make(py: Python<'_>) -> PyResult<Py<PyType>> {
    let own = all().map(|(at, (name, _, doc))| member(name, general(at), doc)).collect();
    let slots = vec![
        (ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        (ffi::Py_tp_getset, members::terminated(own).as_mut_ptr().cast()),
        (ffi::Py_tp_methods, methods().as_mut_ptr().cast()),
    ];
    let base = Some(base_type(py)?);
    // SAFETY: name, doc, members and methods live as long as the process.
    unsafe { new_type(py, c"perf.sample_event", ffi::Py_TPFLAGS_BASETYPE, slots, base).map(Bound::unbind) }
}

/// Returns the methods, which live as long as the process.
fn methods() -> &'static mut [ffi::PyMethodDef] {
    let mut table = vec![
        ffi::PyMethodDef {
            ml_name: c"srccode".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: srccode },
            ml_flags: ffi::METH_VARARGS,
            ml_doc: c"srccode($self, addr=None, /)\n--\n
Returns source file, line and text of the line of the sample's instruction, or of the address: (str, int, str). What is
not known is None, or 0 for the line."
                .as_ptr(),
        },
        ffi::PyMethodDef {
            ml_name: c"insn".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: insn },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: c"insn($self, /)\n--\n
Returns the bytes of the sample's instruction. They are known only in decoded hardware traces, which perf-prof does not
decode, so the result is None."
                .as_ptr(),
        },
    ];
    // SAFETY: an entry of zeroes is valid: it marks the end of the table for CPython.
    table.push(unsafe { std::mem::zeroed() });
    table.leak()
}

/// Returns the attributes of the events of a layout, with their interned names. As in perf, a field of the tracepoint
/// replaces the attribute of the same name.
pub fn attributes(
    py: Python<'_>,
    layout: &SampleLayout,
    fields: &[&'static Field],
) -> Vec<(*mut ffi::PyObject, Getter)> {
    let is_shown = |name: &str| fields.iter().all(|field| field.name != name);
    let attribute = |(at, (name, of, _))| {
        let recorded = match of {
            PerfMember::Pid => Some(SampleMember::Pid),
            PerfMember::Tid => Some(SampleMember::Tid),
            PerfMember::Period => Some(SampleMember::Period),
            PerfMember::Number(of, _) => Some(of),
            _ => None,
        };
        let fast = recorded.and_then(|of| fast::sample_getter(of, layout));
        let getter = fast.map_or(general(at), |(get, closure)| Getter { get, closure });
        // The name lives as long as the process, because the class does.
        (PyString::intern(py, name).into_ptr(), getter)
    };
    all().filter(|(_, (name, ..))| is_shown(name)).map(attribute).collect()
}

/// Returns the getter that works for all layouts.
fn general(at: usize) -> Getter {
    Getter { get, closure: at as *mut c_void }
}

unsafe extern "C" fn get(object: *mut ffi::PyObject, at: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython holds the GIL, and checks that `object` is of the descriptor's class.
    let (py, object) = unsafe {
        let py = Python::assume_attached();
        (py, Bound::from_borrowed_ptr(py, object))
    };
    let this = event(&object);
    let value = match all().nth(at as usize) {
        Some((_, (_, of, _))) => value(py, this, of),
        None => Ok(py.None().into_bound(py)),
    };
    into_raw_or_raise(py, value)
}

fn value<'py>(py: Python<'py>, this: &EventObject, of: PerfMember) -> PyResult<Bound<'py, PyAny>> {
    let sample = this.sample();
    let layout = &sample.event.layout;
    let recorded = |member| layout.number(member, sample.record);
    let number = |number: u64| Ok(number.into_pyobject(py)?.into_any());
    let id = |id: i32| Ok(id.into_pyobject(py)?.into_any());
    match of {
        PerfMember::Pid => id(sample.pid_tid().0),
        PerfMember::Tid => id(sample.pid_tid().1),
        PerfMember::Type => number(PERF_RECORD_SAMPLE.into()),
        PerfMember::Id => {
            let own = recorded(SampleMember::Id).or_else(|| recorded(SampleMember::Identifier));
            number(own.unwrap_or(u64::MAX))
        }
        PerfMember::Period => number(sample.period()),
        PerfMember::Number(member, absent) => number(recorded(member).unwrap_or(absent)),
        PerfMember::Weight => number(layout.access_cost(sample.record).weight),
        PerfMember::OfTraces => number(0),
        PerfMember::RawBuf => Ok(PyBytes::new(py, sample.raw()).into_any()),
        PerfMember::Evsel => Ok(evsel(py, this)),
        PerfMember::Brstack => match layout.branches(sample.record) {
            Some(branches) => Ok(branch_stack(branches).into_pyobject(py)?.into_any()),
            None => Ok(py.None().into_bound(py)),
        },
        PerfMember::Callchain => callchain(py, this, &sample),
        place => match perf_ip(&sample, this.context()) {
            Some(frame) => of_place(py, &frame, place),
            None => Ok(py.None().into_bound(py)),
        },
    }
}

fn evsel<'py>(py: Python<'py>, this: &EventObject) -> Bound<'py, PyAny> {
    let evsels = this.context().slot.get().and_then(|kept| kept.downcast_ref::<Evsels>());
    let evsel = evsels.and_then(|evsels| evsels.of(this));
    evsel.map_or_else(|| py.None().into_bound(py), |evsel| evsel.bind(py).clone())
}

fn callchain<'py>(py: Python<'py>, this: &EventObject, sample: &Sample<'_>) -> PyResult<Bound<'py, PyAny>> {
    let members = sample.event.layout.format.sample_type;
    if members & (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_STACK_USER) == 0 {
        return Ok(py.None().into_bound(py));
    }
    Ok(Callchain { frames: perf_chain(sample, this.context()) }.into_pyobject(py)?.into_any())
}

/// Returns a value that depends on the address of the sampled instruction: its mapping, its symbol, or an offset.
fn of_place<'py>(py: Python<'py>, frame: &Arc<PerfFrame>, of: PerfMember) -> PyResult<Bound<'py, PyAny>> {
    let objects = FrameObjects::of(py, frame)?;
    let none = || py.None().into_bound(py);
    let number = |number: u64| Ok(number.into_pyobject(py)?.into_any());
    match (of, &objects.map, &objects.symbol, &frame.symbol) {
        (PerfMember::Dso, Some(map), ..) => Ok(map.dso.bind(py).clone().into_any()),
        (PerfMember::DsoBid, Some(map), ..) => Ok(map.build_id.bind(py).clone().into_any()),
        (PerfMember::MapStart, Some(map), ..) => Ok(map.start.bind(py).clone().into_any()),
        (PerfMember::MapEnd, Some(map), ..) => Ok(map.end.bind(py).clone().into_any()),
        (PerfMember::MapPgoff, Some(map), ..) => Ok(map.file_offset.bind(py).clone().into_any()),
        (PerfMember::Symbol, _, Some(symbol), _) => Ok(symbol.name.bind(py).clone().into_any()),
        (PerfMember::SymStart, .., Some(symbol)) => number(symbol.extent.start),
        (PerfMember::SymEnd, .., Some(symbol)) => number(symbol.extent.end),
        _ => Ok(none()),
    }
}

unsafe extern "C" fn insn(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the GIL is held, and None lives as long as the interpreter.
    unsafe { ffi::Py_NewRef(ffi::Py_None()) }
}

unsafe extern "C" fn srccode(object: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython holds the GIL. It passes an instance of the class and a tuple.
    let (py, object, args) = unsafe {
        let py = Python::assume_attached();
        let args = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        (py, Bound::from_borrowed_ptr(py, object), args)
    };
    let found = || {
        let (addr,): (Option<u64>,) = if args.is_empty() { (None,) } else { args.extract()? };
        let this = event(&object);
        let sample = this.sample();
        let addr = addr.or_else(|| sample.event.layout.ip(sample.record));
        let source = addr.and_then(|addr| source_of(&sample, addr, this.context()));
        let text = source.as_ref().and_then(|(file, line)| line_of(Path::new(&**file), *line));
        let (file, line) = source.map_or((None, 0), |(file, line)| (Some(file.as_ref().to_owned()), line));
        Ok((file, line, text).into_pyobject(py)?.into_any())
    };
    into_raw_or_raise(py, found())
}
