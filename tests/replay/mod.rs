//! Recordings replayed: those that the real perf makes are compared with what it says of them itself.

mod damaged;
mod directory;
mod found;
mod kinds;
mod made;
mod parts;
mod selection;
mod symbols;
