//! The options of `perf-prof record`, and its plan.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, builder::PossibleValuesParser};
use perf_prof_format::spec::{CallGraph, Control, RingSize, Threads, parse_interval, parse_pages, parse_size};
use perf_prof_session::{
    engine::ExitStatus,
    flight,
    plan::{self, Callchain, Capture, Clock, InterpreterFrameUse},
    recorder::{self, Delay, Level, Output, RecordPlan},
};

use super::{
    as_perf, event_as_command,
    event_filters::EventFilters,
    failure::Failure,
    flight::{FlightOptions, Planned},
    option_error::OptionError,
    targets::{self, EventCgroups, RateOptions, TargetOptions},
    values,
};

const USAGE: &str = "perf-prof record [OPTION...] -e EVENT[,EVENT...] [-- CMD [ARGS...]]";

const LONG_HELP: &str = "\
What is recorded
  With a command: the events of this command and its children, until the command ends.
  With -a or -C: the events on these CPUs; if there is a command, recording lasts as long
  as it runs. With -p or -t: the events of these processes or threads. With none of
  these: the events on all CPUs, until Ctrl-C.

      perf-prof record -e sched:sched_switch -a -- sleep 10
      perf-prof record -e 'syscalls:sys_enter_*open*' -- make -j4
      perf-prof record -e profile -g --call-graph dwarf -p 1234
      perf-prof record -e 'kmem:kmalloc/bytes_req>4096/' -C 0-3

  Write events as for `perf-prof python` (see its --help); `perf-prof list` lists all
  events. Events in braces are a group: the kernel schedules them together. With :S only
  the first event is sampled, and its samples have the counts of all events. Tasks do not
  inherit a group with :S:

      perf-prof record -e '{cpu-clock,page-faults,context-switches}:S' -a -- make -j4

The recording
  perf script, perf report, perf evlist and perf buildid-list can read the file. If FILE
  exists already, it is renamed to FILE.old. Each event is in the recording exactly once,
  or it is counted as lost. The last line of output has the number of lost events. If
  events are lost, use larger ring buffers (-m).

Exit status
  0      the recording is complete, also if Ctrl-C ended it
  1      recording could not start, or could not be written to its end; lost events do not change the status
  2      wrong usage
  N      the command ended with status N
  128+N  signal N ended perf-prof or the command";

/// Record events into a file that perf can read
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, after_help = "--help explains more, with examples.", after_long_help = LONG_HELP, next_help_heading = "Events and targets", mut_args(targets::until_exit("recording")))]
pub struct Record {
    // Must come before `events`: see `EventFilters`.
    #[command(flatten)]
    filters: EventFilters,
    /// Events: tracepoints as system:name[/FILTER/ATTR/.../], or profile, cycles:u, groups as {a,b}:S,...
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append, display_order = 0)]
    events: Vec<String>,
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    cgroup: EventCgroups,
    #[command(flatten)]
    rate: RateOptions,
    /// The command to run, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Record a call chain with every event, with kernel and user frames
    #[arg(short = 'g', help_heading = "Call chains")]
    callchains: bool,
    /// Like -g, and record the functions of Python programs that CPython runs. Needs the right to load BPF programs
    #[arg(long, help_heading = "Call chains")]
    python: bool,
    /// Like -g. HOW selects how user frames are found: `fp` (frame pointers), or `dwarf[,SIZE]` for programs without
    /// frame pointers
    #[arg(long, value_name = "HOW", help_heading = "Call chains")]
    call_graph: Option<CallGraph>,

    /// Record the CPU registers at each event
    #[arg(long, help_heading = "Recording")]
    intr_regs: bool,
    /// Record context switches too: which task ran when on which CPU
    #[arg(long, help_heading = "Recording")]
    switch_events: bool,
    /// Record the namespaces of tasks too
    #[arg(long, help_heading = "Recording")]
    namespaces: bool,
    /// Record all cgroups too, and for each sample the cgroup of its task
    #[arg(long, help_heading = "Recording")]
    all_cgroups: bool,
    /// Write the recording to FILE; - is the standard output, for a pipe to `perf script -i -`
    #[arg(short, long, value_name = "FILE", default_value = "perf.data", help_heading = "Recording")]
    output: PathBuf,
    /// Record with several threads, into a directory. LAYOUT is `cpu` (the default), `core`, `package` or `numa` for
    /// one thread per CPU, core, package or NUMA node. Or it is a list with one CPUS/AFFINITY for each thread, for
    /// example `0-3/0:4-7/4` for two threads
    #[arg(
        long,
        value_name = "LAYOUT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "cpu",
        help_heading = "Recording"
    )]
    threads: Option<Threads>,
    /// Compress the recording with zstd. LEVEL is 1 (the default) to 22. Without a LEVEL, write -- before the command
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
    /// Start recording MS milliseconds after the command; -1: start when --control receives `enable`
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true, value_parser = parse_delay, help_heading = "Recording")]
    delay: Option<Delay>,
    /// Stop after this time, not counting -D, for example `500` (ms), `10s` or `2m`; the command gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration, help_heading = "Recording")]
    duration: Option<Duration>,
    /// Read commands from `fd:CONTROL[,ACK]` or `fifo:CONTROL[,ACK]`, one per line: `enable`, `disable`, `ping`,
    /// `snapshot` or `stop`. If ACK is given, write `ack` to it after each of these commands
    #[arg(long, value_name = "CONTROL", help_heading = "Recording")]
    control: Option<Control>,
    /// Write to the file when SIZE bytes are collected, for example 64K. With 1, write immediately
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Recording")]
    buffer_flush: Option<usize>,
    /// The clock of the samples: perf (perf's own clock, the default) or mono (CLOCK_MONOTONIC)
    #[arg(
        short = 'k',
        long,
        value_name = "CLOCK",
        value_parser = PossibleValuesParser::new(["perf", "mono", "monotonic", "CLOCK_MONOTONIC"]),
        hide_possible_values = true,
        help_heading = "Recording"
    )]
    clockid: Option<String>,
    /// Size of each ring buffer, as a number of pages (for example `128`) or in bytes (for example `8M`)
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Recording")]
    mmap_pages: Option<RingSize>,
    /// Memory limit for records that wait to be written, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Recording")]
    buffer: Option<usize>,
    #[command(flatten)]
    flight: FlightOptions,

    /// Print the CPU time and memory that perf-prof itself uses, once in each interval of this length
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Recording")]
    usage_self: Option<Duration>,
    /// Print more messages; -vv prints even more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Recording")]
    verbose: u8,
    /// Print only errors and losses
    #[arg(short, long, help_heading = "Recording")]
    quiet: bool,
}

