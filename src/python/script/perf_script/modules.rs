//! Makes the Python modules Core, Util and EventClass importable for scripts of `perf script`, without an installed
//! perf. Also sets PERF_EXEC_PATH, because scripts search modules in the folder that it names.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use pyo3::{
    prelude::*,
    types::{PyList, PyString},
};

use super::super::embedded::{EmbeddedModule, ModuleKind};

static EMBEDDED: [EmbeddedModule; 3] = [
    EmbeddedModule {
        name: "Core",
        file: "<perf_prof Core.py>",
        source: include_str!("../../../../python/perf_script/Core.py"),
        kind: ModuleKind::Module,
    },
    EmbeddedModule {
        name: "EventClass",
        file: "<perf_prof EventClass.py>",
        source: include_str!("../../../../python/perf_script/EventClass.py"),
        kind: ModuleKind::Module,
    },
    EmbeddedModule {
        name: "Util",
        file: "<perf_prof Util.py>",
        source: include_str!("../../../../python/perf_script/Util.py"),
        kind: ModuleKind::Module,
    },
];

/// The last components of the folder in which perf installs its own modules Core, Util and EventClass.
const FOLDER_OF_PERF: &str = "Perf-Trace-Util/lib/Perf/Trace";

/// Makes the modules importable and sets PERF_EXEC_PATH. Must be called before the script's folder is in `sys.path`.
/// Otherwise files in this folder could run instead of the modules that are imported here.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let machinery = py.import("importlib.machinery")?;
    let finder = Finder {
        path_finder: machinery.getattr("PathFinder")?.unbind(),
        source_lines: py.import("linecache")?.getattr("cache")?.unbind(),
    };
    py.import("sys")?.getattr("meta_path")?.call_method1("insert", (0, finder))?;
    // Python has already copied the environment to `os.environ`, so Rust's `set_var` would have no effect there.
    let environ = py.import("os")?.getattr("environ")?;
    if !environ.call_method1("get", ("PERF_EXEC_PATH",))?.is_truthy()? {
        environ.set_item("PERF_EXEC_PATH", exec_path().as_os_str())?;
    }
    Ok(())
}

/// Returns the folder that `perf --exec-path` prints. It contains the scripts of the installed perf. If perf is not
/// installed, returns the usual folder.
pub fn exec_path() -> PathBuf {
    match env::var_os("PERF_EXEC_PATH").filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => installed_in(env::var_os("PATH").as_deref().unwrap_or_default()),
    }
}

/// The folders of perf's files below the prefix of an installation: in perf's own Makefile, and in Debian.
const EXEC_FOLDERS: [&str; 2] = ["libexec/perf-core", "lib/perf-core"];

/// Returns the folder of perf's files in the installation to which an executable `perf` in one of the folders of `path`
/// belongs. Without such an executable, looks below `/usr` and `/usr/local`.
fn installed_in(path: &OsStr) -> PathBuf {
    let programs = env::split_paths(path).filter(|folder| folder.is_absolute() && folder.join("perf").is_file());
    let prefixes: Vec<PathBuf> = programs.filter_map(|folder| folder.parent().map(Path::to_owned)).collect();
    let usual = ["/usr", "/usr/local"].map(PathBuf::from);
    let folders = prefixes.iter().chain(&usual).flat_map(|prefix| EXEC_FOLDERS.map(|folder| prefix.join(folder)));
    let mut with_scripts = folders.filter(|folder| folder.join("scripts").is_dir());
    with_scripts.next().unwrap_or_else(|| usual[0].join(EXEC_FOLDERS[0]))
}

/// Finds the modules for the `import` statement. An object of `sys.meta_path`.
#[pyclass(frozen)]
struct Finder {
    /// The class `importlib.machinery.PathFinder`, which searches modules in folders.
    path_finder: Py<PyAny>,
    /// `linecache.cache`, from which tracebacks take source lines.
    source_lines: Py<PyAny>,
}

#[pymethods]
impl Finder {
    /// Returns the spec of one of the modules. A module of the user with the same name comes first, for example a file
    /// beside the script. A module of an installed perf is not used.
    #[pyo3(signature = (fullname, path = None, target = None))]
    fn find_spec<'py>(
        &self,
        py: Python<'py>,
        fullname: &str,
        path: Option<&Bound<'py, PyAny>>,
        target: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _ = target;
        let Some(module) = EMBEDDED.iter().find(|module| module.name == fullname && path.is_none()) else {
            return Ok(None);
        };
        let folders = folders_of_the_user(py)?;
        let found = self.path_finder.bind(py).call_method1("find_spec", (fullname, folders))?;
        // A folder without `__init__.py` has no loader. As in Python, a module is preferred to such a folder.
        if !found.is_none() && !found.getattr("loader")?.is_none() {
            return Ok(Some(found));
        }
        module.spec(py, Some(self.source_lines.clone_ref(py))).map(Some)
    }
}

/// Returns the entries of `sys.path` that may contain modules of the user: all entries except the folder with the
/// modules of perf.
fn folders_of_the_user(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let folders = PyList::empty(py);
    for folder in py.import("sys")?.getattr("path")?.try_iter()? {
        let folder = folder?;
        let is_of_perf = folder.cast::<PyString>().is_ok_and(|text| is_of_perf(&text.to_string_lossy()));
        if !is_of_perf {
            folders.append(folder)?;
        }
    }
    Ok(folders)
}

fn is_of_perf(folder: &str) -> bool {
    Path::new(folder).ends_with(FOLDER_OF_PERF)
}
