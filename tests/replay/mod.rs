//! Replays of recordings. A replay of a recording by the real perf is compared with the output of perf.

mod bombs;
mod bounds;
mod damaged;
mod damaged_blocks;
mod directory;
mod end;
mod found;
mod frame_names;
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
mod unread;
