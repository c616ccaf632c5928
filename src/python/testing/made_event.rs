//! `make_event`: makes an event with the bytes of a real record, from the values of its fields.

use std::{collections::HashMap, sync::Arc};

use perf_prof_events::event::{EventType, Format, Frame, Origin, reader::KeptFacts};
use perf_prof_format::{
    abi::*,
    record::{SampleLayout, SampleValues},
    spec::similar_names,
    tracefs::{EncodeError, EventFormat, FieldInput},
};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use super::{
    errors,
    event_format::formats_from,
    formats::FormatsFrom,
    made_span::{make_span, span_of},
    members::{MadeFrame, Members, UserFrame, field_input},
};
use crate::script::{made, unnamed_frames};

/// The members of each made sample, as in live samples.
const COMMON: u64 =
    PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;

/// Makes an event: a PerfEvent with these values of its fields, in a record like those of the kernel.
///
/// event is the event's name: 'sched:sched_switch' for a tracepoint, 'syscalls:sys_enter_openat//str=filename/' for
/// a tracepoint with strings, 'page-faults' or 'profile' for other events, 'uprobe:malloc' for a probe. The
/// keywords are its fields. Fields that are not given are 0 or empty. Further keywords are _time, _cpu, _pid, _tid,
/// _period, _comm, _cgroup, _realtime, _ip, _addr and _callchain. A frame of _callchain is an address, (address,
/// symbol), (address, symbol, dso), or a dict as in an event's _callchain.
///
/// For a span, event is 'span:fsync=BEGIN..END' or a source such as 'syscall', and the keywords are begin, end,
/// between, and duration in ns. begin and end are each an event, or a dict with the keywords of an event; between
/// is a list of them. The fields of the span are computed from these events. Without end, the span is open. The
/// file of 'function:NAME@FILE' need not exist. The end of a call has the field ret.
///
/// formats says where the format comes from: 'kernel' for this kernel, 'shipped' for the formats that are part of
/// perf_prof, or the path of a recording. Without formats, the format of this kernel is used, or the shipped one if
/// it cannot be read.
///
/// Raises SelectorError, which is a ValueError, if there is no such event; TypeError if it has no such field or if a
/// value has the wrong type; ValueError if a value does not fit into its field.
#[pyfunction]
#[pyo3(signature = (event, /, *, formats = None, **fields))]
pub fn make_event(
    py: Python<'_>,
    event: &str,
    formats: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let selected = span_of(event).map_err(|error| errors::of_selector(py, &error))?;
    if let Some((spec, span)) = selected {
        return make_span(py, (&spec, &span), formats, fields);
    }
    let from = formats_from(formats, FormatsFrom::Anywhere)?;
    let format = from.format(event).map_err(|error| errors::of_formats(py, &error))?;
    event_of_format(py, event, format, fields)
}

pub(super) fn event_of_format(
    py: Python<'_>,
    event: &str,
    format: Format,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let (mut members, mut values) = (Members::default(), HashMap::new());
    for (name, value) in fields.into_iter().flatten() {
        let name: String = name.extract()?;
        let tracepoint = format.tracepoint();
        if tracepoint.is_some_and(|format| format.field(&name).is_some()) {
            let input = field_input(&name, &value).map_err(|error| with_event(py, event, error))?;
            values.insert(name, input);
            continue;
        }
        // In events other than tracepoints, these members have names without an underscore: `event.ip`.
        let member = match tracepoint {
            None if ["ip", "addr", "period"].contains(&name.as_str()) => format!("_{name}"),
            _ => name.clone(),
        };
        if !members.set(&member, &value).map_err(|error| with_event(py, event, error))? {
            return Err(no_field(event, &format, &name));
        }
    }
    make(py, event, format, members, values)
}

/// Puts the event's name before the text of an exception.
fn with_event(py: Python<'_>, event: &str, error: PyErr) -> PyErr {
    let text = || format!("{event}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text())
    } else if error.get_type(py).is(py.get_type::<PyValueError>()) {
        PyValueError::new_err(text())
    } else {
        error
    }
}

fn no_field(event: &str, format: &Format, name: &str) -> PyErr {
    let mut names: Vec<&str> = Members::NAMES.to_vec();
    match format.tracepoint() {
        Some(format) => {
            names.extend(format.common_fields().iter().chain(format.fields()).map(|field| field.name.as_str()))
        }
        None => names.extend(["ip", "addr", "period"]),
    }
    let near = match similar_names(name, &names).as_slice() {
        [] => {
            let without_common = names.iter().filter(|name| !name.starts_with("common_"));
            format!("it has {}", without_common.copied().collect::<Vec<_>>().join(", "))
        }
        near => format!("did you mean {}?", near.join(" or ")),
    };
    PyTypeError::new_err(format!("{event} has no field '{name}'; {near}"))
}

