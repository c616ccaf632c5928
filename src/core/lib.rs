//! perf-prof without Python.
//!
//! The modules of this crate are called rooms. A room uses only the rooms that are above it in the following list.
//! `docs/architecture.md` describes all rooms and the invariants.

pub mod abi;
pub mod value;

pub mod control_characters;

pub mod spec;

pub mod record;

pub mod tracefs;

pub mod sys;

pub mod perfdata;

pub mod capture;

pub mod symbol;

pub mod unwind;

pub mod running_kernel;

pub mod picture;

pub mod event;

pub mod profiler;

pub mod template;

pub mod aggregate;

pub mod column;

pub mod parallel;

pub mod derive;

pub mod plan;

pub mod engine;

pub mod dividing;

pub mod live;

pub mod recording;

pub mod recorder;

pub mod spine;

pub mod stat;

pub mod commands;

pub mod watch;
