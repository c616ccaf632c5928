//! All settings of a run of a script. They are complete before the run starts.

use std::{ffi::OsString, path::PathBuf};

use perf_prof_session::{
    flight::FlightPlan,
    plan::{RunPlan, Verbosity},
};

pub use crate::script::{Dialect, OnError, PerfScriptOptions, Signs};

/// All settings of a run of a script.
#[derive(Clone, Debug)]
pub struct ScriptPlan {
    /// The command line of the run, quoted so that it can be pasted into a shell. Templates contain it.
    pub command_line: String,
    /// The run: its events, and how they get to the script.
    pub run: RunPlan,
    /// The interpreter or venv that the user selected.
    pub python: Option<PathBuf>,
    /// How events are delivered to the script's functions.
    pub dialect: Dialect,
    /// What happens after an exception in a callback.
    pub on_error: OnError,
    /// The script to run.
    pub module: Module,
    /// The recordings, if there are several or if an executor replays them. In this case, the input of `run` has the
    /// path of the first recording.
    pub recordings: Option<Recordings>,
    /// The flight recorder beside the run, which `perf_prof.snapshot()` asks for dumps; `None` if there is none.
    pub flight: Option<FlightPlan>,
    /// The address at which the aggregators of the script are served as metrics; `None` if they are not.
    pub listen: Option<String>,
    /// The part of the recording that this process replays, if another process merges the results.
    pub part: Option<OnePart>,
}

impl ScriptPlan {
    /// Returns the plan for a process that prints no messages, because another process of the run has already printed
    /// them.
    pub fn quiet(&self) -> ScriptPlan {
        ScriptPlan { run: RunPlan { verbosity: Verbosity::Quiet, ..self.run.clone() }, ..self.clone() }
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
    /// The number of processes that replay parts on this machine at the same time. They share the memory budget.
    pub processes: usize,
    /// The number of events that the script itself selects.
    pub own_events: usize,
    /// The id of the process that started this process. If it ends, the result is no longer needed.
    pub parent: u32,
    /// The file for the result.
    pub result: PathBuf,
}

/// The script to run, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// No script. The user typed `help` instead of a script, so a template for the events is printed.
    Template,
    /// A script, an extension module or a module's name.
    Script {
        /// The name or path, as typed.
        module: OsString,
        /// `sys.argv[1..]`.
        args: Vec<OsString>,
    },
}
