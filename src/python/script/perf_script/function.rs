//! A function of the script that handles events. It is found by its name in `__main__`. Its parameters determine which
//! values it gets.

use std::ptr;

use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};

use super::{
    super::error::ScriptError,
    cache::NewReference,
    parameters::{self, Parameters},
    passing::{Mismatch, Passing, Value},
    reads::{Read, Reads},
    sample::Wanted,
};

/// A name, and the function that was bound to this name last.
pub struct Function {
    /// The name in `__main__`.
    pub name: Py<PyString>,
    found: Option<Found>,
}

/// A function, and the values that it gets.
pub struct Found {
    function: Py<PyAny>,
    reads: Reads,
    /// The values that are made for each event, in the order of the arguments.
    made: Box<[Made]>,
    positional: usize,
    /// The names of the values that are passed by name.
    names: Option<Py<PyTuple>>,
    /// The arguments of the call. The first element is unused: CPython may store the `self` of a bound method in it. If
    /// the function does not read an argument, the argument is the object `_not_read`.
    arguments: Box<[*mut ffi::PyObject]>,
    /// The object that is passed instead of arguments that the function does not read. This member keeps the object
    /// alive.
    _not_read: Py<PyAny>,
}

/// A value that is made for each event.
pub struct Made {
    /// The index of the value in the arguments.
    at: usize,
    pub value: Value,
    /// What the function reads of the value.
    pub read: Read,
    /// `read` as bits. Only used if `value` is the dict of the sample.
    pub of_sample: Wanted,
}

/// What a name stands for now.
pub enum Known<'py> {
    /// The function that was bound last, with the same code.
    Bound,
    /// Another callable object.
    Other(Bound<'py, PyAny>),
    /// Nothing, or an object that cannot be called.
    Missing,
}

/// Why a function cannot be bound.
pub enum BindError {
    /// The function cannot be called with the values of its event.
    Mismatch(ScriptError),
    /// The function computes its own signature, and the computation raised an exception.
    Signature {
        /// The name of the function.
        name: String,
        /// The exception.
        error: PyErr,
    },
}

impl From<BindError> for ScriptError {
    fn from(error: BindError) -> ScriptError {
        match error {
            BindError::Mismatch(error) => error,
            BindError::Signature { name, error } => ScriptError::Signature { name, error: error.to_string() },
        }
    }
}

impl From<BindError> for PyErr {
    fn from(error: BindError) -> PyErr {
        match error {
            BindError::Mismatch(error) => error.into(),
            BindError::Signature { error, .. } => error,
        }
    }
}

impl Function {
    /// Creates the function with this name. The script may define it later.
    pub fn new(py: Python<'_>, name: &str) -> Function {
        Function { name: PyString::intern(py, name).unbind(), found: None }
    }

