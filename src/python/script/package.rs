//! Makes the package `perf_prof` importable in the embedded interpreter. The package consists of a native module and of
//! Python files whose text is embedded in the executable.

use std::{
    ffi::{CStr, c_int},
    sync::OnceLock,
};

use pyo3::{ffi, prelude::*, types::PyDict};

use super::{
    embedded::{EmbeddedModule, ModuleKind},
    error::ScriptError,
};

/// The name of the native module.
const NATIVE: &CStr = c"perf_prof._native";

/// Declares a file of `python/perf_prof`: the name of its module, and its text.
macro_rules! embedded {
    ($name:literal, $file:literal, $kind:ident) => {
        EmbeddedModule {
            name: $name,
            file: concat!("<perf_prof/", $file, ">"),
            source: include_str!(concat!("../../../python/perf_prof/", $file)),
            kind: ModuleKind::$kind,
        }
    };
}

static EMBEDDED: [EmbeddedModule; 29] = [
    embedded!("perf_prof", "__init__.py", Package),
    embedded!("perf_prof._asyncio", "_asyncio.py", Module),
    embedded!("perf_prof._engines", "_engines.py", Module),
    embedded!("perf_prof._errors", "_errors.py", Module),
    embedded!("perf_prof._fleet", "_fleet.py", Module),
    embedded!("perf_prof._folders", "_folders.py", Module),
    embedded!("perf_prof._jobs", "_jobs.py", Module),
    embedded!("perf_prof._options", "_options.py", Module),
    embedded!("perf_prof._pairs", "_pairs.py", Module),
    embedded!("perf_prof._parts", "_parts.py", Module),
    embedded!("perf_prof._perf_constants", "_perf_constants.py", Module),
    embedded!("perf_prof._perf_events", "_perf_events.py", Module),
    embedded!("perf_prof._perf_evlist", "_perf_evlist.py", Module),
    embedded!("perf_prof._perf_import", "_perf_import.py", Module),
    embedded!("perf_prof._perf_jobs", "_perf_jobs.py", Module),
    embedded!("perf_prof._counted", "_counted.py", Module),
    embedded!("perf_prof._perf_records", "_perf_records.py", Module),
    embedded!("perf_prof._processes", "_processes.py", Module),
    embedded!("perf_prof._programs", "_programs.py", Module),
    embedded!("perf_prof._reads", "_reads.py", Module),
    embedded!("perf_prof._runs", "_runs.py", Module),
    embedded!("perf_prof._signals", "_signals.py", Module),
    embedded!("perf_prof._times", "_times.py", Module),
    embedded!("perf_prof._waits", "_waits.py", Module),
    embedded!("perf_prof.metrics", "metrics.py", Module),
    embedded!("perf_prof.perf", "perf.py", Module),
    embedded!("perf_prof.perf_live", "perf_live.py", Module),
    embedded!("perf_prof.script", "script.py", Module),
    embedded!("perf_prof.testing", "testing.py", Module),
];

/// The function that initialises the native module.
pub type InitNative = unsafe extern "C" fn() -> *mut ffi::PyObject;

static INIT_NATIVE: OnceLock<InitNative> = OnceLock::new();

/// Sets the function that initialises the native module. The caller provides the function, because modules that depend
/// on this module also add functions to the native module.
pub fn set_native(init: InitNative) {
    INIT_NATIVE.get_or_init(|| init);
}

/// Adds the native module to CPython's built-in modules. Must be called before CPython is started.
pub fn register_native() -> Result<(), ScriptError> {
    let init = INIT_NATIVE.get().copied().ok_or_else(|| ScriptError::Start("it has no module perf_prof".into()))?;
    // SAFETY: CPython does not run yet. The name is static, and the function initialises a module.
    let failed: c_int = unsafe { ffi::PyImport_AppendInittab(NATIVE.as_ptr(), Some(init)) };
    if failed == 0 { Ok(()) } else { Err(ScriptError::Start("there is not enough memory".into())) }
}

/// Makes the package importable. This package comes before an installed package of the same name, which may have
/// another version.
pub fn install(py: Python<'_>) -> PyResult<()> {
    py.import("sys")?.getattr("meta_path")?.call_method1("insert", (0, Finder))?;
    Ok(())
}

/// Finds the modules of the package for the `import` statement. An object of `sys.meta_path`.
#[pyclass(frozen)]
struct Finder;

#[pymethods]
impl Finder {
    #[pyo3(signature = (fullname, path = None, target = None))]
    fn find_spec<'py>(
        &self,
        py: Python<'py>,
        fullname: &str,
        path: Option<&Bound<'py, PyAny>>,
        target: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _ = (path, target);
        if let Some(module) = EMBEDDED.iter().find(|module| module.name == fullname) {
            return module.spec(py, None).map(Some);
        }
        if NATIVE.to_str() != Ok(fullname) {
            return Ok(None);
        }
        // Python looks for built-in modules only outside of packages. So the native module gets its spec here.
        let machinery = py.import("importlib.machinery")?;
        let options = PyDict::new(py);
        options.set_item("origin", "built-in")?;
        let loader = machinery.getattr("BuiltinImporter")?;
        machinery.getattr("ModuleSpec")?.call((fullname, loader), Some(&options)).map(Some)
    }
}
