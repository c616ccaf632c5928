//! Compares the commands that show recordings with those of the real perf, and their profiles with what the real pprof reads.

mod counts;
mod evlist;
mod header;
mod kinds;
mod perf_scripts;
mod pprof;
mod report;
mod script;
mod text;
