//! The scheduling of threads: their CPUs and the length of their time slices.

use perf_prof_format::spec::CpuSet;

use super::call::{CallError, check};

/// Restricts this thread to these CPUs. When this call returns, the thread runs on one of them.
pub fn pin(cpus: &CpuSet) -> Result<(), CallError> {
    pin_thread(0, cpus)
}

/// Restricts a thread to these CPUs. 0 is the id of the calling thread.
pub fn pin_thread(tid: u32, cpus: &CpuSet) -> Result<(), CallError> {
    let words = cpus.iter().max().map_or(1, |last| last as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    cpus.iter().for_each(|cpu| mask[cpu as usize / 64] |= 1 << (cpu % 64));
    // SAFETY: the kernel reads the given number of bytes of the mask, which outlives the call. A cpu_set_t consists of
    // words of bits.
    let result = unsafe { libc::sched_setaffinity(tid as libc::pid_t, 8 * words, mask.as_ptr().cast()) };
    check("sched_setaffinity", result).map(drop)
}

/// The shortest time slice that the kernel accepts, in ns (`__setparam_fair()` in kernel/sched/syscalls.c).
const SHORTEST_TURN: u64 = 100_000;

/// Requests short time slices for this thread. After a thread with short slices was woken, it starts earlier. It gets
/// no more CPU time than other threads, because the deadline of a slice depends on its length (`place_entity()` in
/// kernel/sched/fair.c). No permission is needed. Kernels before Linux 6.12 ignore the request. The request has no
/// effect if the user started perf-prof with another scheduling policy.
pub fn take_short_turns() {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: `sched_attr` consists of numbers, so all zeroes is a valid value. The kernel writes and reads at most SIZE
    // bytes of it, and it outlives both calls. The thread id 0 means the calling thread.
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let read = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0);
        if read == 0 && attr.sched_policy == libc::SCHED_OTHER as u32 {
            (attr.size, attr.sched_runtime) = (SIZE, SHORTEST_TURN);
            // If this call fails, the thread keeps its longer slices.
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}
