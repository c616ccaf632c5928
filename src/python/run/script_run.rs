//! Runs a script: selects the events, starts the interpreter, opens the events, loads the script, delivers the events,
//! and ends the interpreter. Live events and recordings differ only in the steps of the session.

use anyhow::{Context as _, Result};
use perf_prof_session::{
    engine::ExitStatus,
    flight::{Beside, Prepared},
    plan::Verbosity,
    spine::{self, About, Armed, Chosen, Closing, Session, Slice},
};
use perf_prof_system::{blocked_signals::BlockedSignals, capability, output::say, signals::Signals};

use super::{
    jobs, one_part, output,
    plan::{Module, ScriptPlan},
    script::{self, Script},
    shard::{Merging, Shard},
};
use crate::script::{
    Interpreter, MetricsServer, Program, PythonChoice, ScriptError, interrupt, set_part_of_process, set_snapshots,
};

/// A script with the plan of its run, and the interpreter that runs it.
#[derive(Clone, Copy)]
pub(super) struct ScriptRun<'a> {
    pub plan: &'a ScriptPlan,
    pub script: Script<'a>,
    pub choice: &'a PythonChoice,
}

/// What this process does with the events.
pub(super) enum Task<'a> {
    /// Delivers all events to the script, which prints its result at the end. In addition, a flight recorder may keep
    /// the events.
    Whole(Option<Box<Prepared>>),
    /// Delivers the events of a part to the script, and stores the script's result for another process.
    Part(&'a Shard),
    /// Delivers no events: the script merges the results of all parts.
    Merge(&'a mut Merging),
}

/// Runs the script of the plan, or prints the template.
pub(super) fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    spine::check_destination(&plan.run)?;
    if plan.run.input().is_some() {
        capability::give_up_right_to_read();
    }
    // While live events are opened, Ctrl-C is blocked. If Ctrl-C arrives in this time, the run ends as soon as it has
    // started. For a recording Ctrl-C is not blocked, because the recording may be a pipe, and opening a pipe may
    // block.
    let held = plan.run.live().map(|_| BlockedSignals::new()).transpose()?;
    output::redirect(plan)?;
    let chosen = Chosen::select(&plan.run)?;
    let Module::Script { module, args } = &plan.module else {
        return output::print_template(plan, &chosen.planned_types()?);
    };
    chosen.warn();
    let choice = PythonChoice::make(plan.python.as_deref()).inspect_err(|_| chosen.print_damage())?;
    let run = ScriptRun { plan, script: Script { module, args }, choice: &choice };
    let flight = plan.flight.as_ref().map(|plan| Prepared::new(plan).map(Box::new)).transpose()?;
    let armed = chosen.arm()?;
    let jobs = plan.run.input().and_then(|input| input.jobs);
    match (armed, jobs, &plan.part) {
        (Armed::Recorded(recording), Some(jobs), Some(part)) => one_part::run(&run, &jobs, part, *recording),
        (Armed::Recorded(recording), Some(jobs), None) => jobs::run(&run, &jobs, *recording),
        (armed, ..) => {
            let held = held.map_or_else(BlockedSignals::new, Ok)?;
            run.run(armed, Slice::Whole, Task::Whole(flight), held)
        }
    }
}

impl ScriptRun<'_> {
    /// Runs the script in a new interpreter, on a slice of the events. `held` blocks signals until the run has its own
    /// handlers.
    pub fn run(&self, armed: Armed, slice: Slice, task: Task<'_>, held: BlockedSignals) -> Result<ExitStatus> {
        let interpreter = Interpreter::start(self.choice)?;
        // The interpreter is ended even after an error: it has to flush the output and join the script's threads.
        let result = self.in_interpreter(armed, slice, task, held);
        let flushed = script::end(interpreter);
        let (ExitStatus(status), closing) = result?;
        closing.close();
        Ok(ExitStatus(flushed.status(status)))
    }

    fn in_interpreter(
        &self,
        armed: Armed,
        slice: Slice,
        task: Task<'_>,
        held: BlockedSignals,
    ) -> Result<(ExitStatus, Closing)> {
        // The interpreter installs its own handler for SIGINT when it starts. The handlers of the run have to replace
        // this handler, so they are installed after the start.
        let signals = Signals::install()?;
        signals.on_second_interrupt(interrupt);
        drop(held);
        if let Task::Part(shard) = &task {
            set_part_of_process(&shard.part);
        }
        let session = armed.open(slice, &signals)?;
        let about = session.about().clone();
        let program = match script::load(self.plan, about.clone(), self.script) {
            Ok(program) => program,
            Err(ScriptError::Exited(status)) => return Ok((ExitStatus(status), session.abandon())),
            Err(error) => return Err(error.into()),
        };
        match task {
            Task::Whole(flight) => self.deliver(session, program, flight, &signals),
            Task::Part(shard) => deliver_part(session, program, shard, &about, &signals),
            Task::Merge(merging) => Ok((jobs::merge(merging, program, &about)?, Closing::default())),
        }
    }

    /// Delivers the events to the program, and then ends the program. If the plan requests it, serves the program's
    /// metrics meanwhile, and keeps the events for snapshots.
    fn deliver(
        &self,
        session: Session,
        mut program: Program,
        flight: Option<Box<Prepared>>,
        signals: &Signals,
    ) -> Result<(ExitStatus, Closing)> {
        let flight = flight.map(|flight| flight.begin(session.command())).transpose()?;
        set_snapshots(flight.as_ref().map(Beside::snapshots).cloned());
        let server = self.plan.listen.as_ref().map(|listen| self.serve(&program, listen)).transpose()?;
        let mut outcome = session.with_uses(program.uses()).run(&mut program, signals);
        server.into_iter().for_each(MetricsServer::close);
        set_snapshots(None);
        drop(flight);
        let callbacks = program.callbacks();
        program.clear();
        outcome.report(&self.plan.run)?;
        Ok((outcome.status(callbacks), outcome.closing))
    }

    fn serve(&self, program: &Program, listen: &str) -> Result<MetricsServer, ScriptError> {
        let server = program.serve(listen)?;
        let url = server.url();
        let is_local = ["http://127.", "http://[::1]"].iter().any(|local| url.starts_with(local));
        if !is_local {
            say(format_args!(
                "warning: everybody who can reach {url} can read the metrics: there is no authentication"
            ));
        } else if self.plan.run.verbosity > Verbosity::Quiet {
            say(format_args!("serving metrics at {url}"));
        }
        Ok(server)
    }
}

/// Delivers the events of a part to the program, and stores its result.
fn deliver_part(
    session: Session,
    mut program: Program,
    shard: &Shard,
    about: &About,
    signals: &Signals,
) -> Result<(ExitStatus, Closing)> {
    let mut outcome = session.run(&mut program, signals);
    let callbacks = program.callbacks();
    let partial = program.partial();
    program.clear();
    let written = shard.write_result(about, &outcome, callbacks, partial?);
    written
        .with_context(|| format!("cannot store the result of __partial__() in {}", std::env::temp_dir().display()))?;
    // The process that merges the results computes the exit status from a signal or from an exception in a callback.
    let status = outcome.status_of_part();
    outcome.check()?;
    Ok((status, outcome.closing))
}
