//! The scheduling of the calling thread: its CPUs and its priority. Does not know what the thread does.

use super::call::{CallError, check};
use crate::spec::CpuSet;

/// Restricts this thread to these CPUs.
pub fn pin(cpus: &CpuSet) -> Result<(), CallError> {
    let words = cpus.iter().max().map_or(1, |last| last as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    cpus.iter().for_each(|cpu| mask[cpu as usize / 64] |= 1 << (cpu % 64));
    // SAFETY: the kernel reads the given number of bytes of the mask, which outlives the call. A cpu_set_t consists of
    // words of bits.
    let result = unsafe { libc::sched_setaffinity(0, 8 * words, mask.as_ptr().cast()) };
    check("sched_setaffinity", result).map(drop)
}

/// Gives this thread priority over ordinary threads. Has no effect without the permission (CAP_SYS_NICE).
pub fn raise_priority() {
    // SAFETY: no pointers are passed. On Linux, 0 means the calling thread and not its whole process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}
