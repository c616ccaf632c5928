//! `perf_prof.PerfEvent`, the base class of all events, and the error of a missing field.

use std::ffi::{c_int, c_uint, c_void};

use pyo3::{
    exceptions::{PyAttributeError, PyKeyError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyTuple, PyType},
};

use super::{attributes, members, methods, object};

const DOC: &std::ffi::CStr = c"One kernel event, as its handler gets it. Read-only; fields are decoded when they are read.

Every event has _pid, _tid, _time (ns), _cpu, _period, _realtime (ns since the epoch), _callchain (list of frames) and
_event (its name: 'sys:name', 'profile'), tracepoints also common_type, common_flags, common_preempt_count, common_pid. Then
its own fields, of what is no tracepoint the members of its samples (ip, addr, period, ...): type(event).__doc__ lists them.

Access: event.field, event['field'], event.get('field', default=None), 'field' in event, len(event), keys(), values(),
items(), iteration over (name, value), dict(event), to_dict(). event.print() writes it as text, event.text('flags') gives
one field as the kernel shows it, event.array('args') an integer array as a tuple. An event that is kept stays usable.";

/// The class `perf_prof.PerfEvent`.
pub fn base_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.get_or_try_init(py, || make(py)).map(|made| made.bind(py))
}

fn make(py: Python<'_>) -> PyResult<Py<PyType>> {
    let own = members::terminated(members::own_members());
    let methods = methods::table();
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = vec![
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_getattro, attributes::get as *mut c_void),
        slot(ffi::Py_tp_dealloc, object::dealloc as *mut c_void),
        slot(ffi::Py_tp_getset, own.as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
    ];
    slots.extend(methods::slots().map(|(number, function)| slot(number, function)));
    slots.push(slot(0, std::ptr::null_mut()));
    let mut spec = ffi::PyType_Spec {
        name: c"perf_prof.PerfEvent".as_ptr(),
        basicsize: size_of::<object::EventObject>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_BASETYPE
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
            | ffi::Py_TPFLAGS_IMMUTABLETYPE) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec and its slots are complete; name, doc, members and methods live as long as the process.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))? };
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// `perf_prof.FieldError`, raised by `event['x']`: both a KeyError, as of a dict, and an AttributeError, as of `event.x`.
pub fn field_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let bases = PyTuple::new(py, [py.get_type::<PyKeyError>(), py.get_type::<PyAttributeError>()])?;
        let doc = c"An event has no field of that name; both a KeyError and an AttributeError.";
        // SAFETY: name and doc are static, the bases a tuple of exception classes.
        let made = unsafe {
            let name = c"perf_prof.FieldError".as_ptr();
            let made = ffi::PyErr_NewExceptionWithDoc(name, doc.as_ptr(), bases.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)?
        };
        Ok(made.cast_into::<PyType>()?.unbind())
    };
    TYPE.get_or_try_init(py, make).map(|made| made.bind(py))
}