impl Record {
    /// Records the events.
    pub fn run(self, argv: &[OsString]) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof record --help` explains the options, with examples";
        // For hints: the first word of the command may be meant as an event.
        let command = self.command.first().cloned();
        let command = command.as_ref();
        let planned = self.planned(argv);
        let planned =
            planned.map_err(|error| Failure::Usage(event_as_command::refusal(&error, command), READ_ON.into()))?;
        let status = match planned {
            Planned::Recording(plan) => recorder::run(&plan),
            Planned::Flight(plan) => flight::run(&plan),
        };
        Ok(status.map_err(|error| event_as_command::with_hint(error, command))?)
    }

    /// Uses the default event of `perf record` if the user selects none, and the default rate of `perf record`.
    pub fn use_defaults_of_perf(&mut self) {
        if self.events.is_empty() {
            self.events.push(as_perf::default_event().to_owned());
        }
        if self.rate.count.is_none() && self.rate.freq.is_none() {
            self.rate.freq = Some(as_perf::default_rate());
        }
    }

    fn planned(self, argv: &[OsString]) -> Result<Planned, OptionError> {
        let (flight, mut selection) = (self.flight.clone(), self.target.clone().selection(Vec::new()));
        selection.command.clear();
        self.cgroup.clone().add_to(&mut selection);
        flight.plan(self.plan(argv)?, selection)
    }

    fn plan(self, argv: &[OsString]) -> Result<RecordPlan, OptionError> {
        let events = self.filters.events(&self.events)?;
        if events.is_empty() {
            return Err(OptionError::NoEvent);
        }
        let chains = self.call_graph.or(self.callchains.then(CallGraph::default));
        let python = self.python.then_some(InterpreterFrameUse::Yes);
        let verbosity = values::verbosity(self.verbose, self.quiet);
        let mut selection = self.target.selection(self.command);
        let cgroups_of_events = self.cgroup.add_to(&mut selection);
        targets::say_what_has_no_effect(&selection, verbosity);
        let (target, untraced_command) = selection.target()?;
        let command_line: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let capture = Capture {
            events,
            target,
            callchain: Callchain::with_all_frames(chains).with_python(python),
            registers: self.intr_regs.into(),
            switches: self.switch_events.into(),
            namespaces: self.namespaces.into(),
            cgroups: self.all_cgroups.into(),
            cgroups_of_events,
            rate: plan::rate(self.rate.count, self.rate.freq)?,
            ring_size: self.mmap_pages,
            buffer: self.buffer,
            clock: if self.clockid.is_some_and(|clock| clock != "perf") { Clock::Monotonic } else { Clock::Perf },
            ..Capture::default()
        };
        Ok(RecordPlan {
            capture,
            command_line,
            output: if self.output.as_os_str() == "-" { Output::Stdout } else { Output::File(self.output) },
            threads: self.threads,
            flush_bytes: self.buffer_flush,
            delay: self.delay.unwrap_or_default(),
            duration: self.duration,
            usage_self: self.usage_self,
            control: self.control,
            compression: self.compression_level,
            untraced_command,
            verbosity,
        })
    }
}

/// Returns whether these arguments of `record` contain a command. Returns false for wrong arguments; the recorder
/// reports them.
#[cfg(feature = "python")]
pub(super) fn has_command(args: &[OsString]) -> bool {
    let words = std::iter::once(OsString::from("record")).chain(args.iter().cloned());
    let parsed = as_perf::with_options_of_record(Record::augment_args(clap::Command::new("record")));
    let command =
        parsed.try_get_matches_from(words).map(|matches| ["command", "exec"].iter().any(|id| matches.contains_id(id)));
    command.unwrap_or(true)
}

fn parse_delay(text: &str) -> Result<Delay, String> {
    match text.parse() {
        Ok(-1) => Ok(Delay::UntilEnabled),
        Ok(0) => Ok(Delay::None),
        Ok(milliseconds @ 1..=i64::MAX) => Ok(Delay::For(std::time::Duration::from_millis(milliseconds as u64))),
        _ => Err(format!("`{text}` is neither a number of milliseconds, such as 500, nor -1")),
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let level = text.parse().ok().and_then(Level::new);
    level.ok_or_else(|| format!("`{text}` is not a level from 1 to 22 (if it is the command, write `--` before it)"))
}
