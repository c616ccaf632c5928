//! Creates event objects that each have their own copy of the record, for a run that keeps its events.

use std::sync::Arc;

use perf_prof_events::event::{Context, EventType};
use pyo3::prelude::*;

use super::{class::Class, detached::class_of, object::with_record};

/// The class of an event type in a run.
pub struct EventClass {
    class: &'static Class,
    context: Arc<Context>,
}

impl EventClass {
    /// Returns the class of an event type, for the events of the run with this context.
    pub fn of(py: Python<'_>, event: &EventType, context: &Arc<Context>) -> PyResult<EventClass> {
        Ok(EventClass { class: class_of(py, event)?, context: context.clone() })
    }

    /// Creates the event object of a record.
    #[inline]
    pub fn event(&self, py: Python<'_>, record: &[u8]) -> PyResult<Py<PyAny>> {
        with_record(py, self.class, &self.context, record)
    }
}
