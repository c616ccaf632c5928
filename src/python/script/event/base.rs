//! The Python classes `perf_prof.PerfEvent`, the base of all events, and `perf_prof.FieldError`.

use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};

use pyo3::{
    exceptions::{PyAttributeError, PyKeyError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyTuple, PyType},
};

use super::{attributes, members, methods, object};

const DOC: &CStr =
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
    let mut slots = vec![
        (ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        (ffi::Py_tp_getattro, attributes::get as *mut c_void),
        (ffi::Py_tp_dealloc, object::dealloc as *mut c_void),
        (ffi::Py_tp_getset, own.as_mut_ptr().cast()),
        (ffi::Py_tp_methods, methods::table().as_mut_ptr().cast()),
    ];
    slots.extend(methods::slots());
    // SAFETY: name, doc, members and methods live as long as the process.
    unsafe { new_type(py, c"perf_prof.PerfEvent", ffi::Py_TPFLAGS_BASETYPE, slots, None).map(Bound::unbind) }
}

/// Creates a class that scripts can neither change nor instantiate. Its objects have the layout of the base class, or that
/// of an event if there is none.
///
/// # Safety
///
/// The name and what `slots` point to live as long as the process.
pub unsafe fn new_type<'py>(
    py: Python<'py>,
    name: &CStr,
    flags: c_ulong,
    slots: Vec<(c_int, *mut c_void)>,
    base: Option<&Bound<'py, PyType>>,
) -> PyResult<Bound<'py, PyType>> {
    let end = (0, std::ptr::null_mut());
    let mut slots: Vec<_> =
        slots.into_iter().chain([end]).map(|(slot, pfunc)| ffi::PyType_Slot { slot, pfunc }).collect();
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        // 0 means the size of the base class.
        basicsize: if base.is_some() { 0 } else { size_of::<object::EventObject>() as c_int },
        itemsize: 0,
        flags: (flags
            | ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
            | ffi::Py_TPFLAGS_IMMUTABLETYPE) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let bases = base.map_or(std::ptr::null_mut(), |base| base.as_ptr());
    // SAFETY: the spec and its slots are complete, and the caller guarantees that what they point to lives.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpecWithBases(&mut spec, bases))? };
    Ok(made.cast_into::<PyType>()?)
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
