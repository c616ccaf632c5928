//! What the kernel works out for perf-prof by BPF, against what is known about the traced program.

mod calls;
mod verifier;
