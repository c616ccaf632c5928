//! The machine: system calls, mmap, procfs, signals, clock. The home of `unsafe`; knows nothing of events.

mod call;
pub mod cgroup;
pub mod clock;
pub mod definition;
pub mod epoll;
pub mod eventfd;
pub mod file;
pub mod hold;
pub mod holder;
pub mod limits;
pub mod mmap;
pub mod output;
pub mod perf;
pub mod pidfd;
mod pipe;
pub mod place;
pub mod pmu;
pub mod process;
pub mod procfs;
pub mod readable;
pub mod ring;
pub mod signals;
pub mod thread;
pub mod tracefs;
pub mod usage;
pub mod worker;
pub mod workload;

pub use call::CallError;
