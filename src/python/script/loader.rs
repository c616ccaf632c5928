//! Loads the user's module. The argument is the path of a file, or the name of a module.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use perf_prof_session::plan::Verbosity;
use perf_prof_system::{compat, output, writers};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PySystemExit},
    ffi,
    prelude::*,
    types::{PyDict, PyTraceback},
};

use super::{
    error::ScriptError,
    failure::{exit_status, print_traceback},
    perf_script, running, shared_folder,
};

/// The start of the file names that tracebacks show for Python's own loader.
const LOADER: &str = "<frozen importlib.";

/// What the user's argument MODULE is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Python source, in a file of any name.
    Script(PathBuf),
    /// An extension module.
    Extension(PathBuf),
    /// A module's name, to look up in the current directory and `sys.path`.
    Name(String),
}

/// A loaded module, and its name for messages.
pub struct Loaded {
    /// The module.
    pub module: Py<PyModule>,
    /// The path of the module's file. If the module has no file, its name as typed.
    pub path: String,
}

/// Imports `module`. `sys.argv` becomes `module`, followed by `args`.
pub fn load(py: Python<'_>, module: &OsStr, args: &[OsString], verbosity: Verbosity) -> Result<Loaded, ScriptError> {
    let typed = module.to_string_lossy().into_owned();
    let kind = kind_of(module).map_err(|cause| not_found(typed.clone(), cause))?;
    let import = || -> PyResult<Bound<'_, PyModule>> {
        let sys = py.import("sys")?;
        // These modules are imported before the script's folder is in `sys.path`, because files of the same names in
        // this folder must not run.
        for name in ["importlib.machinery", "importlib.util"] {
            py.import(name)?;
        }
        let argv: Vec<&OsStr> = std::iter::once(module).chain(args.iter().map(OsString::as_os_str)).collect();
        sys.setattr("argv", argv)?;
        let folder = folder(&kind);
        make_perf_importable(py, &folder)?;
        shared_folder::import_from(py, folder, verbosity)?;
        match &kind {
            Kind::Script(path) => run_file(py, path),
            Kind::Extension(path) => load_extension(py, path),
            // `py.import` drops the loader's frames from tracebacks, as the `import` statement does.
            Kind::Name(name) => py.import(name),
        }
    };
    match import() {
        Ok(loaded) => {
            let file = loaded.getattr("__file__").and_then(|file| file.extract::<String>());
            Ok(Loaded { module: loaded.unbind(), path: file.unwrap_or(typed) })
        }
        Err(error) => {
            if let Kind::Name(name) = &kind
                && is_missing(py, &error, name)
            {
                let cause = format!(
                    "no such file, and no module '{name}' in the current directory or sys.path ({})",
                    running::way_to_packages()
                );
                return Err(not_found(typed, cause));
            }
            Err(failed(py, typed, &error))
        }
    }
}

/// Runs a script of `perf script` as `__main__`, as perf and python3 do. `sys.argv` becomes the script, followed by
/// `args`.
pub fn load_as_main(
    py: Python<'_>,
    script: &OsStr,
    args: &[OsString],
    verbosity: Verbosity,
) -> Result<Loaded, ScriptError> {
    let typed = script.to_string_lossy().into_owned();
    let path = Path::new(script);
    if !path.is_file() {
        return Err(not_found(typed, why_no_file(path)));
    }
    let run = || -> PyResult<Bound<'_, PyModule>> {
        let sys = py.import("sys")?;
        py.import("importlib.machinery")?;
        perf_script::install_modules(py)?;
        let argv: Vec<&OsStr> = std::iter::once(script).chain(args.iter().map(OsString::as_os_str)).collect();
        sys.setattr("argv", argv)?;
        shared_folder::import_from(py, folder(&Kind::Script(path.to_owned())), verbosity)?;
        let main = py.import("__main__")?;
        // The script keeps these names, as in python3. perf removes them after it has loaded the script.
        main.setattr("__file__", path.as_os_str())?;
        main.setattr("__cached__", py.None())?;
        run_source(py, path, &main)?;
        Ok(main)
    };
    match run() {
        Ok(main) => Ok(Loaded { module: main.unbind(), path: typed }),
        Err(error) => Err(failed(py, typed, &error)),
    }
}

