//! All settings of a run of a script. They are complete before the run starts. Does not know argv.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use perf_prof_core::{
    abi::{PERF_SAMPLE_ADDR, PERF_SAMPLE_STACK_USER},
    event::EventType,
    plan::{Capture, Input, Verbosity},
    symbol::{self, Data, Demangle, Inline, Srcline},
};

pub use perf_prof_core::live_run::RecordingOutput;

pub use crate::script::{Dialect, OnError, PerfScriptOptions, Signs};

/// All settings of a run.
#[derive(Clone, Debug)]
pub struct ScriptPlan {
    /// The command line of the run, quoted so that it can be pasted into a shell. Templates contain it.
    pub command_line: String,
    /// The events, the target they are attached to, and how they are captured.
    pub capture: Capture,
    /// The number of events that the script itself selects. They come first in the list of events. Some of these events
    /// may be missing in a recording.
    pub own_events: usize,
    /// The recording to replay. If there is none, the events are live.
    pub input: Option<Input>,
    /// The recording to write while the script runs on live events.
    pub record: Option<RecordingOutput>,
    /// How often `__interval__` is called.
    pub interval: Option<Duration>,
    /// How addresses in processes are resolved to names.
    pub symbols: symbol::Options,
    /// The number of delivered samples after which the run ends.
    pub exit_n: Option<u64>,
    /// The time after which a live run ends (`--duration`).
    pub duration: Option<Duration>,
    /// The file that stdout and stderr are appended to.
    pub output: Option<PathBuf>,
    /// How often this process's own CPU and memory use is printed.
    pub usage_self: Option<Duration>,
    /// How many messages are printed to stderr.
    pub verbosity: Verbosity,
    /// The interpreter or venv that the user selected.
    pub python: Option<PathBuf>,
    /// How events are delivered to the script's functions.
    pub dialect: Dialect,
    /// What happens after an exception in a callback.
    pub on_error: OnError,
    /// The script to run.
    pub module: Module,
    /// The recordings, if there are several of them or an executor replays them. `input` then has the path of the first
    /// one.
    pub recordings: Option<Recordings>,
    /// The part of the recording that this process replays, if another process merges the results.
    pub part: Option<OnePart>,
}

impl ScriptPlan {
    /// Returns how addresses are resolved for these events. perf shows names without parameters, and it shows source lines
    /// and inlined functions only in stacks that it unwinds itself.
    pub fn symbols_for(&self, events: &[EventType]) -> symbol::Options {
        if self.dialect == Dialect::PerfProf {
            return self.symbols;
        }
        let unwinds = |event: &EventType| event.layout.format.sample_type & PERF_SAMPLE_STACK_USER != 0;
        let (inline, srcline) = match events.iter().any(unwinds) {
            true => (self.symbols.inline, Srcline::Yes),
            false => (Inline::No, Srcline::No),
        };
        let has_address = |event: &EventType| event.layout.format.sample_type & PERF_SAMPLE_ADDR != 0;
        let data = if events.iter().any(has_address) { Data::Yes } else { Data::No };
        symbol::Options { demangle: Demangle::NameOnly, inline, srcline, data, ..self.symbols }
    }
}

/// Recordings that one script gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recordings {
    /// The paths, in the order in which their events are delivered or their results are merged.
    pub paths: Vec<PathBuf>,
    /// How they are replayed.
    pub engine: Engine,
    /// The options of the command line, for the processes that replay one part each.
    pub options: Vec<OsString>,
}

/// How several recordings are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// In this process, one after the other.
    OneAfterAnother,
    /// In processes of this machine, this many at a time.
    Processes(usize),
    /// By the executor that a Python function returns, written as MODULE:FUNCTION.
    Executor(String),
}

/// A part of a recording that this process replays for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnePart {
    /// The number of the part, from 0 on.
    pub number: usize,
    /// The number of parts of this recording.
    pub count: usize,
    /// The number of processes that replay parts on this machine at the same time. They share the allowed memory.
    pub processes: usize,
    /// The number of events that the script itself selects.
    pub own_events: usize,
    /// The process that started this one. If it ends, nobody needs the result.
    pub parent: u32,
    /// The file for the result.
    pub result: PathBuf,
}

/// The script to run, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// No script. The user typed `help` instead of a script, and a template for the events is printed.
    Template,
    /// A script, an extension module or a module's name.
    Script {
        /// The name or path, as typed.
        module: OsString,
        /// `sys.argv[1..]`.
        args: Vec<OsString>,
    },
}
