//! Imports Python modules whose source is in the executable.

use pyo3::{prelude::*, types::PyDict};

/// A module, with its source.
pub struct EmbeddedModule {
    /// The name by which it is imported.
    pub name: &'static str,
    /// The file name in tracebacks. Python never opens a file of this name.
    pub file: &'static str,
    pub source: &'static str,
    pub kind: ModuleKind,
}

/// Says whether a module can contain modules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    Module,
    Package,
}

impl EmbeddedModule {
    /// Returns the spec that a finder returns for this module. `source_lines` is `linecache.cache`; if it is given,
    /// tracebacks show the lines of this module.
    pub fn spec<'py>(&'static self, py: Python<'py>, source_lines: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(py);
        options.set_item("origin", self.file)?;
        options.set_item("is_package", self.kind == ModuleKind::Package)?;
        let class = py.import("importlib.machinery")?.getattr("ModuleSpec")?;
        class.call((self.name, Loader { module: self, source_lines }), Some(&options))
    }
}

/// Runs a module when it is imported.
#[pyclass(frozen)]
struct Loader {
    module: &'static EmbeddedModule,
    source_lines: Option<Py<PyAny>>,
}

#[pymethods]
impl Loader {
    /// Returns None: Python creates the module as usual.
    fn create_module(&self, _spec: &Bound<'_, PyAny>) -> Option<()> {
        None
    }

    fn exec_module(&self, module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let EmbeddedModule { file, source, .. } = self.module;
        if let Some(source_lines) = &self.source_lines {
            let lines: Vec<&str> = source.split_inclusive('\n').collect();
            // An entry without a modification time is never compared with a file.
            source_lines.bind(py).set_item(file, (source.len(), None::<f64>, lines, file))?;
        }
        let builtins = py.import("builtins")?;
        let code = builtins.call_method1("compile", (*source, *file, "exec"))?;
        builtins.call_method1("exec", (code, module.dict()))?;
        Ok(())
    }

    /// Returns the source, for tools that show it.
    fn get_source(&self, _fullname: &str) -> &'static str {
        self.module.source
    }

    fn is_package(&self, _fullname: &str) -> bool {
        self.module.kind == ModuleKind::Package
    }
}
