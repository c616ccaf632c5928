//! The command line and the executable `perf-prof`. Parses argv to options and makes plans of them, prints help texts,
//! and contains the commands that inspect the machine.
//!
//! Only this crate knows argv. Its module `native` is the native module of the Python package.
//!
//! # Where a change goes
//!
//! * an option of `python`: `python/options.rs`, where it goes into the `Draft` of the run: `python/plan.rs`; several
//!   recordings: `python/inputs.rs`
//! * `serve`, which is `python` with `--listen`: `python/serve.rs`
//! * an option of `trace`, `top` and `hist`: `watch/options.rs` (all), `watch/tally.rs` (`top` and `hist`), or the file
//!   of the command
//! * `-a -C -p -t -c -F`, `--cgroups`, `--comms` of several commands: `targets.rs`; how messages spell options:
//!   `option_error.rs`
//! * an option of `script` for text: `script/mod.rs`, `script/recording.rs` (also of `report` and `export`); for
//!   scripts of perf: `script/program.rs`, `script/folders.rs` (where they are), `script/wrappers.rs` (`NAME-record`)
//! * an option of perf that has no effect, under the name `perf`: `as_perf.rs`
//! * how `stat` shows counts: `stat/table.rs`, `stat/json.rs`
//! * what `help WORD` finds: `build/` (documents, stubs and scripts, at build time), `help/commands.rs`,
//!   `help/events.rs`, `help/texts.rs`, `help/synonyms.rs` (synonyms)
//! * what shells complete: `completions/values.rs`, and the files in `python/wheel/data/share/` of the repository
//! * the layout of manual pages: `man.rs`
//! * the scripts that are embedded in the program, and how they are run by name: `shipped.rs`
//! * the command of the installed package: `main` in `native.rs`, `python/perf_prof/__main__.py`

mod as_perf;
mod compared;
mod completions;
mod doctor;
mod event_as_command;
mod event_filters;
mod evlist;
mod export;
mod failure;
mod flight;
mod help;
mod list;
mod list_probes;
mod man;
mod option_error;
mod parallel;
#[cfg(feature = "python")]
pub mod python;
pub mod record;
mod report;
mod script;
#[cfg(feature = "python")]
mod shipped;
pub mod stat;
mod stubs;
mod targets;
mod values;
mod version;
mod watch;

#[cfg(feature = "python")]
pub mod native;

use std::{
    ffi::OsString,
    io::{self, Write},
    iter,
    path::Path,
};

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use perf_prof_session::{engine::ExitStatus, spine::note_command};
use perf_prof_system::{capability, shell::shell_quote_all};

use self::failure::{Failure, from_clap};

/// Run Python scripts on Linux kernel events, and record, count, print and report events
#[derive(Parser)]
#[command(name = "perf-prof", disable_version_flag = true, disable_help_subcommand = true, max_term_width = 110)]
struct Program {
    #[command(subcommand)]
    command: Option<Subcommands>,
    /// Print the version; with -v also the Python in use
    #[arg(short = 'V', long)]
    version: bool,
    /// Print more messages
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Record events into a file that perf can read
    Record(Box<record::Record>),
    /// Count the events of a command, of CPUs, or of processes and threads
    Stat(Box<stat::Stat>),
    Script(script::Script),
    Report(report::Report),
    Evlist(evlist::Evlist),
    Export(export::Export),
    Trace(Box<watch::Trace>),
    Top(Box<watch::Top>),
    Hist(Box<watch::Hist>),
    /// List the events of this kernel
    List(list::List),
    /// Print the types of events, for mypy, pyright and editors
    Stubs(stubs::Stubs),
    #[cfg(feature = "python")]
    Scripts(shipped::Scripts),
    #[cfg(feature = "python")]
    Run(shipped::Run),
    /// Check whether this machine is ready for perf-prof, and show how to fix problems
    Doctor(doctor::Doctor),
    Parallel(parallel::Parallel),
    /// Print what makes a shell complete options, events and files of perf-prof
    Completions(completions::Completions),
    /// Write the manual pages
    Man(man::Manual),
    #[command(hide = true)]
    Complete(completions::Complete),
    /// Print this message or the help of a command, or find options, events, scripts and documents by a word
    #[command(display_order = 100)]
    Help(help::Help),
}

/// Returns all commands. `python` and `serve` are included for the help text only: their arguments are split before
/// clap parses them.
fn program() -> clap::Command {
    let commands = Program::command();
    #[cfg(feature = "python")]
    let commands = commands.subcommand(python::command()).subcommand(python::serve::command());
    commands
}

