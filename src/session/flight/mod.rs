//! The flight recorder: samples stay in rings that the kernel overwrites, and cost nothing more. A trigger writes what the
//! rings still have into a recording, and what comes in the seconds after it.
//!
//! Samples are copied out of the rings while events go on (`capture/overwritten.rs`). What happens to tasks is delivered all the
//! time, and kept as a state in bounded memory (`side_band.rs`), so that each dump is a complete recording. The events that
//! make dumps are an ordinary live run in a thread of its own (`triggers.rs`). The keeper (`keeper.rs`) has all of it together.
//! A script of `perf-prof python --before` asks a recorder beside its run (`beside.rs`).

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
