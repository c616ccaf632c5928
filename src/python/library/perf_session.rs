//! `perf.session`: a recording whose samples a function of the program gets, as `perf.sample_event`.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use perf_prof_events::event::{Deliver, Flow, Sample, Sink, Stop};
use perf_prof_format::{
    abi::{
        PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES,
        perf_data::{PERF_RECORD_STAT, PERF_RECORD_STAT_ROUND},
    },
    record::{OtherRecords, record_type},
};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Jobs, Naming, Origin, RunPlan, SplitBy},
    spine::{About, Trailers},
};
use perf_prof_symbols::symbol::{Inline, Srcline};
use perf_prof_system::{mutex::Mutex, process};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyTuple},
};

use super::{
    background::LOOK_FOR_SIGNALS,
    dispatch::stopped,
    errors::{exception, named},
    forks::Generation,
    messages, options,
    queue::{Delivery, Entry, EventBatch, Taken},
    run_thread::RunThread,
    trace::open_run,
};
use crate::script::{Evsels, Interface, Program, class_with, current_run, set_current_run, stay_in_forked_child, text};

/// A recording that is open. Its samples are delivered once.
#[pyclass(module = "perf_prof", frozen)]
pub struct PerfSession {
    run: Arc<About>,
    generation: Generation,
    /// The thread of the run; `None` after its events were delivered.
    thread: Mutex<Option<RunThread>>,
    current: Current,
    forked: Mutex<HashMap<i32, Forked>>,
}

/// The entry that is being delivered.
#[derive(Default)]
struct Current {
    batch: Mutex<Option<Arc<EventBatch>>>,
    at: AtomicUsize,
}

/// A task, as the record of its fork describes it.
#[derive(Clone, Copy)]
struct Forked {
    pid: i32,
    ppid: i32,
}

/// A thread of a recording. The fields are the arguments of `perf.thread`.
#[derive(IntoPyObject)]
pub struct FoundThread {
    pid: i32,
    tid: i32,
    /// The id of the parent process; -1 if the recording does not contain it.
    ppid: i32,
    /// The CPU of the current sample; -1 if the thread is not the task of this sample.
    cpu: i32,
}

/// Opens the recording of a session. With `part`, opens only this one of `parts` parts.
#[pyfunction]
#[pyo3(signature = (path, part = None, parts = 1))]
pub fn open_perf_session(py: Python<'_>, path: PathBuf, part: Option<usize>, parts: usize) -> PyResult<PerfSession> {
    let (selectors, none) = (PyTuple::empty(py), PyDict::new(py));
    let path = path.into_pyobject(py)?;
    let arguments = options::Arguments { selectors: &selectors, keywords: &none, forms: &none };
    let plan = options::plan("session", Some(path.as_any()), arguments)?;
    let others =
        [PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES, PERF_RECORD_STAT, PERF_RECORD_STAT_ROUND];
    let mut plan = RunPlan { others: OtherRecords::of(&others), naming: Naming::Perf, ..plan };
    (plan.symbols.inline, plan.symbols.srcline) = (Inline::Yes, Srcline::No);
    if let (Some(_), Origin::Recorded(input)) = (part, &mut plan.origin) {
        input.part = part;
        input.jobs = Some(Jobs { count: parts, split: SplitBy::Time });
    }
    let thread = open_run(py, plan, Delivery::WhenAsked)?;
    messages::warn(py)?;
    Ok(PerfSession {
        run: thread.run.clone(),
        generation: Generation::current(),
        thread: Mutex::new(Some(thread)),
        current: Current::default(),
        forked: Mutex::default(),
    })
}

/// Turns this forked child into a process that replays a part for the process `parent`. When the thread that forked the
/// child ends, the kernel kills the child.
#[pyfunction]
pub fn enter_part_of_session(parent: u32) {
    stay_in_forked_child();
    if !process::die_with(parent, libc::SIGKILL) {
        process::exit_now(1);
    }
    // The parent shows the messages from before the fork, so the child drops its copies of them.
    drop(messages::take());
}

#[pymethods]
impl PerfSession {
    /// Returns the machine of the recording, as `uname -m` prints it; None if it is not known.
    fn machine(&self) -> Option<String> {
        self.run.machine.clone()
    }

