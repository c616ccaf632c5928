//! The extension module `perf_prof._native`, for `import perf_prof` in any Python. The crate `cli` defines the contents
//! of the module.

// The `#[pymodule]` of the crate `cli` exports PyInit__native, the function that Python calls first.
pub use perf_prof_cli::native::_native;

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must become an exception and not end the process: use the profile `extension`");
