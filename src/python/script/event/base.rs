//! The Python classes `perf_prof.PerfEvent`, the base of all events, and `perf_prof.FieldError`.

use std::ffi::{c_int, c_uint, c_void};

use pyo3::{
    exceptions::{PyAttributeError, PyKeyError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyTuple, PyType},
};

use super::{attributes, members, methods, object};

const DOC: &std::ffi::CStr =
    c"One kernel event, as it is passed to its handler. It is read-only. A field is decoded each time it is read.

Every event has _pid, _tid, _time (ns), _cpu, _period, _realtime (ns since the epoch), _callchain (list of frames),
_comm (name of the task) and _event (its name: 'sys:name', 'profile'). With --all-cgroups it has _cgroup (path of the
task's cgroup). A tracepoint also has common_type, common_flags, common_preempt_count, common_pid and its own fields.
Other events have the members of their samples (ip, addr, period, ...). type(event).__doc__ lists them.

Access: event.field, event['field'], event.get('field', default=None), 'field' in event, len(event), keys(),
values(), items(), iteration over (name, value), dict(event), to_dict(). event.print() writes the event as text.
event.text('flags') returns a field as text, as the kernel prints it. event.array('args') returns the integers of
an array field as a tuple. A script may keep an event after its handler has returned.";

/// Returns the class `perf_prof.PerfEvent`, which is created at the first call.
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
    // SAFETY: the spec and its slots are complete. Name, doc, members and methods live as long as the process.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))? };
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// Returns the class `perf_prof.FieldError`. `event['x']` raises it if the event has no field x. FieldError is a
/// KeyError, like the error of a dict, and also an AttributeError, like the error of `event.x`.
pub fn field_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let bases = PyTuple::new(py, [py.get_type::<PyKeyError>(), py.get_type::<PyAttributeError>()])?;
        let doc = c"Raised if an event has no field of the given name. It is both a KeyError and an AttributeError.";
        // SAFETY: name and doc are static, and the bases are a tuple of exception classes.
        let made = unsafe {
            let name = c"perf_prof.FieldError".as_ptr();
            let made = ffi::PyErr_NewExceptionWithDoc(name, doc.as_ptr(), bases.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)?
        };
        Ok(made.cast_into::<PyType>()?.unbind())
    };
    TYPE.get_or_try_init(py, make).map(|made| made.bind(py))
}
