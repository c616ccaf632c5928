//! What the kernel tells in text under /proc and /sys: CPUs, tasks, limits.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use super::call::CallError;
use crate::spec::CpuSet;

/// The CPUs that are online.
pub fn online_cpus() -> Result<CpuSet, CallError> {
    let path = "/sys/devices/system/cpu/online";
    let text = read(path)?;
    text.parse().map_err(|error| CallError::new(format!("parse {path}"), io::Error::other(error)))
}

/// The threads of a process, in the order of their ids.
pub fn tasks(pid: u32) -> Result<Vec<u32>, CallError> {
    let path = format!("/proc/{pid}/task");
    let wrong = |error| CallError::new(format!("read {path}"), error);
    let mut tids = Vec::new();
    for entry in fs::read_dir(&path).map_err(wrong)? {
        tids.extend(entry.map_err(wrong)?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    tids.sort_unstable();
    Ok(tids)
}

/// The threads of a process, if they could be listed without missing any: the kernel ends a listing early where the thread
/// that it has come to exits (`next_tid()` in fs/proc/base.c). What is listed twice was there in between, when the kernel's
/// own count says whether that is all.
pub fn all_tasks_of(pid: u32) -> Option<Vec<u32>> {
    let before = tasks(pid).ok()?;
    let count = thread_count(pid)?;
    (before.len() == count && tasks(pid).ok()? == before).then_some(before)
}

/// How many threads a process has.
fn thread_count(pid: u32) -> Option<usize> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

/// A thread of a process that has not exited: the first one, unless that has and others go on.
pub fn living_thread(pid: u32) -> Option<u32> {
    if !has_exited(pid) {
        return Some(pid);
    }
    tasks(pid).ok()?.into_iter().find(|&tid| !has_exited(tid))
}

/// The processes that there are now.
pub fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A task's name, as bytes: a task may choose any.
pub fn comm(tid: u32) -> Option<Vec<u8>> {
    let mut comm = fs::read(format!("/proc/{tid}/comm")).ok()?;
    if comm.last() == Some(&b'\n') {
        comm.pop();
    }
    Some(comm)
}

/// A process's parent.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any byte itself; the state and the parent follow it.
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// The process that a thread is of.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The user that a task's files belong to: its own, or root where it has more rights than that user or is not to be looked into.
pub fn owner(tid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{tid}")).ok().map(|folder| folder.uid())
}

/// The namespaces of a task, each as device and inode, in the order of `NET_NS_INDEX` and its like of
/// `include/uapi/linux/perf_event.h`; zeroes for those that this kernel does not have. `None` where we may not look.
pub fn namespaces(tid: u32) -> Option<[(u64, u64); 7]> {
    let mut all = [(0, 0); 7];
    for (place, name) in all.iter_mut().zip(["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"]) {
        match fs::metadata(format!("/proc/{tid}/ns/{name}")) {
            Ok(file) => *place = (file.dev(), file.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    (all != [(0, 0); 7]).then_some(all)
}

/// Whether the task has exited: gone, or a zombie that its parent has not reaped.
pub fn has_exited(tid: u32) -> bool {
    // The state follows the name, which stands in parentheses and may hold any byte itself.
    let Ok(stat) = fs::read(format!("/proc/{tid}/stat")) else { return true };
    let Some(close) = stat.iter().rposition(|&byte| byte == b')') else { return true };
    matches!(stat.get(close + 2), None | Some(b'Z' | b'X'))
}

/// `kernel.perf_event_paranoid`, which rules what who may trace.
pub fn perf_event_paranoid() -> Option<i32> {
    sysctl("perf_event_paranoid")
}

/// `kernel.perf_event_mlock_kb`, the ring memory per CPU that needs no privilege.
pub fn perf_event_mlock_kb() -> Option<i32> {
    sysctl("perf_event_mlock_kb")
}

/// All threads of all processes.
pub fn all_tasks() -> Vec<u32> {
    processes().into_iter().flat_map(|pid| tasks(pid).unwrap_or_default()).collect()
}

/// `kernel.perf_event_max_stack`, the most frames that a call chain may have.
pub fn perf_event_max_stack() -> Option<i32> {
    sysctl("perf_event_max_stack")
}

/// `kernel.perf_event_max_sample_rate`, the most samples per second and CPU that may be asked for.
pub fn perf_event_max_sample_rate() -> Option<u64> {
    sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok())
}

/// Whether this thread has a capability in force, by its number in `include/uapi/linux/capability.h`.
pub fn has_capability(number: u32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else { return false };
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|set| set >> number & 1 != 0)
}

/// Whether a capability is in force that goes before `kernel.perf_event_paranoid`, as in `perfmon_capable()` of
/// `include/linux/capability.h`: those of a user namespace count for nothing there.
pub fn is_perfmon_capable() -> bool {
    is_in_first_user_namespace() && [CAP_PERFMON, CAP_SYS_ADMIN].into_iter().any(has_capability)
}

/// Whether our capabilities are those that the kernel asks for. A namespace with all of the first one's users looks the same in
/// /proc/self/uid_map.
pub fn is_in_first_user_namespace() -> bool {
    // `PROC_USER_INIT_INO` of include/linux/proc_ns.h. A kernel without user namespaces does not have the file.
    const FIRST: u64 = 0xEFFF_FFFD;
    fs::metadata("/proc/self/ns/user").map_or(true, |namespace| namespace.ino() == FIRST)
}

/// `CAP_SYS_ADMIN`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_PERFMON`, since Linux 5.8.
pub const CAP_PERFMON: u32 = 38;

/// Bytes of memory that new work may use without swapping.
pub fn available_memory() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

fn sysctl(name: &str) -> Option<i32> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

/// A file's text; the error names it.
pub(super) fn read(path: impl AsRef<Path>) -> Result<String, CallError> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| CallError::new(format!("read {}", path.display()), error))
}
