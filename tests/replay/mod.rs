//! Replays of recordings. If the real perf made a recording, its replay is compared with the output of perf.

mod bombs;
mod bounds;
mod damaged;
mod directory;
mod found;
pub mod hostile;
mod kinds;
mod machines;
pub mod made;
mod other_records;
mod parts;
mod perf_frames;
mod recorders;
mod selection;
mod symbols;
