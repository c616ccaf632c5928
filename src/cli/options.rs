//! The options of `perf-prof python`, each defined once: its names, value, meaning and help.

use std::path::PathBuf;

use clap::{
    ArgAction, Args, Command,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};

use crate::{
    session::plan::OnError,
    spec::{CallGraph, CpuSet, Rate, RingSize, TimeRanges, parse_interval, parse_pages, parse_size},
};

const USAGE: &str = "perf-prof python [OPTION...] -e EVENT[,EVENT...] [--] MODULE [ARGS...]
       perf-prof python [OPTION...] -e EVENT[,EVENT...] help
       perf-prof python [OPTION...] -e EVENT MODULE [ARGS...] --exec CMD [ARGS...]
       perf-prof python [OPTION...] --record FILE -e EVENT MODULE [ARGS...]
       perf-prof python [OPTION...] --input PATH [-e EVENT,...] MODULE [ARGS...]";

const ABOUT: &str = "Call the functions of a Python script for the kernel's events";

const AFTER_HELP: &str = "\
A first script: perf-prof python -e sched:sched_wakeup help > s.py
   and its run: perf-prof python -e sched:sched_wakeup s.py
--help says more, `perf-prof list` shows the events there are.";

const TEACH: &str = "\
Events
  system:name[/FILTER/ATTR/ATTR/.../], separated by commas; system and name may hold
  * ? [ wildcards. FILTER is a kernel trace filter. ATTR is stack (a call chain for
  this event), max-stack=N, alias=NAME or cpus=LIST. A filter or value that holds `/`
  is quoted with ' or \".

      -e sched:sched_wakeup,sched:sched_switch
      -e 'sched:sched_wakeup/pid>1000 && comm ~ \"my*\"/stack/'
      -e 'sched:sched_wakeup//alias=w1/cpus=0-3/'
      -e 'syscalls:sys_enter_*open*'

  What is no tracepoint is named as perf does, and sampled; -c and -F say how often, as
  do the attributes period=N and freq=HZ. sample=MEMBER+... adds to what samples hold.

      -e 'profile/-F 997 -g/'           what the CPUs execute
      -e cycles:u,page-faults,cs        hardware and software events, u k: where they count
      -e 'cpu/event=0xc0,period=100000/u,r00c0'   a PMU's own
      -e mem:0x601040/4:w               accesses of a place in memory

  A probe is an event at a function: uprobe:FUNC[+OFFSET]@\"FILE\" or uprobe:0xADDR@\"FILE\"
  in a program or library, uretprobe:FUNC@\"FILE\" where it returns, kprobe:FUNC[+OFFSET]
  and kretprobe:FUNC in the kernel. FILE is a path, or a name as python3 or libc.

      -e 'uprobe:malloc@libc,uretprobe:malloc@libc'
      -e 'uprobe:main@\"/usr/bin/app\"//stack/'

Script
  A function system__name(event) in the script is called for each of its events (of what
  is no tracepoint: its name, with _ for - . and :), and __sample__(event) for events
  without one. Further there are __init__(), __exit__(),
  __interval__() with -i, __lost__(start, end), and __print_stat__(indent) on SIGUSR2.
  `help` instead of a script prints a script that has them all.

Whose option is it?
  Options of this page are ours on both sides of the script's name; all others after it
  are the script's, and so is everything after `--`. A script that is executable needs
  only a first line. Called as `./s.py -i 500 --top 3`, -i is ours with the first of
  these and the script's with the second:

      #!/usr/bin/env -S perf-prof python -e sched:sched_wakeup -i 1000
      #!/usr/bin/env -S perf-prof python -e sched:sched_wakeup --

Examples
  A template for an event, and running it:
      perf-prof python -e sched:sched_wakeup help > s.py
      perf-prof python -e sched:sched_wakeup s.py
  Once a second, on two CPUs, with the stacks of the kernel:
      perf-prof python -e sched:sched_switch -i 1s -C 0,1 -g s.py
  Only what a command and its children do:
      perf-prof python -e 'syscalls:sys_enter_*' s.py --exec make -j4
  The same script on what was recorded before, here or on another machine:
      perf record -e 'syscalls:sys_enter_*' -a sleep 1
      perf-prof python --input perf.data s.py
  Recorded while it runs, and the same events once more:
      perf-prof python -e 'syscalls:sys_enter_*' --record perf.data s.py
      perf-prof python --input perf.data s.py

Exit status
  0 when it ran (also when ended by Ctrl-C or a closed pipe), 1 when it could not start
  or ended by an error, 2 for wrong usage, else the script's own (sys.exit) or the
  command's (--exec), or 128 + the signal's number.";

/// The options as typed and valid one by one.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What")]
pub struct Options {
    /// Events: system:name[/filter/ATTR/.../], profile, cycles:u,...
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    pub events: Vec<String>,
    /// Take the events from this recording: a file or directory of `perf record`, or - for a pipe
    #[arg(long, value_name = "PATH")]
    pub input: Option<PathBuf>,
    /// Record the events while the script runs, into a file that --input and perf read
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Of a recording, only these times: 12.5,13 (seconds of its clock), 10%,20%, or 10%/2, the second tenth
    #[arg(long, value_name = "FROM,TO")]
    pub time: Option<TimeRanges>,
    /// Replay --input by so many processes, each with a part; the script merges their results
    #[arg(long, value_name = "N", requires = "input", value_parser = value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// How --jobs divides the recording: time or cpu
    #[arg(long, value_name = "BY", requires = "jobs", default_value = "time", value_parser = PossibleValuesParser::new(["time", "cpu"]))]
    pub split: String,
    /// Only these CPUs, as 0-3,7
    #[arg(short = 'C', long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Only these processes, as 1,2,3; ends when they have exited
    #[arg(short, long, value_name = "LIST", value_parser = parse_recorded_ids)]
    pub pids: Option<Ids>,
    /// Only these threads, as 1,2,3; ends when they have exited
    #[arg(short, long, value_name = "LIST", value_parser = parse_recorded_ids)]
    pub tids: Option<Ids>,
    /// Only these cgroups, as paths or globs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cgroups: Vec<String>,
    /// Sample what is no tracepoint each time that so many were counted
    #[arg(short = 'c', long, value_name = "N", value_parser = parse_count)]
    pub count: Option<Rate>,
    /// Sample what is no tracepoint so often a second, or `max`
    #[arg(short = 'F', long, value_name = "HZ", value_parser = parse_freq)]
    pub freq: Option<Rate>,
    /// Only this command and its children; ends with it
    #[arg(long = super::split::EXEC, value_name = "CMD [ARGS...]")]
    pub exec: Option<String>,

    /// Sample call chains on every event, kernel frames by default
    #[arg(short = 'g', help_heading = "Call chains")]
    pub callchains: bool,
    /// The same, and how user frames are found: fp, the default, or dwarf[,SIZE] for programs without frame pointers
    #[arg(long, value_name = "HOW", num_args = 0..=1, help_heading = "Call chains")]
    pub call_graph: Option<Option<CallGraph>>,
    /// Sample user frames [--no-user-callchain: do not]
    #[arg(long, overrides_with = "no_user_callchain", help_heading = "Call chains")]
    pub user_callchain: bool,
    /// Do not sample user frames
    #[arg(long, hide = true, overrides_with = "user_callchain", help_heading = "Call chains")]
    pub no_user_callchain: bool,
    /// Sample kernel frames [--no-kernel-callchain: do not]
    #[arg(long, overrides_with = "no_kernel_callchain", help_heading = "Call chains")]
    pub kernel_callchain: bool,
    /// Do not sample kernel frames
    #[arg(long, hide = true, overrides_with = "kernel_callchain", help_heading = "Call chains")]
    pub no_kernel_callchain: bool,
    /// Show functions that were inlined as frames of their own (reads DWARF)
    #[arg(long, help_heading = "Call chains")]
    pub inline: bool,
    /// Show each user frame's source file and line (reads DWARF)
    #[arg(long, help_heading = "Call chains")]
    pub srcline: bool,
    /// Show C++ and Rust names as the linker has them
    #[arg(long, help_heading = "Call chains")]
    pub no_demangle: bool,
    /// Most memory for symbols of programs and libraries, as 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Call chains")]
    pub symbol_cache: Option<usize>,

    /// Call __interval__() this often: 500 (ms), 1s, 500ms
    #[arg(short, long, value_name = "TIME", value_parser = parse_interval, help_heading = "Run")]
    pub interval: Option<std::time::Duration>,
    /// Stop after N events
    #[arg(short = 'N', long = "exit-N", value_name = "N", value_parser = value_parser!(u64).range(1..), help_heading = "Run")]
    pub exit_n: Option<u64>,
    /// Deliver in the order of time across CPUs
    #[arg(long, help_heading = "Run")]
    pub order: bool,
    /// Use CLOCK_MONOTONIC for _time
    #[arg(long, help_heading = "Run")]
    pub monotonic: bool,
    /// What follows an exception in a callback: continue or stop
    #[arg(
        long,
        value_name = "ACTION",
        value_parser = PossibleValuesParser::new(["continue", "stop"]).map(|action| on_error(&action)),
        hide_possible_values = true,
        help_heading = "Run"
    )]
    pub on_error: Option<OnError>,
    /// The Python interpreter or venv whose packages the script sees
    #[arg(long, value_name = "EXE_OR_VENV", help_heading = "Run")]
    pub python: Option<PathBuf>,

    /// Size of each ring, in pages as 128, or as 8M
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Buffers")]
    pub mmap_pages: Option<RingSize>,
    /// Most memory for events that wait for the script, as 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Buffers")]
    pub buffer: Option<usize>,
    /// How full a ring is when it is read
    #[arg(long, value_name = "PCT", value_parser = value_parser!(u8).range(1..=100), help_heading = "Buffers")]
    pub watermark: Option<u8>,
    /// At most N samples per second and instance
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Buffers")]
    pub sampling_limit: Option<u32>,

    /// Append stdout and stderr to FILE, reopened on SIGUSR1
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Print our own CPU and memory use this often
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Output")]
    pub usage_self: Option<std::time::Duration>,
    /// Say more; repeat for more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
    /// Say less
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Print the version; with -v also the Python in use
    #[arg(short = 'V', long, help_heading = "Output")]
    pub version: bool,
}

