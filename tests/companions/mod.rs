//! The commands that look at recordings, beside the real perf's.

mod evlist;
mod header;
mod kinds;
mod report;
mod script;
mod text;
