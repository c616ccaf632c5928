//! The first two steps of a run: selecting the events, and the work that must be done before threads start.

use std::{mem, sync::Arc};

use anyhow::Result;
use perf_prof_events::event::EventType;
use perf_prof_system::{blocked_signals::BlockedSignals, output, signals::Signals};

use super::{
    About, Delivered, live,
    opened::{Receiver, Session},
    recording::ChosenRecording,
    slice::Slice,
};
use crate::{
    live::chosen::{ArmedEvents, ChosenEvents},
    plan::{Origin, RunPlan},
    recorder,
};

/// The selected events of a run. Their types are known. A recording is already open, live events are not.
pub enum Chosen {
    /// Events of the running kernel.
    Live(Arc<RunPlan>, ChosenEvents),
    /// Events of a recording.
    Recorded(Box<ChosenRecording>),
}

/// Fails if the plan has a recording to write, but nothing can be written to its path.
pub fn check_destination(plan: &RunPlan) -> Result<()> {
    match plan.live().and_then(|live| live.recording.as_ref()) {
        Some(recording) => recorder::Destination::File(recording.path.clone(), None).check(),
        None => Ok(()),
    }
}

impl Chosen {
    /// Selects the events of a plan. Opens the plan's recording, if there is one. If the recording is a pipe, this call
    /// waits for data.
    pub fn select(plan: &RunPlan) -> Result<Chosen> {
        match &plan.origin {
            Origin::Recorded(input) => Ok(Chosen::Recorded(Box::new(ChosenRecording::select(plan, input)?))),
            Origin::Live(of_live) => {
                let mut chosen = ChosenEvents::select(&plan.capture)?;
                if of_live.recording.is_some() {
                    recorder::check(&chosen.events)?;
                    chosen = chosen.share(&plan.capture)?;
                }
                Ok(Chosen::Live(Arc::new(plan.clone()), chosen))
            }
        }
    }

    /// Returns the event types that a program receives, before the events are opened. Only the offsets of the ids in
    /// samples may differ from those of the opened events.
    pub fn planned_types(&self) -> Result<Vec<EventType>> {
        match self {
            Chosen::Live(plan, chosen) => chosen.planned_types(&plan.capture),
            Chosen::Recorded(chosen) => Ok(chosen.planned_types()),
        }
    }

    /// Prints what is missing in the recording for the selected events.
    pub fn warn(&self) {
        if let Chosen::Recorded(chosen) = self {
            chosen.warn();
        }
    }

    /// Prints what is wrong with the recording, before an error that ends the run.
    pub fn print_damage(&self) {
        if let Chosen::Recorded(chosen) = self {
            let warnings = &chosen.recording().warnings;
            warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
        }
    }

    /// Forks the command of the plan. Drops the capability to read all files if the run no longer needs it. The command
    /// waits until the run starts. Must be called before an interpreter starts: if a process has several threads, its
    /// forked children may only call async-signal-safe functions.
    pub fn arm(self) -> Result<Armed> {
        Ok(match self {
            Chosen::Live(plan, chosen) => {
                let armed = chosen.arm_for_run(&plan.capture)?;
                Armed::Live(plan, armed)
            }
            Chosen::Recorded(chosen) => Armed::Recorded(chosen),
        })
    }
}

/// The selected events of a run, ready to be opened.
pub enum Armed {
    /// Events of the running kernel. The command of the plan was forked.
    Live(Arc<RunPlan>, ArmedEvents),
    /// Events of a recording, which can be divided between processes.
    Recorded(Box<ChosenRecording>),
}

impl Armed {
    /// Opens the events of the slice. They are enabled when the session runs.
    pub fn open(self, slice: Slice, signals: &Signals) -> Result<Session> {
        match self {
            Armed::Live(plan, armed) => live::open(plan, armed, signals),
            Armed::Recorded(chosen) => chosen.open(slice, signals),
        }
    }

    /// Delivers the events to the receiver that `receive` creates, closes them, and prints the messages at the end of
    /// the run (`Outcome::report`). `held` keeps signals blocked until the run's signal handlers are installed.
    pub fn deliver<R: Receiver>(
        mut self,
        held: Option<BlockedSignals>,
        receive: impl FnOnce(&Arc<About>) -> Result<R>,
    ) -> Result<Delivered<R>> {
        let plan = match &mut self {
            Armed::Live(plan, _) => plan.clone(),
            Armed::Recorded(chosen) => {
                chosen.prepare()?;
                chosen.plan.clone()
            }
        };
        let signals = Signals::install()?;
        drop(held);
        let session = self.open(Slice::Whole, &signals)?;
        let mut sink = receive(session.about())?;
        let mut outcome = session.with_uses(sink.uses()).run(&mut sink, &signals);
        mem::take(&mut outcome.closing).close();
        outcome.report(&plan)?;
        Ok(Delivered { outcome, sink, _signals: signals })
    }
}