/// Ids of processes or threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<u32>);

/// The command `perf-prof python`, built: its help flags are among its arguments.
pub fn command() -> Command {
    let mut command = Options::augment_args(Command::new("python"))
        .bin_name("perf-prof python")
        .about(ABOUT)
        .override_usage(USAGE)
        .after_help(AFTER_HELP)
        .after_long_help(TEACH)
        .disable_version_flag(true)
        // A script's first line names options; the same on the command line goes before them.
        .args_override_self(true)
        .max_term_width(110);
    command.build();
    command
}

pub(super) fn parse_count(text: &str) -> Result<Rate, String> {
    Rate::period(text).ok_or_else(|| format!("`{text}` is not a number above 0"))
}

pub(super) fn parse_freq(text: &str) -> Result<Rate, String> {
    Rate::frequency(text).ok_or_else(|| format!("`{text}` is neither a number above 0 nor `max`"))
}

/// The ids of tasks that events can be attached to.
pub(super) fn parse_ids(list: &str) -> Result<Ids, String> {
    ids(list, 1)
}

/// The ids of tasks that samples can have: the kernel's idle tasks are all 0.
pub(super) fn parse_recorded_ids(list: &str) -> Result<Ids, String> {
    ids(list, 0)
}

fn ids(list: &str, least: u32) -> Result<Ids, String> {
    let id = |text: &str| text.trim().parse().ok().filter(|id| (least..=i32::MAX as u32).contains(id));
    let ids: Result<Vec<u32>, String> =
        list.split(',').map(|text| id(text).ok_or_else(|| format!("`{text}` is not the id of a task"))).collect();
    ids.map(Ids)
}

fn on_error(action: &str) -> OnError {
    if action == "stop" { OnError::Stop } else { OnError::Continue }
}
