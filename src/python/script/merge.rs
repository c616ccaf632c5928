//! The part of --jobs that concerns the script: each worker process returns the partial result of its script, and one
//! process merges the results.

use std::{collections::HashMap, sync::OnceLock};

use perf_prof_session::{dividing::Part, plan::SplitBy};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};

use super::{
    Program, ScriptError,
    aggregate::module_aggregators,
    callbacks::Callback,
    failure,
    host::{Receiver, flush},
};

/// The two functions that a script needs for --jobs.
pub struct MergeCallbacks {
    /// `__partial__()`.
    pub(super) partial: Callback,
    /// `__merge__(partials)`.
    pub(super) merge: Callback,
}

/// How the result of a part is computed, and how all results are merged.
enum Parts<'a> {
    Callbacks(&'a MergeCallbacks),
    /// The result of a part is the aggregators among these globals. The aggregators of all parts are added up.
    Aggregators(&'a Py<PyDict>),
}

impl Parts<'_> {
    /// Returns the result of a part.
    fn partial(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Parts::Callbacks(MergeCallbacks { partial, .. }) => partial.function.call0(py),
            Parts::Aggregators(names) => {
                let found = module_aggregators(names.bind(py)).into_iter().collect::<HashMap<_, _>>();
                Ok(found.into_pyobject(py)?.into_any().unbind())
            }
        }
    }

    /// Merges the results of all parts.
    fn merge(&self, py: Python<'_>, partials: Bound<'_, PyList>) -> PyResult<()> {
        let names = match self {
            Parts::Callbacks(MergeCallbacks { merge, .. }) => return merge.function.call1(py, (partials,)).map(drop),
            Parts::Aggregators(names) => names,
        };
        add_aggregators(names.bind(py), &partials)
    }
}

/// Adds the aggregators of all parts to the aggregators in `names`.
pub(super) fn add_aggregators(names: &Bound<'_, PyDict>, partials: &Bound<'_, PyList>) -> PyResult<()> {
    let own = module_aggregators(names);
    for partial in partials {
        for (name, aggregator) in &own {
            // The script in this process may have an aggregator that is missing in a part.
            if let Some(other) = partial.cast::<PyDict>()?.get_item(name)? {
                aggregator.bind(names.py()).call_method1("update", (other,))?;
            }
        }
    }
    Ok(())
}

static PART: OnceLock<Part> = OnceLock::new();

/// Sets the part that this process replays. Must be called only once, before the script is loaded.
pub fn set_part_of_process(part: &Part) {
    // `set` fails only if a part is set already. Each process sets only one part.
    let _ = PART.set(part.clone());
}

/// Returns {'number', 'count', 'split': 'time' or 'cpu'} if this process reads a part of a recording
/// (--jobs). Returns None in all other processes, also in the process that merges the results.
#[pyfunction]
pub fn shard(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(Part { number, count, split, .. }) = PART.get() else { return Ok(None) };
    let dict = PyDict::new(py);
    dict.set_item("number", number)?;
    dict.set_item("count", count)?;
    dict.set_item("split", if *split == SplitBy::Cpu { "cpu" } else { "time" })?;
    Ok(Some(dict))
}

/// Imports the modules that partial results need. Must be called before the script is loaded: after that, files of the
/// same names in the script's folder would be imported instead.
pub fn prepare_for_parts() -> Result<(), ScriptError> {
    let import = |py: Python<'_>| {
        ["pickle", "heapq", "perf_prof._counted"].into_iter().try_for_each(|name| py.import(name).map(drop))
    };
    Python::attach(import).map_err(|error| ScriptError::Start(error.to_string()))
}

impl Program {
    /// Checks that several processes can run the script: it has `__partial__` and `__merge__`, or all of its handlers
    /// are aggregators, or it is a script of `perf script` that only counts.
    pub fn check_mergeable(&mut self) -> Result<(), ScriptError> {
        if self.callbacks.parts.is_none() && matches!(self.receiver, Receiver::PerfScript(_)) {
            self.callbacks.parts = Some(self.merged_counts()?);
            self.begin_quietly()?;
        }
        self.parts().map(|_| ())
    }

    /// Returns the callbacks of a script whose global variables only count events. Fails if the script has other
    /// results.
    fn merged_counts(&self) -> Result<MergeCallbacks, ScriptError> {
        let path = self.module.as_ref().map_or("", |loaded| loaded.path.as_str());
        let made = Python::attach(|py| -> PyResult<_> {
            let made = py.import("perf_prof._counted")?.call_method1("callbacks", (&self.names, path))?;
            made.extract::<(Py<PyAny>, Py<PyAny>)>()
        });
        let text = |error: PyErr| Python::attach(|py| error.value(py).to_string());
        let (partial, merge) = made.map_err(|error| ScriptError::NotCounted(text(error)))?;
        let callback = |function, name: &str| Callback { function, name: name.to_owned() };
        Ok(MergeCallbacks { partial: callback(partial, "__partial__"), merge: callback(merge, "__merge__") })
    }

