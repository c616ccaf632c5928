//! The calling thread's standing with the scheduler.

use super::call::{CallError, check};
use crate::spec::CpuSet;

/// Keeps this thread on these CPUs.
pub fn pin(cpus: &CpuSet) -> Result<(), CallError> {
    let words = cpus.iter().max().map_or(1, |last| last as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    cpus.iter().for_each(|cpu| mask[cpu as usize / 64] |= 1 << (cpu % 64));
    // SAFETY: the kernel reads so many bytes of the mask, which lives across the call; a cpu_set_t is words of bits.
    let result = unsafe { libc::sched_setaffinity(0, 8 * words, mask.as_ptr().cast()) };
    check("sched_setaffinity", result).map(drop)
}

/// Asks that this thread is preferred over ordinary ones, as far as we may (CAP_SYS_NICE).
pub fn prefer() {
    // SAFETY: no pointers are passed. On Linux 0 means the calling thread, not its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}
