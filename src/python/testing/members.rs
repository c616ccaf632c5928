//! Converts the Python objects that `make_event` gets to field values and sample members.

use perf_prof_format::tracefs::FieldInput;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple},
};

/// Returns the value of a field.
pub fn field_input(name: &str, value: &Bound<'_, PyAny>) -> PyResult<FieldInput> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(FieldInput::Text(text_bytes(text)?));
    }
    if value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>()
    {
        let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
        return Ok(FieldInput::Bytes(bytes.extract()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let element = |(at, element): (usize, PyResult<Bound<'_, PyAny>>)| {
            let place = format!("{name}[{at}]");
            match integer(&place, &element?, "an int")? {
                Integer::Small(number) => Ok(number),
                Integer::Huge(number) => Err(PyValueError::new_err(format!("{place} is {number}, which is too large"))),
            }
        };
        return Ok(FieldInput::Ints(value.try_iter()?.enumerate().map(element).collect::<PyResult<_>>()?));
    }
    Ok(match integer(name, value, "an int, a str, bytes or a list of ints")? {
        Integer::Small(number) => FieldInput::Int(number),
        Integer::Huge(number) => FieldInput::HugeInt(number),
    })
}

enum Integer {
    Small(i128),
    /// An integer that is larger than any field, as text for messages.
    Huge(String),
}

/// Parses an integer. `needed` describes the types that the value may have, for messages.
fn integer(name: &str, value: &Bound<'_, PyAny>, needed: &str) -> PyResult<Integer> {
    let wrong = || {
        let kind = value.get_type().name().map_or_else(|_| "unknown".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("{name} has a value of type {kind}; it needs {needed}"))
    };
    // Accepts what `operator.index` accepts: an int, a bool, a member of an IntEnum, or an integer of numpy.
    let index = value.py().import("operator")?.getattr("index")?.call1((value,)).map_err(|_| wrong())?;
    match index.extract::<i128>() {
        Ok(number) => Ok(Integer::Small(number)),
        Err(_) => {
            let bits = index.call_method0("bit_length")?;
            Ok(Integer::Huge(format!("an int of {bits} bits")))
        }
    }
}

/// Returns the bytes of a text. A comm may contain bytes that are not UTF-8 (PEP 383).
fn text_bytes(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    text.call_method1("encode", ("utf-8", "surrogateescape"))?.extract()
}

/// The maximum size of a comm in bytes: TASK_COMM_LEN in `include/linux/sched.h`, without the NUL.
const LONGEST_COMM: usize = 15;

/// The members of a made event that its format does not contain as fields. `None` for members that were not given.
#[derive(Default)]
pub struct Members {
    pub time: Option<u64>,
    pub cpu: Option<u32>,
    pub pid: Option<i32>,
    pub tid: Option<i32>,
    pub period: Option<u64>,
    pub realtime: Option<i64>,
    pub ip: Option<u64>,
    pub addr: Option<u64>,
    pub comm: Option<Vec<u8>>,
    pub cgroup: Option<Vec<u8>>,
    pub callchain: Option<Vec<MadeFrame>>,
}

/// A frame of a made callchain. Members that were not given are `None`.
#[derive(Default)]
pub struct MadeFrame {
    pub address: u64,
    pub symbol: Option<String>,
    pub dso: Option<String>,
    pub offset: Option<u64>,
    pub kind: UserFrame,
    /// The source file and the line.
    pub srcline: Option<(String, u32)>,
}

/// The kind of a frame that is not in the kernel.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum UserFrame {
    #[default]
    Native,
    Inlined,
    Python,
}

impl Members {
    /// The names of all members.
    pub const NAMES: [&str; 11] =
        ["_time", "_cpu", "_pid", "_tid", "_period", "_realtime", "_ip", "_addr", "_comm", "_cgroup", "_callchain"];

