//! `perf.callchain`: the frames of a call chain.

use std::sync::Arc;

use perf_prof_events::event::PerfFrame;
use pyo3::{intern, prelude::*, types::PyString};

use super::{super::perf_script::FrameObjects, at};

/// The frames of a call chain, innermost first: a sequence of callchain_node.
#[pyclass(frozen, sequence, module = "perf", name = "callchain")]
pub struct Callchain {
    pub frames: Vec<Arc<PerfFrame>>,
}

#[pymethods]
impl Callchain {
    fn __len__(&self) -> usize {
        self.frames.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<CallchainNode> {
        let frame = at(&self.frames, index)?;
        Ok(CallchainNode { frame: frame.clone() })
    }
}

/// A frame of a call chain.
#[pyclass(frozen, module = "perf", name = "callchain_node")]
pub struct CallchainNode {
    frame: Arc<PerfFrame>,
}

#[pymethods]
impl CallchainNode {
    /// the address (int)
    #[getter]
    fn ip(&self) -> u64 {
        self.frame.ip
    }

    /// the function that contains the address, or '[unknown]' (str)
    #[getter]
    fn symbol<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let symbol = &FrameObjects::of(py, &self.frame)?.symbol;
        Ok(symbol.as_ref().map_or_else(|| unknown(py), |symbol| symbol.name.bind(py).clone()))
    }

    /// the file that contains the address, or '[unknown]' (str)
    #[getter]
    fn dso<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let map = &FrameObjects::of(py, &self.frame)?.map;
        Ok(map.as_ref().map_or_else(|| unknown(py), |map| map.dso.bind(py).clone()))
    }
}

/// Returns the text that perf shows for an unknown name.
fn unknown(py: Python<'_>) -> Bound<'_, PyString> {
    intern!(py, "[unknown]").clone()
}
