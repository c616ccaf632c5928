//! The flight recorder. Samples stay in rings that the kernel overwrites, which costs nothing more. A trigger writes the
//! samples that are still in the rings into a recording, and those of the seconds after it.
//!
//! Samples are copied out of the rings while events go on (`capture/overwritten.rs`). Records about tasks are delivered all
//! the time. They are kept as a state in bounded memory (`side_band.rs`), so that each dump is a complete recording. The
//! events that cause dumps are an ordinary live run in a thread of its own (`triggers.rs`). `keeper.rs` decides when all of
//! this happens. A script of `perf-prof python --before` asks a recorder beside its run (`beside.rs`).

mod ages;
mod beside;
mod dump;
mod folder;
mod keeper;
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
