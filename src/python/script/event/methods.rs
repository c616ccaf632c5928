//! The Python methods of events, and their slots: subscript, length, iteration, comparison and others.

use std::{
    ffi::{CStr, c_int, c_void},
    hash::{DefaultHasher, Hash, Hasher},
};

use perf_prof_events::aggregate::{Align, Report};
use perf_prof_events::event::{LineContext, LineParts, write_line};
use perf_prof_format::control_characters::for_terminal;
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    ffi,
    prelude::*,
    types::{PyDict, PyList, PyTuple, PyType},
};

use super::{
    super::printing::is_terminal,
    access,
    attributes::Getter,
    base::{base_type, field_error},
    convert, detached,
    input::input_of,
    object::EventObject,
};

/// The arguments of a method, in the order of their names. An argument that was not passed is `None`.
type Given<'py, const N: usize> = [Option<Bound<'py, PyAny>>; N];
/// What a method returns.
pub(super) type Returned<'py> = PyResult<Bound<'py, PyAny>>;

const PRINT: &CStr = c"print($self, timestamp=True, callchain=True)\n--\n
Writes the event to sys.stdout: the kernel's own text, and the call chain if there is one.

If timestamp is true, the line starts with the local date and time.";

/// Returns the entry of a method in the table. `$names` are the names of its arguments.
macro_rules! method {
    ($name:literal, $names:expr, $method:path, $doc:expr) => {{
        unsafe extern "C" fn function(
            object: *mut ffi::PyObject,
            args: *mut ffi::PyObject,
            keywords: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: CPython calls this with the GIL held. It passes an instance of the class, a tuple, and a dict or
            // null.
            unsafe { call(($name, $names), $method, object, args, keywords) }
        }
        ffi::PyMethodDef {
            ml_name: $name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: function },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: $doc.as_ptr(),
        }
    }};
}

/// Returns the method table, which lives as long as the process.
pub fn table() -> &'static mut [ffi::PyMethodDef] {
    // The part before `--` is the signature, which `inspect` and `help()` read. The stub contains the same texts.
    let mut table = vec![
        method!(
            c"keys",
            [],
            keys,
            c"keys($self)\n--\n\nReturns the names of all fields, in the order of the event's record."
        ),
        method!(
            c"values",
            [],
            values,
            c"values($self)\n--\n\nReturns the values of all fields, in the order of keys()."
        ),
        method!(
            c"items",
            [],
            items,
            c"items($self)\n--\n\nReturns the (name, value) pairs of all fields, in the order of keys()."
        ),
        ffi::PyMethodDef {
            ml_name: c"get".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call_get },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: c"get($self, name, default=None)\n--\n
Returns the value of the field with this name, or default if the event has no such field."
                .as_ptr(),
        },
        method!(
            c"_repr_html_",
            [],
            repr_html,
            c"_repr_html_($self)\n--\n\nJupyter shows this in a notebook: a table of the names and values."
        ),
        method!(
            c"to_dict",
            [],
            to_dict,
            c"to_dict($self)\n--\n\nReturns a dict with the names and values of all fields."
        ),
        method!(c"print", ["timestamp", "callchain"], print, PRINT),
        method!(
            c"array",
            ["name"],
            array,
            c"array($self, name)\n--\n
Returns the integers of an array field. Raises TypeError if the field is not an array of integers."
        ),
        method!(
            c"text",
            ["name"],
            text,
            c"text($self, name)\n--\n
Returns a field as text, as the kernel's print format shows it, for example GFP_KERNEL|__GFP_ZERO."
        ),
        method!(
            c"__reduce__",
            [],
            detached::reduce,
            c"__reduce__($self)\n--\n
Supports copy and pickle. A copy of the event is complete: it does not depend on the run."
        ),
    ];
    // SAFETY: an entry of zeroes is valid: it marks the end of the table for CPython.
    table.push(unsafe { std::mem::zeroed() });
    table.leak()
}

