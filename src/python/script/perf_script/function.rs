//! A function of the script for events. It is found by its name in `__main__`, and gets the values that its parameters
//! ask for.

use std::ptr;

use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};

use super::{
    super::error::ScriptError,
    parameters::{self, Parameters},
    passing::{Mismatch, Passing, Value},
};

/// A name, and the function that was bound to it last.
pub struct Function {
    /// The name in `__main__`.
    pub name: Py<PyString>,
    found: Option<Found>,
}

/// A function, with the values that it gets.
pub struct Found {
    function: Py<PyAny>,
    /// The values in the order of the call. The first `positional` values are passed by position.
    pub values: Box<[Value]>,
    positional: usize,
    /// The names of the values that are passed by name.
    names: Option<Py<PyTuple>>,
}

/// The reason why a function cannot be bound.
pub enum BindError {
    /// The function cannot be called with the values of its event.
    Mismatch(ScriptError),
    /// The function computes its own signature, and raised this exception.
    Signature {
        /// The function's name.
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
    /// Creates the function with this name. It may not be defined yet.
    pub fn new(py: Python<'_>, name: &str) -> Function {
        Function { name: PyString::intern(py, name).unbind(), found: None }
    }

    /// Returns the object that has this name now, if it can be called. The name is looked up for each event, because a
    /// script can define or replace a function at any time. Noticing changes would cost more than the look-up.
    #[inline]
    pub fn look_up<'py>(&self, main: &Bound<'py, PyDict>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the GIL is held. The result is a borrowed reference, from which a new one is made.
        let found = unsafe {
            let found = ffi::PyDict_GetItemWithError(main.as_ptr(), self.name.as_ptr());
            Bound::from_borrowed_ptr_or_opt(main.py(), found)
        };
        match found {
            Some(found) => Some(found).filter(|found| found.is_callable()),
            None => {
                // If a key in the dict is not a str, comparing it with the name may raise an exception. In this case,
                // the name counts as missing, as in PyDict_GetItem. SAFETY: the GIL is held.
                unsafe {
                    if !ffi::PyErr_Occurred().is_null() {
                        ffi::PyErr_Clear();
                    }
                }
                None
            }
        }
    }

    /// Decides which values `function` gets, from the parameters of `function`. Does nothing if `function` is already
    /// bound. `fields` returns the names of the event's fields, for messages.
    #[inline]
    pub fn bind(
        &mut self,
        function: &Bound<'_, PyAny>,
        fields: impl FnOnce() -> String,
        decide: impl FnOnce(Option<&Parameters>) -> Result<Passing, Mismatch>,
    ) -> Result<(), BindError> {
        if self.found.as_ref().is_none_or(|found| !found.function.is(function)) {
            self.found = None;
            let py = function.py();
            let unknown = |error| BindError::Signature { name: self.name.bind(py).to_string(), error };
            let parameters = Parameters::of(function).map_err(unknown)?;
            let decided = decide(parameters.as_ref());
            let Passing { positional, named } =
                decided.map_err(|mismatch| BindError::Mismatch(self.error(function, &mismatch, fields())))?;
            let keywords = named.iter().map(|(name, _)| PyString::intern(py, name));
            let names =
                if named.is_empty() { None } else { Some(PyTuple::new(py, keywords).map_err(unknown)?.unbind()) };
            let count = positional.len();
            let values = positional.into_iter().chain(named.into_iter().map(|(_, value)| value)).collect();
            self.found = Some(Found { function: function.clone().unbind(), values, positional: count, names });
        }
        Ok(())
    }

    /// Returns the function that was bound last.
    #[inline]
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
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
    /// Calls the function. The first element of `arguments` is free: CPython needs it for the `self` of a bound method.
    /// The other elements are new references, which this call releases.
    #[inline]
    pub fn call(&self, py: Python<'_>, arguments: &mut Vec<*mut ffi::PyObject>) -> PyResult<()> {
        let names = self.names.as_ref().map_or(ptr::null_mut(), Py::as_ptr);
        let count = self.positional | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        // SAFETY: the GIL is held. The arguments are live objects, as many as `positional` and `names` say.
        let result = unsafe {
            let first = arguments.as_ptr().add(1);
            Bound::from_owned_ptr_or_err(py, ffi::PyObject_Vectorcall(self.function.as_ptr(), first, count, names))
        };
        release(arguments);
        result.map(drop)
    }
}

/// Releases the arguments of a call. Skips the free element before them.
pub fn release(arguments: &mut Vec<*mut ffi::PyObject>) {
    for object in arguments.drain(..).skip(1) {
        // SAFETY: the caller holds the GIL and gives its references away.
        unsafe { ffi::Py_DECREF(object) };
    }
}
