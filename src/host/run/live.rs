//! Runs a script on events of the running kernel.

use std::sync::Arc;

use anyhow::Result;
use perf_prof_core::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
    },
    event::Sink,
    live_run::{Delivered, LiveEvents, LivePlan, RecordingOutput, SelectedEvents},
    record::{EventAttr, Source as _},
    sys::{blocked_signals::BlockedSignals, output as messages, perf, signals::Signals},
};

use super::{
    RunEnd, output,
    plan::{Module, ScriptPlan},
    script::{AvailableEvents, Script},
    script_run::{self, Outcome, ScriptEventSource},
};
use crate::script::{self, Program, PythonChoice, Run, Trailers};

/// Runs the script on live events.
pub(super) fn run(plan: &ScriptPlan) -> Result<ExitStatus> {
    plan.record.as_ref().map_or(Ok(()), RecordingOutput::check)?;
    let held = BlockedSignals::new()?;
    output::redirect(plan)?;
    let selected = SelectedEvents::select(&plan.capture)?;
    if plan.record.is_some() {
        selected.check_recordable()?;
    }
    let Module::Script { module, args } = &plan.module else {
        return output::print_template(plan, &selected.planned_event_types(&plan.capture)?);
    };
    let choice = PythonChoice::make(plan.python.as_deref())?;
    let prepared = selected.prepare(&plan.capture)?;
    script_run::run(plan, Script { module, args }, &choice, held, |signals| {
        let events = prepared.open(live_plan(plan), |events| plan.symbols_for(events), signals)?;
        Ok(ScriptEvents { plan, events })
    })
}

/// Delivers live events to the receiver that `receive` creates. No script is loaded.
pub(super) fn deliver<S: Sink>(
    plan: &ScriptPlan,
    signals: &Signals,
    receive: impl FnOnce(Arc<Run>) -> S,
) -> Result<RunEnd> {
    let prepared = SelectedEvents::select(&plan.capture)?.prepare(&plan.capture)?;
    let events = prepared.open(live_plan(plan), |events| plan.symbols_for(events), signals)?;
    let mut events = ScriptEvents { plan, events };
    let run = Arc::new(events.describe());
    let mut receiver = receive(run.clone());
    let Delivered { ending, at_exit, workload_status, started, capture, .. } =
        events.deliver_to(&mut receiver, &run, signals);
    capture.close();
    started?;
    Ok(RunEnd { ending, status: exit_status(ending, at_exit, Callbacks::Returned, workload_status) })
}

fn live_plan(plan: &ScriptPlan) -> LivePlan<'_> {
    LivePlan {
        capture: &plan.capture,
        recording: plan.record.as_ref(),
        others: plan.dialect.other_records(),
        interval: plan.interval,
        duration: plan.duration,
        limit: plan.exit_n,
        usage_every: plan.usage_self,
        verbosity: plan.verbosity,
        loss_advice: "the script is slower than the events; use a larger -m or --buffer, a filter or fewer events",
    }
}

/// The live events of a script's run.
struct ScriptEvents<'a> {
    plan: &'a ScriptPlan,
    events: LiveEvents<'a>,
}

impl ScriptEvents<'_> {
    fn deliver_to(self, receiver: &mut impl Sink, run: &Arc<Run>, signals: &Signals) -> Delivered {
        self.events.deliver(receiver, &run.events, &run.stats, signals, &|| output::reopen(self.plan))
    }
}

impl ScriptEventSource for ScriptEvents<'_> {
    fn describe(&mut self) -> Run {
        let capture = self.events.capture();
        let opened = capture.attrs().iter().take(self.events.captured());
        let attr = |(index, opened): (usize, &EventAttr)| script::EventAttr {
            index,
            bytes: perf::attr_bytes(&opened.attr).to_vec(),
        };
        Run {
            events: self.events.event_types(),
            is_delivered: (0..self.events.event_types().len()).map(|event| !self.events.is_input(event)).collect(),
            attrs: opened.enumerate().map(attr).collect(),
            trailers: Trailers::Live(capture.trailer()),
            context: self.events.context().clone(),
            stats: Arc::new(self.events.stats()),
            ring_cpus: capture.ring_cpus(),
            recording: None,
            machine: None,
        }
    }

    fn with_available<R>(&self, load: impl FnOnce(&AvailableEvents<'_>) -> R) -> R {
        let events = || self.events.tracefs().events().unwrap_or_default();
        load(&AvailableEvents { events: &events, missing: None })
    }

    fn abandon(self, status: u8) -> Outcome {
        Outcome { status, capture: Some(self.events.into_capture()) }
    }

    fn deliver(self, mut program: Program, run: &Arc<Run>, signals: &Signals) -> Result<Outcome> {
        let verbosity = self.plan.verbosity;
        let Delivered { ending, at_exit, workload_status, started, recorded, capture } =
            self.deliver_to(&mut program, run, signals);
        let callbacks = program.callbacks();
        program.clear();
        started?;
        let is_whole = match recorded {
            Ok(None) => true,
            Ok(Some(summary)) => {
                summary.report("", verbosity);
                summary.is_whole
            }
            Err(error) => {
                messages::say(format_args!("{error:#}"));
                false
            }
        };
        let status = match exit_status(ending, at_exit, callbacks, workload_status) {
            0 if !is_whole => 1,
            status => status,
        };
        Ok(Outcome { status, capture: Some(capture) })
    }
}