/// Runs a script as `__main__`, as python3 does. The script can import the package's module `perf`, whose sessions divide
/// their recordings between `jobs` processes. Returns the exit status.
pub fn run_program(script: &OsStr, args: &[&OsStr], jobs: usize) -> u8 {
    Python::attach(|py| {
        let path = Path::new(script);
        let run = || -> PyResult<()> {
            let sys = py.import("sys")?;
            py.import("importlib.machinery")?;
            sys.setattr("argv", [&[script], args].concat())?;
            let folder = folder(&Kind::Script(path.to_owned()));
            make_perf_importable(py, &folder)?;
            if jobs > 1 {
                py.import("perf_prof._perf_jobs")?.setattr("processes", jobs)?;
            }
            shared_folder::import_from(py, folder, Verbosity::Quiet)?;
            let main = py.import("__main__")?;
            main.setattr("__file__", path.as_os_str())?;
            main.setattr("__cached__", py.None())?;
            run_source(py, path, &main)
        };
        match run() {
            Ok(()) => 0,
            Err(error) if error.is_instance_of::<PySystemExit>(py) => exit_status(py, &error),
            Err(error) => {
                drop_loader_frames(py, &error);
                print_traceback(py, &error);
                if error.is_instance_of::<PyKeyboardInterrupt>(py) { 128 + libc::SIGINT as u8 } else { 1 }
            }
        }
    })
}

/// Makes `import perf` find the module of the package, also if perf's own is installed. Only a module in the script's
/// folder is preferred, if no other user can write there.
fn make_perf_importable(py: Python<'_>, folder: &Path) -> PyResult<()> {
    let folder = (!writers::others_can_change(folder)).then_some(folder.as_os_str());
    py.import("perf_prof._perf_import")?.call_method1("install", (folder,)).map(drop)
}

/// Prints the traceback of a script that raised an exception while it was loaded. Returns the error.
fn failed(py: Python<'_>, module: String, error: &PyErr) -> ScriptError {
    if error.is_instance_of::<PySystemExit>(py) {
        return ScriptError::Exited(exit_status(py, error));
    }
    drop_loader_frames(py, error);
    let exception = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    print_traceback(py, error);
    ScriptError::Raised { module, exception }
}

/// Returns the script's file if other users can change it: users who are neither root nor the user of this process.
pub fn file_that_others_can_change(module: &OsStr) -> Option<PathBuf> {
    match kind_of(module).ok()? {
        Kind::Script(path) | Kind::Extension(path) => Some(path).filter(|path| writers::others_can_change(path)),
        Kind::Name(_) => None,
    }
}

/// Returns the folder that is searched first for the script's imports.
fn folder(kind: &Kind) -> PathBuf {
    match kind {
        Kind::Script(path) | Kind::Extension(path) => {
            // Links are followed, as in python3, so that the script can import the modules beside the real file.
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            path.parent().map(Path::to_owned).unwrap_or_default()
        }
        Kind::Name(_) => env::current_dir().unwrap_or_default(),
    }
}

/// Returns the error for a module that was not found. If PERF_PROF_COMPAT is set, also prints Python's own error, as
/// the C implementation does.
fn not_found(module: String, cause: String) -> ScriptError {
    if compat::is_on() {
        output::write_line(&format!("ModuleNotFoundError: No module named '{module}'"));
    }
    ScriptError::NotFound { module, cause }
}

/// Returns whether the module that was not found is `name` itself, and not another module that `name` imports.
fn is_missing(py: Python<'_>, error: &PyErr, name: &str) -> bool {
    let top = name.split('.').next().unwrap_or(name);
    error.is_instance_of::<pyo3::exceptions::PyModuleNotFoundError>(py)
        && error
            .value(py)
            .getattr("name")
            .and_then(|missing| missing.extract::<String>())
            .is_ok_and(|missing| missing == name || missing == top)
}

/// Removes the frames of Python's loader from the start of a traceback, so that it starts with a frame of the user. For
/// a syntax error, removes all frames.
fn drop_loader_frames(py: Python<'_>, error: &PyErr) {
    let file = |traceback: &Bound<'_, PyTraceback>| -> PyResult<String> {
        traceback.getattr("tb_frame")?.getattr("f_code")?.getattr("co_filename")?.extract()
    };
    let mut traceback = error.traceback(py);
    while let Some(outermost) =
        traceback.take_if(|outermost| file(outermost).is_ok_and(|name| name.starts_with(LOADER)))
    {
        traceback = outermost.getattr("tb_next").ok().and_then(|next| next.cast_into().ok());
    }
    error.set_traceback(py, traceback);
}

