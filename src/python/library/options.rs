//! Makes plans from keyword arguments. Keywords fill the same `Draft` as the options of the command line. The package's
//! file `_options.py` lists the keywords of each function.

use std::{path::PathBuf, time::Duration};

use perf_prof_capture::OwnThreads;
use perf_prof_format::spec::{
    CallGraph, Threads, parse_frequency, parse_ids, parse_interval, parse_pages, parse_period, parse_recorded_ids,
    parse_size,
};
use perf_prof_session::{
    flight::FlightPlan,
    plan::{
        self, AllCpus, Callchain, Capture, Clock, DeliveryOrder, Draft, Face, Owner, PlanError, RunPlan, SplitBy,
        Verbosity,
    },
    recorder::{Delay, Level, Output, RecordPlan},
    selectors,
    stat::{Rows, StatPlan, Totals},
};
use perf_prof_symbols::symbol::{Inline, Srcline};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};

use super::{
    errors::named,
    keywords::{Wrong, command, keyword_of, level, list, number, parsed, switch, switch_or, text, time, time_range},
};
use crate::{run::inputs, script::Dialect};

/// The function that the program called. It determines which keywords are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Trace,
    Replay,
    Record,
    Flight,
    Count,
}

/// The parsed arguments of a function.
struct Asked {
    action: Action,
    draft: Draft,
    chains: Option<CallGraph>,
    /// Only `record` has this option.
    threads: Option<Threads>,
    compression: Option<Level>,
    /// Only `flight` has these three options.
    before: Option<Duration>,
    after: Option<Duration>,
    max_files: Option<u32>,
}

/// The arguments of a call: selectors and keyword arguments. Also the keywords that the function accepts.
#[derive(Clone, Copy)]
pub struct Arguments<'a, 'py> {
    pub selectors: &'a Bound<'py, PyTuple>,
    pub keywords: &'a Bound<'py, PyDict>,
    /// The keywords that the function accepts. Each value names the types that the argument may have.
    pub forms: &'a Bound<'py, PyDict>,
}

/// Parses the arguments. `function` is the name of the called function, for messages.
fn asked(
    action: Action,
    function: &str,
    Arguments { selectors, keywords, forms }: Arguments<'_, '_>,
) -> PyResult<Asked> {
    let py = selectors.py();
    let draft = Draft { verbosity: Verbosity::Quiet, ..Draft::default() };
    let (chains, threads, compression, before, after, max_files) = Default::default();
    let mut asked = Asked { action, draft, chains, threads, compression, before, after, max_files };
    for selector in selectors {
        let Ok(text) = selector.cast::<PyString>() else {
            let text = format!("{function}(): a selector is a str, such as 'sched:sched_switch'");
            return Err(PyTypeError::new_err(text));
        };
        let events =
            selectors::parse(text.to_str()?).map_err(|error| named(py, "SelectorError", &error.to_string()))?;
        asked.draft.events.extend(events);
    }
    if selectors.is_empty() && matches!(action, Action::Trace | Action::Record | Action::Flight) {
        let text = format!("{function}(): name at least one event, such as {function}('sched:sched_switch')");
        return Err(named(py, "SelectorError", &text));
    }
    for (keyword, value) in keywords {
        let keyword: String = keyword.extract()?;
        if value.is_none() {
            continue;
        }
        if !forms.contains(&keyword)? {
            return Err(named(py, "OptionError", &format!("{function}(): {keyword} is not possible here")));
        }
        asked.set(&keyword, &value).map_err(|wrong| match wrong {
            Wrong::Type(expected) => {
                let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
                PyTypeError::new_err(format!("{function}(): {keyword} is {expected}, not {kind}"))
            }
            Wrong::Value(error) => named(py, "OptionError", &format!("{function}(): {keyword}: {error}")),
        })?;
    }
    Ok(asked)
}