    /// Returns the events: for each event its name, the bytes of its attr, and its ids.
    fn events<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>, Vec<u64>)> {
        let events = self.run.events.iter().zip(&self.run.attrs);
        events.map(|(event, attr)| (event.shown_name(), PyBytes::new(py, &attr.bytes), attr.ids.clone())).collect()
    }

    /// Sets the evsel of each event.
    fn set_evsels(&self, evsels: &Bound<'_, PyList>) -> PyResult<()> {
        let py = evsels.py();
        let known = self.run.events.iter().zip(&self.run.attrs).zip(evsels);
        let of_classes = known.map(|((event, attr), evsel)| {
            let class = class_with(py, event, Interface::PerfModule)?;
            Ok((class, attr.ids.clone(), evsel.unbind()))
        });
        let of_classes = of_classes.collect::<PyResult<Vec<_>>>()?;
        self.run.context.slot.put(Box::new(Evsels::new(py, of_classes.into_iter())));
        Ok(())
    }

    /// Passes all samples to `sample`. Passes the records of losses and counts to `other`, each with the members of its
    /// sample id. Returns False if the samples were passed before.
    fn process(&self, py: Python<'_>, sample: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(mut thread) = self.thread.lock().take() else { return Ok(false) };
        let before = current_run();
        let mut program = Program::from_perf_callback(sample, self.run.clone())?;
        py.detach(|| thread.queue.start(0));
        let delivered = self.deliver(py, &mut program, &thread, other);
        if !self.generation.is_this() {
            // This process is a child that a callback has forked.
            thread.forget();
            return Err(named(
                py,
                "ClosedError",
                "a forked child cannot use the session; use it in the parent process",
            ));
        }
        if delivered.is_err() {
            py.detach(|| thread.close());
        }
        let end = py.detach(|| thread.end());
        program.clear();
        set_current_run(before);
        delivered?;
        messages::warn(py)?;
        match end {
            Some(Err(error)) => Err(exception(py, &error)),
            Some(Ok(ExitStatus(_))) | None => Ok(true),
        }
    }

    /// Returns the thread with this id; None if no record before the current sample names the thread.
    fn find_thread(&self, tid: i32) -> Option<FoundThread> {
        let (task, time, cpu) = self.now();
        let is_current = task.is_some_and(|(_, of)| of == tid);
        if !is_current && self.run.context.comm(tid, time).is_none() {
            return None;
        }
        let forked = self.forked.lock().get(&tid).copied();
        let pid = task.filter(|_| is_current).map(|(pid, _)| pid).or(forked.map(|of| of.pid));
        let pid = pid.or_else(|| self.run.context.process(tid));
        Some(FoundThread {
            pid: pid.unwrap_or(tid),
            tid,
            ppid: forked.map_or(-1, |of| of.ppid),
            cpu: if is_current { cpu } else { -1 },
        })
    }

    /// Returns the name of a thread at the time of the current sample; None if the name is not known.
    fn comm<'py>(&self, py: Python<'py>, tid: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
        let comm = self.run.context.comm(tid, self.now().1);
        comm.map(|comm| text(py, &comm)).transpose()
    }

    /// Returns the index of the event with this id; None if no event has it.
    fn event_with(&self, id: u64) -> Option<usize> {
        let Trailers::Recorded(layouts) = &self.run.trailers else { return None };
        let index = layouts.attr_with(id)?;
        self.run.attrs.iter().position(|attr| attr.index == index)
    }
}

impl PerfSession {
    /// Returns the task, the time and the CPU of the current sample. When no sample is current, the time is `u64::MAX`.
    fn now(&self) -> (Option<(i32, i32)>, u64, i32) {
        let Some(batch) = self.current.batch.lock().clone() else { return (None, u64::MAX, -1) };
        let entry = batch.entries.get(self.current.at.load(Relaxed));
        match entry {
            Some(&Entry::Sample { event, start, size }) => {
                let sample = Sample { event: &self.run.events[event as usize], record: batch.record(start, size) };
                let cpu = sample.event.layout.cpu(sample.record).map_or(-1, |cpu| cpu as i32);
                (Some(sample.pid_tid()), sample.time(), cpu)
            }
            _ => (None, u64::MAX, -1),
        }
    }

    fn deliver(
        &self,
        py: Python<'_>,
        program: &mut Program,
        thread: &RunThread,
        other: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        loop {
            match thread.queue.take() {
                Taken::Batch(batch) => {
                    messages::warn(py)?;
                    let batch = Arc::new(batch);
                    *self.current.batch.lock() = Some(batch.clone());
                    let (mut flow, mut raised) = (Flow::Continue(()), None);
                    program.enter(&mut |program| flow = self.deliver_batch(program, &batch, other, &mut raised));
                    *self.current.batch.lock() = None;
                    if let Some(raised) = raised.or_else(|| program.take_raised()) {
                        return Err(raised);
                    }
                    if flow.is_break() || !self.generation.is_this() {
                        return stopped(flow);
                    }
                }
                Taken::Nothing => py.detach(|| thread.queue.wait(Instant::now() + LOOK_FOR_SIGNALS)),
                Taken::End => return Ok(()),
            }
            py.check_signals()?;
        }
    }

    fn deliver_batch(
        &self,
        program: &mut dyn Deliver,
        batch: &EventBatch,
        other: &Bound<'_, PyAny>,
        raised: &mut Option<PyErr>,
    ) -> Flow {
        for (at, entry) in batch.entries.iter().enumerate() {
            if !self.generation.is_this() {
                break;
            }
            self.current.at.store(at, Relaxed);
            match *entry {
                Entry::Sample { event, start, size } => program.sample(event as usize, batch.record(start, size))?,
                Entry::Other { start, size } => {
                    if let Err(error) = self.other_record(batch.record(start, size), other) {
                        *raised = Some(error);
                        return Flow::Break(Stop::Failed);
                    }
                }
                Entry::Lost { .. } | Entry::Interval => {}
            }
        }
        Flow::Continue(())
    }

    fn other_record(&self, record: &[u8], other: &Bound<'_, PyAny>) -> PyResult<()> {
        let word =
            |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).map(|word| i32::from_ne_bytes(*word));
        if record_type(record) == PERF_RECORD_FORK {
            if let (Some(pid), Some(ppid), Some(tid)) = (word(8), word(12), word(16)) {
                self.forked.lock().insert(tid, Forked { pid, ppid });
            }
            return Ok(());
        }
        let of = self.run.trailers.of(record).map(|trailer| trailer.sample_id(record)).unwrap_or_default();
        let id = (of.pid_tid, of.time, of.id, of.stream_id, of.cpu);
        other.call1((PyBytes::new(other.py(), record), id)).map(drop)
    }
}
