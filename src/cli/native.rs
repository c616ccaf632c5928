//! The native module `perf_prof._native`: other modules add their functions and classes to it. The package `perf_prof`
//! in `python/` exports them to programs.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use perf_prof_python::{library, script, testing};
use perf_prof_system::{fork_lock, signals::WithoutPython};
use pyo3::prelude::*;

/// The classes and functions of the package `perf_prof` that are written in Rust.
#[pymodule]
pub fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Threads of the program may fork from now on, while others add to its tables.
    fork_lock::watch_forks();
    script::add_to(module)?;
    library::add_to(module)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    testing::add_to(module)?;
    script::name_package(module)
}

/// Makes this module importable in the embedded interpreter. Must be called before the interpreter is started.
pub fn register() {
    script::set_native(_native::__pyo3_init);
}

/// Runs the command line in this interpreter, which also runs the scripts. The first word of `argv` is the name of the
/// program. Returns the exit status.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| {
        // Python's own signal handlers only set a flag that Python code checks (for example for SIGINT). Most commands
        // run no Python code, so default handlers are needed.
        let signals = WithoutPython::set();
        let status = crate::main(&argv).0;
        drop(signals);
        // An executable flushes its output when it exits. Errors were already reported when the text was written.
        let _ = io::stdout().flush();
        status
    })
}
