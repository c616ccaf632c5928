//! Remembers which run the events in a table come from. So the table can say how many of the run's events are missing.

use std::sync::{Arc, Weak};

use perf_prof_events::event::{Context, DURATION_FIELD, EventType, Format, Shortfall, Stats};
use perf_prof_session::spine::About;
use perf_prof_system::mutex::Mutex;

use super::super::module;

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
    /// The addresses of the event types of event objects that were added. They are compared and not read.
    of_objects: Vec<usize>,
}

impl FedBy {
    /// Notes the run that an event comes from.
    pub fn note(&self, run: &Arc<About>, event: &EventType) {
        let mut fed = self.0.lock();
        let before = fed.take().filter(|fed| Arc::ptr_eq(&fed.stats, &run.stats));
        let (mut events, mut selectors, of_objects) =
            before.map_or_else(Default::default, |fed| (fed.events, fed.selectors, fed.of_objects));
        let at = run.events.iter().position(|of| std::ptr::eq(of, event));
        let selector = at.and_then(|at| run.selectors.get(at).cloned()).unwrap_or_else(|| event.shown_name());
        if !selectors.contains(&selector) {
            selectors.push(selector);
        }
        events.push(event.clone());
        let (stats, context) = (Arc::clone(&run.stats), Arc::downgrade(&run.context));
        *fed = Some(Fed { stats, context, run: Arc::downgrade(run), selectors, events, of_objects });
    }

    /// Notes that the script adds an event object, whose class has this event type. It comes from the current run. Outside of a
    /// run, it is not known which run it comes from.
    pub fn note_object(&self, event: &EventType) {
        let Some(run) = module::run() else { return };
        let address = std::ptr::from_ref(event) as usize;
        let is_known = |fed: &Fed| Arc::ptr_eq(&fed.stats, &run.stats) && fed.of_objects.contains(&address);
        if self.0.lock().as_ref().is_some_and(is_known) {
            return;
        }
        self.note(&run, event);
        if let Some(fed) = self.0.lock().as_mut() {
            fed.of_objects.push(address);
        }
    }

    /// Notes that the table gets what another table contains. A table of another process does not know its run, but the current
    /// run merges the results of all processes.
    pub fn note_table(&self, other: &FedBy) {
        if self.fed().is_some() {
            return;
        }
        let of_run = |run: Arc<About>| Fed {
            stats: Arc::clone(&run.stats),
            context: Arc::downgrade(&run.context),
            run: Arc::downgrade(&run),
            selectors: Vec::new(),
            events: Vec::new(),
            of_objects: Vec::new(),
        };
        let fed = other.fed().or_else(|| module::run().map(of_run));
        *self.0.lock() = fed;
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
        field == DURATION_FIELD
            || self
                .fed()
                .is_some_and(|fed| !fed.events.is_empty() && fed.events.iter().all(|event| event.is_time(field)))
    }

    /// Returns which events are missing in the table; `None` if none are missing. `value` is the field whose values the table
    /// contains. If these are times, spans that had not ended are missing too, because they last longer.
    pub fn shortfall(&self, value: Option<&str>) -> Option<Shortfall> {
        let Fed { stats, context, events, .. } = self.fed()?;
        let context = context.upgrade();
        if !events.is_empty() && !events.iter().any(|event| matches!(event.format, Format::Span(_))) {
            Shortfall::of_events(&stats)
        } else if value.is_some_and(|value| events.iter().any(|event| event.is_time(value))) {
            Shortfall::of_sums(&stats, context.as_deref())
        } else {
            Shortfall::of(&stats, context.as_deref())
        }
    }
}
