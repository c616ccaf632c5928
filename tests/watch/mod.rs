//! The commands that answer questions without a script: known counts of workloads, live and from recordings.

mod trace;
