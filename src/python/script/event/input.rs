//! Gives aggregators the contents of an event object.

use perf_prof_events::event::reader::{Facts, Input};
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::{
    class::Class,
    methods::{event, is_event},
    object::EventObject,
};

/// Calls `work` with the class and the contents of an event object. Raises TypeError if the object is not an event.
pub fn with_input<T>(object: &Bound<'_, PyAny>, work: impl FnOnce(&Class, Input<'_>) -> PyResult<T>) -> PyResult<T> {
    if !is_event(object) {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("only events can be added, not '{kind}'")));
    }
    let this: &EventObject = event(object);
    work(this.class(), input_of(this))
}

/// Returns the contents of an event in the form that aggregators read.
pub(super) fn input_of(this: &EventObject) -> Input<'_> {
    let facts = match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(kept) => Facts::Kept(kept),
        None => Facts::Run(this.context()),
    };
    Input { sample: this.sample(), facts }
}
