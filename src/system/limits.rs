//! The limits of this process on open files and on memory.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::call::{CallError, failed};

/// The limits on the number of files that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The soft limit, which is in force.
    pub soft: u64,
    /// The highest value to which this process may raise the soft limit.
    pub hard: u64,
}

/// Returns the limits on open files.
pub fn file_limit() -> FileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    FileLimit { soft: current.unwrap_or(u64::MAX), hard: maximum.unwrap_or(u64::MAX) }
}

/// True if this process belongs to a program that uses perf-prof as a library. Such a program owns the limits.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Makes [`raise_file_limit`] leave the limits unchanged from now on.
pub fn keep_limits() {
    KEPT.store(true, Relaxed);
}

/// Raises the soft limit to the hard limit. Returns whether the soft limit has changed. Does nothing after
/// [`keep_limits`].
pub fn raise_file_limit() -> Result<bool, CallError> {
    if KEPT.load(Relaxed) {
        return Ok(false);
    }
    let FileLimit { soft, hard } = file_limit();
    if soft >= hard {
        return Ok(false);
    }
    let limit = Rlimit { current: Some(hard), maximum: Some(hard) };
    setrlimit(Resource::Nofile, limit).map(|()| true).map_err(failed("setrlimit"))
}

/// Returns the limit on locked memory (`RLIMIT_MEMLOCK`), in bytes. `None` if there is no limit, or if this kernel does
/// not count BPF maps and programs towards it. Kernels before Linux 5.11 count them.
pub fn bpf_memory_limit() -> Option<u64> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    getrlimit(Resource::Memlock).current.filter(|_| counts_bpf_memory(&release))
}

/// Returns whether a kernel with this release counts the memory of BPF towards the limit.
fn counts_bpf_memory(release: &str) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 11))
}

/// The limits on the memory of this process, in bytes; `None` if there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The limit on the whole address space of the process (`RLIMIT_AS`).
    pub address_space: Option<u64>,
    /// The limit on the private writable memory of the process (`RLIMIT_DATA`).
    pub data: Option<u64>,
}

/// Returns the memory limits in force.
pub fn memory_limits() -> MemoryLimits {
    let limit = |resource| getrlimit(resource).current;
    MemoryLimits { address_space: limit(Resource::As), data: limit(Resource::Data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_5_11_count_the_memory_of_bpf() {
        assert!(["5.10.0-28-amd64", "4.18.0", "5.4"].into_iter().all(counts_bpf_memory));
        assert!(!["5.11.0", "5.15.0-1-generic", "6.1.0", "6.18.44-x", "", "5"].into_iter().any(counts_bpf_memory));
    }
}
