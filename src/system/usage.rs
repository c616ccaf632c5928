//! The CPU time and memory of this process, and the CPU time of its children.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// The time of the last report, and the CPU time that this process had used at that time.
pub struct Usage {
    since: Instant,
    cpu_ns: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { since: Instant::now(), cpu_ns: cpu_ns() }
    }
}

impl Usage {
    /// Returns a line like `perf-prof 1234: CPU 12.3 % of one CPU, memory 45.0 MiB`. The CPU time is the user and
    /// system time since the last call, or since this value was created.
    pub fn line(&mut self) -> String {
        let now = Usage::default();
        let wall = (now.since - self.since).as_nanos().max(1);
        let share = 100.0 * now.cpu_ns.saturating_sub(self.cpu_ns) as f64 / wall as f64;
        *self = now;
        let memory = resident_kib().map_or_else(|| "?".into(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
        format!("perf-prof {}: CPU {share:.1} % of one CPU, memory {memory}", std::process::id())
    }
}

/// An amount of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in user space.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Returns the CPU time of all children that this process has waited for. Includes the children of these children.
    pub fn of_children() -> CpuTime {
        // SAFETY: all zeroes is a valid rusage, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
            usage
        };
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        CpuTime { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }

    /// Returns this CPU time minus `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime { user: self.user.saturating_sub(before.user), system: self.system.saturating_sub(before.system) }
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