fn kind_of(module: &OsStr) -> Result<Kind, String> {
    let path = Path::new(module);
    let text = module.to_string_lossy();
    let extension = path.extension().and_then(OsStr::to_str);
    let looks_like_file = text.contains('/') || matches!(extension, Some("py" | "so"));
    if path.is_file() {
        // A bare name may name two things in this folder: a module, and a file without extension, such as a program.
        // The module is preferred.
        let shadowed = !looks_like_file && (Path::new(&format!("{text}.py")).is_file() || path.is_dir());
        if !shadowed {
            // Collecting the components removes `.`: `./s.py` becomes `/dir/s.py` and not `/dir/./s.py`.
            let absolute: PathBuf = env::current_dir().unwrap_or_default().join(path).components().collect();
            return Ok(if extension == Some("so") { Kind::Extension(absolute) } else { Kind::Script(absolute) });
        }
    }
    if looks_like_file {
        return Err(why_no_file(path));
    }
    if text.is_empty() || module.to_str().is_none() {
        return Err("it is neither a file nor a module's name".into());
    }
    Ok(Kind::Name(text.into_owned()))
}

/// Returns the reason why there is no regular file at a path.
fn why_no_file(path: &Path) -> String {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "it is a directory".into(),
        Ok(_) => "it is not a regular file".into(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no such file".into(),
        Err(error) => error.to_string(),
    }
}

/// Runs a source file as a module that is named after the file. `importlib` does not run the code, because its frames
/// would be in tracebacks.
fn run_file<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyModule>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".py").unwrap_or(&name);
    let loader = py.import("importlib.machinery")?.call_method1("SourceFileLoader", (name, path.as_os_str()))?;
    let module = new_module(py, name, path, &loader)?;
    let sys = py.import("sys")?;
    // If the script has the name of a standard library module, it is not added to `sys.modules`: other modules must
    // still be able to import the standard library's module. The same holds for the name perf_prof.
    let taken = name == "perf_prof"
        || sys.getattr("stdlib_module_names")?.contains(name)?
        || sys.getattr("builtin_module_names")?.contains(name)?;
    if !taken {
        sys.getattr("modules")?.set_item(name, &module)?;
    }
    run_source(py, path, &module)?;
    Ok(module)
}

/// Runs the source in a file. Its globals are those of `module`.
fn run_source(py: Python<'_>, path: &Path, module: &Bound<'_, PyModule>) -> PyResult<()> {
    let loader =
        py.import("importlib.machinery")?.getattr("SourceFileLoader")?.call1((module.name()?, path.as_os_str()))?;
    // The source is compiled here, as python3 compiles the script that it runs. `get_code` could run a file in
    // `__pycache__` instead, which anybody who can write to the script's folder may have put there.
    let source = loader.call_method1("get_data", (path.as_os_str(),))?;
    let code = loader.call_method1("source_to_code", (source, path.as_os_str()))?;
    let globals = module.dict();
    globals.set_item("__builtins__", py.import("builtins")?)?;
    // SAFETY: `code` is a code object (else `source_to_code` would have raised), `globals` is a dict. Both outlive the call.
    let result = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyEval_EvalCode(code.as_ptr(), globals.as_ptr(), globals.as_ptr()))
    };
    result.map(drop)
}

/// Loads an extension module from its file. The module's name is the file name up to the first dot:
/// `x.cpython-311-….so` is `x`.
fn load_extension<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyModule>> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file.split('.').next().unwrap_or(&file);
    let loader = py.import("importlib.machinery")?.call_method1("ExtensionFileLoader", (name, path.as_os_str()))?;
    let module = new_module(py, name, path, &loader)?;
    py.import("sys")?.getattr("modules")?.set_item(name, &module)?;
    loader.call_method1("exec_module", (&module,))?;
    Ok(module)
}

fn new_module<'py>(
    py: Python<'py>,
    name: &str,
    path: &Path,
    loader: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyModule>> {
    let util = py.import("importlib.util")?;
    let options = PyDict::new(py);
    options.set_item("loader", loader)?;
    let spec = util.call_method("spec_from_file_location", (name, path.as_os_str()), Some(&options))?;
    Ok(util.call_method1("module_from_spec", (&spec,))?.cast_into()?)
}
