//! The native module `perf_prof._native`: the rooms add their functions and classes to it. The package `perf_prof` in
//! `python/` shows them to programs.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use perf_prof_python::{library, script, testing};
use perf_prof_system::signals::WithoutPython;
use pyo3::prelude::*;

/// The classes and functions of the package `perf_prof` that are written in Rust.
#[pymodule]
pub fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    script::add_to(module)?;
    library::add_to(module)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    testing::add_to(module)?;
    script::name_package(module)
}

/// Makes the module importable in the embedded interpreter, which is started later.
pub fn register() {
    script::set_native(_native::__pyo3_init);
}

/// Runs the command line in this interpreter, which also runs the scripts. `argv` starts with the name of the program.
/// Returns the exit status.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| {
        // Python's own handlers only set a flag for Python code (for example for SIGINT), but most commands run no
        // Python code.
        let signals = WithoutPython::set();
        let status = crate::main(&argv).0;
        drop(signals);
        // An executable flushes its output when it exits. Errors were reported when the text was written.
        let _ = io::stdout().flush();
        status
    })
}
