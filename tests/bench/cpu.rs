//! CPU time and memory of this process and of its children.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command},
    time::Instant,
};

/// Returns the CPU time that this thread has used, in ns.
pub fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time that this process has used, in ns.
pub fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a timespec of all zeroes is valid, and the clock exists.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Makes the command run on one CPU only.
pub fn pinned(command: &mut Command, cpu: usize) -> &mut Command {
    // SAFETY: between fork and exec, the child makes only one system call, on its own memory.
    unsafe {
        command.pre_exec(move || {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        })
    }
}

/// What a child and its own children used until they exited.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The CPU time, user and system, in ns.
    pub cpu_ns: u64,
    /// The time from start to end, in ns.
    pub wall_ns: u64,
}

/// Runs a command, which must succeed, and returns its usage.
pub fn run(command: &mut Command) -> Usage {
    let begun = Instant::now();
    let usage = reap(command.spawn().unwrap());
    Usage { wall_ns: begun.elapsed().as_nanos() as u64, ..usage }
}

/// Waits for a child, which must succeed. Returns the CPU time, user and system, that the child and its own children
/// used, in ns.
pub fn reap_ns(child: Child) -> u64 {
    reap(child).cpu_ns
}

fn reap(child: Child) -> Usage {
    // SAFETY: a rusage of all zeroes is valid, and both variables live across the call.
    unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        assert_eq!(status, 0, "a measured command failed");
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Usage { cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime), wall_ns: 0 }
    }
}

/// Runs a command, which must succeed. Returns its peak memory in bytes, as procfs showed it a few milliseconds before
/// the end. `rusage` is not used, because a child's value there starts with the memory of the process that forked it.
pub fn peak(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let mut kib: u64 = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let shown = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok());
        kib = kib.max(shown.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "a measured command failed");
            return kib * 1024;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Returns the memory that this process uses now, in bytes.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
