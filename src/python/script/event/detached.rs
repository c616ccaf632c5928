//! Copies and pickles of events. A copy or a pickle contains everything about its event, so another process can use it.
//!
//! A pickle contains the record, the text of its format, and the sample format of the attr. So a process that does not
//! have the class of the event can create it again. The pickle also contains the values that only the run knows: the
//! comm, the wall clock time, the path of the cgroup, and the frames of the callchain.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use perf_prof_events::event::{
    Context, EventType, Format, Frame, Origin, OtherFormat, RawData, SpanFormat, SpanPart, SpanTask, reader::KeptFacts,
};
use perf_prof_format::{
    record::{SampleFormat, SampleLayout},
    spec::OpenAtEnd,
    tracefs::{EventFormat, NoKernel},
};
use perf_prof_symbols::symbol::Slot;
use perf_prof_system::mutex::Mutex;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyList},
};

use super::{
    class::{Class, Interface},
    input::input_of,
    methods::{Returned, event},
    object,
};

/// The key in [`CLASSES`]: the tracepoint's system, the text of its format, the alias, and seven numbers. The first six
/// numbers are the sample format of the attr. The last number is 1 if the raw data contains the frames of an
/// interpreter, otherwise 0. For an event that is not a tracepoint, the system is `None`, and the text is the name of
/// the event.
type Identity = (Option<String>, String, Option<String>, [u64; 7]);

/// The classes of all events. If a later run in this process has the same events, it uses the same classes.
static CLASSES: Mutex<Option<HashMap<Identity, Vec<&'static Class>>>> = Mutex::new(None);

/// The context of detached events. It contains no names, because detached events contain their own names.
static NO_CONTEXT: LazyLock<Arc<Context>> = LazyLock::new(|| Arc::new(Context::new(Box::new(NoKernel), 0)));

/// Implements `event.__reduce__()`. `copy` and `pickle` call this method to get the parts of an event.
pub(super) fn reduce<'py>(object: &Bound<'py, PyAny>, []: [Option<Bound<'py, PyAny>>; 0]) -> Returned<'py> {
    let py = object.py();
    let this = event(object);
    let kept = input_of(this).kept();
    let identity = identity(&this.class().event);
    let restore = py.import("perf_prof")?.getattr("_restore")?;
    let record = PyBytes::new(py, this.record());
    let Format::Span(span) = &this.class().event.format else {
        let (comm, realtime, frames, cgroup) = facts_parts(py, &kept)?;
        return (restore, (identity, (record, comm, realtime, frames, cgroup))).into_pyobject(py).map(Bound::into_any);
    };
    let (comm, realtime, frames, cgroup) = facts_parts(py, &kept)?;
    let inputs: Vec<Identity> = span.inputs.iter().map(self::identity).collect();
    let parts = kept.parts.iter().map(|part| facts_parts(py, part)).collect::<PyResult<Vec<_>>>()?;
    let span = (span.chain == SpanPart::End, inputs, parts);
    (restore, (identity, (record, comm, realtime, frames, cgroup), span)).into_pyobject(py).map(Bound::into_any)
}

type PyFacts<'py> = (Option<Bound<'py, PyBytes>>, Option<i64>, Bound<'py, PyList>, Option<Bound<'py, PyBytes>>);

/// Returns as Python objects the facts about an event that its record does not contain.
fn facts_parts<'py>(py: Python<'py>, facts: &KeptFacts) -> PyResult<PyFacts<'py>> {
    let frames = PyList::new(py, facts.frames.iter().map(|frame| frame_parts(frame)))?;
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
    Ok((bytes(&facts.comm), facts.realtime, frames, bytes(&facts.cgroup)))
}

/// The facts about an event that its record does not contain: comm, time of day, frames, path of the cgroup.
type FactsArgument = (Option<Vec<u8>>, Option<i64>, Vec<FrameParts>, Option<Vec<u8>>);
/// The parts of a pickled span besides its fields: whether the callchain of the span is the callchain of its end, the
/// identities of the events that the span is made of, and the facts about these events.
type SpanArgument = (bool, Vec<Identity>, Vec<FactsArgument>);
type StateArgument = (Vec<u8>, Option<Vec<u8>>, Option<i64>, Vec<FrameParts>, Option<Vec<u8>>);
/// The parts of a frame: address, symbol, offset, dso, (process id, kind) for user frames, (source file, line) if
/// known.
type FrameParts = (u64, String, u64, String, Option<(i32, u8)>, Option<(String, u32)>);

