//! The methods and slots of events: what they offer beyond attributes.

use std::{
    ffi::{CStr, c_int, c_void},
    hash::{DefaultHasher, Hash, Hasher},
};

use pyo3::{
    exceptions::PyTypeError,
    ffi,
    prelude::*,
    types::{PyDict, PyList, PyTuple, PyType},
};

use super::{
    access::{self},
    base::{base_type, field_error},
    convert, detached,
    object::EventObject,
};
use crate::event::{LineContext, LineParts, write_line};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;
type Arguments<'a, 'py> = &'a Bound<'py, PyTuple>;
type Keywords<'a, 'py> = Option<&'a Bound<'py, PyDict>>;
type Method = for<'py> fn(Object<'_, 'py>, Arguments<'_, 'py>, Keywords<'_, 'py>) -> PyResult<Bound<'py, PyAny>>;

const PRINT: &CStr = c"print($self, timestamp=True, callchain=True)\n--\n
Writes the event to sys.stdout: the kernel's own text, and the call chain where there is one.

timestamp puts the local date and time in front.";

/// The method table, which lives as long as the process.
pub fn table() -> &'static mut [ffi::PyMethodDef] {
    // What stands before `--` is the signature that `inspect` and `help()` read. The texts are those of the stubs.
    let mut table = vec![
        method::<0>(c"keys", c"keys($self)\n--\n\nAll names, in the order of the event's record."),
        method::<1>(c"values", c"values($self)\n--\n\nAll values, in the order of keys()."),
        method::<2>(c"items", c"items($self)\n--\n\nAll (name, value) pairs, in the order of keys()."),
        method::<3>(
            c"get",
            c"get($self, name, default=None)\n--\n\nThe value of a name, or default when there is no such name.",
        ),
        method::<4>(c"to_dict", c"to_dict($self)\n--\n\nA dict of all names and values."),
        method::<5>(c"print", PRINT),
        method::<6>(
            c"array",
            c"array($self, name)\n--\n\nThe integers of an array field; TypeError for a field of another kind.",
        ),
        method::<7>(
            c"text",
            c"text($self, name)\n--\n\nOne field as the kernel's print format shows it: GFP_KERNEL|__GFP_ZERO.",
        ),
        method::<8>(
            c"__reduce__",
            c"__reduce__($self)\n--\n\nA copy or pickle is a detached event: complete, and independent of the run.",
        ),
    ];
    // SAFETY: all zero is CPython's mark of the table's end.
    table.push(unsafe { std::mem::zeroed() });
    table.leak()
}

const METHODS: [Method; 9] = [keys, values, items, get, to_dict, print, array, text, detached::reduce];

fn method<const N: usize>(name: &'static CStr, doc: &'static CStr) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: call::<N> },
        ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }
}

/// CPython's way into method N.
unsafe extern "C" fn call<const N: usize>(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls with the lock held, an instance of the class, a tuple, and a dict or null.
    unsafe {
        let py = Python::assume_attached();
        let object = Bound::from_borrowed_ptr(py, object);
        let args = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        let keywords = Bound::from_borrowed_ptr_or_opt(py, keywords).map(|dict| dict.cast_into_unchecked::<PyDict>());
        give(py, METHODS[N](&object, &args, keywords.as_ref()))
    }
}

fn give(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// The event behind an object that has been passed to a method or slot.
pub fn event<'a>(object: &'a Bound<'_, PyAny>) -> &'a EventObject {
    // SAFETY: methods and slots are only reached through instances; the borrow keeps the object alive.
    unsafe { EventObject::of(object.as_ptr()) }
}

/// Whether an object is an event.
pub fn is_event(object: &Bound<'_, PyAny>) -> bool {
    // Not as `isinstance` does, which believes an object that says that it is one (a mock, say): its memory is read.
    // SAFETY: the lock is held, and both are objects.
    let is = |base: &Bound<'_, PyType>| unsafe { ffi::PyObject_TypeCheck(object.as_ptr(), base.as_type_ptr()) != 0 };
    base_type(object.py()).is_ok_and(is)
}

fn member<'py>(object: &Bound<'py, PyAny>, member: access::Member) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: an instance, as above, and the lock is held.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), member.get(object.as_ptr())) }
}

