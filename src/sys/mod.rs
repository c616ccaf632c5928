//! The machine: system calls, mmap, procfs, signals, clock. The home of `unsafe`; knows nothing of events.

mod call;
pub mod epoll;
pub mod eventfd;
pub mod limits;
pub mod mmap;
pub mod perf;
pub mod pidfd;
pub mod procfs;
pub mod ring;
pub mod signals;

pub use call::CallError;