    /// Sets the member `name`. Returns false if there is no such member.
    pub fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name {
            "_time" => self.time = Some(number(name, value, 0, u64::MAX.into())? as u64),
            "_cpu" => self.cpu = Some(number(name, value, 0, u32::MAX.into())? as u32),
            "_pid" => self.pid = Some(number(name, value, -1, i32::MAX.into())? as i32),
            "_tid" => self.tid = Some(number(name, value, -1, i32::MAX.into())? as i32),
            "_period" => self.period = Some(number(name, value, 0, u64::MAX.into())? as u64),
            "_realtime" => self.realtime = Some(number(name, value, i64::MIN.into(), i64::MAX.into())? as i64),
            "_ip" => self.ip = Some(address(name, value)?),
            "_addr" => self.addr = Some(address(name, value)?),
            "_comm" => self.comm = Some(comm(value)?),
            "_cgroup" => self.cgroup = Some(text_or_bytes(name, value)?),
            "_callchain" => self.callchain = Some(callchain(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses an integer that must not be negative.
pub fn whole_number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(number(name, value, 0, u64::MAX.into())? as u64)
}

fn number(name: &str, value: &Bound<'_, PyAny>, low: i128, high: i128) -> PyResult<i128> {
    let out_of_range =
        |value: String| Err(PyValueError::new_err(format!("{name} is {value}, but must be from {low} to {high}")));
    match integer(name, value, "an int")? {
        Integer::Small(number) if (low..=high).contains(&number) => Ok(number),
        Integer::Small(number) => out_of_range(number.to_string()),
        Integer::Huge(number) => out_of_range(number),
    }
}

fn address(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(number(name, value, 0, u64::MAX.into())? as u64)
}

fn comm(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = text_or_bytes("_comm", value)?;
    match text.len() {
        ..=LONGEST_COMM => Ok(text),
        size => Err(PyValueError::new_err(format!(
            "_comm has {size} bytes, but the name of a task has at most {LONGEST_COMM}"
        ))),
    }
}

fn text_or_bytes(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match field_input(name, value)? {
        FieldInput::Text(text) | FieldInput::Bytes(text) => Ok(text),
        _ => Err(PyTypeError::new_err(format!("{name} has to be a str or bytes"))),
    }
}

/// Returns the frames of a callchain. Each frame is an address, a tuple (address, symbol) or (address, symbol, dso), or
/// a dict as in `_callchain`.
fn callchain(value: &Bound<'_, PyAny>) -> PyResult<Vec<MadeFrame>> {
    let frame = |(at, frame): (usize, PyResult<Bound<'_, PyAny>>)| {
        let (place, frame) = (format!("_callchain[{at}]"), frame?);
        made_frame(&place, &frame)
    };
    value.try_iter()?.enumerate().map(frame).collect()
}

fn made_frame(place: &str, frame: &Bound<'_, PyAny>) -> PyResult<MadeFrame> {
    let text = |value: Option<Bound<'_, PyAny>>| -> PyResult<Option<String>> {
        value.filter(|value| !value.is_none()).map(|value| value.extract()).transpose()
    };
    let made = if let Ok(dict) = frame.cast::<PyDict>() {
        let Some(at) = dict.get_item("addr")? else {
            return Err(PyValueError::new_err(format!("{place} has no 'addr'")));
        };
        let offset = dict.get_item("offset")?.map(|offset| address(place, &offset)).transpose()?;
        let (symbol, dso) = (text(dict.get_item("symbol")?)?, text(dict.get_item("dso")?)?);
        let has = |name: &str| -> PyResult<bool> { dict.get_item(name)?.map_or(Ok(false), |value| value.is_truthy()) };
        let kind = match (has("python")?, has("inlined")?) {
            (true, _) => UserFrame::Python,
            (false, true) => UserFrame::Inlined,
            (false, false) => UserFrame::Native,
        };
        let srcline = source_line(place, dict, kind, dso.as_deref())?;
        MadeFrame { address: address(place, &at)?, symbol, dso, offset, kind, srcline }
    } else if let Ok(parts) = frame.cast::<PyTuple>() {
        if parts.is_empty() || parts.len() > 3 {
            let text = format!("{place} has to be an address, (address, symbol) or (address, symbol, dso)");
            return Err(PyValueError::new_err(text));
        }
        let part = |at: usize| text(parts.get_item(at).ok());
        let (address, symbol, dso) = (address(place, &parts.get_item(0)?)?, part(1)?, part(2)?);
        MadeFrame { address, symbol, dso, ..MadeFrame::default() }
    } else {
        MadeFrame { address: address(place, frame)?, ..MadeFrame::default() }
    };
    Ok(made)
}

/// Returns the source file and the line of a frame, which its `srcline` and its `line` say. `dso` is the file of a frame
/// that has only a `line`.
fn source_line(
    place: &str,
    frame: &Bound<'_, PyDict>,
    kind: UserFrame,
    dso: Option<&str>,
) -> PyResult<Option<(String, u32)>> {
    let given = |name: &str| -> PyResult<_> { Ok(frame.get_item(name)?.filter(|value| !value.is_none())) };
    let srcline = given("srcline")?.map(|text| srcline(place, &text.extract::<String>()?)).transpose()?;
    let Some(line) = given("line")? else { return Ok(srcline) };
    let line = number(&format!("{place}['line']"), &line, 1, u32::MAX.into())? as u32;
    let wrong = |why: &str| Err(PyValueError::new_err(format!("{place} has the line {line}, {why}")));
    match (srcline, dso) {
        _ if kind != UserFrame::Python => {
            wrong("but only frames with 'python': True have a line; others have a srcline")
        }
        (Some(srcline), _) if srcline.1 == line => Ok(Some(srcline)),
        (Some((file, other)), _) => wrong(&format!("but its srcline '{file}:{other}' has another one")),
        (None, Some(file)) => Ok(Some((file.to_owned(), line))),
        (None, None) => wrong("which needs a dso, such as app.py"),
    }
}

/// Returns the parts of a `srcline` such as `/srv/app.py:42`.
fn srcline(place: &str, text: &str) -> PyResult<(String, u32)> {
    let parts = text.rsplit_once(':').and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
    parts.ok_or_else(|| {
        PyValueError::new_err(format!("{place} has the srcline '{text}', which has to be FILE:LINE, such as app.py:42"))
    })
}
