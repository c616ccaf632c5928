//! Imports from the script's folder if other users can write there, as in /tmp. A module in this folder is found only
//! if no other folder contains it. If other users can change the module, a message names its file.

use std::path::{Path, PathBuf};

use perf_prof_session::plan::Verbosity;
use perf_prof_system::{output, writers};
use pyo3::{prelude::*, types::PyList};

/// Makes the modules in `folder` importable.
///
/// A folder that only trusted users can change comes first in `sys.path`, as in python3. In any other folder, anybody
/// can create a `json.py`, which must not run instead of Python's own module. So such a folder is searched last. It is
/// added to `sys.path` only after a module was found there.
pub(super) fn import_from(py: Python<'_>, folder: PathBuf, verbosity: Verbosity) -> PyResult<()> {
    let sys = py.import("sys")?;
    if writers::others_can_change(&folder) {
        let finder = SharedFolder { folder, verbosity };
        sys.getattr("meta_path")?.call_method1("append", (finder,))?;
    } else {
        sys.getattr("path")?.call_method1("insert", (0, folder.as_os_str()))?;
    }
    Ok(())
}

/// Finds modules in a folder that other users can change. An object in `sys.meta_path`, which the `import` statement
/// uses.
#[pyclass(frozen)]
struct SharedFolder {
    folder: PathBuf,
    verbosity: Verbosity,
}

#[pymethods]
impl SharedFolder {
    #[pyo3(signature = (fullname, path = None, target = None))]
    fn find_spec<'py>(
        &self,
        py: Python<'py>,
        fullname: &str,
        path: Option<&Bound<'py, PyAny>>,
        target: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _ = target;
        // `path` is given for a module in a package. Such a module is searched in the folders of the package.
        if path.is_some() {
            return Ok(None);
        }
        let folders = PyList::new(py, [self.folder.as_os_str()])?;
        let finder = py.import("importlib.machinery")?.getattr("PathFinder")?;
        let spec = finder.call_method1("find_spec", (fullname, folders))?;
        if spec.is_none() {
            return Ok(None);
        }
        let entries = py.import("sys")?.getattr("path")?;
        if !entries.contains(self.folder.as_os_str())? {
            entries.call_method1("append", (self.folder.as_os_str(),))?;
        }
        if self.verbosity > Verbosity::Quiet {
            self.name_if_untrusted(&spec)?;
        }
        Ok(Some(spec))
    }
}

impl SharedFolder {
    /// Prints the path of the module's file if other users can change or replace the file or its compiled form.
    fn name_if_untrusted(&self, spec: &Bound<'_, PyAny>) -> PyResult<()> {
        let file = |name: &str| spec.getattr(name)?.extract::<Option<PathBuf>>();
        let (origin, cached) = (file("origin")?, file("cached")?);
        let untrusted = writers::others_can_replace(&self.folder)
            || [&origin, &cached].into_iter().flatten().any(|path| writers::others_can_change(path));
        if untrusted {
            let path = origin.as_deref().unwrap_or(Path::new(&self.folder)).display();
            output::say(format_args!("warning: the script imports {path}, which other users can change"));
        }
        Ok(())
    }
}
