//! `perf-prof stat`: counts of workloads that are known, beside those of the real `perf stat`.

mod counts;
mod endings;
mod perf;
