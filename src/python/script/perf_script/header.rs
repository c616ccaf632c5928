//! The values that all tracepoints have: time, CPU, task, call chain. Makes Python objects of them.

use std::sync::Arc;

use perf_prof_events::event::{self, Context, PerfFrame, Sample};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyInt, PyList},
};
use rustc_hash::FxHashMap;

use super::{
    super::event::string,
    cache::{NewReference, Objects, kept},
    frame::FrameObjects,
};

/// The largest number of tasks whose names are kept as Python objects.
const TASKS: usize = 1 << 14;

/// Makes the values that all tracepoints have.
pub struct HeaderValues {
    context: Arc<Context>,
    /// The names of tasks, by thread id. All of them are dropped when any task changes.
    comms: FxHashMap<i32, Py<PyAny>>,
    /// The number of changes of the context's tasks when `comms` was filled.
    changes: u64,
    /// The second of the last event's time, and its object.
    secs: Option<(u64, Py<PyAny>)>,
    /// The last empty list that was passed as a call chain.
    no_frames: Option<Py<PyList>>,
}

impl HeaderValues {
    /// Creates the values for the events of a run.
    pub fn new(context: Arc<Context>) -> HeaderValues {
        HeaderValues { context, comms: FxHashMap::default(), changes: 0, secs: None, no_frames: None }
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

    /// Returns the name of the sample's task. As in perf, a task without a known name has the name `:TID`.
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

    /// Returns an empty list: the last one, if the script has neither kept nor filled it.
    #[inline]
    fn empty_callchain<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyAny> {
        if let Some(list) = &self.no_frames {
            let list = list.bind(py);
            // SAFETY: the GIL is held (`py`), and the list is a live object.
            let count = unsafe { ffi::Py_REFCNT(list.as_ptr()) };
            if count == 1 && list.is_empty() {
                return list.clone().into_any();
            }
        }
        let list = PyList::empty(py);
        self.no_frames = Some(list.clone().unbind());
        list.into_any()
    }

    /// Returns the call chain as a list of dicts, which is empty if none was recorded.
    #[inline]
    pub fn callchain<'py>(&mut self, py: Python<'py>, sample: &Sample<'_>) -> PyResult<Bound<'py, PyAny>> {
        if !event::has_callchain(sample) {
            return Ok(self.empty_callchain(py));
        }
        let frames = event::perf_chain(sample, &self.context);
        let entry = |frame: &Arc<PerfFrame>| FrameObjects::of(py, frame)?.entry(py, frame);
        let entries = frames.iter().map(entry).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, entries)?.into_any())
    }
}
