//! `run_script`: runs a script on event objects, in the interpreter of the caller. The callbacks are called as in a run
//! of perf-prof.

use std::{collections::HashMap, ffi::OsString, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use perf_prof_events::event::{Deliver, EventType, Sink, Stats, Stop, UNKNOWN_COMM};
use perf_prof_format::{
    abi::*,
    record::{Batch, Chunk, Ended, EventIds, SampleLayout, SampleValues, TrailerLayout},
    spec::parse_interval,
};
use perf_prof_session::{
    engine::{
        exit_status,
        pump::{BreakReason, LossWindow, Pump, PumpSettings},
        run_loop::Ending,
        sample_routes::{Intervals, Span},
    },
    spine::{About, EventAttr},
};
use perf_prof_system::output;
use pyo3::{
    exceptions::{PyFileNotFoundError, PyKeyboardInterrupt, PyTypeError, PyValueError},
    prelude::*,
};

use crate::script::{
    Module, OnError, Program, ScriptError, Seen, WithObjects, current_run, made_context, seen, set_current_run,
};

/// The number of events between two checks for signals, such as Ctrl-C.
const LOOK_FOR_SIGNALS: usize = 1024;

/// An entry that is delivered to the script, in the order of time.
struct Entry {
    time: u64,
    cpu: u32,
    what: What,
}

enum What {
    /// An event object, and the index of its event type in the run.
    Event(usize, Py<PyAny>),
    /// The number of events that were lost on the CPU.
    Lost(u64),
}

/// The entries of a run, with their CPUs and event types.
#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    events: Vec<EventType>,
    /// The CPUs of the entries, sorted. The index of a CPU in this list is the number of its ring.
    cpus: Vec<u32>,
}

/// Imports the script `path`, calls its functions for the events, and returns its exit status and its module. The
/// module is None if the import failed. An event is a PerfEvent, or (time, CPU, number) for lost events.
#[pyfunction]
#[pyo3(signature = (path, events, args, interval))]
pub fn run_script(
    py: Python<'_>,
    path: PathBuf,
    events: Vec<Bound<'_, PyAny>>,
    args: Vec<OsString>,
    interval: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u8, Option<Py<PyModule>>)> {
    let interval = interval.map(duration).transpose()?;
    let context = made_context();
    let entries = entries(&events, |seen| {
        context.with_tasks(|tasks| {
            // `belongs` stores the process of a task only if the task has a name.
            tasks.named(seen.tid, seen.time, seen.comm.as_deref().unwrap_or(UNKNOWN_COMM));
            tasks.belongs(seen.tid, seen.pid);
        });
    })?;
    let layout = SampleLayout::new(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME, 0);
    let stats = Stats::new(entries.events.len(), entries.cpus.len());
    let run = Arc::new(About {
        is_delivered: vec![true; entries.events.len()],
        attrs: vec![EventAttr::default(); entries.events.len()],
        ring_cpus: entries.cpus.iter().map(|&cpu| Some(cpu)).collect(),
        events: entries.events.clone(),
        ..About::without_events(Arc::new(context), Arc::new(stats))
    });
    let before = current_run();
    let messages_before = output::send_messages_to(Some(message));
    let result = load_and_run(py, path, &args, &run, entries, layout, interval);
    output::send_messages_to(messages_before);
    set_current_run(before);
    result
}

/// Parses an interval: a number of seconds, or text as for the option `-i`.
fn duration(interval: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let wrong = |text: String| PyValueError::new_err(format!("interval: {text}"));
    if let Ok(text) = interval.extract::<&str>() {
        return parse_interval(text).map_err(|error| wrong(error.to_string()));
    }
    let seconds: f64 = interval.extract()?;
    let every = Duration::try_from_secs_f64(seconds).ok().filter(|every| !every.is_zero());
    every.ok_or_else(|| wrong(format!("{seconds} is not a positive number of seconds")))
}