impl Asked {
    fn set(&mut self, keyword: &str, value: &Bound<'_, PyAny>) -> Result<(), Wrong> {
        let is_delivered = matches!(self.action, Action::Trace | Action::Replay);
        let ids = if is_delivered { parse_recorded_ids } else { parse_ids };
        let draft = &mut self.draft;
        let selection = &mut draft.selection;
        match keyword {
            "cpus" => selection.cpus = parsed(list(value)?, str::parse)?,
            "pid" => selection.pids = parsed(list(value)?, ids)?.map(Vec::from),
            "tid" => selection.tids = parsed(list(value)?, ids)?.map(Vec::from),
            "cgroup" => selection.cgroups = list(value)?.split(',').map(str::to_owned).collect(),
            "all_cgroups" => draft.cgroups = switch(value)?.into(),
            "exec" if is_delivered => selection.exec = Some(command(value)?),
            "exec" => selection.command = command(value)?,
            "all_cpus" if switch(value)? => selection.all_cpus = AllCpus::BesideTasks,
            "count" => draft.period = parsed(text(value)?, parse_period)?,
            "freq" => draft.frequency = parsed(text(value)?, parse_frequency)?,
            "call_graph" => self.chains = switch_or(value, CallGraph::default(), "True, 'fp' or 'dwarf'", str::parse)?,
            "user_callchain" => draft.callchain.user = Some(switch(value)?.into()),
            "kernel_callchain" => draft.callchain.kernel = Some(switch(value)?.into()),
            "mmap_pages" => draft.ring_size = parsed(text(value)?, parse_pages)?,
            "buffer" => draft.buffer = parsed(text(value)?, parse_size)?,
            "watermark" => draft.watermark = parsed(text(value)?, number(1..=100))?,
            "sampling_limit" => draft.sampling_limit = parsed(text(value)?, number(1..=u32::MAX.into()))?,
            "order" if switch(value)? => draft.order = DeliveryOrder::Time,
            "monotonic" if switch(value)? => draft.clock = Clock::Monotonic,
            "duration" => draft.duration = parsed(time(value)?, parse_interval)?,
            "in_kernel" => draft.in_kernel = parsed(text(value)?, str::parse)?.unwrap_or_default(),
            "limit" => draft.limit = parsed(text(value)?, number(1..=u64::MAX))?,
            "interval" => draft.interval = parsed(time(value)?, parse_interval)?,
            "inline" if switch(value)? => draft.symbols.inline = Inline::Yes,
            "srcline" if switch(value)? => draft.symbols.srcline = Srcline::Yes,
            "symbol_cache" => {
                let symbols = &mut draft.symbols;
                symbols.cache_bytes = parsed(text(value)?, parse_size)?.unwrap_or(symbols.cache_bytes);
            }
            "time" => draft.times = parsed(time_range(value)?, str::parse)?,
            "jobs" => draft.jobs = parsed(text(value)?, number(1..=u16::MAX.into()))?,
            "split" => draft.split = parsed(text(value)?, split)?,
            "guest" => draft.guests = switch(value)?.into(),
            "force" if switch(value)? => draft.owner = Owner::Anybody,
            "threads" => self.threads = switch_or(value, Threads::Cpu, "True, a number or a str", str::parse)?,
            "compress" => self.compression = switch_or(value, Level::FASTEST, "True, a number or a str", level)?,
            "before" => self.before = parsed(time(value)?, parse_interval)?,
            "after" => self.after = parsed(time(value)?, parse_interval)?,
            "max_files" => self.max_files = parsed(text(value)?, number(1..=u32::MAX.into()))?,
            // A switch that is off, or an argument that the called function handles itself.
            _ => {}
        }
        Ok(())
    }
}

fn split(by: &str) -> Result<SplitBy, String> {
    match by {
        "time" => Ok(SplitBy::Time),
        "cpu" => Ok(SplitBy::Cpu),
        _ => Err(format!("`{by}` is neither `time` nor `cpu`")),
    }
}

/// Returns the exception for keywords that cannot be combined.
fn misfit(py: Python<'_>, error: &PlanError) -> PyErr {
    named(py, "OptionError", &error.message(keyword_of))
}

/// Makes the plan of a run of `function`. `input` is the recording to replay; without it, the events are live.
pub fn plan(function: &str, input: Option<&Bound<'_, PyAny>>, arguments: Arguments<'_, '_>) -> PyResult<RunPlan> {
    let py = arguments.selectors.py();
    let action = if input.is_some() { Action::Replay } else { Action::Trace };
    let Asked { draft, chains, .. } = asked(action, function, arguments)?;
    let input = match input {
        None => None,
        Some(path) => {
            let paths = inputs::expand(&[path.extract()?]);
            let paths = paths.map_err(|error| named(py, "OptionError", &format!("{function}(): {error}")))?;
            let [path] = paths.try_into().map_err(|_| {
                let text = format!("{function}(): the path names several recordings, but one was expected");
                named(py, "OptionError", &text)
            })?;
            Some(path)
        }
    };
    let callchain = Callchain::with_frames_of(chains, draft.callchain.user, draft.callchain.kernel);
    let others = Dialect::PerfProf.other_records();
    let own_threads = OwnThreads::StartedLeftOut;
    let draft = Draft { callchain, input, others, own_threads, face: Face::Program, ..draft };
    draft.checked().map_err(|error| misfit(py, &error))
}

