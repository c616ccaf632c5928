//! `perf-prof record`: its options, and what plan they make.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{ArgAction, Args, builder::PossibleValuesParser};

use super::{
    options::{self, Ids},
    plan::{self as python, PlanError},
    report::Failure,
};
use crate::{
    session::{
        plan::{Callchain, Capture, Clock, Switch, Target},
        record::{self, Delay, Level, Output, Plan},
    },
    spec::{CallGraph, Control, CpuSet, EventSpec, Rate, RingSize, Threads, parse_events, parse_pages, parse_size},
};

const USAGE: &str = "perf-prof record [OPTION...] -e EVENT[,EVENT...] [-- CMD [ARGS...]]";

const TEACH: &str = "\
What is recorded
  With a command: that command and what it creates, until it ends. With -a or -C:
  everything on the CPUs; a command then only says for how long. With -p or -t: these
  processes or threads. With none of them: everything on all CPUs, until Ctrl-C.

      perf-prof record -e sched:sched_switch -a -- sleep 10
      perf-prof record -e 'syscalls:sys_enter_*open*' -- make -j4
      perf-prof record -e profile -g --call-graph dwarf -p 1234
      perf-prof record -e 'kmem:kmalloc/bytes_req>4096/' -C 0-3

  Events are written as for `perf-prof python`; `perf-prof list` shows what there is.
  In braces they are a group, which the kernel schedules together. With :S the first
  alone is sampled and tells what all have counted; no task inherits such a group:

      perf-prof record -e '{cpu-clock,page-faults,context-switches}:S' -a -- make -j4

The recording
  is a file that perf reads: perf script, perf report, perf evlist, perf buildid-list.
  One of that name is kept as FILE.old. Each call is in it once, or it is counted as
  lost; the last line tells how many. Where some are lost, larger rings (-m) help most.

Exit status
  0 when it was recorded (also when ended by Ctrl-C), 1 when it could not start or the
  recording is not whole, 2 for wrong usage, else the command's own, or 128 + the
  signal's number.";

/// Record events into a file that perf reads too
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, after_help = "--help says more, with examples.", after_long_help = TEACH, next_help_heading = "What")]
pub struct Record {
    /// Events: system:name[/filter/ATTR/.../], profile, cycles:u, {a,b}:S,...
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    events: Vec<String>,
    /// All CPUs; a command only says for how long
    #[arg(short, long)]
    all_cpus: bool,
    /// Only these CPUs, as 0-3,7
    #[arg(short = 'C', long = "cpu", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Only these processes, as 1,2,3; ends when they have exited
    #[arg(short, long = "pid", value_name = "LIST", value_parser = options::parse_ids)]
    pids: Option<Ids>,
    /// Only these threads, as 1,2,3; ends when they have exited
    #[arg(short, long = "tid", value_name = "LIST", value_parser = options::parse_ids)]
    tids: Option<Ids>,
    /// Sample what is no tracepoint each time that so many were counted
    #[arg(short = 'c', long, value_name = "N", value_parser = options::parse_count)]
    count: Option<Rate>,
    /// Sample what is no tracepoint so often a second, or `max`
    #[arg(short = 'F', long, value_name = "HZ", value_parser = options::parse_freq)]
    freq: Option<Rate>,
    /// The command, and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Sample call chains on every event, of the kernel and of programs
    #[arg(short = 'g', help_heading = "Call chains")]
    callchains: bool,
    /// The same, and how user frames are found: fp, or dwarf[,SIZE] for programs without frame pointers
    #[arg(long, value_name = "HOW", help_heading = "Call chains")]
    call_graph: Option<CallGraph>,

    /// Sample the registers of where each event happened, too
    #[arg(long, help_heading = "Recording")]
    intr_regs: bool,
    /// Record which task runs where, beside the events
    #[arg(long, help_heading = "Recording")]
    switch_events: bool,
    /// Record which namespaces tasks are in, beside the events
    #[arg(long, help_heading = "Recording")]
    namespaces: bool,
    /// Record which cgroups there are, and of each sample in which one it was taken
    #[arg(long, help_heading = "Recording")]
    all_cgroups: bool,
    /// The file that is written; `-` for the standard output, as a pipe that perf reads: `| perf script -i -`
    #[arg(short, long, value_name = "FILE", default_value = "perf.data", help_heading = "Recording")]
    output: PathBuf,
    /// Write a directory by several threads, each the events of its own CPUs: one thread for each cpu (the default), core,
    /// package or numa node, or CPUs/AFFINITY of each, as 0-3/0:4-7/4
    #[arg(
        long,
        value_name = "LAYOUT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "cpu",
        help_heading = "Recording"
    )]
    threads: Option<Threads>,
    /// Pack records by zstd, harder with a higher LEVEL: 1, the default, to 22. `--` stands between it and a command
    #[arg(
        short = 'z',
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = parse_level,
        help_heading = "Recording"
    )]
    compression_level: Option<Level>,
    /// Begin to record so many milliseconds after the command; -1: when `enable` comes from --control
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true, value_parser = parse_delay, help_heading = "Recording")]
    delay: Option<Delay>,
    /// Take commands (enable, disable, ping, stop; a line each) from fd:CONTROL[,ACK] or fifo:CONTROL[,ACK], and answer `ack`
    #[arg(long, value_name = "PLACE", help_heading = "Recording")]
    control: Option<Control>,
    /// Gather no more than this before it is written, as 64K; 1 writes at once what was read
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Recording")]
    buffer_flush: Option<usize>,
    /// The clock of the samples: perf (its own, the default) or mono (CLOCK_MONOTONIC)
    #[arg(
        short = 'k',
        long,
        value_name = "CLOCK",
        value_parser = PossibleValuesParser::new(["perf", "mono", "monotonic", "CLOCK_MONOTONIC"]),
        hide_possible_values = true,
        help_heading = "Recording"
    )]
    clockid: Option<String>,
    /// Size of each ring, in pages as 128, or as 8M
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Recording")]
    mmap_pages: Option<RingSize>,
    /// Most memory for records that wait to be written, as 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Recording")]
    buffer: Option<usize>,
    /// Say more; repeat for more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Recording")]
    verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, help_heading = "Recording")]
    quiet: bool,
}

