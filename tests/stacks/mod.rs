//! Tests the unwinder. Programs with known call chains are sampled, or stopped at known points, and their stacks are
//! unwound. Other tests use files that no compiler wrote.

mod aarch64;
#[cfg(target_arch = "x86_64")]
mod chains;
mod damaged;
mod eh_frame;
mod elf;
#[cfg(target_arch = "x86_64")]
#[cfg(target_arch = "x86_64")]
mod oracle;
#[cfg(target_arch = "x86_64")]
mod programs;
#[cfg(target_arch = "x86_64")]
mod python_frames;
#[cfg(target_arch = "x86_64")]
mod python_probes;
#[cfg(target_arch = "x86_64")]
mod python_processes;
#[cfg(target_arch = "x86_64")]
mod python_reports;
#[cfg(target_arch = "x86_64")]
mod traced;
mod unreadable;
#[cfg(target_arch = "x86_64")]
mod unwinding;
