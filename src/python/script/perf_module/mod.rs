//! The sequences in a `perf.sample_event`, as perf's Python module has them: call chains and branches.

mod branches;
mod callchain;

pub use branches::{BranchEntry, BranchStack, branch_stack};
pub use callchain::{Callchain, CallchainNode};
