//! CPU time: of this thread, and of finished children.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command},
    time::Instant,
};

/// Nanoseconds of CPU that this thread has used.
pub fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of CPU that this process has used.
pub fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: all zeroes is a timespec, and the clock exists.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Runs the command on one CPU only.
pub fn pinned(command: &mut Command, cpu: usize) -> &mut Command {
    // SAFETY: between fork and exec, one system call on memory of the child's own.
    unsafe {
        command.pre_exec(move || {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        })
    }
}

/// What a finished child used, and its own children.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Nanoseconds of CPU, user and system.
    pub cpu_ns: u64,
    /// Nanoseconds from its start to its end.
    pub wall_ns: u64,
    /// Bytes that the largest of them had in memory.
    pub peak: u64,
}

/// Runs a command, which must succeed.
pub fn run(command: &mut Command) -> Usage {
    let begun = Instant::now();
    let usage = reap(command.spawn().unwrap());
    Usage { wall_ns: begun.elapsed().as_nanos() as u64, ..usage }
}

/// Waits for a child; nanoseconds of CPU, user and system, that it and its own children used. It must succeed.
pub fn reap_ns(child: Child) -> u64 {
    reap(child).cpu_ns
}

fn reap(child: Child) -> Usage {
    // SAFETY: all zeroes is a rusage; both live across the call.
    unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        assert_eq!(status, 0, "a measured command failed");
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Usage { cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime), wall_ns: 0, peak: usage.ru_maxrss as u64 * 1024 }
    }
}

/// This process's memory now, in bytes.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
