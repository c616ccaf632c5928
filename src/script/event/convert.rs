//! Decoded values to Python objects.

use std::{ffi::c_char, sync::Arc};

use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyList, PyString, PyTuple},
};

use crate::{
    abi::{RegsAbi, register_name},
    event::{Frame, Origin},
    record::{Counter, Counters, Reading, Registers},
    value::Value,
};

/// A new reference to a value's Python object; null with an exception set when memory is short.
///
/// # Safety
/// The lock is held.
#[inline]
pub unsafe fn value(value: Value<'_>) -> *mut ffi::PyObject {
    // SAFETY: the lock is held; pointers and lengths are those of live slices.
    unsafe {
        match value {
            Value::Int(number) => ffi::PyLong_FromLongLong(number),
            Value::Uint(number) => ffi::PyLong_FromUnsignedLongLong(number),
            Value::Bool(on) => ffi::PyBool_FromLong(on.into()),
            Value::Str(text) => string(text),
            Value::Bytes(bytes) => ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize),
        }
    }
}

/// A new reference to a str. Bytes that are not UTF-8 become lone surrogates (PEP 383), so this never raises for them
/// and printing gives them back.
///
/// # Safety
/// The lock is held.
#[inline]
pub unsafe fn string(text: &[u8]) -> *mut ffi::PyObject {
    const ERRORS: *const c_char = c"surrogateescape".as_ptr();
    // SAFETY: the lock is held; pointer and length are those of a live slice.
    unsafe { ffi::PyUnicode_DecodeUTF8(text.as_ptr().cast(), text.len() as isize, ERRORS) }
}

/// A str object.
pub fn text<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `py` says that the lock is held.
    unsafe { Bound::from_owned_ptr_or_err(py, string(text)) }
}

/// A value's object.
pub fn object<'py>(py: Python<'py>, of: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `py` says that the lock is held.
    unsafe { Bound::from_owned_ptr_or_err(py, value(of)) }
}

/// A tuple of values.
pub fn tuple<'py, 'a>(py: Python<'py>, values: impl Iterator<Item = Value<'a>>) -> PyResult<Bound<'py, PyAny>> {
    let objects = values.map(|value| object(py, value)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, objects)?.into_any())
}

/// A call chain as a list of dicts. Each has its own, copied from one that is kept with the frame: what is in it is made
/// once.
pub fn callchain<'py>(py: Python<'py>, frames: &[Arc<Frame>]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the lock is held (`py`); the list is as long as there are frames, each of its places is set once, and one
    // that is given up before that is freed as it is.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(frames.len() as ffi::Py_ssize_t))?;
        for (at, frame) in frames.iter().enumerate() {
            let dict = match frame.slot.get::<Py<PyDict>>() {
                Some(kept) => kept.bind(py).copy()?,
                None => {
                    let made = self::frame(py, frame)?;
                    let copy = made.copy()?;
                    frame.slot.put(made.unbind());
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
    if let Origin::User { pid } | Origin::Inlined { pid } = frame.origin {
        dict.set_item(pyo3::intern!(py, "pid"), pid)?;
    }
    if let Origin::Inlined { .. } = frame.origin {
        dict.set_item(pyo3::intern!(py, "inlined"), true)?;
    }
    if let Some((file, line)) = &frame.srcline {
        dict.set_item(pyo3::intern!(py, "srcline"), format!("{file}:{line}"))?;
    }
    Ok(dict)
}

/// Registers by name, with the kind of program that they are of as `abi`.
pub fn registers<'py>(py: Python<'py>, registers: &Registers<'_>) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let abi = match registers.abi {
        RegsAbi::None => 0,
        RegsAbi::Bits32 => 1,
        RegsAbi::Bits64 => 2,
        RegsAbi::Other(abi) => abi,
    };
    dict.set_item(pyo3::intern!(py, "abi"), abi)?;
    for (bit, value) in registers.iter() {
        match register_name(bit) {
            Some(name) => dict.set_item(PyString::intern(py, name), value)?,
            None => dict.set_item(format!("reg{bit}"), value)?,
        }
    }
    Ok(dict.into_any())
}

/// A counter's values by name; of a group, a list of its members in `cntr`.
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
