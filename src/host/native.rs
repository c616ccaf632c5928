//! The native module `perf_prof._native`: the rooms add their functions and classes to it. The package `perf_prof` in
//! `python/` shows them to programs.

use pyo3::prelude::*;

use crate::{library, script};

/// What the package `perf_prof` is made of.
#[pymodule]
pub fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    script::add_to(module)?;
    library::add_to(module)?;
    script::name_package(module)
}

/// Makes the module importable in the embedded interpreter, which is started later.
pub fn register() {
    script::set_native(_native::__pyo3_init);
}