/// Takes arguments by position or by name.
fn arguments<'py, const N: usize>(
    function: &str,
    names: [&str; N],
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<[Option<Bound<'py, PyAny>>; N]> {
    let mut found = [const { None }; N];
    let wrong = |what: String| Err(PyTypeError::new_err(format!("{function}() {what}")));
    if args.len() > N {
        return wrong(format!("takes at most {N} arguments ({} given)", args.len()));
    }
    for (place, value) in found.iter_mut().zip(args.iter()) {
        *place = Some(value);
    }
    for (key, value) in keywords.into_iter().flatten() {
        let key: String = key.extract()?;
        match names.iter().position(|name| *name == key) {
            Some(at) if found[at].is_none() => found[at] = Some(value),
            Some(_) => return wrong(format!("got multiple values for argument '{key}'")),
            None => return wrong(format!("got an unexpected keyword argument '{key}'")),
        }
    }
    Ok(found)
}

fn needed<'py>(function: &str, name: &str, value: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    value.ok_or_else(|| PyTypeError::new_err(format!("{function}() is missing its argument '{name}'")))
}

fn keys<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    arguments("keys", [], args, keywords)?;
    let names = event(object).class().members().iter().map(|(name, _)| name.bind(object.py()));
    Ok(PyList::new(object.py(), names)?.into_any())
}

fn values<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    arguments("values", [], args, keywords)?;
    let list = PyList::empty(object.py());
    for (_, which) in event(object).class().members() {
        list.append(member(object, *which)?)?;
    }
    Ok(list.into_any())
}

fn items<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    arguments("items", [], args, keywords)?;
    let list = PyList::empty(object.py());
    for (name, which) in event(object).class().members() {
        list.append((name.bind(object.py()), member(object, *which)?))?;
    }
    Ok(list.into_any())
}

fn get<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let [name, default] = arguments("get", ["name", "default"], args, keywords)?;
    let name = needed("get", "name", name)?;
    match event(object).class().member(&name)? {
        Some(which) => member(object, which),
        None => Ok(default.unwrap_or_else(|| object.py().None().into_bound(object.py()))),
    }
}

fn to_dict<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    arguments("to_dict", [], args, keywords)?;
    Ok(dict(object)?.into_any())
}

fn dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(object.py());
    for (name, which) in event(object).class().members() {
        dict.set_item(name, member(object, *which)?)?;
    }
    Ok(dict)
}

fn print<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let [timestamp, callchain] = arguments("print", ["timestamp", "callchain"], args, keywords)?;
    let on = |value: Option<Bound<'py, PyAny>>| value.map_or(Ok(true), |value| value.is_truthy());
    let parts = LineParts { timestamp: on(timestamp)?, callchain: on(callchain)? };
    let this = event(object);
    let comm = access::comm(this);
    let frames = if parts.callchain { access::resolve(this) } else { Vec::new() };
    let context = LineContext {
        comm: comm.as_deref(),
        realtime: access::realtime(this),
        frames: &frames,
        ip: access::ip_frame(this),
        kernel: &*this.class().context.kernel,
    };
    let mut line = Vec::with_capacity(256);
    write_line(&this.sample(), parts, &context, &mut line);
    let py = object.py();
    // Through `sys.stdout`, as the script may have put something of its own there.
    let stdout = py.import(pyo3::intern!(py, "sys"))?.getattr(pyo3::intern!(py, "stdout"))?;
    if !stdout.is_none() {
        stdout.call_method1(pyo3::intern!(py, "write"), (convert::text(py, &line)?,))?;
    }
    Ok(py.None().into_bound(py))
}

fn array<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let [name] = arguments("array", ["name"], args, keywords)?;
    let name = needed("array", "name", name)?;
    let this = event(object);
    let Some(which) = this.class().member(&name)? else { return Err(no_field(object, &name)) };
    let view = match which {
        access::Member::Field(index) => this.class().field(index).array(this.class().raw(this.record())),
        _ => None,
    };
    match view {
        Some(values) => convert::tuple(object.py(), values),
        None => Err(PyTypeError::new_err(format!("field {} is not an array of integers", name.repr()?))),
    }
}

fn text<'py>(
    object: Object<'_, 'py>,
    args: Arguments<'_, 'py>,
    keywords: Keywords<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let [name] = arguments("text", ["name"], args, keywords)?;
    let name = needed("text", "name", name)?;
    let this = event(object);
    let Some(which) = this.class().member(&name)? else { return Err(no_field(object, &name)) };
    let access::Member::Field(index) = which else { return Ok(member(object, which)?.str()?.into_any()) };
    let class = this.class();
    let mut shown = Vec::new();
    let raw = class.raw(this.record());
    if let Some(format) = class.event.format.tracepoint() {
        format.render_field(&class.field(index).name, raw, &*class.context.kernel, &mut shown);
    }
    convert::text(object.py(), &shown)
}

