//! The machine: system calls, mmap, procfs, signals, clocks.
//!
//! This wing does not know what an event is. It has most of the `unsafe` code; the rest is in the room of the
//! interpreter.

pub mod blocked_signals;
mod call;
pub mod capability;
pub mod cgroup;
pub mod clock;
pub mod close_in_child;
pub mod compat;
pub mod epoll;
pub mod eventfd;
pub mod file;
pub mod folder;
pub mod fork_lock;
pub mod keys;
pub mod limits;
pub mod memory;
pub mod mmap;
pub mod output;
pub mod output_path;
pub mod own_threads;
pub mod perf;
pub mod perf_copies;
pub mod pidfd;
mod pipe;
pub mod pmu;
pub mod probe_definition;
pub mod process;
pub mod procfs;
pub mod readable;
pub mod ring;
pub mod shell;
pub mod signals;
pub mod terminal;
pub mod thread;
pub mod topology;
pub mod tracefs;
pub mod usage;
pub mod worker;
pub mod workload;
pub mod writers;

pub use call::CallError;
