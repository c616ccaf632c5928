//! The commands that answer questions about events without a script, live or from a recording: `trace`. Does not know
//! argv or Python.

mod events;
mod json;
mod output;
pub mod trace;

pub use events::{Origin, WatchPlan};
pub use output::Destination;
