//! Converts decoded values, callchains, registers and counters to Python objects.

use std::{ffi::c_char, sync::Arc};

use pyo3::{
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyList, PyString, PyTuple, PyType},
};

use perf_prof_events::event::{Frame, Origin};
use perf_prof_format::{
    abi::RegisterSet,
    record::{Branch, Counter, Counters, Reading, Registers},
    value::{self, Value},
};

/// Returns a new reference to a value as a Python object, or null with an exception set if there is not enough memory.
///
/// # Safety
/// The GIL is held.
#[inline]
pub unsafe fn value(value: Value<'_>) -> *mut ffi::PyObject {
    // SAFETY: the GIL is held. Pointers and lengths are those of live slices.
    unsafe {
        match value {
            Value::Int(number) => ffi::PyLong_FromLongLong(number),
            Value::Uint(number) => ffi::PyLong_FromUnsignedLongLong(number),
            Value::Bool(on) => ffi::PyBool_FromLong(on.into()),
            Value::Str(text) => string(text),
            Value::Bytes(bytes) => ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize),
            Value::Words(bytes) => words(bytes),
        }
    }
}

/// Returns a new reference to a tuple that contains these numbers.
///
/// # Safety
/// The GIL is held.
unsafe fn words(bytes: &[u8]) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    match PyTuple::new(py, value::words(bytes)) {
        Ok(numbers) => numbers.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Returns a new reference to a str. Bytes that are not UTF-8 become lone surrogates (PEP 383). So the conversion
/// raises no exception, and printing the str writes the same bytes again.
///
/// # Safety
/// The GIL is held.
#[inline]
pub unsafe fn string(text: &[u8]) -> *mut ffi::PyObject {
    const ERRORS: *const c_char = c"surrogateescape".as_ptr();
    // SAFETY: the GIL is held. Pointer and length are those of a live slice.
    unsafe { ffi::PyUnicode_DecodeUTF8(text.as_ptr().cast(), text.len() as isize, ERRORS) }
}

/// Returns a str as a `Bound`; see `string`.
pub fn text<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `py` proves that the GIL is held.
    unsafe { Bound::from_owned_ptr_or_err(py, string(text)) }
}

/// Returns the Python object for the value `of`.
pub fn object<'py>(py: Python<'py>, of: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `py` proves that the GIL is held.
    unsafe { Bound::from_owned_ptr_or_err(py, value(of)) }
}

/// Returns the values as a tuple.
pub fn tuple<'py, 'a>(py: Python<'py>, values: impl Iterator<Item = Value<'a>>) -> PyResult<Bound<'py, PyAny>> {
    let objects = values.map(|value| object(py, value)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, objects)?.into_any())
}

/// Returns a callchain as a list of dicts. The dict of a frame is created once and stored with the frame. Each list
/// gets copies of these dicts, because scripts may change them.
pub fn callchain<'py>(py: Python<'py>, frames: &[Arc<Frame>]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held (`py`). The list has as many items as there are frames, and each item is set once. If an
    // error ends the loop early, the list is freed with its other items still null, which CPython allows.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(frames.len() as ffi::Py_ssize_t))?;
        for (at, frame) in frames.iter().enumerate() {
            let dict = match frame.slot.get().and_then(|made| made.downcast_ref::<Py<PyDict>>()) {
                Some(kept) => kept.bind(py).copy()?,
                None => {
                    let made = self::frame(py, frame)?;
                    let copy = made.copy()?;
                    frame.slot.put(Box::new(made.unbind()));
                    copy
                }
            };
            ffi::PyList_SET_ITEM(list.as_ptr(), at as ffi::Py_ssize_t, dict.into_ptr());
        }
        Ok(list)
    }
}

