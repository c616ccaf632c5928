//! `perf-prof stat`: its options, what plan they make, and where its tables go.

mod json;
mod table;

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{ArgAction, Args, value_parser};

use self::table::{Colours, Text};
use super::{
    options::{self, Ids},
    plan::{self as python, PlanError},
    record,
    report::Failure,
};
use crate::{
    session::{
        plan::{Capture, Target},
        stat::{self, Plan, Rows, Table, Totals},
    },
    spec::{CpuSet, EventSpec, parse_events, parse_interval},
};

const USAGE: &str = "perf-prof stat [OPTION...] [-e EVENT[,EVENT...]] [-- CMD [ARGS...]]";

const TEACH: &str = "\
What is counted
  With a command: what it and all that it creates do, from its exec on. With -a or -C:
  everything on the CPUs; a command then only says for how long. With -p: processes, all
  their threads and what they start from now on; with -t: these threads alone. With none
  of them: everything on all CPUs, until Ctrl-C.

      perf-prof stat make -j4
      perf-prof stat -e 'syscalls:sys_enter_*' -- ls
      perf-prof stat -e 'sched:sched_switch/prev_pid>0/' -a -I 1s
      perf-prof stat -e cycles:u,instructions:u -p 1234 sleep 10
      perf-prof stat -r 5 -e task-clock,page-faults true
      perf-prof stat -a --per-cpu -e context-switches,migrations sleep 1

  Events are written as for `perf-prof python`, without what is said of samples;
  `perf-prof list` shows what there is. alias=NAME is the name in the table:

      -e 'kmem:kmalloc//alias=all/,kmem:kmalloc/bytes_req>4096/alias=large/'

  In braces they are a group: all of it is counted at a time, or none.

      -e '{cycles,instructions},task-clock'

The table
  Behind # stands what a count means: CPUs in use, instructions per cycle, misses of
  accesses, or how often a second: of the time that CPUs were in use, if a clock
  (task-clock, cpu-clock) is among the events, else of the time that passed.
      <not supported>  the machine does not have the event, or not for tasks; -v says why
      <not counted>    the CPU's counters were taken by others all the time
      (66.67%)         so long there was a counter for it; the count is scaled up
      ( +- 1.2% )      of several runs (-r), the standard error of the mean
  It is printed to stderr, as the command has stdout; -o puts it into a file.
  With --json it is an object in a line: times in nanoseconds, elapsed in seconds.

Exit status
  The command's own, or 128 + the signal's number; without a command, or when Ctrl-C
  ended it, 0. 1 when it could not start, 2 for wrong usage.";

/// Count events, of a command or of what runs
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, after_help = "--help says more, with examples.", after_long_help = TEACH, next_help_heading = "What")]
pub struct Stat {
    /// Events: system:name[/filter/], cycles:u, page-faults,... [default: clock, switches, faults, cycles, instructions]
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
    /// Only these cgroups, as paths or globs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cgroups: Vec<String>,
    /// The command, and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Print what was counted this often: 500 (ms), 1s
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
    /// With -I: print the sum of all intervals at the end, too
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
    /// A row for each CPU
    #[arg(short = 'A', long, visible_alias = "no-aggr", help_heading = "How")]
    per_cpu: bool,

    /// Print to FILE instead of stderr
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Keep what FILE holds
    #[arg(long, requires = "output", help_heading = "Output")]
    append: bool,
    /// For programs: a line with an object
    #[arg(short, long, help_heading = "Output")]
    json: bool,
    /// Say more: each event's times, and why events are not supported
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    verbose: u8,
    /// Say nothing but the counts and errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

impl Stat {
    /// Counts.
    pub fn run(self) -> Result<ExitCode, Failure> {
        const READ_ON: &str = "`perf-prof stat --help` explains the options, with examples";
        if self.repeat > 1 && self.command.is_empty() {
            let message = "-r runs a command again and again; name one, as in `perf-prof stat -r 5 -- CMD`";
            return Err(Failure::Usage(message.to_owned(), READ_ON.into()));
        }
        let mut output = self.output()?;
        let json = self.json;
        let plan = self.plan().map_err(|error| Failure::Usage(error.to_string(), READ_ON.into()))?;
        let mut text = Text::new(output.colours);
        let mut show = |table: &Table<'_>| {
            let shown = if json { json::line(table)? } else { text.table(table) };
            output.write(&shown)
        };
        let status = stat::run(&plan, &mut show)?;
        Ok(ExitCode::from(status.0))
    }

    fn output(&self) -> Result<Output, Failure> {
        let Some(path) = &self.output else {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let colours = if wanted && io::stderr().is_terminal() { Colours::Some } else { Colours::None };
            return Ok(Output { to: Box::new(io::stderr()), name: "stderr".to_owned(), colours });
        };
        let name = format!("'{}'", path.display());
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(self.append).truncate(!self.append);
        let file = options.open(path).with_context(|| format!("cannot write {name}"))?;
        let mut output = Output { to: Box::new(file), name, colours: Colours::None };
        if !self.json {
            output.write(&format!("# {}\n", chrono::Local::now().format("%F %T %z")))?;
        }
        Ok(output)
    }

    fn plan(self) -> Result<Plan, PlanError> {
        let mut events: Vec<EventSpec> = Vec::new();
        for list in &self.events {
            events.extend(parse_events(list)?);
        }
        let command = Some(self.command).filter(|command| !command.is_empty());
        let of_tasks = [("-p", self.pids.is_some()), ("-t", self.tids.is_some())];
        if let (Some((option, _)), false) = (of_tasks.iter().find(|(_, given)| *given), self.cgroups.is_empty()) {
            return Err(PlanError::Conflict("--cgroups", option));
        }
        let all_cpus = self.all_cpus || !self.cgroups.is_empty();
        let (target, meanwhile) = record::target(all_cpus, self.cpus, self.pids, self.tids, command)?;
        let target = match target {
            Target::AllCpus if !self.cgroups.is_empty() => Target::Cgroups { cgroups: self.cgroups, cpus: None },
            Target::Cpus(cpus) if !self.cgroups.is_empty() => {
                Target::Cgroups { cgroups: self.cgroups, cpus: Some(cpus) }
            }
            target => target,
        };
        Ok(Plan {
            capture: Capture { events, target, ..Capture::default() },
            meanwhile,
            interval: self.interval,
            totals: if self.summary { Totals::Shown } else { Totals::Left },
            runs: self.repeat,
            rows: if self.per_cpu { Rows::Cpus } else { Rows::Events },
            verbosity: python::verbosity(self.verbose, self.quiet),
        })
    }
}

/// Where tables go.
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
