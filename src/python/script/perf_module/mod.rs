//! The sequences of a `perf.sample_event`, as in perf's Python module: callchains and branches.

mod branches;
mod callchain;

pub use branches::{BranchEntry, BranchStack, branch_stack};
pub use callchain::{Callchain, CallchainNode};
use pyo3::{PyResult, exceptions::PyIndexError};

/// Returns the item at an index. A negative index counts from the end.
fn at<T>(items: &[T], index: isize) -> PyResult<&T> {
    let from_start = if index < 0 { items.len().checked_add_signed(index) } else { Some(index.unsigned_abs()) };
    from_start.and_then(|index| items.get(index)).ok_or_else(|| PyIndexError::new_err("Index out of range"))
}
