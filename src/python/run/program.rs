//! Runs a script for perf's Python module, as `python FILE` does. The script opens its events itself.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use anyhow::Result;
use perf_prof_session::engine::ExitStatus;

use super::script;
use crate::script::{Interpreter, PythonChoice, run_program};

/// A script that opens its events itself.
pub struct ProgramPlan {
    /// The path of the script.
    pub script: OsString,
    /// `sys.argv[1..]`.
    pub args: Vec<OsString>,
    /// The Python that the user has chosen.
    pub python: Option<PathBuf>,
    /// The number of processes between which the sessions of the script divide their recordings.
    pub jobs: usize,
}

/// Runs the script as `__main__`. Returns the exit status that python3 would return.
pub fn run(plan: &ProgramPlan) -> Result<ExitStatus> {
    let choice = PythonChoice::make(plan.python.as_deref())?;
    let interpreter = Interpreter::start(&choice)?;
    let args: Vec<&OsStr> = plan.args.iter().map(OsString::as_os_str).collect();
    let status = run_program(&plan.script, &args, plan.jobs);
    let flushed = script::end(interpreter);
    Ok(ExitStatus(flushed.status(status)))
}