impl Record {
    /// Records.
    pub fn run(self, argv: &[OsString]) -> Result<ExitCode, Failure> {
        const READ_ON: &str = "`perf-prof record --help` explains the options, with examples";
        let plan = self.plan(argv).map_err(|error| Failure::Usage(error.to_string(), READ_ON.into()))?;
        let status = record::run(&plan)?;
        Ok(ExitCode::from(status.0))
    }

    fn plan(self, argv: &[OsString]) -> Result<Plan, PlanError> {
        let mut events: Vec<EventSpec> = Vec::new();
        for list in &self.events {
            events.extend(parse_events(list)?);
        }
        if events.is_empty() {
            return Err(PlanError::NothingToRecord);
        }
        let chains = if self.callchains || self.call_graph.is_some() { Switch::On } else { Switch::Off };
        let frames = (chains == Switch::On).then_some(Switch::On);
        let callchain =
            Callchain { every_event: chains, how: self.call_graph.unwrap_or_default(), user: frames, kernel: frames };
        let command = Some(self.command).filter(|command| !command.is_empty());
        let (target, meanwhile) = target(self.all_cpus, self.cpus, self.pids, self.tids, command)?;
        let command_line: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let switch = |on| if on { Switch::On } else { Switch::Off };
        let capture = Capture {
            events,
            target,
            callchain,
            registers: switch(self.intr_regs),
            switches: switch(self.switch_events),
            namespaces: switch(self.namespaces),
            cgroups: switch(self.all_cgroups),
            rate: python::rate(self.count, self.freq)?,
            ring_size: self.mmap_pages,
            buffer: self.buffer,
            clock: if self.clockid.is_some_and(|clock| clock != "perf") { Clock::Monotonic } else { Clock::Perf },
            ..Capture::default()
        };
        Ok(Plan {
            capture,
            command_line,
            output: if self.output.as_os_str() == "-" { Output::Stdout } else { Output::File(self.output) },
            threads: self.threads,
            gathered: self.buffer_flush,
            delay: self.delay.unwrap_or_default(),
            control: self.control,
            compression: self.compression_level,
            meanwhile,
            verbosity: python::verbosity(self.verbose, self.quiet),
        })
    }
}

fn parse_delay(text: &str) -> Result<Delay, String> {
    match text.parse() {
        Ok(-1) => Ok(Delay::UntilEnabled),
        Ok(0) => Ok(Delay::None),
        Ok(milliseconds @ 1..=i64::MAX) => Ok(Delay::For(std::time::Duration::from_millis(milliseconds as u64))),
        _ => Err(format!("`{text}` is neither a number of milliseconds nor -1")),
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let level = text.parse().ok().and_then(Level::new);
    level.ok_or_else(|| format!("`{text}` is not a level from 1 to 22 (a command after -z is written behind `--`)"))
}

/// What is traced, and the command that is only run meanwhile.
pub(super) fn target(
    all_cpus: bool,
    cpus: Option<CpuSet>,
    pids: Option<Ids>,
    tids: Option<Ids>,
    command: Option<Vec<OsString>>,
) -> Result<(Target, Option<Vec<OsString>>), PlanError> {
    let given = [("-a", all_cpus), ("-C", cpus.is_some()), ("-p", pids.is_some()), ("-t", tids.is_some())];
    let given: Vec<&'static str> = given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
    match given[..] {
        // Some of all CPUs are some.
        ["-a", "-C"] | [] | [_] => {}
        [first, second, ..] => return Err(PlanError::Conflict(first, second)),
    }
    Ok(match (pids, tids, cpus, command) {
        (Some(Ids(pids)), _, _, command) => (Target::Processes(pids), command),
        (_, Some(Ids(tids)), _, command) => (Target::Threads(tids), command),
        (_, _, Some(cpus), command) => (Target::Cpus(cpus), command),
        (.., Some(command)) if !all_cpus => (Target::Workload(command), None),
        (.., command) => (Target::AllCpus, command),
    })
}
