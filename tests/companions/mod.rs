//! Compares the output of the commands that show recordings with the output of the real perf and the real pprof.

mod counts;
mod evlist;
mod header;
mod kinds;
mod perf_scripts;
mod pprof;
mod report;
mod script;
mod text;
