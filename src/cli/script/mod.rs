//! The options of `perf-prof script`, which prints text or runs scripts that were written for `perf script`.

#[cfg(feature = "python")]
mod folders;
#[cfg(feature = "python")]
mod program;
mod recording;
#[cfg(feature = "python")]
mod wrappers;

use std::ffi::OsString;

use clap::{ArgAction, Args};
use perf_prof_events::event::{Chains, Digits, FieldList};
use perf_prof_session::{engine::ExitStatus, plan::InterpreterFrameUse};
use perf_prof_symbols::symbol::{Inline, Options};
use perf_prof_tools::commands::script_text::{self, ScriptTextPlan};

use super::failure::Failure;
#[cfg(feature = "python")]
pub use folders::script_names;
pub use recording::{RecordingOptions, recording_path};

const LONG_ABOUT: &str = "Print the events in a recording as text.

Each event is printed on one line, in the order of time, in the format of `perf script`: comm, tid, CPU, time and \
event, then the data. The data of a tracepoint is the text that the kernel prints for it; for other events it is the \
function that the CPU was executing. If the event has a call chain, the chain is printed below the line, innermost \
function first, and an empty line follows.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof script | less
      print perf.data
  perf record -o - -e sched:sched_switch -a sleep 1 | perf-prof script
      print a recording while it is read from a pipe
  perf-prof script -i DIR -C 0 --time 10%/2 --ns
      print only CPU 0, in the second tenth of the recording, with nanoseconds
  perf-prof script --header-only
      print when, where and by which command it was recorded, and the time of the first and the last sample
  perf-prof script -G -F +pid,-cpu
      print no call chains, add the process id and remove the CPU

Scripts for `perf script -s`:
  perf-prof script -s x.py -i FILE -- --top 5
      run x.py on a recording, with its own option --top
  perf-prof script -s x.py -e sched:sched_switch -a
      run x.py on live events, until Ctrl-C; with -p, -t or -C on some of them
  perf-prof script -s x.py -e 'syscalls:sys_exit_*' 5 -- make -j4
      the same for a command; the argument of x.py is 5
  perf-prof script -l
      list the scripts that an installed perf has
  perf-prof script record syscall-counts -- make -j4 && perf-prof script report syscall-counts
      record what a script needs, then run it
  perf-prof script syscall-counts -- make -j4
      both at once, without a file
  perf-prof script -g python
      write perf-script.py, which prints every field of the tracepoints in perf.data

The fields are comm, pid, tid, cpu, time, period, event, trace, ip, sym, symoff, dso. `-F comm,time` prints only these \
fields. `-F +pid,-cpu` adds pid to the usual fields of an event and removes cpu. Several -F apply in their order: \
`-F comm,time -F trace:+trace` prints the text of tracepoints too, and `-F sw:` prints no software events.

Lost events have no line. Their number is printed to stderr at the end.";

/// `--python` selects the interpreter of scripts, and perf shows no Python functions.
const PYTHON_FRAMES: &str = "Whether recordings of `record --python` show the functions of Python programs: yes, only (no \
native functions of these programs), or no (the default, as in perf)";

/// Print the events in a recording as text, or run scripts on them, as perf script does
#[derive(Args)]
#[command(
    long_about = LONG_ABOUT,
    after_help = "--help explains more, with examples.",
    after_long_help = AFTER_HELP,
    mut_arg("python_frames", |arg| arg.long("python-frames").help(PYTHON_FRAMES))
)]
pub struct Script {
    #[command(flatten)]
    of: RecordingOptions,
    /// Print times with nanoseconds
    #[arg(long)]
    ns: bool,
    /// The fields to print, for example `time,event,trace`, or `+pid,-cpu` to change the usual fields. `trace:`, `sw:`,
    /// `hw:` or `raw:` in front of a list limits it to tracepoints, software, hardware or raw events
    #[arg(short = 'F', long, value_name = "LIST", action = ArgAction::Append, allow_hyphen_values = true)]
    fields: Vec<FieldList>,
    /// Do not print call chains, and give scripts none
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// Do not show inlined functions in call chains
    #[arg(long)]
    no_inline: bool,
    /// Accepted as in perf: a recording is read as a whole
    #[arg(short, long)]
    all_cpus: bool,
    #[cfg(feature = "python")]
    #[command(flatten)]
    program: program::ProgramOptions,
}

impl Script {
    /// Prints the events, or runs a script on them.
    pub fn run(self, argv: &[OsString]) -> Result<ExitStatus, Failure> {
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        let symbols = Options {
            inline: if self.no_inline || self.hide_call_graph { Inline::No } else { Inline::Yes },
            ..Options::default()
        };
        let chains = if self.hide_call_graph { Chains::Hidden } else { Chains::Shown };
        #[cfg(feature = "python")]
        {
            let others = program::OtherOptions { of: &self.of, all_cpus: self.all_cpus, chains, symbols, argv };
            if let Some(status) = self.program.run(others)? {
                return Ok(status);
            }
        }
        #[cfg(not(feature = "python"))]
        let _ = (self.all_cpus, argv);
        let plan = ScriptTextPlan {
            input: self.of.input(),
            fields: self.fields,
            digits: if self.ns { Digits::Nanos } else { Digits::Micros },
            chains,
            python: self.of.python_frames.unwrap_or(InterpreterFrameUse::No),
            symbols,
            verbosity: self.of.verbosity(),
        };
        Ok(script_text::run(&plan)?)
    }
}