    /// Lets only the process of the first part print what `trace_begin()` prints: all processes call it.
    fn begin_quietly(&mut self) -> Result<(), ScriptError> {
        let (Some(init), false) = (&mut self.callbacks.init, PART.get().is_some_and(Part::is_first)) else {
            return Ok(());
        };
        let quiet = Python::attach(|py| -> PyResult<_> {
            Ok(py.import("perf_prof._counted")?.call_method1("quiet", (&init.function,))?.unbind())
        });
        init.function = quiet.map_err(|error| ScriptError::Start(error.to_string()))?;
        Ok(())
    }

    fn parts(&self) -> Result<Parts<'_>, ScriptError> {
        match &self.callbacks.parts {
            Some(parts) => Ok(Parts::Callbacks(parts)),
            // If some handlers are functions, the script may have results outside of aggregators, and these results
            // would be lost.
            None if self.callbacks.has_only_aggregators() => Ok(Parts::Aggregators(&self.names)),
            None => Err(ScriptError::NoParts),
        }
    }

    /// Clears the aggregators in a forked worker. After the fork, these aggregators contain copies of the amounts in
    /// the process that merges the results. Without this call, these amounts would count twice.
    pub fn clear_aggregators(&self) -> PyResult<()> {
        let Ok(Parts::Aggregators(names)) = self.parts() else { return Ok(()) };
        Python::attach(|py| {
            let found = module_aggregators(names.bind(py));
            found.iter().try_for_each(|(_, aggregator)| aggregator.bind(py).call_method0("clear").map(drop))
        })
    }

    /// Calls `__partial__()` and returns its result as a pickle. If the script has no `__partial__()`, returns its
    /// aggregators as a pickle.
    pub fn partial(&self) -> Result<Vec<u8>, ScriptError> {
        let parts = self.parts()?;
        self.failures.print_totals();
        Python::attach(|py| {
            let result = parts.partial(py).map_err(|error| raised(py, &error, "__partial__"))?;
            flush(py).map_err(|error| ScriptError::Output(error.to_string()))?;
            // `pickle` is imported before the script is in `sys.modules`, because the script may have the name
            // `pickle`.
            let dumps = py.import("pickle").and_then(|pickle| pickle.getattr("dumps"));
            let pickled = dumps.and_then(|dumps| self.with_script_in_sys_modules(py, || dumps.call1((result, -1))));
            let pickled = pickled.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            pickled.extract().map_err(|error: PyErr| ScriptError::Pickle(error.to_string()))
        })
    }

    /// Calls `__merge__` with the results of [`Program::partial`], in the given order. If the script has no
    /// `__merge__`, adds up the aggregators.
    pub fn merge(&self, partials: Vec<Vec<u8>>) -> Result<(), ScriptError> {
        let parts = self.parts()?;
        Python::attach(|py| {
            let loads = py.import("pickle").and_then(|pickle| pickle.getattr("loads"));
            let partials = loads.and_then(|loads| {
                let load = |bytes: Vec<u8>| loads.call1((PyBytes::new(py, &bytes),));
                self.with_script_in_sys_modules(py, || partials.into_iter().map(load).collect::<PyResult<Vec<_>>>())
            });
            let list = partials.and_then(|partials| PyList::new(py, partials));
            let list = list.map_err(|error| ScriptError::Pickle(error.to_string()))?;
            parts.merge(py, list).map_err(|error| raised(py, &error, "__merge__"))?;
            Ok(())
        })
    }
}

impl Program {
    /// Like [`Program::partial`], but returns the exception of `__partial__()` instead of printing it.
    pub fn pickled_partial(&self) -> anyhow::Result<Vec<u8>> {
        let parts = self.parts()?;
        let pickled = Python::attach(|py| -> PyResult<Vec<u8>> {
            let result = parts.partial(py)?;
            py.import("pickle")?.call_method1("dumps", (result, -1))?.extract()
        });
        Ok(pickled?)
    }

    /// Like [`Program::merge`], but for the results of [`Program::pickled_partial`]. Returns the exception of
    /// `__merge__` instead of printing it.
    pub fn merge_pickled(&self, partials: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let parts = self.parts()?;
        let merged = Python::attach(|py| -> PyResult<()> {
            let loads = py.import("pickle")?.getattr("loads")?;
            let loaded = partials.iter().map(|bytes| loads.call1((PyBytes::new(py, bytes),)));
            let loaded = PyList::new(py, loaded.collect::<PyResult<Vec<_>>>()?)?;
            parts.merge(py, loaded)
        });
        Ok(merged?)
    }
}

impl Program {
    /// Runs `work` while `sys.modules` contains the script under its name: `pickle` needs this for objects of the
    /// script's classes. At other times, `sys.modules` may contain a standard library module of the same name, such as
    /// `profile`.
    fn with_script_in_sys_modules<T>(&self, py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        // Only scripts have parts. Without a script, nothing has to be in `sys.modules`.
        let Some(loaded) = &self.module else { return work() };
        let module = loaded.module.bind(py);
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
    ScriptError::PartialOrMergeFailed(name)
}
