//! `perf-prof python`: its options, how they are separated from the options of the script, and its plan.

mod first_line;
mod inputs;
mod options;
mod plan;
pub mod serve;
mod snapshots;
mod split;

use std::ffi::OsString;

use clap::{FromArgMatches, error::ErrorKind};
use perf_prof_python::run::{self, plan::Module};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Target, Verbosity},
};
use perf_prof_system::output;

pub use self::{
    first_line::given,
    options::{command, on_error},
};
use super::{
    event_as_command::CommandBehindScript,
    failure::{Failure, from_clap},
    version,
};

/// The last line of the help of a script that was started through its first line.
const PERF_PROFS_HELP: &str =
    "The script also takes the options of perf-prof python, such as -i, -p and --input: `perf-prof python --help`";

/// Runs `perf-prof python` with the whole command line and returns the exit status.
pub fn run(argv: &[OsString]) -> Result<ExitStatus, Failure> {
    const READ_ON: &str = "`perf-prof python --help` explains the options, with examples";
    let usage = |error: &dyn std::error::Error| Failure::Usage(error.to_string(), READ_ON.into());
    let command = command();
    let split = split::split(&split::flags(&command), argv.iter().skip(2).cloned()).map_err(|error| usage(&error))?;
    let ours = split.options.clone();
    let parsed = command.try_get_matches_from([OsString::from("python")].into_iter().chain(ours));
    let options = match parsed.and_then(|matches| options::Options::from_arg_matches(&matches)) {
        Ok(options) => options,
        Err(error) => {
            let of_script = split.module.as_deref().and_then(|module| first_line::help(argv, module));
            return match (error.kind(), of_script) {
                (ErrorKind::DisplayHelp, Some(help)) => {
                    output::print_line(&format!("{help}\n\n{PERF_PROFS_HELP}"));
                    Ok(ExitStatus(0))
                }
                _ => from_clap(&error, READ_ON),
            };
        }
    };
    if options.version {
        return version::print(options.verbose, options.python.as_deref());
    }
    let is_all_wanted = options.all_cpus;
    let plan = plan::plan(options, split, argv).map_err(|error| usage(&error))?;
    let is_of_all = plan.run.live().is_some() && plan.run.capture.target == Target::AllCpus;
    if let (true, Module::Script { args, .. }) = (is_of_all && !is_all_wanted, &plan.module) {
        match CommandBehindScript::of(args) {
            Some(CommandBehindScript::Path(error)) => return Err(Failure::Usage(error, READ_ON.into())),
            Some(CommandBehindScript::Name(warning)) if plan.run.verbosity > Verbosity::Quiet => output::say(warning),
            Some(CommandBehindScript::Name(_)) | None => {}
        }
    }
    Ok(run::run(&plan)?)
}
