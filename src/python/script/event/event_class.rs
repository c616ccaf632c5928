//! Creates event objects with their own copy of the record, for a run that keeps its events.

use std::sync::Arc;

use perf_prof_events::event::{Context, EventType};
use pyo3::prelude::*;

use super::{
    class::{Class, Interface},
    detached::{class_of, class_with},
    object::with_record,
};

/// The class of an event type in a run.
pub struct EventClass {
    class: &'static Class,
    context: Arc<Context>,
}

impl EventClass {
    /// Returns the class of an event type. The events belong to the run with this context.
    pub fn of(py: Python<'_>, event: &EventType, context: &Arc<Context>) -> PyResult<EventClass> {
        Ok(EventClass { class: class_of(py, event)?, context: context.clone() })
    }

    /// Returns the class whose events are `perf.sample_event`.
    pub fn of_perf(py: Python<'_>, event: &EventType, context: &Arc<Context>) -> PyResult<EventClass> {
        Ok(EventClass { class: class_with(py, event, Interface::PerfModule)?, context: context.clone() })
    }

    /// Returns the class itself.
    pub fn class(&self) -> &'static Class {
        self.class
    }

    /// Creates the event object of a record.
    #[inline]
    pub fn event(&self, py: Python<'_>, record: &[u8]) -> PyResult<Py<PyAny>> {
        with_record(py, self.class, &self.context, record)
    }
}