/// The kinds of user frames. In older pickles, which contain no Python frames, the kind is a bool: true for an inlined
/// frame.
const NATIVE: u8 = 0;
const INLINED: u8 = 1;
const PYTHON: u8 = 2;

fn frame_parts(frame: &Frame) -> FrameParts {
    let origin = match frame.origin {
        Origin::Kernel => None,
        Origin::User { pid } => Some((pid, NATIVE)),
        Origin::Inlined { pid } => Some((pid, INLINED)),
        Origin::Python { pid } => Some((pid, PYTHON)),
    };
    let srcline = frame.srcline.as_ref().map(|(file, line)| (file.to_string(), *line));
    (frame.addr, frame.symbol.to_string(), frame.offset, frame.dso.to_string(), origin, srcline)
}

fn frame_from_parts((addr, symbol, offset, dso, origin, srcline): FrameParts) -> Frame {
    let origin = match origin {
        None => Origin::Kernel,
        Some((pid, INLINED)) => Origin::Inlined { pid },
        Some((pid, PYTHON)) => Origin::Python { pid },
        Some((pid, _)) => Origin::User { pid },
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

/// Implements `perf_prof._restore(identity, state, span)`, which creates an event from the parts that `reduce`
/// returned. `span` is given for spans only.
#[pyfunction]
#[pyo3(name = "_restore", signature = (identity, state, span = None))]
pub fn restore(
    py: Python<'_>,
    identity: Identity,
    state: StateArgument,
    span: Option<SpanArgument>,
) -> PyResult<Py<PyAny>> {
    let (record, comm, realtime, frames, cgroup) = state;
    if record.len() > usize::from(u16::MAX) {
        return Err(PyValueError::new_err("the pickled record is larger than a record can be (65535 bytes)"));
    }
    let mut kept = facts_from_parts((comm, realtime, frames, cgroup));
    let class = match span {
        None => class_of_identity(py, identity)?,
        Some((of_end, inputs, parts)) => {
            kept.parts = parts.into_iter().map(facts_from_parts).collect();
            class_of_span(py, identity, if of_end { SpanPart::End } else { SpanPart::Begin }, inputs)?
        }
    };
    object::detached(py, class, &NO_CONTEXT, &record, kept)
}

fn facts_from_parts((comm, realtime, frames, cgroup): FactsArgument) -> KeptFacts {
    let frames = frames.into_iter().map(|parts| Arc::new(frame_from_parts(parts))).collect();
    KeptFacts { comm, realtime, cgroup, frames, parts: Vec::new() }
}

fn class_of_span(py: Python<'_>, key: Identity, chain: SpanPart, inputs: Vec<Identity>) -> PyResult<&'static Class> {
    let is_same = |class: &Class| match &class.event.format {
        Format::Span(span) => span.chain == chain && span.inputs.iter().map(identity).eq(inputs.iter().cloned()),
        _ => false,
    };
    class(py, (key.clone(), Interface::PerfProf), is_same, || {
        let event = event_type(key)?;
        let Format::Tracepoint(format) = event.format else { return Ok(event) };
        let format = Arc::new(EventFormat::clone(&format).with_words());
        let inputs = inputs.iter().cloned().map(event_type).collect::<PyResult<_>>()?;
        // The functions that compute fields are not in the pickle. Only the code that writes records needs them, and
        // this record exists already.
        let span = SpanFormat {
            format,
            inputs,
            chain,
            task: SpanTask::default(),
            fields: Vec::new(),
            conditions: String::new(),
            at_end: OpenAtEnd::default(),
            with_strings: Vec::new(),
        };
        Ok(EventType { format: Format::Span(Arc::new(span)), ..event })
    })
}

/// Creates the event object for an event that an aggregator keeps.
pub fn detached_event(py: Python<'_>, event: &EventType, record: &[u8], facts: &KeptFacts) -> PyResult<Py<PyAny>> {
    object::detached(py, class_of(py, event)?, &NO_CONTEXT, record, facts.clone())
}

fn identity(event: &EventType) -> Identity {
    let SampleFormat { sample_type, read_format, branch_sample_type, regs_user, regs_intr, period } =
        event.layout.format;
    let hides_raw = u64::from(event.format.has_interpreter_frames());
    let samples = [sample_type, read_format, branch_sample_type, regs_user, regs_intr, period, hides_raw];
    match &event.format {
        Format::Tracepoint(format) => {
            (Some(format.system.to_string()), format.text().to_owned(), event.alias.clone(), samples)
        }
        Format::Span(span) => {
            let text = span.format.text().to_owned();
            (Some(span.format.system.to_string()), text, event.alias.clone(), samples)
        }
        Format::Other(format) => (None, format.name.clone(), event.alias.clone(), samples),
    }
}

fn event_type((system, text, alias, samples): Identity) -> PyResult<EventType> {
    let format = match system {
        Some(system) => match EventFormat::parse(&system, &text) {
            Ok(format) => Format::Tracepoint(Arc::new(format)),
            Err(error) => return Err(PyValueError::new_err(error.to_string())),
        },
        None if samples[6] != 0 => Format::Other(Arc::new(OtherFormat { name: text, raw: RawData::InterpreterFrames })),
        None => Format::other(text),
    };
    let [sample_type, read_format, branch_sample_type, regs_user, regs_intr, period, _] = samples;
    let samples = SampleFormat { sample_type, read_format, branch_sample_type, regs_user, regs_intr, period };
    // `max_stack` is not needed, because the frames are already resolved.
    Ok(EventType { alias, format, layout: SampleLayout::from_format(samples), max_stack: None })
}

/// Returns the class of an event type. Equal event types have the same class.
pub fn class_of(py: Python<'_>, event: &EventType) -> PyResult<&'static Class> {
    class_with(py, event, Interface::PerfProf)
}

/// Returns the class of an event type whose events have the attributes of `interface`.
pub fn class_with(py: Python<'_>, event: &EventType, interface: Interface) -> PyResult<&'static Class> {
    let is_same = |class: &Class| is_same(&class.event, event);
    class(py, (identity(event), interface), is_same, || Ok(event.clone()))
}

/// Returns whether two event types with the same identity are equal.
fn is_same(one: &EventType, other: &EventType) -> bool {
    let spans = match (&one.format, &other.format) {
        (Format::Span(one), Format::Span(other)) => {
            let mut inputs = one.inputs.iter().zip(&other.inputs);
            one.chain == other.chain
                && one.inputs.len() == other.inputs.len()
                && inputs.all(|(one, other)| identity(one) == identity(other) && is_same(one, other))
        }
        (Format::Span(_), _) | (_, Format::Span(_)) => false,
        _ => true,
    };
    spans && one.layout == other.layout && one.max_stack == other.max_stack
}

fn class_of_identity(py: Python<'_>, key: Identity) -> PyResult<&'static Class> {
    class(py, (key.clone(), Interface::PerfProf), |_| true, || event_type(key))
}

/// Returns the first class with the key `key` and the attributes of `interface` for which `is_same` returns true. If
/// there is none, creates a class for the event type that `event` returns.
fn class(
    py: Python<'_>,
    (key, interface): (Identity, Interface),
    is_same: impl Fn(&Class) -> bool,
    event: impl FnOnce() -> PyResult<EventType>,
) -> PyResult<&'static Class> {
    // The mutex is not held while a class is created: creating a class runs Python code, which may call this function
    // again.
    let is_same = |class: &Class| class.interface == interface && is_same(class);
    let known = with_classes(|classes| classes.get(&key)?.iter().find(|class| is_same(class)).copied());
    if let Some(class) = known {
        return Ok(class);
    }
    let class = Class::new(py, event()?, interface)?;
    Ok(with_classes(|classes| {
        let classes = classes.entry(key).or_default();
        // Another thread may have created the class in the meantime. All events of a type must have the same class.
        if let Some(first) = classes.iter().find(|class| is_same(class)) {
            return *first;
        }
        classes.push(class);
        class
    }))
}

fn with_classes<T>(work: impl FnOnce(&mut HashMap<Identity, Vec<&'static Class>>) -> T) -> T {
    work(CLASSES.lock().get_or_insert_default())
}
