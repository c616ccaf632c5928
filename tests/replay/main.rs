//! Recordings replayed: those that the real perf makes are compared with what it says of them itself.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod damaged;
mod directory;
mod found;
mod harness;
mod kinds;
mod made;
mod parts;
mod selection;
mod symbols;