/// Writes a message to `sys.stderr`, where the script writes too.
fn message(text: &str) {
    // If this fails, the message cannot be shown anywhere.
    let _ = Python::attach(|py| say(py, text));
}

fn say(py: Python<'_>, text: &str) -> PyResult<()> {
    let stderr = py.import("sys")?.getattr("stderr")?;
    if !stderr.is_none() {
        stderr.call_method1("write", (format!("perf-prof: {text}\n"),))?;
    }
    Ok(())
}

/// Sorts the events and losses by time. Calls `note` for each event.
fn entries(events: &[Bound<'_, PyAny>], mut note: impl FnMut(&Seen)) -> PyResult<Entries> {
    let mut all = Entries::default();
    let mut types: HashMap<usize, usize> = HashMap::new();
    for (at, object) in events.iter().enumerate() {
        let entry = if let Some(seen) = seen(object)? {
            note(&seen);
            let Seen { event, time, cpu, .. } = seen;
            let index = *types.entry(object.get_type().as_ptr() as usize).or_insert_with(|| {
                all.events.push(event);
                all.events.len() - 1
            });
            Entry { time, cpu, what: What::Event(index, object.clone().unbind()) }
        } else if let Ok((time, cpu, count)) = object.extract::<(u64, u32, u64)>() {
            Entry { time, cpu, what: What::Lost(count) }
        } else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("events[{at}] is a {kind}; it has to be a PerfEvent or a Lost")));
        };
        all.entries.push(entry);
    }
    all.cpus = all.entries.iter().map(|entry| entry.cpu).collect();
    all.cpus.sort_unstable();
    all.cpus.dedup();
    all.entries.sort_by_key(|entry| entry.time);
    Ok(all)
}

fn load_and_run(
    py: Python<'_>,
    path: PathBuf,
    args: &[OsString],
    run: &Arc<About>,
    entries: Entries,
    layout: SampleLayout,
    interval: Option<Duration>,
) -> PyResult<(u8, Option<Py<PyModule>>)> {
    // Functions such as is_recording() can be used from the import on.
    set_current_run(Some(run.clone()));
    let module = match Module::load_within(py, path.as_os_str(), args) {
        Ok(module) => module,
        Err(error @ ScriptError::NotFound { .. }) => return Err(PyFileNotFoundError::new_err(error.to_string())),
        Err(error) => return Ok((failed(py, &error)?, None)),
    };
    let loaded = module.module().clone_ref(py);
    let has_events = !entries.events.is_empty();
    let mut program = match module.bind(run.clone(), OnError::Continue) {
        Ok(program) => program,
        // Without events, no handler matches an event, so a missing handler is not an error.
        Err(ScriptError::NoCallback { .. }) if !has_events => return Ok((0, Some(loaded))),
        Err(error) => return Ok((failed(py, &error)?, Some(loaded))),
    };
    let status = match program.init() {
        Ok(()) => deliver(py, &mut program, run, entries, layout, interval),
        Err(error) => failed(py, &error),
    };
    program.clear();
    Ok((status?, Some(loaded)))
}

/// Returns the status of a run that ended before the first event. Writes the reason to `sys.stderr`.
fn failed(py: Python<'_>, error: &ScriptError) -> PyResult<u8> {
    if let ScriptError::Exited(status) = error {
        return Ok(*status);
    }
    say(py, &error.to_string())?;
    Ok(1)
}