    /// Returns the object that has this name now; `None` if it cannot be called.
    pub fn look_up<'py>(&self, main: &Bound<'py, PyDict>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the GIL is held. The result is a borrowed reference, from which a new one is made.
        let found = unsafe { Bound::from_borrowed_ptr_or_opt(main.py(), self.borrowed(main)) };
        found.filter(|found| found.is_callable())
    }

    /// Looks the name up in `__main__`. This happens for each event, because a script can define or replace a function
    /// at any time. Detecting such changes would cost more than the look-up.
    #[inline]
    pub fn find<'py>(&self, main: &Bound<'py, PyDict>) -> Known<'py> {
        match &self.found {
            Some(found) if found.function.as_ptr() == self.borrowed(main) && found.reads.hold(main.py()) => {
                Known::Bound
            }
            _ => self.look_up(main).map_or(Known::Missing, Known::Other),
        }
    }

    /// Returns a borrowed reference to the object that has this name now; null if there is none.
    #[inline]
    fn borrowed(&self, main: &Bound<'_, PyDict>) -> *mut ffi::PyObject {
        // SAFETY: the GIL is held. If a key in the dict is not a str, comparing it with the name may raise an exception.
        // In this case, the name counts as missing, as in PyDict_GetItem.
        unsafe {
            let found = ffi::PyDict_GetItemWithError(main.as_ptr(), self.name.as_ptr());
            if found.is_null() && !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
            }
            found
        }
    }

    /// Determines from the parameters of `function` which values it gets. Does nothing if `function` is already bound.
    /// `fields` returns the names of the event's fields, for messages.
    #[inline]
    pub fn bind(
        &mut self,
        function: &Bound<'_, PyAny>,
        fields: impl FnOnce() -> String,
        decide: impl FnOnce(Option<&Parameters>) -> Result<Passing, Mismatch>,
    ) -> Result<(), BindError> {
        let py = function.py();
        if self.found.as_ref().is_none_or(|found| !found.function.is(function) || !found.reads.hold(py)) {
            self.found = None;
            let unknown = |error| BindError::Signature { name: self.name.bind(py).to_string(), error };
            let parameters = Parameters::of(function).map_err(unknown)?;
            let decided = decide(parameters.as_ref());
            let passing = decided.map_err(|mismatch| BindError::Mismatch(self.error(function, &mismatch, fields())))?;
            self.found = Some(Found::new(function, passing).map_err(unknown)?);
        }
        Ok(())
    }

    /// Returns the function that was bound last.
    #[inline]
    pub fn found(&mut self) -> Option<&mut Found> {
        self.found.as_mut()
    }

    fn error(&self, function: &Bound<'_, PyAny>, mismatch: &Mismatch, fields: String) -> ScriptError {
        ScriptError::Parameters {
            place: parameters::place(function).unwrap_or_else(|| "__main__".into()),
            name: self.name.bind(function.py()).to_string(),
            unknown: mismatch.unknown.join(", "),
            parameters: mismatch.parameters,
            values: mismatch.values,
            fields,
        }
    }
}

impl Found {
    fn new(function: &Bound<'_, PyAny>, passing: Passing) -> PyResult<Found> {
        let (py, Passing { positional, named }) = (function.py(), passing);
        let names = PyTuple::new(py, named.iter().map(|(name, _)| PyString::intern(py, name)))?;
        let (count, not_read) = (positional.len(), Reads::not_read(py)?);
        let reads = Reads::of(function, count, &names);
        let values = positional.into_iter().chain(named.into_iter().map(|(_, value)| value));
        let mut arguments = vec![ptr::null_mut()];
        let mut made = Vec::new();
        for (value, read) in values.zip(&reads.arguments) {
            if *read != Read::Nothing {
                let of_sample = Wanted::of(read);
                made.push(Made { at: arguments.len(), value, read: read.clone(), of_sample });
            }
            arguments.push(not_read.as_ptr());
        }
        Ok(Found {
            function: function.clone().unbind(),
            reads,
            made: made.into(),
            positional: count,
            names: (!names.is_empty()).then(|| names.unbind()),
            arguments: arguments.into(),
            _not_read: not_read,
        })
    }

    /// Calls the function with the values that `make` returns: new references, or null if an exception is set.
    #[inline]
    pub fn call(&mut self, py: Python<'_>, mut make: impl FnMut(&Made) -> NewReference) -> PyResult<()> {
        for (done, made) in self.made.iter().enumerate() {
            let object = make(made);
            if object.is_null() {
                self.release(done);
                return Err(PyErr::fetch(py));
            }
            self.arguments[made.at] = object;
        }
        let names = self.names.as_ref().map_or(ptr::null_mut(), Py::as_ptr);
        let count = self.positional | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        // SAFETY: the GIL is held. The arguments are live objects, as many as `positional` and `names` say.
        let result = unsafe {
            let first = self.arguments.as_mut_ptr().add(1);
            Bound::from_owned_ptr_or_err(py, ffi::PyObject_Vectorcall(self.function.as_ptr(), first, count, names))
        };
        self.release(self.made.len());
        result.map(drop)
    }

    /// Releases the first `count` values that were made.
    #[inline]
    fn release(&self, count: usize) {
        for made in &self.made[..count] {
            // SAFETY: the caller holds the GIL. It has put a counted reference into `arguments`, which is given up
            // here.
            unsafe { ffi::Py_DECREF(self.arguments[made.at]) };
        }
    }
}
