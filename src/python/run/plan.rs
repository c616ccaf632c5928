//! All settings of a script run. They are complete before the run starts.

use std::{ffi::OsString, path::PathBuf};

use perf_prof_session::{
    flight::FlightPlan,
    plan::{RunPlan, Verbosity},
};

pub use crate::script::{Dialect, OnError, PerfScriptOptions, Signs};

/// All settings of a script run.
#[derive(Clone, Debug)]
pub struct ScriptPlan {
    /// The command line, quoted for a shell. Templates contain it.
    pub command_line: String,
    /// The plan of the run: its events, and how they reach the script.
    pub run: RunPlan,
    /// The interpreter or venv that the user selected.
    pub python: Option<PathBuf>,
    /// How events are passed to the script's functions.
    pub dialect: Dialect,
    /// What happens after an exception in a callback.
    pub on_error: OnError,
    /// The script to run.
    pub module: Module,
    /// The recordings, if there are several or if an executor replays them. The input of `run` is then the first
    /// recording.
    pub recordings: Option<Recordings>,
    /// The flight recorder that runs beside the script. `perf_prof.snapshot()` requests its dumps. `None` if no flight
    /// recorder runs.
    pub flight: Option<FlightPlan>,
    /// The address at which the script's aggregators are served as metrics; `None` if they are not served.
    pub listen: Option<String>,
    /// The part of the recording that this process replays for another process; `None` if this process does not work
    /// for another process.
    pub part: Option<OnePart>,
}

impl ScriptPlan {
    /// Returns a plan whose process prints no messages, because another process of the run has already printed them.
    pub fn quiet(&self) -> ScriptPlan {
        ScriptPlan { run: RunPlan { verbosity: Verbosity::Quiet, ..self.run.clone() }, ..self.clone() }
    }
}

/// The recordings of a run with several recordings or an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recordings {
    /// The paths, in the order in which their events are delivered or their results are merged.
    pub paths: Vec<PathBuf>,
    /// How the recordings are replayed.
    pub engine: Engine,
    /// The options of the command line, for the processes that replay one part each.
    pub options: Vec<OsString>,
}

/// How several recordings are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// This process replays the recordings, one after the other.
    OneAfterAnother,
    /// Processes on this machine replay the recordings. The number is the maximum number of processes at a time.
    Processes(usize),
    /// The executor that a Python function returns replays the recordings. The text is MODULE:FUNCTION.
    Executor(String),
}

/// The part of a recording that this process replays for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnePart {
    /// The number of the part, from 0 on.
    pub number: usize,
    /// The number of parts of this recording.
    pub count: usize,
    /// The number of processes that replay parts on this machine at the same time. These processes share the memory
    /// budget.
    pub processes: usize,
    /// The number of events that the script's first line selects.
    pub own_events: usize,
    /// The id of the process that started this process. If that process ends, nobody needs the result any more.
    pub parent: u32,
    /// The file for the result.
    pub result: PathBuf,
}

/// The script to run, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// No script. The user typed `help` instead of a script, so a template for the events is printed.
    Template,
    /// A script, an extension module, or the name of a module.
    Script {
        /// The name or path, as typed.
        module: OsString,
        /// `sys.argv[1..]`.
        args: Vec<OsString>,
    },
}
