//! The options of `perf-prof stat`, its plan, and the output of its tables.

mod json;
mod table;

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use clap::{ArgAction, Args, value_parser};
use perf_prof_format::spec::parse_interval;
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Capture, CgroupsOfEvents, PlanError, RunOption},
    stat::{self, Rows, StatPlan, Table, Totals},
};

use super::{
    event_filters::EventFilters,
    failure::Failure,
    option_error::OptionError,
    targets::{self, EventCgroups, TargetOptions},
    values,
};
use crate::{
    event_as_command,
    stat::table::{Colours, Text},
};

const USAGE: &str = "perf-prof stat [OPTION...] [-e EVENT[,EVENT...]] [-- CMD [ARGS...]]";

const LONG_HELP: &str = "\
What is counted
  With a command: the events of this command and its children, from its exec on. With -a
  or -C: the events on these CPUs; if there is a command, counting lasts as long as it
  runs. With -p: the events of these processes with all their threads, and of the tasks
  that they start from now on. With -t: the events of these threads only. With --cgroups:
  the events of the tasks in these cgroups. With none of these: the events on all CPUs,
  until Ctrl-C.

      perf-prof stat make -j4
      perf-prof stat -e 'syscalls:sys_enter_*' -- ls
      perf-prof stat -e 'sched:sched_switch/prev_pid>0/' -a -I 1s
      perf-prof stat -e cycles:u,instructions:u -p 1234 sleep 10
      perf-prof stat -r 5 -e task-clock,page-faults true
      perf-prof stat -a --per-cpu -e context-switches,migrations sleep 1
      perf-prof stat -e task-clock,page-faults --for-each-cgroup 'system.slice/*' sleep 1

  Write events as for `perf-prof python` (see its --help), but without attributes
  of samples; `perf-prof list` lists the events. alias=NAME sets the name in the table:

      -e 'kmem:kmalloc//alias=all/,kmem:kmalloc/bytes_req>4096/alias=large/'

  Events in braces are a group: at any time all of its events are counted, or none.

      -e '{cycles,instructions},task-clock'

The table
  After # is a metric of the count: CPUs in use, instructions per cycle, misses in
  percent of accesses, or events a second. These are seconds of CPU time if a clock
  (task-clock, cpu-clock) is among the events, else seconds of elapsed time.
      <not supported>  this machine cannot count the event, or cannot count it for tasks;
                       -v prints the reason
      <not counted>    other events used the CPU's counters all the time
      (66.67%)         the event had a counter during 66.67% of the time; the count is
                       scaled up to the whole time
      ( +- 1.2% )      with several runs (-r): the standard error of the mean
  The table goes to stderr, because stdout belongs to the command; -o writes it to a
  file. --json prints each table as a JSON object on one line: counts of clocks and times
  of events in nanoseconds; elapsed, user and sys in seconds.

Exit status
  0      there was no command, or Ctrl-C ended counting
  1      counting could not start
  2      wrong usage
  N      the command ended with status N
  128+N  signal N ended perf-prof or the command";

