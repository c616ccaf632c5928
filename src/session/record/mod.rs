//! Records events into a file that perf reads. Knows nothing of argv and of Python.

mod build_ids;
mod control;
mod machine;
mod output;
mod plan;
mod run;
mod running;
mod threads;

pub use plan::{Delay, Level, Output, Plan};
pub use run::run;
