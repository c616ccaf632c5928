//! The session of a run: its events are open, and a sink can receive them.

use std::sync::Arc;

use perf_prof_events::event::{AlwaysEntered, Sink};
use perf_prof_system::signals::Signals;

use crate::engine::kernel_tables::EventUse;

use super::{
    about::About,
    live::LiveSession,
    outcome::{Closing, Outcome},
    recording::RecordedSession,
};

/// Open events that were not delivered yet.
pub struct Session {
    about: Arc<About>,
    source: Source,
    uses: Vec<EventUse>,
}

/// Where the events of a session come from.
pub(super) enum Source {
    Live(Box<LiveSession>),
    Recorded(Box<RecordedSession>),
}

/// The receiver of a command's events.
pub trait Receiver: Sink {
    /// Returns what the receiver does with each type of events. The list is empty if the receiver needs all samples.
    fn uses(&self) -> Vec<EventUse> {
        Vec::new()
    }
}

impl<R: AlwaysEntered> Receiver for R {}

impl Session {
    pub(super) fn new(about: About, source: Source) -> Session {
        Session { about: Arc::new(about), source, uses: Vec::new() }
    }

    /// Sets what the sink does with each type of events. If the sink only adds up an event, BPF programs may add it up
    /// in the kernel. The sink then gets no samples of this event. Without this call, the sink gets all samples.
    pub fn with_uses(self, uses: Vec<EventUse>) -> Session {
        Session { uses, ..self }
    }

    /// Returns the facts about the run that a sink needs.
    pub fn about(&self) -> &Arc<About> {
        &self.about
    }

    /// Returns the pid of the run's command; `None` if the run has no command.
    pub fn command(&self) -> Option<u32> {
        match &self.source {
            Source::Live(session) => session.command(),
            Source::Recorded(_) => None,
        }
    }

    /// Delivers the events to the sink, until something ends the run.
    pub fn run(self, sink: &mut dyn Sink, signals: &Signals) -> Outcome {
        match self.source {
            Source::Live(session) => session.run(&self.about, sink, (self.uses, signals)),
            Source::Recorded(session) => session.run(&self.about, sink, signals),
        }
    }

    /// Ends the session without a run. The events still have to be closed.
    pub fn abandon(self) -> Closing {
        match self.source {
            Source::Live(session) => session.abandon(),
            Source::Recorded(_) => Closing::default(),
        }
    }
}
