//! argv to options to plan; help text; the commands that look at the machine. The only room that knows argv.

mod doctor;
mod evlist;
mod first_line;
mod list;
mod options;
mod parallel;
mod plan;
mod record;
mod report;
mod script;
mod shares;
mod split;
mod stat;
mod version;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::report::{Failure, from_clap};
use crate::session;

/// Script the Linux kernel's events in Python
#[derive(Parser)]
#[command(name = "perf-prof", disable_version_flag = true, max_term_width = 110)]
struct Program {
    #[command(subcommand)]
    command: Option<Subcommands>,
    /// Print the version; with -v also the Python in use
    #[arg(short = 'V', long)]
    version: bool,
    /// Say more
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Record events into a file that perf reads too
    Record(Box<record::Record>),
    /// Count events, of a command or of what runs
    Stat(Box<stat::Stat>),
    Script(script::Script),
    Report(shares::Report),
    Evlist(evlist::Evlist),
    /// List the events of this kernel
    List(list::List),
    /// Check whether this machine is ready, and say how to mend what is not
    Doctor(doctor::Doctor),
    Parallel(parallel::Parallel),
}

/// All commands. `python` stands here for the help only: its arguments are split before they are parsed.
fn program() -> clap::Command {
    Program::command().subcommand(options::command())
}

/// Runs the program.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    run(&argv).unwrap_or_else(|failure| report::report(&failure))
}

fn run(argv: &[OsString]) -> Result<ExitCode, Failure> {
    match argv.get(1).and_then(|arg| arg.to_str()) {
        Some("python") => return python(argv),
        Some(line) if line.starts_with("python ") => {
            // The kernel hands a shebang line's arguments over as one.
            let message = "the first line of the script passes all options as one argument";
            return Err(Failure::Usage(message.into(), "begin it with `#!/usr/bin/env -S perf-prof python`".into()));
        }
        _ => {}
    }
    let commands = program();
    let command = argv.get(1).and_then(|arg| commands.find_subcommand(arg));
    let read_on = match command {
        Some(command) => format!("`perf-prof {} --help` explains the options", command.get_name()),
        None => "`perf-prof --help` shows the commands".to_owned(),
    };
    let reads = command.is_some_and(|command| command.get_arguments().any(|arg| arg.get_id() == "input"));
    let parsed = commands.try_get_matches_from(argv);
    let program = match parsed.and_then(|matches| Program::from_arg_matches(&matches)) {
        Ok(program) => program,
        Err(error) if reads => return from_clap(&error, report::place_of_path(&error).unwrap_or(read_on)),
        Err(error) => return from_clap(&error, read_on),
    };
    match program.command {
        _ if program.version => version::print(program.verbose, None),
        Some(Subcommands::Record(record)) => record.run(argv),
        Some(Subcommands::Stat(stat)) => stat.run(),
        Some(Subcommands::Script(script)) => script.run(),
        Some(Subcommands::Report(report)) => report.run(),
        Some(Subcommands::Evlist(evlist)) => evlist.run(),
        Some(Subcommands::List(list)) => list.run(),
        Some(Subcommands::Doctor(doctor)) => doctor.run(),
        Some(Subcommands::Parallel(parallel)) => parallel.run(),
        None => {
            // Nobody is left to tell when stderr is closed.
            let _ = write!(io::stderr(), "{}", self::program().render_help());
            Ok(ExitCode::from(2))
        }
    }
}

fn python(argv: &[OsString]) -> Result<ExitCode, Failure> {
    const READ_ON: &str = "`perf-prof python --help` explains the options, with examples";
    let usage = |error: &dyn std::error::Error| Failure::Usage(error.to_string(), READ_ON.into());
    let command = options::command();
    let mut split =
        split::split(&split::flags(&command), argv.iter().skip(2).cloned()).map_err(|error| usage(&error))?;
    let ours = std::mem::take(&mut split.ours);
    let parsed = command.try_get_matches_from([OsString::from("python")].into_iter().chain(ours));
    let options = match parsed.and_then(|matches| options::Options::from_arg_matches(&matches)) {
        Ok(options) => options,
        Err(error) => return from_clap(&error, READ_ON),
    };
    if options.version {
        return version::print(options.verbose, options.python.as_deref());
    }
    let plan = plan::plan(options, split, argv).map_err(|error| usage(&error))?;
    let status = session::run(plan)?;
    Ok(ExitCode::from(status.0))
}
