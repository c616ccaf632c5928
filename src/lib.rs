//! perf-prof: script the Linux kernel's events in Python. The rooms, in the order in which they may use each other.
//!
//! A room uses only rooms above it in this list; `docs/architecture.md` has the map and the invariants.

pub mod abi;
pub mod value;

pub mod spec;

pub mod record;

pub mod tracefs;

pub mod sys;

pub mod capture;

pub mod perfdata;

pub mod symbol;

pub mod unwind;

pub mod event;

pub mod profiler;

pub mod template;

pub mod picture;

#[cfg(feature = "script")]
pub mod script;

#[cfg(feature = "script")]
pub mod session;

#[cfg(feature = "script")]
pub mod cli;
