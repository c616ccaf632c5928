//! Starts the interpreter and makes programs in it.

use std::{ffi::OsStr, fs, sync::Arc};

use perf_prof_python::script::{Dialect, Interpreter, Module, OnError, Program, PythonChoice};
use perf_prof_session::{plan::Verbosity, spine::About};
use pyo3::{Py, PyAny, Python, types::PyAnyMethods};

/// The handlers by their names in the table. Each is the body of `sched__sched_wakeup(event)`.
pub const HANDLERS: [(&str, &str); 4] = [
    ("h0", "    pass\n"),
    ("h1", "    global n\n    n += 1\n"),
    ("h3", "    global n\n    n += 1\n    event.pid\n    event.target_cpu\n"),
    ("hs", "    global n\n    n += 1\n    event.pid\n    event.target_cpu\n    event.comm\n"),
];

/// Returns the body of the handler with this name.
pub fn body(name: &str) -> &'static str {
    HANDLERS.iter().find(|(row, _)| *row == name).map(|(_, body)| *body).unwrap()
}

pub fn start() -> Interpreter {
    perf_prof_cli::native::register();
    Interpreter::start(&PythonChoice::make(None).unwrap()).unwrap()
}

/// Makes a program with one handler for the events of `run`.
pub fn program(run: Arc<About>, body: &str) -> Program {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("handler.py");
    fs::write(&path, format!("n = 0\nkept = []\n\ndef sched__sched_wakeup(event):\n{body}")).unwrap();
    let module = Module::load(path.as_os_str(), &[], Dialect::PerfProf, Verbosity::Quiet);
    module.unwrap().bind(run, OnError::Stop).unwrap()
}

/// Returns a function with this body, and an object with plain attributes as its argument. Calling it is the floor: no
/// pipeline can be faster.
pub fn bare(body: &str) -> (Py<PyAny>, Py<PyAny>) {
    let source = format!(
        "class Event:\n    __slots__ = ('pid', 'target_cpu', 'comm')\n\nn = 0\nevent = Event()\nevent.pid = 4321\n\
         event.target_cpu = 1\nevent.comm = 'worker'\n\ndef handler(event):\n{body}"
    );
    Python::attach(|py| {
        let source = std::ffi::CString::new(source).unwrap();
        let module = pyo3::types::PyModule::from_code(py, &source, c"floor.py", c"floor").unwrap();
        (module.getattr("handler").unwrap().unbind(), module.getattr("event").unwrap().unbind())
    })
}

/// Returns whether a program is on the PATH.
pub fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(OsStr::new(command)).is_file())
}

/// Runs Python's garbage collector.
pub fn collect() {
    Python::attach(|py| {
        py.import("gc").unwrap().call_method0("collect").unwrap();
    });
}
