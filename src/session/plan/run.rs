//! The plan of a run: all settings of a run before it starts. Command lines and keyword arguments become this plan.

use std::{path::PathBuf, time::Duration};

use perf_prof_events::event::EventType;
use perf_prof_format::{abi::PERF_SAMPLE_ADDR, record::OtherRecords, spec::EventSpec};
use perf_prof_symbols::symbol::{self, Data, Demangle, Inline, Srcline};

use super::{Capture, Input, InterpreterFrameUse, Verbosity};

/// All settings of a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The events. For live events also the target, and how they are captured.
    pub capture: Capture,
    /// The number of events that the script itself selects. They are the first events. Some of them may be missing in a
    /// recording.
    pub own_events: usize,
    /// Where the events come from.
    pub origin: Origin,
    /// The records other than samples that the sink receives.
    pub others: OtherRecords,
    /// How addresses in processes are resolved to names.
    pub symbols: symbol::Options,
    /// The rules for names of functions.
    pub naming: Naming,
    /// How often [`perf_prof_events::event::Deliver::interval`] is called.
    pub interval: Option<Duration>,
    /// The number of delivered samples after which the run ends.
    pub limit: Option<u64>,
    /// How often this process's own CPU and memory use is printed.
    pub usage_every: Option<Duration>,
    /// The file that stdout and stderr are appended to. It is reopened when SIGUSR1 arrives.
    pub output: Option<PathBuf>,
    /// The receiver of the events. It determines which messages about the run are printed in addition to its result.
    pub face: Face,
    /// How many messages are printed to stderr.
    pub verbosity: Verbosity,
}

/// Where the events of a run come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The running kernel.
    Live(LivePlan),
    /// A recording.
    Recorded(Box<Input>),
}

/// The settings of a run on live events only.
#[derive(Clone, Debug, Default)]
pub struct LivePlan {
    /// The recording to write while the events are delivered.
    pub recording: Option<RecordingOutput>,
    /// The time after which the run ends.
    pub duration: Option<Duration>,
}

/// A recording that is written while events are delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOutput {
    /// The path of the recording.
    pub path: PathBuf,
    /// The command line of the run, one entry per word. It is stored in the recording.
    pub command_line: Vec<String>,
}

/// The receiver of a run's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Face {
    /// A script. Its first line may select events. It may need the time of day of events at any time.
    #[default]
    Script,
    /// A program that uses perf-prof as a library. It prints its own results, and can filter messages.
    Program,
    /// A command without a script. Its command line contains all that it needs.
    Command,
}

/// The rules for names of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The rules that the options select.
    #[default]
    Own,
    /// The rules of perf: names without parameters. Source lines and inlined functions are looked up only for call chains
    /// that are shown. Python functions are shown only if the user asks for them.
    Perf,
}

impl RunPlan {
    /// Returns the plan of a command that reads `events` of a recording, or all of its events if there are none.
    pub fn of_recording(input: &Input, events: &[EventSpec], verbosity: Verbosity) -> RunPlan {
        RunPlan {
            capture: Capture { events: events.to_vec(), ..Capture::default() },
            own_events: 0,
            origin: Origin::Recorded(Box::new(input.clone())),
            others: OtherRecords::NONE,
            symbols: symbol::Options::default(),
            naming: Naming::Own,
            interval: None,
            limit: None,
            usage_every: None,
            output: None,
            face: Face::Command,
            verbosity,
        }
    }

    /// Returns whether call chains of a recording have native frames, frames of Python functions, or both.
    pub fn recorded_python(&self) -> InterpreterFrameUse {
        let usual = match self.naming {
            Naming::Own => InterpreterFrameUse::Yes,
            Naming::Perf => InterpreterFrameUse::No,
        };
        self.capture.callchain.python.unwrap_or(usual)
    }

    /// Returns the recording that the events come from; `None` for live events.
    pub fn input(&self) -> Option<&Input> {
        match &self.origin {
            Origin::Recorded(input) => Some(input),
            Origin::Live(_) => None,
        }
    }

    /// Returns the settings that only a run on live events has; `None` for a recording.
    pub fn live(&self) -> Option<&LivePlan> {
        match &self.origin {
            Origin::Live(live) => Some(live),
            Origin::Recorded(_) => None,
        }
    }

    /// Returns how addresses are resolved for these events.
    pub fn symbols_for(&self, events: &[EventType]) -> symbol::Options {
        if self.naming == Naming::Own {
            return self.symbols;
        }
        let has = |member: u64| events.iter().any(|event| event.layout.format.sample_type & member != 0);
        let inline = if self.symbols.inline == Inline::Yes { Inline::OnRequest } else { self.symbols.inline };
        let data = if has(PERF_SAMPLE_ADDR) { Data::Yes } else { Data::No };
        symbol::Options { demangle: Demangle::NameOnly, inline, srcline: Srcline::No, data, ..self.symbols }
    }
}
