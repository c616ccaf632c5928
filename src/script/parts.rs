//! How a script takes part in a run of several processes: in each of them it gives a partial result, in one it merges them.

use std::sync::OnceLock;

use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};

use super::{Program, ScriptError, callbacks::Callback, failure};

/// The functions that a script takes part by.
pub struct Parts {
    /// `__partial__()`.
    pub(super) partial: Callback,
    /// `__merge__(partials)`.
    pub(super) merge: Callback,
}

/// The part of a recording that a process's script sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0 on.
    pub number: usize,
    /// How many there are.
    pub count: usize,
    /// What the recording was divided by, as the option has it.
    pub split: &'static str,
}

static SHARD: OnceLock<Shard> = OnceLock::new();

impl Shard {
    /// Says that this process does this part, which it does until it ends. Before the script is loaded.
    pub fn enter(self) {
        // A process that does two parts would have been told of the first.
        let _ = SHARD.set(self);
    }
}

/// In a process that --jobs gave a part of a recording: {'number', 'count', 'split': 'time' or 'cpu'}. None in all others,
/// also in the one that merges.
#[pyfunction]
pub fn shard(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(Shard { number, count, split }) = SHARD.get() else { return Ok(None) };
    let dict = PyDict::new(py);
    dict.set_item("number", number)?;
    dict.set_item("count", count)?;
    dict.set_item("split", split)?;
    Ok(Some(dict))
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
            let dumps = || py.import("pickle")?.call_method1("dumps", (result, -1));
            let pickled = self.by_its_name(py, dumps);
            let pickled = pickled.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            pickled.extract().map_err(|error: PyErr| ScriptError::Pickle(error.to_string()))
        })
    }

    /// Calls `__merge__` with what [`Program::partial`] gave, in this order.
    pub fn merge(&self, partials: impl Iterator<Item = Vec<u8>>) -> Result<(), ScriptError> {
        let Parts { merge, .. } = self.parts()?;
        Python::attach(|py| {
            let load = |bytes: Vec<u8>| py.import("pickle")?.call_method1("loads", (PyBytes::new(py, &bytes),));
            let partials = self.by_its_name(py, || partials.map(load).collect::<PyResult<Vec<_>>>());
            let list = partials.and_then(|partials| PyList::new(py, partials));
            let list = list.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            merge.function.call1(py, (list,)).map_err(|error| raised(py, &error, "__merge__"))?;
            Ok(())
        })
    }
}

impl Program {
    /// Works while the script is what its name imports, as pickling objects of its classes needs. At other times that may be a
    /// module of Python's own: `profile`.
    fn by_its_name<T>(&self, py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let module = self.module.module.bind(py);
        let (name, modules) = (module.name()?, py.import("sys")?.getattr("modules")?);
        let other = modules.call_method1("get", (&name,))?;
        modules.set_item(&name, module)?;
        let result = work();
        if other.is_none() {
            modules.del_item(&name)?;
        } else {
            modules.set_item(&name, other)?;
        }
        result
    }
}

fn raised(py: Python<'_>, error: &PyErr, name: &'static str) -> ScriptError {
    if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) {
        return ScriptError::Exited(failure::exit_status(py, error));
    }
    failure::print_traceback(py, error);
    ScriptError::Part(name)
}
