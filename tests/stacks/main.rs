//! Programs with known call chains that are stopped where the chain is known, and files that no compiler wrote: what the unwinder
//! makes of their stacks.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod aarch64;
#[cfg(target_arch = "x86_64")]
mod chains;
mod damaged;
mod eh_frame;
mod elf;
#[cfg(target_arch = "x86_64")]
mod harness;
#[cfg(target_arch = "x86_64")]
mod oracle;
#[cfg(target_arch = "x86_64")]
mod programs;
#[cfg(target_arch = "x86_64")]
mod traced;
#[cfg(target_arch = "x86_64")]
mod unwinding;