/// The error of a name that the event does not have, with names that are near.
fn no_field(object: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>) -> PyErr {
    let py = object.py();
    let class = event(object).class();
    let names: Vec<String> = class.members().iter().filter_map(|(name, _)| name.extract(py).ok()).collect();
    let near = name.extract::<String>().ok().map(|typed| {
        let near = crate::spec::near(&typed, names.iter().map(String::as_str));
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
    });
    let shown = name.repr().map(|repr| repr.to_string()).unwrap_or_default();
    let message = format!("{} has no field {shown}{}", class.shown_name, near.unwrap_or_default());
    match field_error(py) {
        Ok(class) => PyErr::from_type(class.clone(), message),
        Err(error) => error,
    }
}

/// The slots, by CPython's numbers.
pub fn slots() -> impl Iterator<Item = (c_int, *mut c_void)> {
    [
        (ffi::Py_mp_subscript, subscript as *mut c_void),
        (ffi::Py_mp_length, length as *mut c_void),
        (ffi::Py_sq_contains, contains as *mut c_void),
        (ffi::Py_tp_iter, iterate as *mut c_void),
        (ffi::Py_tp_str, str as *mut c_void),
        (ffi::Py_tp_repr, repr as *mut c_void),
        (ffi::Py_tp_hash, hash as *mut c_void),
        (ffi::Py_tp_richcompare, compare as *mut c_void),
    ]
    .into_iter()
}

/// # Safety
/// For slots: `object` is an instance, the lock is held.
unsafe fn bound<'py>(object: *mut ffi::PyObject) -> Bound<'py, PyAny> {
    // SAFETY: the caller's.
    unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), object) }
}

unsafe extern "C" fn subscript(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython's promise to slots.
    let (object, key) = unsafe { (bound(object), bound(key)) };
    let found = event(&object).class().member(&key);
    let value = found.and_then(|which| match which {
        Some(which) => member(&object, which),
        None => Err(no_field(&object, &key)),
    });
    give(object.py(), value)
}

unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: CPython's promise to slots.
    let object = unsafe { bound(object) };
    event(&object).class().members().len() as ffi::Py_ssize_t
}

unsafe extern "C" fn contains(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> c_int {
    // SAFETY: CPython's promise to slots.
    let (object, key) = unsafe { (bound(object), bound(key)) };
    match event(&object).class().member(&key) {
        Ok(found) => found.is_some().into(),
        Err(error) => {
            error.restore(object.py());
            -1
        }
    }
}

unsafe extern "C" fn iterate(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython's promise to slots.
    let object = unsafe { bound(object) };
    let list = items(&object, &PyTuple::empty(object.py()), None);
    give(object.py(), list.and_then(|list| Ok(list.try_iter()?.into_any())))
}

unsafe extern "C" fn str(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython's promise to slots.
    let object = unsafe { bound(object) };
    give(object.py(), dict(&object).and_then(|dict| Ok(dict.str()?.into_any())))
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython's promise to slots.
    let object = unsafe { bound(object) };
    let this = event(&object);
    let sample = this.sample();
    let (pid, _) = sample.pid_tid();
    let name = &this.class().shown_name;
    let text = format!("<PerfEvent {name} cpu={} pid={pid} time={}>", sample.cpu(), sample.time());
    give(object.py(), convert::text(object.py(), text.as_bytes()))
}

unsafe extern "C" fn hash(object: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: CPython's promise to slots.
    let object = unsafe { bound(object) };
    let this = event(&object);
    let mut hasher = DefaultHasher::new();
    this.class().shown_name.hash(&mut hasher);
    this.record().hash(&mut hasher);
    // -1 is how a slot tells of an error.
    match hasher.finish() as ffi::Py_hash_t {
        -1 => -2,
        hash => hash,
    }
}

unsafe extern "C" fn compare(
    object: *mut ffi::PyObject,
    other: *mut ffi::PyObject,
    operation: c_int,
) -> *mut ffi::PyObject {
    // SAFETY: CPython's promise to slots.
    let (object, other) = unsafe { (bound(object), bound(other)) };
    let py = object.py();
    let comparable = matches!(operation, ffi::Py_EQ | ffi::Py_NE);
    if !comparable || !is_event(&other) {
        return py.NotImplemented().into_ptr();
    }
    let (a, b) = (event(&object), event(&other));
    let equal = a.class().shown_name == b.class().shown_name && a.record() == b.record();
    // SAFETY: the lock is held.
    unsafe { ffi::PyBool_FromLong((equal == (operation == ffi::Py_EQ)).into()) }
}
