//! The extension module `perf_prof`, for `import perf_prof` in any Python. It is a thin layer: src/host/script defines
//! the content of the module.

// The host's `#[pymodule]` exports PyInit_perf_prof, the function that Python calls first.
pub use perf_prof_host::script::perf_prof;
