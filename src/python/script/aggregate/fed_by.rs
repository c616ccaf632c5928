//! Remembers the run of the events in a table, so that the table can say how many of the run's events are missing.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use perf_prof_events::event::{Context, EventType, Format, Shortfall, Stats};
use perf_prof_session::spine::About;

/// The run of the events in a table. Its context, and with it the names of tasks, exists only as long as the run.
#[derive(Default)]
pub struct FedBy(Mutex<Option<Fed>>);

#[derive(Clone)]
struct Fed {
    stats: Arc<Stats>,
    context: Weak<Context>,
    /// Whether any of the events is a span.
    has_spans: bool,
}

impl FedBy {
    /// Notes the run of an event.
    pub fn note(&self, run: &About, event: &EventType) {
        let mut fed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let had_spans = fed.as_ref().is_some_and(|fed| fed.has_spans && Arc::ptr_eq(&fed.stats, &run.stats));
        let has_spans = had_spans || matches!(event.format, Format::Span(_));
        *fed = Some(Fed { stats: Arc::clone(&run.stats), context: Arc::downgrade(&run.context), has_spans });
    }

    /// Returns what is missing in the table; `None` if nothing is missing.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let fed = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Fed { stats, context, has_spans } = fed?;
        match has_spans {
            true => Shortfall::of(&stats, context.upgrade().as_deref()),
            false => Shortfall::of_events(&stats),
        }
    }
}
