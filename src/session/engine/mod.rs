//! The run loop: it reads records from a source, delivers them to a sink, and handles intervals, losses, statistics and
//! the end of the run.

mod bursts;
pub mod call_pairs;
pub mod exit_status;
mod flushing;
pub mod interval;
mod kernel_chains;
pub mod kernel_tables;
mod late_delivery;
pub mod losses;
pub mod pump;
pub mod refresh;
pub mod run_loop;
pub mod sample_counts;
pub mod sample_routes;
pub mod span_report;

/// The exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);
