//! How a script takes part in a run of several processes: in each of them it gives a partial result, in one it merges them.

use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

use super::{Program, ScriptError, callbacks::Callback, failure};

/// The functions that a script takes part by.
pub struct Parts {
    /// `__partial__()`.
    pub(super) partial: Callback,
    /// `__merge__(partials)`.
    pub(super) merge: Callback,
}

impl Program {
    /// Whether the script can be run by several processes.
    pub fn takes_part(&self) -> Result<(), ScriptError> {
        self.parts().map(|_| ())
    }

    fn parts(&self) -> Result<&Parts, ScriptError> {
        self.callbacks.parts.as_ref().ok_or(ScriptError::NoParts)
    }

    /// Calls `__partial__()`; what it returns, pickled.
    pub fn partial(&self) -> Result<Vec<u8>, ScriptError> {
        let Parts { partial, .. } = self.parts()?;
        self.failures.print_totals();
        Python::attach(|py| {
            let result = partial.function.call0(py).map_err(|error| raised(py, &error, "__partial__"))?;
            let pickled = py.import("pickle").and_then(|pickle| pickle.call_method1("dumps", (result, -1)));
            let pickled = pickled.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            pickled.extract().map_err(|error: PyErr| ScriptError::Pickle(error.to_string()))
        })
    }

    /// Calls `__merge__` with what [`Program::partial`] gave, in this order.
    pub fn merge(&self, partials: &[Vec<u8>]) -> Result<(), ScriptError> {
        let Parts { merge, .. } = self.parts()?;
        Python::attach(|py| {
            let load = |bytes: &Vec<u8>| py.import("pickle")?.call_method1("loads", (PyBytes::new(py, bytes),));
            let partials: PyResult<Vec<_>> = partials.iter().map(load).collect();
            let list = partials.and_then(|partials| PyList::new(py, partials));
            let list = list.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            merge.function.call1(py, (list,)).map_err(|error| raised(py, &error, "__merge__"))?;
            Ok(())
        })
    }
}

fn raised(py: Python<'_>, error: &PyErr, name: &'static str) -> ScriptError {
    if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) {
        return ScriptError::Exited(failure::exit_status(py, error));
    }
    failure::print_traceback(py, error);
    ScriptError::Part(name)
}
