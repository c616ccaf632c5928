//! `perf-prof stat`: counts of workloads that are known, beside those of the real `perf stat`.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod counts;
mod endings;
mod harness;
mod perf;
