//! `perf-prof stat`: known counts of workloads, and comparisons with the real `perf stat`.

mod counts;
mod endings;
mod perf;
