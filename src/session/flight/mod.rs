//! The flight recorder. Samples stay in rings that the kernel overwrites, so perf-prof does no work for them. A
//! trigger makes a dump: a recording with the samples that are still in the rings, and the samples of the next seconds.
//!
//! Samples are copied out of the rings while events continue (`capture/overwritten.rs`). Records about tasks are read
//! all the time. They become a state in bounded memory (`side_band.rs`), so that each dump is a complete recording. A
//! live run in a thread of its own receives the events that cause dumps (`triggers.rs`). `keeper.rs` decides when all
//! of this happens. A script of `perf-prof python --before` asks a recorder beside its run for dumps (`beside.rs`).

mod ages;
mod beside;
mod dump;
mod folder;
mod in_order;
mod keeper;
mod late_rings;
mod measurement;
mod pieces;
mod plan;
mod request;
mod rings;
mod run;
mod side_band;
mod trigger_event;
mod triggers;

pub use beside::{Beside, Prepared, Snapshots};
pub use plan::{FlightPlan, Into, Rhythm};
pub use request::Asking;
pub use run::{run, run_with};
