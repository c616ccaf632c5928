//! Finds out what a handler reads of its arguments, so that perf-prof makes only these values.
//! `python/perf_prof/_reads.py` examines the bytecode of the handler.

use std::sync::Arc;

use pyo3::{
    ffi, intern,
    prelude::*,
    types::{PyFunction, PyTuple},
};

/// What a function reads of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Nothing.
    Nothing,
    /// The argument is a dict, and the function reads only these items.
    Items(Arc<[Path]>),
    /// The function may read everything.
    Whole,
}

/// The keys that lead to an item of a dict: one key, or two keys if the item is in a dict that the dict contains.
pub type Path = Vec<String>;

/// What a function reads. Valid as long as the code of the function does not change.
pub struct Reads {
    /// What the function reads of each argument, in the order of the arguments.
    pub arguments: Vec<Read>,
    /// `None` if the function may read everything of all arguments.
    examined: Option<Examined>,
}

/// The function and the code that were examined.
struct Examined {
    function: Py<PyFunction>,
    code: Py<PyAny>,
    /// The number of imported modules at the time of the examination. A module that is imported later may inspect the
    /// function's frame.
    modules: ffi::Py_ssize_t,
}

impl Reads {
    /// Examines a function that gets `positional` arguments by position, and the other arguments by these names.
    pub fn of(function: &Bound<'_, PyAny>, positional: usize, names: &Bound<'_, PyTuple>) -> Reads {
        let all = positional + names.len();
        // If the code cannot be examined, all values are made.
        match Reads::examine(function, positional, names) {
            Ok(Some(reads)) if reads.arguments.len() == all => reads,
            _ => Reads { arguments: vec![Read::Whole; all], examined: None },
        }
    }

    fn examine(function: &Bound<'_, PyAny>, count: usize, names: &Bound<'_, PyTuple>) -> PyResult<Option<Reads>> {
        let py = function.py();
        let found = py.import("perf_prof._reads")?.call_method1("reads", (function, count, names))?;
        let Some(found) = found.extract::<Option<Vec<Option<Vec<Path>>>>>()? else { return Ok(None) };
        let read = |paths: Option<Vec<Path>>| match paths {
            None => Read::Whole,
            Some(paths) if paths.is_empty() => Read::Nothing,
            Some(paths) => Read::Items(paths.into()),
        };
        let plain = function.getattr(intern!(py, "__func__")).unwrap_or_else(|_| function.clone());
        let code = plain.getattr(intern!(py, "__code__"))?.unbind();
        let function = plain.cast_into::<PyFunction>()?.unbind();
        let examined = Some(Examined { function, code, modules: modules(py) });
        Ok(Some(Reads { arguments: found.into_iter().map(read).collect(), examined }))
    }

    /// Returns whether the result is still valid. The result is valid if the function still has the code that was
    /// examined, and no module was imported since the examination. (A script can replace the code of a function.)
    #[inline]
    pub fn hold(&self, py: Python<'_>) -> bool {
        // SAFETY: the GIL is held, and the function is a live object of this type. The result is only compared.
        let code = |function: &Py<PyFunction>| unsafe { ffi::PyFunction_GetCode(function.as_ptr()) };
        let is_same = |of: &Examined| code(&of.function) == of.code.as_ptr() && modules(py) == of.modules;
        self.examined.as_ref().is_none_or(is_same)
    }

    /// Returns the object that stands for an argument that is not read.
    pub fn not_read(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.import("perf_prof._reads")?.getattr("NOT_READ")?.unbind())
    }
}

impl Read {
    /// Returns whether `other` is the same result of the same examination.
    #[inline]
    pub fn is(&self, other: &Read) -> bool {
        match (self, other) {
            (Read::Items(paths), Read::Items(others)) => Arc::ptr_eq(paths, others),
            (Read::Nothing, Read::Nothing) | (Read::Whole, Read::Whole) => true,
            _ => false,
        }
    }
}

/// Returns the number of imported modules.
#[inline]
fn modules(_: Python<'_>) -> ffi::Py_ssize_t {
    // SAFETY: the GIL is held. `sys.modules` lives as long as the interpreter; if it is no dict, the size is -1.
    unsafe { ffi::PyDict_Size(ffi::PyImport_GetModuleDict()) }
}
