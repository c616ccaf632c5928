//! `perf.branch_stack`: the branches of a sample.

use perf_prof_format::record::Branch;
use pyo3::prelude::*;

use super::at;

/// The branches of a sample, the latest first: a sequence of branch_entry.
#[pyclass(frozen, sequence, module = "perf", name = "branch_stack")]
pub struct BranchStack {
    branches: Vec<Branch>,
}

/// Creates the sequence of a sample's branches.
pub fn branch_stack(branches: impl Iterator<Item = Branch>) -> BranchStack {
    BranchStack { branches: branches.collect() }
}

#[pymethods]
impl BranchStack {
    fn __len__(&self) -> usize {
        self.branches.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<BranchEntry> {
        let branch = at(&self.branches, index)?;
        Ok(BranchEntry { branch: *branch })
    }
}

/// A branch.
#[pyclass(frozen, module = "perf", name = "branch_entry")]
pub struct BranchEntry {
    branch: Branch,
}

#[pymethods]
impl BranchEntry {
    /// the address of the branch instruction (int)
    #[getter]
    #[pyo3(name = "from_ip")]
    fn origin(&self) -> u64 {
        self.branch.from
    }

    /// the address that it jumped to (int)
    #[getter]
    #[pyo3(name = "to_ip")]
    fn target(&self) -> u64 {
        self.branch.to
    }

    /// whether the target was predicted wrongly (bool)
    #[getter]
    fn mispred(&self) -> bool {
        self.branch.mispred()
    }

    /// whether the target was predicted correctly (bool)
    #[getter]
    fn predicted(&self) -> bool {
        self.branch.predicted()
    }

    /// whether the branch was in a transaction (bool)
    #[getter]
    fn in_tx(&self) -> bool {
        self.branch.in_tx()
    }

    /// whether the branch aborted a transaction (bool)
    #[getter]
    fn abort(&self) -> bool {
        self.branch.abort()
    }

    /// the number of CPU cycles since the previous branch (int)
    #[getter]
    fn cycles(&self) -> u16 {
        self.branch.cycles()
    }

    /// the type of the branch instruction, PERF_BR_* of the kernel (int)
    #[getter]
    #[pyo3(name = "type")]
    fn kind(&self) -> u8 {
        self.branch.kind()
    }
}
