//! Compares the commands that show recordings with those of the real perf.

mod counts;
mod evlist;
mod header;
mod kinds;
mod perf_scripts;
mod report;
mod script;
mod text;