/// Runs the command line `argv`, whose first word is the name of the program.
pub fn main(argv: &[OsString]) -> ExitStatus {
    // Only reads of tracefs use CAP_DAC_READ_SEARCH, the right to read any file.
    capability::hold_back_right_to_read();
    note_command(shown_command(argv));
    let wrong_usage = if as_perf::is_started_as_perf(argv) { as_perf::WRONG_USAGE } else { failure::WRONG_USAGE };
    run(argv).unwrap_or_else(|failure| failure::report(&failure, wrong_usage))
}

/// Returns the command line as somebody would type it.
fn shown_command(argv: &[OsString]) -> String {
    let program = argv.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
    shell_quote_all(iter::once(program).chain(argv.iter().skip(1).map(OsString::as_os_str)))
}

fn run(argv: &[OsString]) -> Result<ExitStatus, Failure> {
    match argv.get(1).and_then(|arg| arg.to_str()) {
        Some("python") => return python(argv),
        #[cfg(feature = "python")]
        Some("serve") => return python::serve::run(argv),
        #[cfg(feature = "python")]
        Some("run") if shipped::Run::names_script(argv) => return shipped::Run::of(argv).run(argv),
        Some(line) if line.starts_with("python ") => {
            // The kernel passes all options of a `#!` line as one argument.
            let message = "the first line of the script passes all options as one argument";
            return Err(Failure::Usage(message.into(), "write `#!/usr/bin/env -S perf-prof python` instead".into()));
        }
        _ => {}
    }
    let is_perf = as_perf::is_started_as_perf(argv);
    #[cfg(feature = "python")]
    if is_perf && as_perf::print_exec_path(argv) {
        return Ok(ExitStatus(0));
    }
    let commands = if is_perf { as_perf::with_options_of_perf(program()) } else { program() };
    let command = argv.get(1).and_then(|arg| commands.find_subcommand(arg));
    let read_on = match command {
        Some(command) => format!("`perf-prof {} --help` explains the options", command.get_name()),
        None => "`perf-prof --help` shows the commands".to_owned(),
    };
    let reads = command.is_some_and(|command| command.get_arguments().any(|arg| arg.get_id() == "input"));
    let parsed = commands.clone().try_get_matches_from(argv);
    let program = match parsed.and_then(|matches| Program::from_arg_matches(&matches)) {
        Ok(program) => program,
        Err(error) if reads => return from_clap(&error, failure::recording_path_hint(&error).unwrap_or(read_on)),
        Err(error) => return from_clap(&error, read_on),
    };
    match program.command {
        _ if program.version => version::print(program.verbose, None),
        Some(Subcommands::Record(mut record)) => {
            if is_perf {
                record.use_defaults_of_perf();
            }
            record.run(argv)
        }
        Some(Subcommands::Stat(stat)) => stat.run(),
        Some(Subcommands::Script(script)) => script.run(argv),
        Some(Subcommands::Report(report)) => report.run(),
        Some(Subcommands::Evlist(evlist)) => evlist.run(),
        Some(Subcommands::Export(export)) => export.run(),
        Some(Subcommands::Trace(trace)) => trace.run(),
        Some(Subcommands::Top(top)) => top.run(),
        Some(Subcommands::Hist(hist)) => hist.run(),
        Some(Subcommands::List(list)) => list.run(),
        Some(Subcommands::Stubs(stubs)) => stubs.run(argv),
        #[cfg(feature = "python")]
        Some(Subcommands::Scripts(scripts)) => scripts.run(),
        #[cfg(feature = "python")]
        Some(Subcommands::Run(script)) => script.run(argv),
        Some(Subcommands::Doctor(doctor)) => doctor.run(),
        Some(Subcommands::Parallel(parallel)) => parallel.run(),
        Some(Subcommands::Completions(completions)) => completions.run(),
        Some(Subcommands::Man(man)) => man.run(self::program()),
        Some(Subcommands::Complete(complete)) => complete.run(self::program()),
        Some(Subcommands::Help(help)) => help.run(commands),
        None => {
            // If stderr is closed, the help text cannot be shown anywhere.
            let _ = write!(io::stderr(), "{}", self::program().render_help());
            Ok(ExitStatus(2))
        }
    }
}

#[cfg(feature = "python")]
fn python(argv: &[OsString]) -> Result<ExitStatus, Failure> {
    python::run(argv)
}

#[cfg(not(feature = "python"))]
fn python(_: &[OsString]) -> Result<ExitStatus, Failure> {
    Err(Failure::Usage(
        "this perf-prof was built without Python and cannot run scripts".into(),
        "`cargo build --release` builds it with Python; `perf-prof --help` shows the commands of this build".into(),
    ))
}
