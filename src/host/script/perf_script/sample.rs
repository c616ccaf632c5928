//! `perf_sample_dict`: everything that is known about a sample.

use std::sync::Arc;

use perf_prof_core::event::Sample;
use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString},
};

use super::{super::module::Run, common::CommonValues};

/// Makes the dicts of samples.
pub struct SampleDict {
    events: Vec<EventPart>,
}

/// The part of the dict that is the same for all samples of an event.
struct EventPart {
    name: Py<PyString>,
    attr: Py<PyBytes>,
}

impl SampleDict {
    /// Prepares the dicts for the events of a run.
    pub fn new(py: Python<'_>, run: &Arc<Run>) -> SampleDict {
        let part = |(at, event): (usize, &perf_prof_core::event::EventType)| EventPart {
            name: PyString::new(py, &event.shown_name()).unbind(),
            attr: PyBytes::new(py, run.attrs.get(at).map_or(&[], Vec::as_slice)).unbind(),
        };
        SampleDict { events: run.events.iter().enumerate().map(part).collect() }
    }

    /// Makes the dict of a sample.
    pub fn make<'py>(
        &mut self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
        common: &mut CommonValues,
    ) -> PyResult<Bound<'py, PyDict>> {
        let EventPart { name, attr } = &self.events[event];
        let all = PyDict::new(py);
        all.set_item(intern!(py, "ev_name"), name)?;
        all.set_item(intern!(py, "attr"), attr)?;
        all.set_item(intern!(py, "sample"), values(py, sample)?)?;
        all.set_item(intern!(py, "raw_buf"), PyBytes::new(py, sample.raw()))?;
        all.set_item(intern!(py, "comm"), common.comm(py, sample)?)?;
        all.set_item(intern!(py, "callchain"), common.callchain(py, sample)?)?;
        all.set_item(intern!(py, "brstack"), PyList::empty(py))?;
        all.set_item(intern!(py, "brstacksym"), PyList::empty(py))?;
        all.set_item(intern!(py, "iregs"), "")?;
        all.set_item(intern!(py, "uregs"), "")?;
        Ok(all)
    }
}

/// Returns the dict `sample`: the numbers of the sample.
fn values<'py>(py: Python<'py>, sample: &Sample<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (pid, tid) = sample.pid_tid();
    dict.set_item(intern!(py, "pid"), pid)?;
    dict.set_item(intern!(py, "tid"), tid)?;
    dict.set_item(intern!(py, "cpu"), sample.event.layout.cpu(sample.record).unwrap_or(u32::MAX))?;
    dict.set_item(intern!(py, "ip"), sample.event.layout.ip(sample.record).unwrap_or(0))?;
    dict.set_item(intern!(py, "time"), sample.time())?;
    dict.set_item(intern!(py, "period"), sample.period())?;
    Ok(dict)
}