fn frame<'py>(py: Python<'py>, frame: &Frame) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(pyo3::intern!(py, "addr"), frame.addr)?;
    dict.set_item(pyo3::intern!(py, "symbol"), &*frame.symbol)?;
    dict.set_item(pyo3::intern!(py, "offset"), frame.offset)?;
    dict.set_item(pyo3::intern!(py, "kernel"), frame.origin == Origin::Kernel)?;
    dict.set_item(pyo3::intern!(py, "dso"), &*frame.dso)?;
    if let Origin::User { pid } | Origin::Inlined { pid } | Origin::Python { pid } = frame.origin {
        dict.set_item(pyo3::intern!(py, "pid"), pid)?;
    }
    if let Origin::Inlined { .. } = frame.origin {
        dict.set_item(pyo3::intern!(py, "inlined"), true)?;
    }
    if let Origin::Python { .. } = frame.origin {
        dict.set_item(pyo3::intern!(py, "python"), true)?;
        dict.set_item(pyo3::intern!(py, "line"), frame.srcline.as_ref().map(|(_, line)| *line))?;
    }
    if let Some((file, line)) = &frame.srcline {
        dict.set_item(pyo3::intern!(py, "srcline"), format!("{file}:{line}"))?;
    }
    Ok(dict)
}

/// Returns a dict with the values of the registers by name. `set` determines the names. The value of the key `abi` is 1
/// for a 32-bit program and 2 for a 64-bit program.
pub fn registers<'py>(py: Python<'py>, registers: &Registers<'_>, set: RegisterSet) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item(pyo3::intern!(py, "abi"), u64::from(registers.abi))?;
    for (bit, value) in registers.iter() {
        match set.name(registers.abi, bit) {
            Some(name) => dict.set_item(PyString::intern(py, name), value)?,
            None => dict.set_item(format!("reg{bit}"), value)?,
        }
    }
    Ok(dict.into_any())
}

/// Returns the branches as a list of objects of the class `perf_prof.Branch`.
pub fn branches<'py>(py: Python<'py>, branches: impl Iterator<Item = Branch>) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "perf_prof", "Branch")?;
    let object = |branch: Branch| {
        let dict = PyDict::new(py);
        dict.set_item(pyo3::intern!(py, "from"), branch.from)?;
        dict.set_item(pyo3::intern!(py, "to"), branch.to)?;
        dict.set_item(pyo3::intern!(py, "mispred"), branch.mispred())?;
        dict.set_item(pyo3::intern!(py, "predicted"), branch.predicted())?;
        dict.set_item(pyo3::intern!(py, "in_tx"), branch.in_tx())?;
        dict.set_item(pyo3::intern!(py, "abort"), branch.abort())?;
        dict.set_item(pyo3::intern!(py, "cycles"), branch.cycles())?;
        class.call1((dict,))
    };
    Ok(PyList::new(py, branches.map(object).collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// Returns a dict with the values of a counter by name. For a group of events, the value of the key `cntr` is a list
/// that contains a dict for each event.
pub fn reading<'py>(py: Python<'py>, reading: &Reading) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let put = |dict: &Bound<'py, PyDict>, name: &str, value: Option<u64>| match value {
        Some(value) => dict.set_item(PyString::intern(py, name), value),
        None => Ok(()),
    };
    let own = |dict: &Bound<'py, PyDict>, counter: &Counter| {
        put(dict, "id", counter.id)?;
        put(dict, "lost", counter.lost)
    };
    let first = match &reading.counters {
        Counters::One(counter) => ("value", counter.value),
        Counters::Group(group) => ("nr", group.len() as u64),
    };
    put(&dict, first.0, Some(first.1))?;
    put(&dict, "time_enabled", reading.time_enabled)?;
    put(&dict, "time_running", reading.time_running)?;
    match &reading.counters {
        Counters::One(counter) => own(&dict, counter)?,
        Counters::Group(group) => {
            let list = PyList::empty(py);
            for counter in group {
                let member = PyDict::new(py);
                put(&member, "value", Some(counter.value))?;
                own(&member, counter)?;
                list.append(member)?;
            }
            dict.set_item(pyo3::intern!(py, "cntr"), list)?;
        }
    }
    Ok(dict.into_any())
}
