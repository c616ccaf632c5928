//! The analysis scripts, run by their first lines on workloads whose true numbers are known.
#![cfg(feature = "script")]
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod harness;
mod processes;
mod profiling;
mod recorded;
mod scheduling;
mod syscalls;
mod uprobe_latency;
mod usage;

/// Not a test: what the others trace.
#[test]
fn the_workload() {
    match std::env::var(harness::WORKLOAD).as_deref() {
        Ok("calls") => syscalls::calls(),
        Ok("ping-pong") => scheduling::ping_pong(),
        Ok("sleeps") => scheduling::sleeps(),
        Ok("children") => processes::children(),
        Ok("threads") => processes::threads(),
        Ok("naps") => scheduling::naps(),
        _ => {}
    }
}
