//! The commands that look at recordings, beside the real perf's.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod evlist;
mod harness;
mod header;
mod kinds;
mod report;
mod script;
mod text;
