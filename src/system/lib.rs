//! The machine: system calls, mmap, procfs, signals, clocks.
//!
//! This crate does not know what an event is. It contains most of the `unsafe` code; the rest is in
//! `src/python/script`.
//!
//! # Where a change goes
//!
//! Each file is named after the part of the machine that it uses. Some names need an explanation:
//!
//! * how a signal is caught: `signals.rs`. What the signal does: the module `engine` of the crate `session`.
//! * how much memory perf-prof may use by default: `memory.rs`; how that memory is divided: `budget.rs`
//! * whether the output of the C implementation is selected (`PERF_PROF_COMPAT`): `compat.rs`
//! * the command of `--exec` or after `--`: `workload.rs`; processes of `--jobs`: `worker.rs`
//! * threads that do the same work for several items, while the caller waits: `together.rs`
//! * which descriptors stay open in a forked child: `perf_copies.rs`, `close_in_child.rs`
//! * messages on stderr, or to a program that imports the package: `output.rs`
//! * files and folders that perf-prof writes: `output_path.rs` (check in advance), `folder.rs` (creation that follows
//!   no link), `writers.rs` (who else can change them)
//! * files whose names come from users or recordings: `file.rs`, which opens only regular files

pub mod backward_ring;
pub mod block;
pub mod blocked_signals;
pub mod bpf;
pub mod budget;
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
pub mod lockdown;
pub mod memory;
pub mod mmap;
pub mod mutex;
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
pub mod process_memory;
pub mod procfs;
pub mod readable;
pub mod ring;
pub mod shell;
pub mod signals;
pub mod terminal;
pub mod thread;
pub mod together;
pub mod topology;
pub mod tracefs;
pub mod usage;
pub mod worker;
pub mod workload;
pub mod writers;

pub use call::CallError;