/// Makes the plan of a flight recorder that writes its dumps into `folder`.
pub fn flight_plan(folder: PathBuf, arguments: Arguments<'_, '_>) -> PyResult<FlightPlan> {
    /// The default of `before`.
    const BEFORE: Duration = Duration::from_secs(10);
    let py = arguments.selectors.py();
    let asked = asked(Action::Flight, "flight", arguments)?;
    let (before, after, max_files) = (asked.before, asked.after, asked.max_files);
    // A path that ends with a slash is a folder, even if it does not exist yet.
    let mut record = recording_of(py, folder.join(""), asked)?;
    record.command_line = vec!["perf_prof.flight()".into()];
    let max_files = max_files.map(|count| count as usize);
    Ok(FlightPlan::on_request(record, before.unwrap_or(BEFORE), after.unwrap_or_default(), max_files))
}

/// Makes the plan of a recording in the file `output`.
pub fn record_plan(output: PathBuf, arguments: Arguments<'_, '_>) -> PyResult<RecordPlan> {
    let py = arguments.selectors.py();
    let asked = asked(Action::Record, "record", arguments)?;
    if output.as_os_str() == "-" {
        return Err(named(
            py,
            "OptionError",
            "record(): output must be a file, because the standard output belongs to the program",
        ));
    }
    recording_of(py, output, asked)
}

fn recording_of(py: Python<'_>, output: PathBuf, asked: Asked) -> PyResult<RecordPlan> {
    let Asked { draft, chains, threads, compression, .. } = asked;
    let (target, untraced_command) = draft.selection.target().map_err(|error| misfit(py, &error))?;
    let capture = Capture {
        events: draft.events,
        target,
        callchain: Callchain::with_all_frames(chains),
        rate: plan::rate(draft.period, draft.frequency).map_err(|error| misfit(py, &error))?,
        ring_size: draft.ring_size,
        buffer: draft.buffer,
        clock: draft.clock,
        cgroups: draft.cgroups,
        own_threads: OwnThreads::StartedLeftOut,
        ..Capture::default()
    };
    Ok(RecordPlan {
        capture,
        command_line: vec!["perf_prof.record()".into()],
        output: Output::File(output),
        threads,
        flush_bytes: None,
        delay: Delay::None,
        duration: draft.duration,
        usage_self: None,
        control: None,
        compression,
        untraced_command,
        verbosity: draft.verbosity,
    })
}

/// Makes the plan of a count.
pub fn stat_plan(arguments: Arguments<'_, '_>) -> PyResult<StatPlan> {
    let py = arguments.selectors.py();
    let Asked { draft, .. } = asked(Action::Count, "stat", arguments)?;
    if draft.selection.command.is_empty() && draft.duration.is_none() {
        return Err(named(py, "OptionError", "stat(): give a command with exec, or a duration"));
    }
    let (target, untraced_command) = draft.selection.target().map_err(|error| misfit(py, &error))?;
    Ok(StatPlan {
        capture: Capture { events: draft.events, target, ..Capture::default() },
        untraced_command,
        interval: None,
        duration: draft.duration,
        totals: Totals::Left,
        runs: 1,
        rows: Rows::Events,
        verbosity: draft.verbosity,
    })
}

/// Returns the time at which a wait of at most `value` seconds ends; `None` if the wait has no limit.
pub fn timeout(value: Option<f64>) -> PyResult<Option<std::time::Instant>> {
    let Some(seconds) = value else { return Ok(None) };
    let wait = std::time::Duration::try_from_secs_f64(seconds.max(0.0))
        .map_err(|_| PyValueError::new_err(format!("timeout={seconds}: not a time in seconds")))?;
    Ok(std::time::Instant::now().checked_add(wait))
}
