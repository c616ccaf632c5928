//! perf.data: the format that recordings are kept in. Knows nothing of Python.

pub mod write;