/// Calls the script's functions, and returns the exit status.
fn deliver(
    py: Python<'_>,
    program: &mut Program,
    run: &Arc<About>,
    entries: Entries,
    layout: SampleLayout,
    interval: Option<Duration>,
) -> PyResult<u8> {
    let (start, last) = match entries.entries.as_slice() {
        [first, .., last] => (first.time, last.time),
        [only] => (only.time, only.time),
        [] => (0, 0),
    };
    let span = (!entries.entries.is_empty()).then_some(Span { start, last, intervals_after: start, end: last });
    let mut intervals = interval.map(|every| Intervals::new(every, span));
    let mut pump = pump(run, &entries, layout);
    let (records, objects) = records(entries, layout);
    let mut receiver = WithObjects::new(program, objects);
    let mut interrupted = None;
    let mut flow = ControlFlow::Continue(());
    receiver.enter(&mut |program| {
        for (at, (time, batch)) in records.iter().enumerate() {
            if at % LOOK_FOR_SIGNALS == 0
                && let Err(error) = py.check_signals()
            {
                interrupted = Some(error);
                return;
            }
            flow = pass_intervals(&mut intervals, run, program, |intervals| intervals.passed(*time));
            if flow.is_continue() {
                run.context.note_reached(*time);
                flow = pump.deliver(batch, program, |_| ControlFlow::Continue(()));
            }
            if flow.is_break() {
                return;
            }
        }
        flow = pass_intervals(&mut intervals, run, program, Intervals::left);
        if flow.is_continue() {
            run.context.note_reached(last);
            flow = pump.report_remaining(program, None, last);
        }
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    let mut at_exit = None;
    receiver.enter(&mut |program| at_exit = program.exit().break_value());
    let stop = match flow {
        ControlFlow::Break(BreakReason::Stop(stop)) => Some(stop),
        _ => None,
    };
    if [stop, at_exit].contains(&Some(Stop::Interrupted)) {
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    let ending = stop.map_or(Ending::Source(Ended::EndOfInput), Ending::Program);
    Ok(exit_status::exit_status(ending, at_exit, program.callbacks(), Some(0)))
}

/// Returns the pump, which delivers the records of these events to the program.
fn pump(run: &About, entries: &Entries, layout: SampleLayout) -> Pump {
    let ids: Vec<(u64, usize)> = (0..entries.events.len()).map(|index| (index as u64, index)).collect();
    Pump::new(PumpSettings {
        ids: EventIds::new(&ids),
        layout,
        trailer: TrailerLayout::new(0),
        context: run.context.clone(),
        stats: run.stats.clone(),
        window: LossWindow::Times,
        rings: entries.cpus.len(),
        limit: None,
    })
}

/// Returns a record with its time for each entry, and the event objects in the same order.
fn records(entries: Entries, layout: SampleLayout) -> (Vec<(u64, Batch)>, Vec<Py<PyAny>>) {
    let Entries { entries, cpus, .. } = entries;
    let mut records = Vec::with_capacity(entries.len());
    let mut objects = Vec::new();
    for Entry { time, cpu, what } in entries {
        let ring = cpus.binary_search(&cpu).unwrap_or(0) as u32;
        let record = match what {
            What::Event(index, object) => {
                objects.push(object);
                let values = SampleValues { id: index as u64, time, ..SampleValues::default() };
                layout.encode(&values).unwrap_or_default()
            }
            What::Lost(count) => lost_record(count),
        };
        records.push((time, Batch::Ring(Chunk::new(ring, record, None))));
    }
    (records, objects)
}

/// Calls `__interval__` for the intervals that `next` returns.
fn pass_intervals(
    intervals: &mut Option<Intervals>,
    run: &About,
    program: &mut dyn Deliver,
    next: impl Fn(&mut Intervals) -> Option<u64>,
) -> ControlFlow<BreakReason> {
    let Some(intervals) = intervals else { return ControlFlow::Continue(()) };
    while let Some(end) = next(intervals) {
        run.context.note_reached(end);
        program.interval().map_break(BreakReason::Stop)?;
    }
    ControlFlow::Continue(())
}

/// Returns the record with which the kernel reports lost events: `{ header; u64 id; u64 lost; }`.
fn lost_record(count: u64) -> Vec<u8> {
    let mut record = Vec::with_capacity(24);
    record.extend(PERF_RECORD_LOST.to_ne_bytes());
    record.extend([0u16, 24].map(u16::to_ne_bytes).concat());
    record.extend([0, count].map(u64::to_ne_bytes).concat());
    record
}
