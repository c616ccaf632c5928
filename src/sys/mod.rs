//! The machine: system calls, mmap, procfs, signals, clock. The home of `unsafe`; knows nothing of events.
