//! Recordings as a source of events: opens a recording, selects its events and replays its samples.

pub mod binaries;
pub mod carried;
pub mod clock;
pub mod columns;
pub mod empty_result;
pub mod event_name;
pub mod kernel;
pub mod lacking;
pub mod open;
pub mod replay;
pub mod select;
pub mod stat_counts;
