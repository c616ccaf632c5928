//! The values that all tracepoints have, as Python objects: time, CPU, task, callchain.

use std::{ptr, sync::Arc};

use perf_prof_events::event::{self, Context, PerfFrame, Sample};
use pyo3::{
    prelude::*,
    types::{PyInt, PyList},
};
use rustc_hash::FxHashMap;

use super::{
    super::event::string,
    cache::{NewReference, Objects, kept},
    chains::Chains,
    frame::FrameObjects,
    kept_dict::{KeptDict, is_unused_and_empty},
};

/// The maximum number of tasks whose names are kept as Python objects.
const TASKS: usize = 1 << 14;

/// Makes the values that all tracepoints have.
pub struct HeaderValues {
    context: Arc<Context>,
    /// The names of tasks by thread id. All names are dropped when any task changes.
    comms: FxHashMap<i32, Py<PyAny>>,
    /// The value of `Context::task_changes` when `comms` was filled.
    changes: u64,
    /// The second of the last event's time, and the Python object of this number.
    secs: Option<(u64, Py<PyAny>)>,
    /// The last empty list that was passed as a callchain.
    no_frames: Option<Py<PyList>>,
    chains: Chains,
}

impl HeaderValues {
    /// Creates the values for the events of a run.
    pub fn new(context: Arc<Context>) -> HeaderValues {
        HeaderValues {
            context,
            comms: FxHashMap::default(),
            changes: 0,
            secs: None,
            no_frames: None,
            chains: Chains::default(),
        }
    }

    /// Returns the CPU, or -1 if it was not recorded.
    #[inline]
    pub fn cpu(&self, py: Python<'_>, sample: &Sample<'_>, objects: &mut Objects) -> NewReference {
        objects.signed(py, sample.event.layout.cpu(sample.record).map_or(-1, |cpu| i64::from(cpu as i32)))
    }

    /// Returns the second of the event's time.
    #[inline]
    pub fn secs(&mut self, py: Python<'_>, sample: &Sample<'_>) -> NewReference {
        let secs = sample.time() / 1_000_000_000;
        match &self.secs {
            Some((of, object)) if *of == secs => object.clone_ref(py).into_ptr(),
            _ => {
                let object = PyInt::new(py, secs).into_any();
                self.secs = Some((secs, object.clone().unbind()));
                object.into_ptr()
            }
        }
    }

    /// Returns the nanoseconds of the event's time within its second.
    #[inline]
    pub fn nsecs(&self, py: Python<'_>, sample: &Sample<'_>, objects: &Objects) -> NewReference {
        objects.rare(py, sample.time() % 1_000_000_000)
    }

    /// Returns the name of the sample's task. As in perf, the name is `:TID` if it is not known.
    #[inline]
    pub fn comm(&mut self, py: Python<'_>, sample: &Sample<'_>) -> NewReference {
        let changes = self.context.task_changes();
        if self.changes != changes {
            self.changes = changes;
            self.comms.clear();
        }
        let tid = sample.pid_tid().1;
        match self.comms.get(&tid) {
            Some(comm) => comm.clone_ref(py).into_ptr(),
            None => self.find_comm(py, tid, sample.time()),
        }
    }

    #[cold]
    fn find_comm(&mut self, py: Python<'_>, tid: i32, time: u64) -> NewReference {
        let name = self.context.comm(tid, time);
        // SAFETY: the GIL is held (`py`).
        let comm = unsafe { string(&name.unwrap_or_else(|| format!(":{tid}").into_bytes())) };
        if self.comms.len() >= TASKS {
            self.comms.clear();
        }
        if let Some(kept) = kept(py, comm) {
            self.comms.insert(tid, kept);
        }
        comm
    }

    /// Returns an empty list. If the script has neither kept nor filled the last empty list, returns it again.
    #[inline]
    fn empty_callchain<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyAny> {
        if let Some(list) = &self.no_frames
            && is_unused_and_empty(py, list.as_ptr())
        {
            return list.bind(py).clone().into_any();
        }
        let list = PyList::empty(py);
        self.no_frames = Some(list.clone().unbind());
        list.into_any()
    }

    /// Returns the callchain of a sample as a list of dicts; the list is empty if no callchain was recorded. `at` is
    /// the index of the sample's event.
    #[inline]
    pub fn callchain<'py>(
        &mut self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !event::has_callchain(sample) {
            return Ok(self.empty_callchain(py));
        }
        match self.chains.find(py, event, sample, &self.context, ptr::null_mut())? {
            Some(kept) => Ok(kept.into_any()),
            None => self.new_callchain(py, sample),
        }
    }

    fn new_callchain<'py>(&self, py: Python<'py>, sample: &Sample<'_>) -> PyResult<Bound<'py, PyAny>> {
        let frames = event::perf_chain(sample, &self.context);
        let entry = |frame: &Arc<PerfFrame>| FrameObjects::of(py, frame)?.entry(py, frame);
        let entries = frames.iter().map(entry).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, entries)?.into_any())
    }

    /// Sets the callchain as the value with the index `at` of a dict.
    #[inline]
    pub fn set_callchain(
        &mut self,
        py: Python<'_>,
        event: usize,
        sample: &Sample<'_>,
        dict: &mut KeptDict,
        at: usize,
    ) -> PyResult<()> {
        if !event::has_callchain(sample) {
            return dict.set_empty_list(py, at);
        }
        let list = match self.chains.find(py, event, sample, &self.context, dict.held(at))? {
            Some(kept) => kept.into_any(),
            None => {
                // The entries of the last callchain can be used again if this dict no longer refers to them.
                dict.set(py, at, py.None().into_ptr())?;
                self.new_callchain(py, sample)?
            }
        };
        dict.set(py, at, list.into_ptr())
    }
}
