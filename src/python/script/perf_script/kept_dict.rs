//! A dict that is filled again for each event. Its keys are the same for all events, so only values that have changed
//! are set. If a script keeps or changes the dict, the next event gets a new dict.

use std::ptr;

use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyList, PyString, PyTuple},
};

use super::cache::NewReference;

/// The dict of the last event, and what is known about its values.
pub struct KeptDict {
    /// A dict with all keys in their order, and the values that are the same for all events. A copy of this dict
    /// already has room for all values.
    template: Py<PyDict>,
    keys: Box<[Py<PyString>]>,
    dict: Option<Py<PyDict>>,
    /// The version of `dict` after the last change that this object made; see [`version`].
    version: Option<u64>,
    /// The value of each key in `dict`; null if it was not set yet. The dict owns the references to the values.
    held: Box<[*mut ffi::PyObject]>,
    /// For each key, the number from which its value was made; `None` if the value was not made from a number.
    numbers: Box<[Option<u64>]>,
}

/// Who refers to a dict that no script has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// Only this `KeptDict`.
    Own,
    /// This `KeptDict`, and another dict of perf-prof that the script has not kept.
    OwnAndOuter,
}

/// Whether the next event gets the dict of the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Yes: the dict still contains the values of the last event.
    Again,
    /// No: it is a new dict that contains the values of the template.
    New,
}

impl KeptDict {
    /// Creates the dict. `keys` are the keys in `template` whose values will be set. If two of these keys have the same
    /// name, only one of them may be set.
    pub fn new(template: Py<PyDict>, keys: impl IntoIterator<Item = Py<PyString>>) -> KeptDict {
        let keys: Box<[_]> = keys.into_iter().collect();
        let held = vec![ptr::null_mut(); keys.len()].into();
        KeptDict { template, held, numbers: vec![None; keys.len()].into(), keys, dict: None, version: None }
    }

    /// Prepares the dict for the next event.
    #[inline]
    pub fn begin(&mut self, py: Python<'_>, holders: Holders) -> PyResult<Begun> {
        if self.is_unused(py, holders) { Ok(Begun::Again) } else { self.renew(py).map(|()| Begun::New) }
    }

    /// Makes a new dict, even if the last dict could be used again.
    pub fn renew(&mut self, py: Python<'_>) -> PyResult<()> {
        self.dict = Some(self.template.bind(py).copy()?.unbind());
        self.held.fill(ptr::null_mut());
        self.numbers.fill(None);
        Ok(())
    }

    #[inline]
    fn is_unused(&self, py: Python<'_>, holders: Holders) -> bool {
        let expected = match holders {
            Holders::Own => 1,
            Holders::OwnAndOuter => 2,
        };
        // SAFETY: the GIL is held (`py`), and the dict is a live object.
        let count = |dict: &Py<PyDict>| unsafe { ffi::Py_REFCNT(dict.as_ptr()) };
        self.dict.as_ref().is_some_and(|dict| {
            count(dict) == expected && self.version.is_some() && self.version == version(dict.bind(py))
        })
    }

    /// Sets the value of the key with this index. Consumes the reference to the value.
    #[inline]
    pub fn set(&mut self, py: Python<'_>, at: usize, value: NewReference) -> PyResult<()> {
        let (Some(dict), false) = (&self.dict, value.is_null()) else { return Err(PyErr::fetch(py)) };
        // SAFETY: the GIL is held, and all three are live objects.
        let failed = unsafe {
            let failed =
                self.held[at] != value && ffi::PyDict_SetItem(dict.as_ptr(), self.keys[at].as_ptr(), value) != 0;
            ffi::Py_DECREF(value);
            failed
        };
        if failed {
            return Err(PyErr::fetch(py));
        }
        self.held[at] = value;
        self.numbers[at] = None;
        Ok(())
    }

    /// Sets a value that `make` creates from a number. Does nothing if the key already has the value of this number.
    /// The value must be immutable, such as an int or a str.
    #[inline]
    pub fn set_of_number(
        &mut self,
        py: Python<'_>,
        at: usize,
        number: u64,
        make: impl FnOnce() -> NewReference,
    ) -> PyResult<()> {
        if self.numbers[at] == Some(number) {
            return Ok(());
        }
        self.set(py, at, make())?;
        self.numbers[at] = Some(number);
        Ok(())
    }

    /// Sets an empty list as the value of the key with this index. If the script has neither kept nor filled the empty
    /// list of the last event, this list is used again.
    #[inline]
    pub fn set_empty_list(&mut self, py: Python<'_>, at: usize) -> PyResult<()> {
        if is_unused_and_empty(py, self.held[at]) { Ok(()) } else { self.set(py, at, PyList::empty(py).into_ptr()) }
    }

    /// Returns a borrowed reference to the present value of the key with this index; null if it was not set yet.
    #[inline]
    pub fn held(&self, at: usize) -> *mut ffi::PyObject {
        self.held[at]
    }

    /// Returns the dict, after all values have been set.
    #[inline]
    pub fn end<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyDict> {
        let dict = match &self.dict {
            Some(dict) => dict.bind(py).clone(),
            None => PyDict::new(py),
        };
        self.version = version(&dict);
        dict
    }
}

/// Returns whether an object is an empty list to which only one reference exists. `list` is a live list, or null.
#[inline]
pub fn is_unused_and_empty(_: Python<'_>, list: *mut ffi::PyObject) -> bool {
    // SAFETY: the GIL is held, and the list is a live object.
    !list.is_null() && unsafe { ffi::Py_REFCNT(list) == 1 && ffi::PyList_GET_SIZE(list) == 0 }
}

/// Returns whether an object is a list that contains only this tuple, and to which only one reference exists. `list` is
/// a live list, or null.
#[inline]
pub fn is_unused_list_of(_: Python<'_>, list: *mut ffi::PyObject, item: &Py<PyTuple>) -> bool {
    // SAFETY: the GIL is held, and the list is a live object. It has an item if its size is 1.
    !list.is_null()
        && unsafe {
            ffi::Py_REFCNT(list) == 1
                && ffi::PyList_GET_SIZE(list) == 1
                && ffi::PyList_GET_ITEM(list, 0) == item.as_ptr()
        }
}

/// Returns the version of a dict. CPython changes the version with each change of the dict (PEP 509). Returns `None`
/// from Python 3.14 on, which has no versions.
#[inline]
pub fn version(dict: &Bound<'_, PyDict>) -> Option<u64> {
    #[cfg(not(Py_3_14))]
    {
        // SAFETY: `dict` is a dict (or of a subclass), whose memory starts with this struct. The GIL is held.
        #[allow(deprecated, reason = "it has no successor that is about a single dict")]
        let version = unsafe { (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_version_tag };
        Some(version)
    }
    #[cfg(Py_3_14)]
    {
        let _ = dict;
        None
    }
}
