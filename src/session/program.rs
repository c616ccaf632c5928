//! The script's side of a run, live or replayed: loading it, its template, its end.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    sync::Arc,
};

use anyhow::{Context as _, Result};

use super::{
    ExitStatus, events,
    lacking::Lacking,
    plan::{Plan, Verbosity},
};
use crate::{
    event::EventType,
    script::{self, Interpreter, Program, Run, ScriptError, announce},
    sys::output,
    template,
};

/// Imports the script, binds its functions to the run's events and calls `__init__`. `all` are the events that there are,
/// by system and name, and `lacking` is what a recording has not of those that the script names.
pub(super) fn load(
    plan: &Plan,
    run: Arc<Run>,
    (module, args): (&OsStr, &[OsString]),
    all: &dyn Fn() -> Vec<(String, String)>,
    lacking: Option<&Lacking>,
) -> Result<Program, ScriptError> {
    let module = script::Module::load(module, args)?;
    announce(module.path(), plan.verbosity == Verbosity::Quiet);
    if let Some(lacking) = lacking {
        lacking.check(plan, &module, run.events.len())?;
    }
    for (name, why) in events::unused_handlers(&module.handler_like_names(), &run.events, all) {
        output::say(format_args!("warning: {name}() is never called: {why}"));
    }
    let mut program = module.bind(run, plan.on_error)?;
    // Of a recording an empty result looks as if nothing had happened in it.
    let looks_well = program.has_interval() && plan.input.is_none();
    if !program.has_handlers() && !looks_well && plan.verbosity > Verbosity::Quiet {
        output::say("no function handles the selected events, they are only counted (__sample__(event) handles all)");
    }
    program.init()?;
    Ok(program)
}

/// Prints a template for these events.
pub(super) fn print_template(plan: &Plan, types: &[EventType]) -> Result<ExitStatus> {
    let text = template::script(types, &plan.command_line);
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write the template")?;
    Ok(ExitStatus(0))
}

/// Opens the output anew, as SIGUSR1 asks for.
pub(super) fn reopen_output(plan: &Plan) {
    // The file cannot be opened now: what is open stays in use.
    if let Some(Err(error)) = plan.output.as_ref().map(|path| output::append_to(path)) {
        output::say(format_args!("cannot reopen the output: {error}"));
    }
}

/// Whether all output got out when the interpreter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    Yes,
    No,
}

impl Flushed {
    /// The status to exit with, of a run that ended with this one.
    pub fn status(self, status: u8) -> u8 {
        // 120 is what python3 ends with when it cannot flush.
        if status == 0 && self == Flushed::No { 120 } else { status }
    }
}

/// Ends the interpreter: it flushes, and joins the script's threads.
pub(super) fn end(interpreter: Interpreter) -> Flushed {
    if interpreter.finish() == 0 { Flushed::Yes } else { Flushed::No }
}
