//! The options of `perf-prof trace`, and its plan.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perf_prof_format::spec::{CallGraph, parse_events};
use perf_prof_session::{engine::ExitStatus, plan::Switch, selectors::SYSTEM_CALLS};
use perf_prof_system::shell::shell_quote;
use perf_prof_tools::watch::{
    Destination, Form,
    trace::{self, LineTimes, TracePlan},
};

use super::options::{Needs, WatchOptions};
use crate::{
    event_as_command, event_filters::EventFilters, failure::Failure, option_error::OptionError,
    values::PythonFramesOption,
};

const USAGE: &str = "perf-prof trace [OPTION...] [-e EVENT[,EVENT...]] [--] [CMD [ARGS...]]
       perf-prof trace [OPTION...] --input PATH [-e EVENT,...]";

const LONG_ABOUT: &str =
    "Print a line for each event, in the order of time. Without -e: a line for each system call, when it returns. \
Durations of calls and of other spans are in ms, and the time of their line is their end.

With a command: the events of this command and its children, until the command ends. With -a, -C, -p or -t: the \
events on these CPUs, or of these processes and threads. With none of these: the events on all CPUs, until Ctrl-C.";

const AFTER_HELP: &str = "\
Examples
  The system calls of a command:
      perf-prof trace -- ls /nowhere
         0.000000 ls/4710 openat(dfd: AT_FDCWD, filename: \"/etc/ld.so.cache\", flags: 0x80000, mode: 0) = 3 (0.005 ms)
  Some calls of a process, by their names, and all calls that fail or take 10 ms:
      perf-prof trace -e openat,read -p 1234
      perf-prof trace -e syscall/failed/ -p 1234
      perf-prof trace -e syscall/min=10ms/ -p 1234
  Why a command does not run: its times off the CPU, and who woke it:
      perf-prof trace -e offcpu/min=1ms/ -- make
  The programs that a build starts:
      perf-prof trace -e sched:sched_process_exec -- make
         0.000000 make/4711  sched:sched_process_exec: filename=/usr/bin/make pid=4711 old_pid=4711
         0.013570 sh/4712    sched:sched_process_exec: filename=/bin/sh pid=4712 old_pid=4712
  The functions of a process that open files:
      perf-prof trace -e syscalls:sys_enter_openat -g -p 1234
  Five events on all CPUs, with the time of day:
      perf-prof trace -e 'irq:*' -N 5 --timestamps date
  Only events for which a filter is true:
      perf-prof trace -e 'sched:sched_wakeup/prio<100/' -a -- sleep 1
  The calls of every program but one, or all calls but some:
      perf-prof trace -e 'syscall/comm != \"x\"/' -a -- sleep 1
      perf-prof trace -e 'syscall/name != \"futex\" && name != \"poll\"/' -p 1234
  For other programs, one JSON object per line: the members of events in scripts with their values,
  `_names` with their names where the event's format has names, and `_text`, what the kernel prints:
      perf-prof trace -e sched:sched_switch --json -a -- sleep 1 | jq ._names.prev_state
  From a recording:
      perf-prof record -e sched:sched_switch -a -- sleep 1
      perf-prof trace --input perf.data --time 10%-20% -C 0

Write events as for `perf-prof python` (see its --help). `perf-prof list` lists them.

Exit status
  0      the run is complete, or Ctrl-C or a closed pipe ended it
  1      the run could not start, or an error ended it
  2      wrong usage
  N      the command ended with status N
  128+N  signal N ended the run or the command";

/// Print a line for each event, live or from a recording
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, long_about = LONG_ABOUT, after_help = "--help explains more, with examples.", after_long_help = AFTER_HELP, next_help_heading = "Events and targets")]
pub struct Trace {
    // Must come before `events`: see `EventFilters`.
    #[command(flatten)]
    filters: EventFilters,
    /// Events: tracepoints as system:name[/FILTER/ATTR/.../], names of system calls, sources such as offcpu, or
    /// profile, cycles:u,... [default: syscall]
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append, display_order = 0)]
    events: Vec<String>,
    #[command(flatten)]
    of: WatchOptions,
    /// The command to run, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Print the call chain of each event below its line, with kernel and user frames
    #[arg(short = 'g', help_heading = "Output")]
    callchains: bool,
    /// Like -g. HOW selects how user frames are found: `fp` (frame pointers), or `dwarf[,SIZE]` for programs without
    /// frame pointers
    #[arg(long, value_name = "HOW", help_heading = "Output")]
    call_graph: Option<CallGraph>,
    #[command(flatten)]
    python: PythonFramesOption,
    /// The time of each line: start (since the first event, the default), delta (since the line before), clock (the
    /// clock of the events) or date (the local date and time)
    #[arg(
        long,
        value_name = "KIND",
        value_parser = PossibleValuesParser::new(["start", "delta", "clock", "date"]).map(|times| line_times(&times)),
        hide_possible_values = true,
        default_value = "start",
        hide_default_value = true,
        help_heading = "Output"
    )]
    timestamps: LineTimes,
    /// Print a JSON object for each event, for programs
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Other commands name a recording with `-i`; here, it is an error that says how
    #[arg(short = 'i', value_name = "PATH", value_parser = refuse_interval, hide = true)]
    not_input: Option<String>,
    /// Write to FILE instead of the standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
}

fn refuse_interval(path: &str) -> Result<String, String> {
    Err(format!("trace has no option -i; --input {} reads the recording", shell_quote(path)))
}

fn line_times(text: &str) -> LineTimes {
    match text {
        "delta" => LineTimes::Delta,
        "clock" => LineTimes::Clock,
        "date" => LineTimes::Date,
        _ => LineTimes::Start,
    }
}

impl Trace {
    /// Prints the events.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof trace --help` explains the options, with examples";
        // For hints: the first word of the command may be meant as an event.
        let command = self.command.first().cloned();
        let command = command.as_ref();
        let plan = self.plan();
        let plan = plan.map_err(|error| Failure::Usage(event_as_command::refusal(&error, command), READ_ON.into()))?;
        Ok(trace::run(&plan).map_err(|error| event_as_command::with_hint(error, command))?)
    }

    fn plan(self) -> Result<TracePlan, OptionError> {
        let mut events = self.filters.events(&self.events)?;
        if events.is_empty() && !self.of.is_of_recording() {
            events = parse_events(SYSTEM_CALLS)?;
        }
        let chains = self.call_graph.or(self.callchains.then(CallGraph::default));
        let needs = Needs { chains, python: self.python.python_frames, interval: None, cgroups: Switch::Off };
        Ok(TracePlan {
            watch: self.of.plan(events, self.command, needs)?,
            times: self.timestamps,
            form: if self.json { Form::Json } else { Form::Text },
            output: self.output.map_or(Destination::Stdout, Destination::File),
        })
    }
}
