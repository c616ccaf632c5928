//! Remembers which run the events in a table come from. So the table can say how many of the run's events are missing.

use std::sync::{Arc, Weak};

use perf_prof_events::event::{Context, DURATION_FIELD, EventType, Format, Shortfall, Stats};
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
    events: Vec<EventType>,
}

impl FedBy {
    /// Notes the run that an event comes from.
    pub fn note(&self, run: &Arc<About>, event: &EventType) {
        let mut fed = self.0.lock();
        let before = fed.take().filter(|fed| Arc::ptr_eq(&fed.stats, &run.stats));
        let (mut events, mut selectors) = before.map_or_else(Default::default, |fed| (fed.events, fed.selectors));
        let at = run.events.iter().position(|of| std::ptr::eq(of, event));
        let selector = at.and_then(|at| run.selectors.get(at).cloned()).unwrap_or_else(|| event.shown_name());
        if !selectors.contains(&selector) {
            selectors.push(selector);
        }
        events.push(event.clone());
        let (stats, context) = (Arc::clone(&run.stats), Arc::downgrade(&run.context));
        *fed = Some(Fed { stats, context, run: Arc::downgrade(run), selectors, events });
    }

    fn fed(&self) -> Option<Fed> {
        self.0.lock().clone()
    }

    /// Returns a copy, which later events do not change.
    pub fn as_it_is(&self) -> FedBy {
        FedBy(Mutex::new(self.fed()))
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

    /// Returns whether the values of a field are times in ns in all events of the table. A copy of a table knows this of
    /// durations only.
    pub fn is_time(&self, field: &str) -> bool {
        field == DURATION_FIELD || self.fed().is_some_and(|fed| fed.events.iter().all(|event| event.is_time(field)))
    }

    /// Returns which events are missing in the table; `None` if none are missing. `value` is the field whose values the table
    /// contains. If these are times, spans that had not ended are missing too, because they last longer.
    pub fn shortfall(&self, value: Option<&str>) -> Option<Shortfall> {
        let Fed { stats, context, events, .. } = self.fed()?;
        let context = context.upgrade();
        if !events.iter().any(|event| matches!(event.format, Format::Span(_))) {
            Shortfall::of_events(&stats)
        } else if value.is_some_and(|value| events.iter().any(|event| event.is_time(value))) {
            Shortfall::of_sums(&stats, context.as_deref())
        } else {
            Shortfall::of(&stats, context.as_deref())
        }
    }
}