fn make(
    py: Python<'_>,
    name: &str,
    format: Format,
    members: Members,
    mut values: HashMap<String, FieldInput>,
) -> PyResult<Py<PyAny>> {
    let frames = members.callchain.unwrap_or_default();
    // If only one of the two ids is given, the task is the main thread of its process.
    let given = (members.pid, members.tid);
    let (pid, tid) = (given.0.or(given.1).unwrap_or(0), given.1.or(given.0).unwrap_or(0));
    let raw = match format.tracepoint() {
        Some(format) => raw_data(name, format, tid, &mut values)?,
        None => Vec::new(),
    };
    let own = if format.tracepoint().is_some() { PERF_SAMPLE_RAW } else { PERF_SAMPLE_ADDR };
    let callchain = if frames.is_empty() { 0 } else { PERF_SAMPLE_CALLCHAIN };
    let has_cgroup = if members.cgroup.is_some() { PERF_SAMPLE_CGROUP } else { 0 };
    let layout = SampleLayout::new(COMMON | own | callchain | has_cgroup, 0);
    let ip = members.ip.or(frames.first().map(|frame| frame.address)).unwrap_or(0);
    let in_kernel = format.tracepoint().is_some() || is_kernel_address(ip);
    let time = members.time.unwrap_or(0);
    let sample = SampleValues {
        misc: if in_kernel { PERF_RECORD_MISC_KERNEL } else { PERF_RECORD_MISC_USER },
        id: 0,
        ip,
        pid,
        tid,
        time,
        addr: members.addr.unwrap_or(0),
        cpu: members.cpu.unwrap_or(0),
        period: members.period.unwrap_or(1),
        callchain: with_markers(name, &frames)?,
        raw,
        // Any number, which stands for the cgroup. The path of the cgroup is stored beside the record.
        cgroup: 1,
    };
    let record = layout.encode(&sample).map_err(|error| errors::of_record(name, error))?;
    let event = EventType { alias: None, format, layout, max_stack: None };
    let realtime = members.realtime.unwrap_or_else(|| time.min(i64::MAX as u64) as i64);
    let frames = named_frames(&frames, unnamed_frames(&event, &record));
    let Members { comm, cgroup, .. } = members;
    made(py, &event, &record, KeptFacts { comm, realtime: Some(realtime), cgroup, frames, parts: Vec::new() })
}

/// Returns the data of a tracepoint. The kernel writes the id of the thread into `common_pid`.
fn raw_data(name: &str, format: &EventFormat, tid: i32, values: &mut HashMap<String, FieldInput>) -> PyResult<Vec<u8>> {
    let tid = FieldInput::Int(tid.into());
    values.entry("common_pid".to_owned()).or_insert(tid);
    format.encode(values).map_err(|error: EncodeError| errors::of_values(name, &error))
}

fn is_kernel_address(address: u64) -> bool {
    address >> 63 != 0
}

/// Returns the addresses of a callchain. Adds the markers that the kernel writes before kernel frames and before user
/// frames.
fn with_markers(name: &str, frames: &[MadeFrame]) -> PyResult<Vec<u64>> {
    let mut words = Vec::new();
    let mut side = None;
    for (at, frame) in frames.iter().enumerate() {
        let address = frame.address;
        // Values from PERF_CONTEXT_MAX on are markers (`enum perf_callchain_context` in
        // `include/uapi/linux/perf_event.h`).
        if address >= PERF_CONTEXT_MAX {
            let text = format!("{name}: _callchain[{at}] is {address:#x}, which is no address");
            return Err(PyValueError::new_err(text));
        }
        let is_kernel = is_kernel_address(address);
        if side != Some(is_kernel) {
            words.push(if is_kernel { PERF_CONTEXT_KERNEL } else { PERF_CONTEXT_USER });
            side = Some(is_kernel);
        }
        words.push(address);
    }
    Ok(words)
}

/// Returns the decoded frames. Their symbols are those that the caller of `make_event` gave.
fn named_frames(given: &[MadeFrame], decoded: Vec<Arc<Frame>>) -> Vec<Arc<Frame>> {
    let named = |(given, decoded): (&MadeFrame, Arc<Frame>)| {
        let is_plain = given.kind == UserFrame::Native && given.srcline.is_none();
        if is_plain && given.symbol.is_none() && given.dso.is_none() && given.offset.is_none() {
            return decoded;
        }
        let origin = match (decoded.origin, given.kind) {
            (Origin::User { pid }, UserFrame::Inlined) => Origin::Inlined { pid },
            (Origin::User { pid }, UserFrame::Python) => Origin::Python { pid },
            (origin, _) => origin,
        };
        Arc::new(Frame {
            slot: Default::default(),
            addr: decoded.addr,
            symbol: given.symbol.as_deref().map_or_else(|| decoded.symbol.clone(), Arc::from),
            offset: given.offset.unwrap_or(if given.symbol.is_some() { 0 } else { decoded.offset }),
            origin,
            dso: given.dso.as_deref().map_or_else(|| decoded.dso.clone(), Arc::from),
            dso_offset: decoded.dso_offset,
            srcline: given.srcline.as_ref().map(|(file, line)| (file.as_str().into(), *line)),
        })
    };
    given.iter().zip(decoded).map(named).collect()
}