/// Calls a method with the arguments that CPython passes. `named` is the name of the method and of its arguments.
///
/// # Safety
///
/// The GIL is held. `object` is an instance of the class, `args` is a tuple, and `keywords` is a dict or null.
#[inline]
unsafe fn call<const N: usize>(
    named: (&CStr, [&str; N]),
    method: for<'py> fn(&Bound<'py, PyAny>, Given<'py, N>) -> Returned<'py>,
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let py = Python::assume_attached();
        let object = Bound::from_borrowed_ptr(py, object);
        let args = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        let keywords = Bound::from_borrowed_ptr_or_opt(py, keywords).map(|dict| dict.cast_into_unchecked::<PyDict>());
        let given = arguments(named, &args, keywords.as_ref());
        into_raw_or_raise(py, given.and_then(|given| method(&object, given)))
    }
}

/// The function that CPython calls for `get`. Scripts call `get` often, so there is a fast path for the usual call: an
/// interned name and no keywords.
unsafe extern "C" fn call_get(
    object: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this with the GIL held. It passes an instance of the class, `count` arguments, and null or a
    // tuple with the names of the arguments that follow.
    unsafe {
        if keywords.is_null()
            && (count == 1 || count == 2)
            && let Some(Getter { get, closure }) = EventObject::from_ptr(object).class().attributes().find(*args)
        {
            return get(object, closure);
        }
        let py = Python::assume_attached();
        let names = Bound::from_borrowed_ptr_or_opt(py, keywords).map(|names| names.cast_into_unchecked::<PyTuple>());
        let named = names.as_ref().map_or(0, |names| names.len());
        let count = count as usize;
        let all: Vec<_> = (0..count + named).map(|at| Bound::from_borrowed_ptr(py, *args.add(at))).collect();
        let result = PyTuple::new(py, &all[..count]).and_then(|args| {
            let keywords = PyDict::new(py);
            for (name, value) in names.iter().flatten().zip(&all[count..]) {
                keywords.set_item(name, value)?;
            }
            let given = arguments((c"get", ["name", "default"]), &args, Some(&keywords))?;
            get(&Bound::from_borrowed_ptr(py, object), given)
        });
        into_raw_or_raise(py, result)
    }
}

/// Returns a new reference. For an error, returns null and sets the exception.
pub(super) fn into_raw_or_raise(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Returns the event in an object that CPython passed to a method or slot.
pub fn event<'a>(object: &'a Bound<'_, PyAny>) -> &'a EventObject {
    // SAFETY: methods and slots are only called on instances. The borrow keeps the object alive.
    unsafe { EventObject::from_ptr(object.as_ptr()) }
}

/// Returns whether an object is an event.
pub fn is_event(object: &Bound<'_, PyAny>) -> bool {
    // `isinstance` also accepts an object that only pretends to have the class, such as a mock. The memory of the
    // object will be read as an event, so its real type is checked.
    // SAFETY: the GIL is held, and both arguments are objects.
    let is = |base: &Bound<'_, PyType>| unsafe { ffi::PyObject_TypeCheck(object.as_ptr(), base.as_type_ptr()) != 0 };
    base_type(object.py()).is_ok_and(is)
}

fn member<'py>(object: &Bound<'py, PyAny>, member: access::Member) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is an instance, as in `event`, and the GIL is held.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), member.get(object.as_ptr())) }
}

fn value<'py>(object: &Bound<'py, PyAny>, Getter { get, closure }: Getter) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the getter is one of the object's class, the object is an instance, and the GIL is held.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), get(object.as_ptr(), closure)) }
}

/// Returns the arguments in the order of `names`. The caller may have passed them by position or by name.
fn arguments<'py, const N: usize>(
    (function, names): (&CStr, [&str; N]),
    args: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Given<'py, N>> {
    let mut found = [const { None }; N];
    let wrong = |what: String| Err(PyTypeError::new_err(format!("{}() {what}", function.to_string_lossy())));
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

fn keys<'py>(object: &Bound<'py, PyAny>, []: Given<'py, 0>) -> Returned<'py> {
    let names = event(object).class().members().iter().map(|(name, _)| name.bind(object.py()));
    Ok(PyList::new(object.py(), names)?.into_any())
}

fn values<'py>(object: &Bound<'py, PyAny>, []: Given<'py, 0>) -> Returned<'py> {
    let list = PyList::empty(object.py());
    for (_, getter) in event(object).class().named_getters() {
        list.append(value(object, getter)?)?;
    }
    Ok(list.into_any())
}

