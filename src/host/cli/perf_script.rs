//! The plan of a run of a script of `perf script`, from the options of `perf-prof script`.

use std::ffi::OsString;

use perf_prof_core::{
    capture::OwnThreads,
    plan::{Callchain, Capture, Clock, DeliveryOrder, Switch, Target},
    symbol,
};

use super::script::RecordingOptions;
use crate::run::plan::{Dialect, Module, OnError, PerfScriptOptions, ScriptPlan};

/// A script, and what `perf-prof script` says about its run.
pub struct PerfScript {
    /// The path of the script.
    pub script: OsString,
    /// `sys.argv[1..]`.
    pub args: Vec<OsString>,
    /// How addresses are resolved.
    pub symbols: symbol::Options,
    /// The settings that only these scripts have.
    pub options: PerfScriptOptions,
}

impl PerfScript {
    /// Returns the plan for a recording.
    pub fn plan_for_recording(self, of: &RecordingOptions) -> ScriptPlan {
        ScriptPlan {
            command_line: String::new(),
            capture: Capture {
                events: Vec::new(),
                target: Target::AllCpus,
                selected_tasks: None,
                callchain: Callchain::default(),
                registers: Switch::Off,
                switches: Switch::Off,
                namespaces: Switch::Off,
                cgroups: Switch::Off,
                rate: None,
                ring_size: None,
                buffer: None,
                watermark: None,
                clock: Clock::Perf,
                order: DeliveryOrder::Time,
                sampling_limit: None,
                own_threads: OwnThreads::LeftOut,
            },
            own_events: 0,
            input: Some(of.input()),
            record: None,
            interval: None,
            symbols: self.symbols,
            exit_n: None,
            duration: None,
            output: None,
            usage_self: None,
            verbosity: of.verbosity(),
            python: None,
            dialect: Dialect::PerfScript(self.options),
            on_error: OnError::default(),
            module: Module::Script { module: self.script, args: self.args },
        }
    }
}
