//! The steps of a run that concern the script: loads it, binds its functions to the events, and ends the interpreter.

use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
};

use perf_prof_session::{
    plan::Verbosity,
    spine::{About, MissingEvents},
};
use perf_prof_system::output;

use super::{
    missing_events,
    plan::{Dialect, ScriptPlan},
};
use crate::script::{
    Interpreter, Module, Program, ScriptError, announce, discard_unwritable_output, file_that_others_can_change,
    prepare_for_parts,
};

/// The name or path of a script, and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Script<'a> {
    /// The name or path, as typed.
    pub module: &'a OsStr,
    /// `sys.argv[1..]`.
    pub args: &'a [OsString],
}

/// Imports the script, binds its functions to the run's events and calls `__init__`.
pub(super) fn load(plan: &ScriptPlan, about: Arc<About>, script: Script<'_>) -> Result<Program, ScriptError> {
    let verbosity = plan.run.verbosity;
    let is_divided = plan.run.input().is_some_and(|input| input.jobs.is_some());
    if verbosity > Verbosity::Quiet
        && let Some(path) = file_that_others_can_change(script.module)
    {
        let path = path.display();
        output::say(format_args!(
            "warning: other users can change {path}: what they write there can run as part of the script"
        ));
    }
    if is_divided {
        prepare_for_parts()?;
    }
    let module = Module::load(script.module, script.args, plan.dialect, verbosity)?;
    // For scripts of `perf script` nothing is printed, as in perf, because other programs may read their output.
    if plan.dialect == Dialect::PerfProf {
        announce(module.path(), verbosity == Verbosity::Quiet);
    }
    if let Some(missing) = &about.missing {
        missing_events::check(missing, plan, &module, about.events.len())?;
    }
    if plan.dialect == Dialect::PerfProf && verbosity > Verbosity::Quiet {
        for (name, why) in module.uncalled_handlers(&about) {
            output::say(format_args!("warning: {name}() is never called: {why}"));
        }
    }
    let missing = about.clone();
    let mut program = module.bind(about, plan.on_error)?;
    // Checked before `__init__` is called: if the results of the parts cannot be merged, the script should print
    // nothing.
    if is_divided {
        program.check_mergeable()?;
    }
    if plan.dialect != Dialect::PerfProf {
        // Scripts of `perf script` often have handlers for the events of several kernels. Handlers without an event are
        // an error only if no event of this run has a handler.
        let checked = program.check_handles_an_event();
        checked.inspect_err(|_| missing.missing.iter().for_each(MissingEvents::print_damage))?;
        program.init()?;
        return Ok(program);
    }
    // A script that has only `__interval__` is useful for live events. For a recording, the result of such a script
    // would be empty, as if no event had happened.
    let is_useful = program.has_handlers() || (program.has_interval() && plan.run.input().is_none());
    // The first lines of shipped scripts have `-q`. With `-e` of its own, a replay of one of them would print an empty table.
    if !is_useful && (verbosity > Verbosity::Quiet || plan.run.input().is_some()) {
        output::say(
            "no function handles the selected events, so they are only counted; define __sample__(event) to handle all",
        );
    }
    program.init()?;
    Ok(program)
}

/// Says whether all output of the script had been written when the interpreter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    Yes,
    No,
}

impl Flushed {
    /// Returns the exit status of a run that would otherwise end with `status`.
    pub fn status(self, status: u8) -> u8 {
        // python3 also exits with 120 if it cannot flush its output. After a write error, perf-prof prints another
        // message and returns another status.
        if status == 0 && self == Flushed::No && output::write_error().is_none() { 120 } else { status }
    }
}

/// Ends the interpreter, which flushes the output and joins the script's threads.
pub(super) fn end(interpreter: Interpreter) -> Flushed {
    discard_unwritable_output();
    if interpreter.finish() == 0 { Flushed::Yes } else { Flushed::No }
}
