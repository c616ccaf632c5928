//! The functions of the Python package `perf_prof` for programs: they trace, replay, record and count in a process that
//! belongs to the program. Installs no signal handlers and prints nothing.

mod background;
mod columns;
mod counting;
mod dispatch;
mod divided;
mod errors;
mod flight;
mod forks;
mod keywords;
mod messages;
mod options;
mod origin;
mod perf_events;
mod perf_session;
mod queue;
mod recording;
mod run_thread;
mod trace;

pub use errors::{exception, named, with_number};

use pyo3::prelude::*;

/// Adds the functions and classes of this module to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<trace::Trace>()?;
    module.add_class::<columns::Batches>()?;
    module.add_class::<dispatch::RunResult>()?;
    module.add_class::<recording::RecordingRun>()?;
    module.add_class::<flight::FlightRun>()?;
    module.add_class::<divided::DividedRun>()?;
    module.add_function(wrap_pyfunction!(trace::open_trace, module)?)?;
    module.add_function(wrap_pyfunction!(dispatch::run_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(forks::close_copies, module)?)?;
    module.add_function(wrap_pyfunction!(divided::divide, module)?)?;
    module.add_function(wrap_pyfunction!(recording::start_recording, module)?)?;
    module.add_function(wrap_pyfunction!(flight::start_flight, module)?)?;
    perf_events::add_to(module)?;
    module.add_class::<perf_session::PerfSession>()?;
    module.add_function(wrap_pyfunction!(perf_session::open_perf_session, module)?)?;
    module.add_function(wrap_pyfunction!(perf_session::enter_part_of_session, module)?)?;
    module.add_function(wrap_pyfunction!(counting::count, module)?)
}
