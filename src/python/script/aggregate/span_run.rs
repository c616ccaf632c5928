//! Remembers which run the spans in a table come from. With it, the table can say that spans are missing.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use perf_prof_events::event::{Context, EventType, Format, Shortfall, Stats};
use perf_prof_session::spine::About;

/// The run that the spans in a table come from. The names of tasks are known as long as the run exists.
#[derive(Default)]
pub struct SpanRun(Mutex<Option<(Arc<Stats>, Weak<Context>)>>);

impl SpanRun {
    /// Notes the run, if the event is a span.
    pub fn note(&self, run: &About, event: &EventType) {
        if let Format::Span(_) = event.format {
            let of = (Arc::clone(&run.stats), Arc::downgrade(&run.context));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(of);
        }
    }

    /// Returns the line below the table, if spans are missing.
    pub fn shortfall(&self) -> Option<String> {
        let (stats, context) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Shortfall::of(&stats, context.upgrade().as_deref())?.note())
    }
}