fn items<'py>(object: &Bound<'py, PyAny>, []: Given<'py, 0>) -> Returned<'py> {
    let list = PyList::empty(object.py());
    for (name, getter) in event(object).class().named_getters() {
        list.append((name.bind(object.py()), value(object, getter)?))?;
    }
    Ok(list.into_any())
}

fn get<'py>(object: &Bound<'py, PyAny>, [name, default]: Given<'py, 2>) -> Returned<'py> {
    let name = needed("get", "name", name)?;
    match event(object).class().member(&name)? {
        Some(which) => member(object, which),
        None => Ok(default.unwrap_or_else(|| object.py().None().into_bound(object.py()))),
    }
}

fn repr_html<'py>(object: &Bound<'py, PyAny>, []: Given<'py, 0>) -> Returned<'py> {
    let row = |(name, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| -> PyResult<Vec<String>> {
        let shown = match value.cast::<PyList>() {
            Ok(frames) => format!("{} frames", frames.len()),
            Err(_) => value.str()?.to_string_lossy().into_owned(),
        };
        Ok(vec![name.str()?.to_string_lossy().into_owned(), shown])
    };
    let rows = dict(object)?.iter().map(row).collect::<PyResult<_>>()?;
    let name = event(object).class().event.shown_name();
    let columns = vec![(name, Align::Left), (String::new(), Align::Left)];
    Ok(Report { columns, rows, notes: Vec::new() }.html().into_pyobject(object.py())?.into_any())
}

fn to_dict<'py>(object: &Bound<'py, PyAny>, []: Given<'py, 0>) -> Returned<'py> {
    Ok(dict(object)?.into_any())
}

fn dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let class = event(object).class();
    let dict = class.new_dict(object.py())?;
    for (name, getter) in class.named_getters() {
        dict.set_item(name, value(object, getter)?)?;
    }
    Ok(dict)
}

fn print<'py>(object: &Bound<'py, PyAny>, [timestamp, callchain]: Given<'py, 2>) -> Returned<'py> {
    let on = |value: Option<Bound<'py, PyAny>>| value.map_or(Ok(true), |value| value.is_truthy());
    let parts = LineParts { timestamp: on(timestamp)?, callchain: on(callchain)? };
    let this = event(object);
    let comm = access::comm(this);
    let frames = if parts.callchain { access::resolved_frames(this) } else { Vec::new() };
    let cgroup = this.class().event.layout.has_cgroup().then(|| input_of(this).cgroup());
    let context = LineContext {
        comm: comm.as_deref(),
        realtime: access::realtime(this),
        frames: &frames,
        ip: access::ip_frame(this),
        kernel: &*this.context().kernel,
        registers: this.context().registers(),
        cgroup: cgroup.as_deref(),
    };
    let mut line = Vec::with_capacity(256);
    write_line(&this.sample(), parts, &context, &mut line);
    let py = object.py();
    // The text is written to `sys.stdout` and not to the descriptor 1, because the script may have replaced
    // `sys.stdout`. SAFETY: the GIL is held, and the name is a static string. The result is a borrowed reference. A
    // counted reference is made from the borrowed one, because the script may replace `sys.stdout` during the write and
    // thereby free the object.
    let stdout = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PySys_GetObject(c"stdout".as_ptr())) };
    let stdout = stdout.ok_or_else(|| PyRuntimeError::new_err("lost sys.stdout"))?;
    if !stdout.is_none() {
        let line = if is_terminal(&stdout) { for_terminal(&line) } else { line.as_slice().into() };
        stdout.call_method1(pyo3::intern!(py, "write"), (convert::text(py, &line)?,))?;
    }
    Ok(py.None().into_bound(py))
}

