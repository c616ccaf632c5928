//! The handlers of a run's events: what gets their samples.

use perf_prof_session::{
    engine::kernel_tables::{EventUse, TableUse},
    spine::About,
};
use std::sync::Arc;

use perf_prof_events::event::EventType;
use pyo3::prelude::*;

use super::{
    aggregate::Feed,
    callbacks::{Callback, EventHandler},
    error::ScriptError,
    event::{Class, EventSlot, Interface, class_of, class_with},
};

/// What gets the samples of an event type: first the feeds of aggregators, then functions. Also contains the Python
/// class of the event type, and the event object that is passed to the functions.
pub struct Handler {
    pub feeds: Vec<Feed>,
    pub functions: Vec<Callback>,
    pub class: &'static Class,
    pub slot: EventSlot,
}

impl Handler {
    /// Returns what the handler does with its events.
    pub fn event_use(&self) -> EventUse {
        let tables: Option<Vec<TableUse>> = self.feeds.iter().map(Feed::table_use).collect();
        tables.map_or(EventUse::Samples("a Top keeps whole events"), EventUse::Tables)
    }
}

/// Prepares the handlers for the events of a run. `origin` is the file or module that defines them, for messages.
pub fn handlers(
    py: Python<'_>,
    found: &[Option<EventHandler>],
    run: &Arc<About>,
    origin: &str,
) -> Result<Vec<Option<Handler>>, ScriptError> {
    let handler = |(handler, event): (&Option<EventHandler>, &EventType)| {
        let Some(EventHandler { name, aggregators, functions }) = handler else { return Ok(None) };
        let functions = functions.iter().map(|function| function.share(py)).collect();
        let feed = |aggregator: &Py<PyAny>| Feed::new(aggregator.bind(py), event, run).transpose();
        let feeds = aggregators.iter().filter_map(feed).collect::<Result<_, _>>();
        let feeds = feeds.map_err(|error| ScriptError::Aggregator {
            module: origin.to_owned(),
            handler: name.clone(),
            error: Box::new(error),
        })?;
        let class = class_of(py, event).map_err(|error| ScriptError::Start(error.to_string()))?;
        Ok(Some(Handler { feeds, functions, class, slot: EventSlot::new(run.context.clone()) }))
    };
    found.iter().zip(&run.events).map(handler).collect()
}

/// Prepares handlers that pass the samples of all events to one function. The function gets them as
/// `perf.sample_event`.
pub fn perf_handlers(py: Python<'_>, function: &Bound<'_, PyAny>, run: &Arc<About>) -> PyResult<Vec<Option<Handler>>> {
    let handler = |event: &EventType| {
        let callback = Callback { function: function.clone().unbind(), name: "sample".to_owned() };
        let class = class_with(py, event, Interface::PerfModule)?;
        let slot = EventSlot::new(run.context.clone());
        Ok(Some(Handler { feeds: Vec::new(), functions: vec![callback], class, slot }))
    };
    run.events.iter().map(handler).collect()
}
