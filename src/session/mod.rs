//! Plan and run loop: source to sink, interval, statistics, end. Knows nothing of argv.

mod delivery;
mod events;
pub mod evlist;
mod found;
pub mod header;
mod interval;
mod jobs;
mod lacking;
mod names;
pub mod opened;
pub mod plan;
mod program;
mod pump;
mod reading;
pub mod record;
mod recorded;
mod recorded_kernel;
mod replay;
mod replayed;
mod report;
mod rights;
mod run_loop;
pub mod shares;
mod start;
pub mod stat;
mod status;
mod target;
pub mod text;

pub use crate::record::EventIds;
pub use found::is_no_sample;
pub use names::RunningKernel;
pub use pump::{Break, LossWindow, Pump};
pub use replayed::{Replayed, Route};
pub use start::run;

/// The status that the process is to exit with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);
