//! The functions of the Python package `perf_prof` for the formats of events and for tests of scripts: the catalogue of
//! events, made events, and runs of scripts on them. Opens no events.

mod errors;
mod event_format;
mod formats;
mod made_event;
mod made_span;
mod members;
mod script_run;
mod shipped;

use pyo3::prelude::*;

/// Adds the functions and classes of this module to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<event_format::EventFormat>()?;
    module.add_class::<event_format::FieldFormat>()?;
    module.add_function(wrap_pyfunction!(event_format::events, module)?)?;
    module.add_function(wrap_pyfunction!(event_format::event, module)?)?;
    // The module `perf_prof.testing` exports these two functions.
    module.add("_make_event", wrap_pyfunction!(made_event::make_event, module)?)?;
    module.add("_run_script", wrap_pyfunction!(script_run::run_script, module)?)
}
