//! Imports Python modules whose source is embedded in the executable.

use pyo3::{prelude::*, types::PyDict};

/// A Python module and its source.
pub struct EmbeddedModule {
    /// The name under which it is imported.
    pub name: &'static str,
    /// The file name that tracebacks show. Python never opens a file of this name.
    pub file: &'static str,
    pub source: &'static str,
    pub kind: ModuleKind,
}

/// Says whether a module can contain other modules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    Module,
    Package,
}

impl EmbeddedModule {
    /// Returns the spec of this module, for a finder. `source_lines` is `linecache.cache`; with it, tracebacks show the
    /// source lines of this module.
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
    /// Returns None: Python then creates the module as usual.
    fn create_module(&self, _spec: &Bound<'_, PyAny>) -> Option<()> {
        None
    }

    fn exec_module(&self, module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let EmbeddedModule { file, source, .. } = self.module;
        if let Some(source_lines) = &self.source_lines {
            let lines: Vec<&str> = source.split_inclusive('\n').collect();
            // Without a modification time, `linecache` never compares the entry with a file.
            source_lines.bind(py).set_item(file, (source.len(), None::<f64>, lines, file))?;
        }
        let builtins = py.import("builtins")?;
        let code = builtins.call_method1("compile", (*source, *file, "exec"))?;
        builtins.call_method1("exec", (code, module.dict()))?;
        Ok(())
    }

    /// Returns the source, for tools that show source code.
    fn get_source(&self, _fullname: &str) -> &'static str {
        self.module.source
    }

    fn is_package(&self, _fullname: &str) -> bool {
        self.module.kind == ModuleKind::Package
    }
}