/// Count the events of a command, of CPUs, or of processes and threads
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, after_help = "--help explains more, with examples.", after_long_help = LONG_HELP, next_help_heading = "Events and targets", mut_args(targets::until_exit("counting")))]
pub struct Stat {
    // Must come before `events`: see `EventFilters`.
    #[command(flatten)]
    filters: EventFilters,
    /// Events: tracepoints as system:name[/FILTER/], or cycles:u, page-faults,... [default: clock, switches, faults,
    /// cycles, instructions]
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append, display_order = 0)]
    events: Vec<String>,
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    cgroup: EventCgroups,
    /// Count all events in each of these cgroups, with those below it, and print rows for each: paths or globs, separated
    /// by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["cgroups", "cgroup"])]
    for_each_cgroup: Vec<String>,
    /// The command to run, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Print the counts at the end of each interval of this length, for example `500` (ms) or `1s`
    #[arg(
        short = 'I',
        visible_short_alias = 'i',
        long,
        alias = "interval-print",
        value_name = "TIME",
        value_parser = parse_interval,
        help_heading = "How"
    )]
    interval: Option<Duration>,
    /// With -I, also print the sum of all intervals at the end
    #[arg(long, requires = "interval", help_heading = "How")]
    summary: bool,
    /// Run the command N times, print the mean and its standard error
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "1",
        hide_default_value = true,
        value_parser = value_parser!(u32).range(1..),
        conflicts_with = "interval",
        help_heading = "How"
    )]
    repeat: u32,
    /// Stop after this time, for example `500` (ms), `10s` or `2m`; the command gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration, help_heading = "How")]
    duration: Option<Duration>,
    /// Print a row for each CPU
    #[arg(short = 'A', long, visible_alias = "no-aggr", help_heading = "How")]
    per_cpu: bool,

    /// Print to FILE instead of stderr
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Append to FILE instead of overwriting it
    #[arg(long, requires = "output", help_heading = "Output")]
    append: bool,
    /// Print a JSON object on one line, for programs
    #[arg(short, long, help_heading = "Output")]
    json: bool,
    /// Also print the times of each event, and why an event is not supported
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    verbose: u8,
    /// Print only the counts and errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

impl Stat {
    /// Counts the events.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof stat --help` explains the options, with examples";
        if self.repeat > 1 && self.command.is_empty() && self.target.exec.is_empty() {
            let message =
                "-r repeats a command, but there is no command; give one, for example `perf-prof stat -r 5 -- CMD`";
            return Err(Failure::Usage(message.to_owned(), READ_ON.into()));
        }
        let mut output = self.output()?;
        let json = self.json;
        let command = self.command.first().cloned();
        let plan = self
            .plan()
            .map_err(|error| Failure::Usage(event_as_command::refusal(&error, command.as_ref()), READ_ON.into()))?;
        let mut text = Text::new(output.colours);
        let mut show = |table: &Table<'_>| {
            let shown = if json { json::line(table)? } else { text.table(table) };
            output.write(&shown)
        };
        let status = stat::run(&plan, &mut show);
        Ok(status.map_err(|error| event_as_command::with_hint(error, command.as_ref()))?)
    }

    fn output(&self) -> Result<Output, Failure> {
        let Some(path) = &self.output else {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let colours = if wanted && io::stderr().is_terminal() { Colours::On } else { Colours::Off };
            return Ok(Output { to: Box::new(io::stderr()), name: "stderr".to_owned(), colours });
        };
        let name = format!("'{}'", path.display());
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(self.append).truncate(!self.append);
        let file = options.open(path).with_context(|| format!("cannot write {name}"))?;
        let mut output = Output { to: Box::new(file), name, colours: Colours::Off };
        if !self.json {
            output.write(&format!("# {}\n", chrono::Local::now().format("%F %T %z")))?;
        }
        Ok(output)
    }

    fn plan(self) -> Result<StatPlan, OptionError> {
        let events = self.filters.events(&self.events)?;
        let verbosity = values::verbosity(self.verbose, self.quiet);
        let mut selection = self.target.selection(self.command);
        let cgroups_of_events = match self.for_each_cgroup.is_empty() {
            true => self.cgroup.add_to(&mut selection),
            false => {
                selection.cgroups = self.for_each_cgroup;
                CgroupsOfEvents::Each
            }
        };
        if let (Some(tasks), false) = (selection.tasks(), selection.cgroups.is_empty()) {
            return Err(PlanError::TwoTargets(RunOption::Cgroups, tasks).into());
        }
        targets::say_what_has_no_effect(&selection, verbosity);
        let (target, untraced_command) = selection.target()?;
        Ok(StatPlan {
            capture: Capture { events, target, cgroups_of_events, ..Capture::default() },
            untraced_command,
            interval: self.interval,
            duration: self.duration,
            totals: if self.summary { Totals::Shown } else { Totals::Left },
            runs: self.repeat,
            rows: if self.per_cpu { Rows::Cpus } else { Rows::Events },
            verbosity,
        })
    }
}

/// The destination of the tables: stderr or a file.
struct Output {
    to: Box<dyn Write>,
    name: String,
    colours: Colours,
}

impl Output {
    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}
