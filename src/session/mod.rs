//! Plan and run loop: source to sink, interval, statistics, end. Knows nothing of argv.

mod events;
mod ids;
mod interval;
mod names;
pub mod plan;
mod pump;
pub mod record;
mod report;
mod run_loop;
mod start;
mod target;

pub use ids::EventIds;
pub use names::RunningKernel;
pub use pump::{Break, LossWindow, Pump};
pub use start::run;

/// The status that the process is to exit with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);
