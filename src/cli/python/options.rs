//! The options of `perf-prof python`. Each option is defined here with its names, its value and its help text.

use std::path::PathBuf;

use clap::{
    ArgAction, Args, Command,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use perf_prof_format::spec::{
    CallGraph, CpuSet, Ids, RingSize, TimeRanges, parse_interval, parse_pages, parse_recorded_ids, parse_size,
};
use perf_prof_python::run::plan::{OnError, OnePart};
use perf_prof_session::plan::InterpreterFrameUse;

use crate::{
    targets::RateOptions,
    values::{self, InKernelOption},
};

const USAGE: &str = "perf-prof python [OPTION...] -e EVENT[,EVENT...] [--] MODULE [ARGS...]
       perf-prof python [OPTION...] -e EVENT[,EVENT...] help
       perf-prof python [OPTION...] -e EVENT MODULE [ARGS...] --exec CMD [ARGS...]
       perf-prof python [OPTION...] --record FILE -e EVENT MODULE [ARGS...]
       perf-prof python [OPTION...] --input PATH [-e EVENT,...] MODULE [ARGS...]";

const ABOUT: &str = "Run a Python script on kernel events: perf-prof calls its functions once for each event";

const AFTER_HELP: &str = "\
Write a first script: perf-prof python -e sched:sched_wakeup help > s.py
Run it:               perf-prof python -e sched:sched_wakeup s.py
`perf-prof python --help` explains events and scripts, with examples. `perf-prof list` lists the events.";

const LONG_HELP: &str = "\
Events
  Write a tracepoint as system:name[/FILTER/ATTR/ATTR/.../], and put commas between
  events. The names may contain the wildcards * ? and [. FILTER is a kernel trace
  filter. ATTR is stack (record a call chain with this event), max-stack=N, alias=NAME,
  cpus=LIST or str=FIELD+... (the strings to which fields point: event.FIELD_str). Quote a filter or a value with ' or \" if it contains `/`.

      -e sched:sched_wakeup,sched:sched_switch
      -e 'sched:sched_wakeup/pid>1000 && comm ~ \"my*\"/stack/'
      -e 'sched:sched_wakeup//alias=w1/cpus=0-3/'
      -e 'syscalls:sys_enter_*open*'
      -e 'syscalls:sys_enter_openat//str=filename/'

  Other events have the same names as in perf, and they are sampled. -c and -F set how
  often, and so do the attributes period=N and freq=HZ of a single event. The attribute
  sample=MEMBER+... adds members to the samples.

      -e 'profile/-F 997 -g/'           what the CPUs execute
      -e cycles:u,page-faults,cs        hardware and software events (:u user space only,
                                        :k kernel only)
      -e 'cpu/event=0xc0,period=100000/u,r00c0'   events of a PMU
      -e mem:0x601040/4:w               writes to the 4 bytes at this address

  A span is the time from one tracepoint to another with the same key: span:NAME=BEGIN..END.
  Its handler span__NAME(event) gets event.duration, event.begin and event.end. The filter
  may use duration (ns), the fields of END, and begin.FIELD. More attributes: key=FIELD,
  min=TIME, stack[=end|both], nested, open and max-open=N.

      -e 'span:fsync=syscalls:sys_enter_fsync..syscalls:sys_exit_fsync//min=10ms/'
      -e 'span:io=block:block_rq_issue..block:block_rq_complete//key=dev+sector/'

  A probe is an event at a function. In a program or a library: uprobe:FUNC[+OFFSET]@\"FILE\"
  or uprobe:0xADDR@\"FILE\", and uretprobe:FUNC@\"FILE\" when the function returns. In the
  kernel: kprobe:FUNC[+OFFSET], and kretprobe:FUNC when the function returns. FILE is a
  path, or a name such as python3 or libc.

      -e 'uprobe:malloc@libc,uretprobe:malloc@libc'
      -e 'uprobe:main@\"/usr/bin/app\"//stack/'

  An attribute NAME=FETCH of a probe adds a field, which the kernel reads at the probe:
  a register, an argument, the result, memory.

      -e 'uprobe:malloc@libc//size=$arg1/,uretprobe:malloc@libc//ptr=retval/'
      -e 'kprobe:do_sys_openat2//path=+0(%si):ustring/'

Script
  perf-prof calls these functions if the script has them:

      system__name(event)         for each event of the tracepoint system:name; with
                                  alias=NAME it is system__NAME(event)
      page_faults_u(event)        for each event page-faults:u: the function of an event
                                  that is not a tracepoint has the event's name, with _
                                  instead of `-`, `.` and `:`
      __sample__(event)           for each event that has no function of its own
      __init__(), __exit__()      once before the first event, once at the end
      __interval__()              at every interval that -i sets
      __lost__(start, end)        when events were lost, or cannot be read
      __print_stat__(indent)      on SIGUSR2

  Write `help` instead of the script's name: perf-prof prints a script with all of
  these functions for the events of -e.

Options of perf-prof and options of the script
  perf-prof takes the options of this page, before and after the script's name. All
  other options after the script's name belong to the script, and so does everything
  after `--`. An executable script can select its events in its first line:

      #!/usr/bin/env -S perf-prof python -e sched:sched_wakeup -i 1000
      #!/usr/bin/env -S perf-prof python -e sched:sched_wakeup --

  If the script is started as `./s.py -i 500 --top 3`, the option -i is for perf-prof if
  the script has the first of these lines, and for the script if it has the second.

Examples
  Print a template for an event, then run it:
      perf-prof python -e sched:sched_wakeup help > s.py
      perf-prof python -e sched:sched_wakeup s.py
  Two CPUs, with kernel call chains; __interval__() is called once a second:
      perf-prof python -e sched:sched_switch -i 1s -C 0,1 -g s.py
  Only the system calls of a command and its children:
      perf-prof python -e 'syscalls:sys_enter_*' s.py --exec make -j4
  Replay a recording, made here or on another machine, with the same script:
      perf record -e 'syscalls:sys_enter_*' -a sleep 1
      perf-prof python --input perf.data s.py
  Replay the recordings of many machines, in four processes, and merge the results:
      perf-prof python --input 'host*.data' --jobs 4 s.py
  Record the events while the script runs, then replay the same events:
      perf-prof python -e 'syscalls:sys_enter_*' --record perf.data s.py
      perf-prof python --input perf.data s.py
  Keep the last 10 seconds; perf_prof.snapshot() in a handler records them:
      perf-prof python --before 10s --record incidents/ -e 'sched:*,syscall/name=fsync/' s.py

Exit status
  0      the run is complete, or Ctrl-C or a closed pipe ended it
  1      the run could not start, an error ended it, or a callback raised an exception
  2      wrong usage
  N      the script called sys.exit(N), or the command (--exec) ended with status N
  128+N  signal N ended the run or the command";

/// The options as typed. The value of each option is valid. Other code checks the combinations of options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Events and targets")]
pub struct Options {
    /// Events: tracepoints as system:name[/FILTER/ATTR/.../], or profile, cycles:u,... With --input, they need not be
    /// given: the default is those of the script's first line, or else all that were recorded
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    pub events: Vec<String>,
    /// Replay this recording instead of tracing live: a file or directory of `perf record`, or - for a pipe. If it is
    /// given several times, or is a pattern such as 'host*.data', the recordings are replayed one after the other
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub input: Vec<PathBuf>,
    /// Replay the recording of another user too. After the script's name, -f is an option of the script; --force is not
    #[arg(short, long, requires = "input")]
    pub force: bool,
    /// Record the events while the script runs, into a file that --input and perf can read. With --before: the folder for
    /// snapshots [default: the current one]
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Replay only this part of the recording: `12.5,13` (from second 12.5 to second 13 of its clock), `21:49:13,21:50` (local
    /// time of day; with a date `2026-11-27T21:49,`), `10%-20%` or `10%,20%` (from 10 % to 20 %), or `10%/2` (the second tenth)
    #[arg(long, value_name = "FROM,TO")]
    pub time: Option<TimeRanges>,
    /// Replay the samples of virtual machines too; without this option they are only counted
    #[arg(long, requires = "input")]
    pub guest: bool,
    /// Replay --input in N processes, each with a part of a recording; the script merges their results
    #[arg(long, value_name = "N", requires = "input", value_parser = value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Replay the parts of --input by an executor, which the Python function FUNCTION() returns: processes, or other
    /// machines. It is an object such as concurrent.futures.ProcessPoolExecutor; --jobs is the number of parts
    #[arg(long, value_name = "MODULE:FUNCTION", requires = "input")]
    pub executor: Option<String>,
    /// Replay one part, and write the result for the process that merges all parts
    #[arg(long, hide = true, requires = "input", value_parser = super::inputs::one_part)]
    pub part: Option<OnePart>,
    /// How --jobs divides a recording: by time or by cpu
    #[arg(long, value_name = "BY", requires = "input", value_parser = PossibleValuesParser::new(["time", "cpu"]))]
    pub split: Option<String>,
    /// Only these CPUs, for example 0-3,7
    #[arg(short = 'C', long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Deliver the events of all tasks, even with -p, -t, --cgroups and --exec: they then select tasks for the script, which asks
    /// perf_prof.is_target(tid), and say when the run ends
    #[arg(long)]
    pub all_cpus: bool,
    /// Only these processes and their new children, for example 1,2,3; a live run ends when they have exited
    #[arg(short, long, value_name = "LIST", value_parser = parse_recorded_ids)]
    pub pids: Option<Ids>,
    /// Only these threads, for example 1,2,3; a live run ends when they have exited
    #[arg(short, long, value_name = "LIST", value_parser = parse_recorded_ids)]
    pub tids: Option<Ids>,
    /// Only the tasks of these cgroups and of those below them: paths or globs, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cgroups: Vec<String>,
    /// Sample the cgroup of each event's task: its path is event._cgroup
    #[arg(long)]
    pub all_cgroups: bool,
    /// Also deliver the events of perf-prof's own threads. Without this option, they are left out and counted, unless -p or
    /// -t names them
    #[arg(long)]
    pub include_self: bool,
    #[command(flatten)]
    pub rate: RateOptions,
    /// Run this command and trace only it and its children; the run ends when the command ends
    #[arg(long = super::split::EXEC, value_name = "CMD [ARGS...]")]
    pub exec: Option<String>,

    /// Record a call chain with every event, with kernel and user frames
    #[arg(short = 'g', help_heading = "Call chains")]
    pub callchains: bool,
    /// Like -g. HOW selects how user frames are found: `fp` (frame pointers, the default), or `dwarf[,SIZE]` for
    /// programs without frame pointers
    #[arg(long, value_name = "HOW", num_args = 0..=1, help_heading = "Call chains")]
    pub call_graph: Option<Option<CallGraph>>,
    /// Like -g, and show the functions of Python programs in place of the interpreter's C functions: yes, or only (no native
    /// frames). Needs the right to load BPF programs; recordings of `record --python` have them without the option
    #[arg(
        long = "python-frames",
        value_name = "yes|only|no",
        value_parser = values::interpreter_frames(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        hide_possible_values = true,
        help_heading = "Call chains"
    )]
    pub python_frames: Option<InterpreterFrameUse>,
    /// Record user frames [--no-user-callchain: do not]
    #[arg(long, overrides_with = "no_user_callchain", help_heading = "Call chains")]
    pub user_callchain: bool,
    /// Do not record user frames
    #[arg(long, hide = true, overrides_with = "user_callchain", help_heading = "Call chains")]
    pub no_user_callchain: bool,
    /// Record kernel frames [--no-kernel-callchain: do not]
    #[arg(long, overrides_with = "no_kernel_callchain", help_heading = "Call chains")]
    pub kernel_callchain: bool,
    /// Do not record kernel frames
    #[arg(long, hide = true, overrides_with = "kernel_callchain", help_heading = "Call chains")]
    pub no_kernel_callchain: bool,
    /// Show inlined functions as frames of their own (reads DWARF)
    #[arg(long, help_heading = "Call chains")]
    pub inline: bool,
    /// Show the source file and line of each user frame (reads DWARF)
    #[arg(long, help_heading = "Call chains")]
    pub srcline: bool,
    /// Show C++ and Rust names mangled, as they are in the symbol table
    #[arg(long, help_heading = "Call chains")]
    pub no_demangle: bool,
    /// Memory limit for symbols of programs and libraries, for example 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Call chains")]
    pub symbol_cache: Option<usize>,

    /// Call __interval__() once in each interval of this length, for example `500` (ms), `1s` or `500ms`
    #[arg(short, long, value_name = "TIME", value_parser = values::parse_interval_not_file, help_heading = "Run")]
    pub interval: Option<std::time::Duration>,
    /// Stop after N events
    #[arg(short = 'N', long = "exit-N", value_name = "N", value_parser = value_parser!(u64).range(1..), help_heading = "Run")]
    pub exit_n: Option<u64>,
    /// Stop after this time, for example `500` (ms), `10s` or `2m`; a command of --exec gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration, help_heading = "Run")]
    pub duration: Option<std::time::Duration>,
    /// Deliver the events of all CPUs in the order of time. Without this option, only the events of each CPU are in
    /// order
    #[arg(long, help_heading = "Run")]
    pub order: bool,
    /// Use CLOCK_MONOTONIC for _time
    #[arg(long, help_heading = "Run")]
    pub monotonic: bool,
    /// What to do after an exception in a callback: continue (the default) or stop
    #[arg(
        long,
        value_name = "ACTION",
        value_parser = PossibleValuesParser::new(["continue", "stop"]).map(|action| on_error(&action)),
        hide_possible_values = true,
        help_heading = "Run"
    )]
    pub on_error: Option<OnError>,
    #[command(flatten)]
    pub in_kernel: InKernelOption,
    /// Serve the aggregators of the script as metrics for Prometheus, as `perf-prof serve` does
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Run")]
    pub listen: Option<String>,
    /// The Python interpreter or venv that provides the packages for the script
    #[arg(long, value_name = "EXE_OR_VENV", help_heading = "Run")]
    pub python: Option<PathBuf>,

    /// Keep the events of the last TIME, for example `10s`, also in rings that the kernel overwrites. perf_prof.snapshot() in
    /// the script writes them into a recording
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration, help_heading = "Flight recorder")]
    pub before: Option<std::time::Duration>,
    /// Also write the events of this time after perf_prof.snapshot(), which waits for them
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration_or_zero, help_heading = "Flight recorder")]
    pub after: Option<std::time::Duration>,
    /// Keep only the newest N snapshots in the folder
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Flight recorder")]
    pub max_files: Option<u32>,

    /// Size of each ring buffer, as a number of pages (for example `128`) or in bytes (for example `8M`)
    #[arg(short, long, value_name = "N", value_parser = parse_pages, help_heading = "Buffers")]
    pub mmap_pages: Option<RingSize>,
    /// Memory limit for events that wait for the script, for spans that are open and for tables, for example 512M
    /// [default: a quarter of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Buffers")]
    pub buffer: Option<usize>,
    /// Read a ring buffer when it is PCT percent full. Whatever PCT is, the script gets the events every 10 ms while there are
    /// some, or when 4 MiB of them wait and need not be sorted by time
    #[arg(long, value_name = "PCT", value_parser = value_parser!(u8).range(1..=100), help_heading = "Buffers")]
    pub watermark: Option<u8>,
    /// Take at most N samples a second for each ring buffer
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Buffers")]
    pub sampling_limit: Option<u32>,

    /// Append stdout and stderr to FILE; SIGUSR1 reopens it
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Print the CPU time and memory that perf-prof itself uses, once in each interval of this length
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Output")]
    pub usage_self: Option<std::time::Duration>,
    /// Print more messages; -vv prints even more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
    /// Print only errors and losses
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Print the version; with -v also the Python in use
    #[arg(short = 'V', long, help_heading = "Output")]
    pub version: bool,
}

/// Returns the command `perf-prof python`. It is built, so its arguments include `-h` and `--help`.
pub fn command() -> Command {
    let mut command = Options::augment_args(Command::new("python"))
        .bin_name("perf-prof python")
        .about(ABOUT)
        .override_usage(USAGE)
        .after_help(AFTER_HELP)
        .after_long_help(LONG_HELP)
        .disable_version_flag(true)
        // If an option is both on the script's first line and on the command line, the option on the command line comes
        // later and wins.
        .args_override_self(true)
        .max_term_width(110);
    command.build();
    command
}

/// Returns the value of `--on-error`.
pub fn on_error(action: &str) -> OnError {
    if action == "stop" { OnError::Stop } else { OnError::Continue }
}
