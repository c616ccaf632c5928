//! The Python classes `perf_prof.Batch`, `perf_prof.Table` and `perf_prof.Column`. Other libraries read their columns
//! without a copy, through Arrow's PyCapsule interface and the buffer protocol.

mod batch;
mod capsules;
mod column;
mod values;

pub use batch::{Batch, Table, rows_capsule};
pub use capsules::stream_capsule;
pub use column::Column;

use pyo3::prelude::*;

/// Adds the classes to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Batch>()?;
    module.add_class::<Table>()?;
    module.add_class::<Column>()
}