fn array<'py>(object: &Bound<'py, PyAny>, [name]: Given<'py, 1>) -> Returned<'py> {
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

fn text<'py>(object: &Bound<'py, PyAny>, [name]: Given<'py, 1>) -> Returned<'py> {
    let name = needed("text", "name", name)?;
    let this = event(object);
    let Some(which) = this.class().member(&name)? else { return Err(no_field(object, &name)) };
    let access::Member::Field(index) = which else { return Ok(member(object, which)?.str()?.into_any()) };
    let class = this.class();
    let mut shown = Vec::new();
    let raw = class.raw(this.record());
    if let Some(format) = class.event.format.tracepoint() {
        format.render_field(&class.field(index).name, raw, &*this.context().kernel, &mut shown);
    }
    convert::text(object.py(), &shown)
}

/// Returns the FieldError for a name that the event does not have. The message suggests similar names.
fn no_field(object: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>) -> PyErr {
    let py = object.py();
    let class = event(object).class();
    let names: Vec<String> = class.members().iter().filter_map(|(name, _)| name.extract(py).ok()).collect();
    let near = name.extract::<String>().ok().map(|typed| {
        let near = perf_prof_format::spec::similar_names(&typed, names);
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
    });
    let shown = name.repr().map(|repr| repr.to_string()).unwrap_or_default();
    let message = format!("{} has no field {shown}{}", class.shown_name, near.unwrap_or_default());
    match field_error(py) {
        Ok(class) => PyErr::from_type(class.clone(), message),
        Err(error) => error,
    }
}

/// Returns the slots of the event classes: the number of each slot in CPython, such as `Py_tp_iter`, and its function.
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

/// Returns the object that CPython passed to a slot.
///
/// # Safety
/// The caller is a slot: `object` is a live object, and the GIL is held.
unsafe fn bound<'py>(object: *mut ffi::PyObject) -> Bound<'py, PyAny> {
    // SAFETY: guaranteed by the caller.
    unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), object) }
}

unsafe extern "C" fn subscript(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    unsafe {
        if let Some(Getter { get, closure }) = EventObject::from_ptr(object).class().attributes().find(key) {
            return get(object, closure);
        }
    }
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let (object, key) = unsafe { (bound(object), bound(key)) };
    let found = event(&object).class().member(&key);
    let value = found.and_then(|which| match which {
        Some(which) => member(&object, which),
        None => Err(no_field(&object, &key)),
    });
    into_raw_or_raise(object.py(), value)
}

unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let object = unsafe { bound(object) };
    event(&object).class().members().len() as ffi::Py_ssize_t
}

unsafe extern "C" fn contains(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> c_int {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
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
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let object = unsafe { bound(object) };
    let list = items(&object, []);
    into_raw_or_raise(object.py(), list.and_then(|list| Ok(list.try_iter()?.into_any())))
}

unsafe extern "C" fn str(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let object = unsafe { bound(object) };
    into_raw_or_raise(object.py(), dict(&object).and_then(|dict| Ok(dict.str()?.into_any())))
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let object = unsafe { bound(object) };
    let this = event(&object);
    let sample = this.sample();
    let (pid, _) = sample.pid_tid();
    let name = &this.class().shown_name;
    let text = format!("<PerfEvent {name} cpu={} pid={pid} time={}>", sample.cpu(), sample.time());
    into_raw_or_raise(object.py(), convert::text(object.py(), text.as_bytes()))
}

unsafe extern "C" fn hash(object: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let object = unsafe { bound(object) };
    let this = event(&object);
    let mut hasher = DefaultHasher::new();
    this.class().shown_name.hash(&mut hasher);
    this.record().hash(&mut hasher);
    // A slot returns -1 to report an error, so a hash must not be -1.
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
    // SAFETY: CPython calls slots with live objects and with the GIL held.
    let (object, other) = unsafe { (bound(object), bound(other)) };
    let py = object.py();
    let comparable = matches!(operation, ffi::Py_EQ | ffi::Py_NE);
    if !comparable || !is_event(&other) {
        return py.NotImplemented().into_ptr();
    }
    let (a, b) = (event(&object), event(&other));
    let equal = a.class().shown_name == b.class().shown_name && a.record() == b.record();
    // SAFETY: the GIL is held.
    unsafe { ffi::PyBool_FromLong((equal == (operation == ffi::Py_EQ)).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methods_are_those_that_no_field_replaces() {
        let methods = table().iter().take_while(|method| !method.ml_name.is_null());
        // SAFETY: a name that is not null is a static string.
        let name = |method: &ffi::PyMethodDef| unsafe { CStr::from_ptr(method.ml_name) }.to_str().unwrap();
        let public: Vec<&str> = methods.map(name).filter(|name| !name.starts_with('_')).collect();
        assert_eq!(public, perf_prof_events::template::METHODS);
    }
}
