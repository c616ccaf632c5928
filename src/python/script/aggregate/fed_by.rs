//! Remembers which run the events in a table come from. So the table can say how many of the run's events are missing.

use std::sync::{Arc, Weak};

use perf_prof_events::event::{Context, EventType, Format, Shortfall, Stats};
use perf_prof_session::spine::About;
use perf_prof_system::mutex::Mutex;

/// The run that the events in a table come from. The context of the run contains the names of tasks. The context exists
/// only as long as the run.
#[derive(Default)]
pub struct FedBy(Mutex<Option<Fed>>);

#[derive(Clone)]
struct Fed {
    stats: Arc<Stats>,
    context: Weak<Context>,
    run: Weak<About>,
    /// The selectors of the events, as the user wrote them.
    selectors: Vec<String>,
    /// True if any of the events is a span.
    has_spans: bool,
}

impl FedBy {
    /// Notes the run that an event comes from.
    pub fn note(&self, run: &Arc<About>, event: &EventType) {
        let mut fed = self.0.lock();
        let before = fed.take().filter(|fed| Arc::ptr_eq(&fed.stats, &run.stats));
        let (had_spans, mut selectors) = before.map_or((false, Vec::new()), |fed| (fed.has_spans, fed.selectors));
        let at = run.events.iter().position(|of| std::ptr::eq(of, event));
        let selector = at.and_then(|at| run.selectors.get(at).cloned()).unwrap_or_else(|| event.shown_name());
        if !selectors.contains(&selector) {
            selectors.push(selector);
        }
        let has_spans = had_spans || matches!(event.format, Format::Span(_));
        let (stats, context) = (Arc::clone(&run.stats), Arc::downgrade(&run.context));
        *fed = Some(Fed { stats, context, run: Arc::downgrade(run), selectors, has_spans });
    }

    fn fed(&self) -> Option<Fed> {
        self.0.lock().clone()
    }

    /// Returns the run; `None` after its end.
    pub fn run(&self) -> Option<Arc<About>> {
        self.fed()?.run.upgrade()
    }

    /// Returns the counts of the run.
    pub fn stats(&self) -> Option<Arc<Stats>> {
        Some(self.fed()?.stats)
    }

    /// Returns the selectors of the events in the table.
    pub fn selectors(&self) -> Vec<String> {
        self.fed().map_or_else(Vec::new, |fed| fed.selectors)
    }

    /// Returns which events are missing in the table; `None` if none are missing.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let Fed { stats, context, has_spans, .. } = self.fed()?;
        match has_spans {
            true => Shortfall::of(&stats, context.upgrade().as_deref()),
            false => Shortfall::of_events(&stats),
        }
    }
}
