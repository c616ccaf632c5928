//! Plan and run loop: source to sink, interval, statistics, end. Knows nothing of argv.

pub mod plan;
