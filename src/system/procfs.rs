//! Facts that the kernel reports as text under /proc and /sys: CPUs, threads, limits.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, str::FromStr};

use perf_prof_format::spec::CpuSet;

use super::{
    call::CallError,
    capability::{self, CAP_PERFMON, CAP_SYS_ADMIN},
};

/// Returns the CPUs that are online.
pub fn online_cpus() -> Result<CpuSet, CallError> {
    let path = "/sys/devices/system/cpu/online";
    let text = read(path)?;
    text.parse().map_err(|error| CallError::new(format!("parse {path}"), io::Error::other(error)))
}

/// Returns the CPUs on which this thread may run (`taskset`, cpusets).
pub fn allowed_cpus() -> Result<CpuSet, CallError> {
    const LINE: &str = "Cpus_allowed_list:";
    let path = "/proc/thread-self/status";
    let text = read(path)?;
    let list = text.lines().find_map(|line| line.strip_prefix(LINE)).unwrap_or_default().trim();
    list.parse().map_err(|error| CallError::new(format!("parse {LINE} in {path}"), io::Error::other(error)))
}

/// Returns the threads of a process, sorted by id.
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

/// Returns the threads of a process, or `None` if some may be missing. The kernel ends a listing early if the thread
/// that it has reached exits (`next_tid()` in fs/proc/base.c). So the threads are listed twice, and the kernel's own
/// thread count is read in between. Each thread that is in both lists existed when the count was read. If the number of
/// these threads equals the count, none is missing.
pub fn all_tasks_of(pid: u32) -> Option<Vec<u32>> {
    let before = tasks(pid).ok()?;
    let count = thread_count(pid)?;
    (before.len() == count && tasks(pid).ok()? == before).then_some(before)
}

/// Returns the number of threads of a process.
fn thread_count(pid: u32) -> Option<usize> {
    status_value(pid, "Threads:")
}

/// Returns the number after `key` in the task's `/proc/TID/status`.
fn status_value<T: FromStr>(tid: u32, key: &str) -> Option<T> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

/// Returns a thread of the process `pid` that is still running: the main thread, or another thread if the main thread
/// has exited.
pub fn living_thread(pid: u32) -> Option<u32> {
    if !has_exited(pid) {
        return Some(pid);
    }
    tasks(pid).ok()?.into_iter().find(|&tid| !has_exited(tid))
}

/// Returns the processes that exist now.
pub fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the comm of a thread as bytes, because a comm need not be UTF-8.
pub fn comm(tid: u32) -> Option<Vec<u8>> {
    let mut comm = fs::read(format!("/proc/{tid}/comm")).ok()?;
    if comm.last() == Some(&b'\n') {
        comm.pop();
    }
    Some(comm)
}

/// Returns the parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    // The first word is the state, the second the parent.
    std::str::from_utf8(&stat(pid)?).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the part of `/proc/TID/stat` after the comm. The comm is in parentheses, and may contain `)` itself.
fn stat(tid: u32) -> Option<Vec<u8>> {
    let mut stat = fs::read(format!("/proc/{tid}/stat")).ok()?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    Some(stat.split_off(close + 1))
}

/// Returns the process id of a thread.
pub fn process_of(tid: u32) -> Option<u32> {
    status_value(tid, "Tgid:")
}

/// Returns the user who owns a thread's files in /proc. Usually, the owner is the user of the thread. The owner is root
/// if the thread has more rights than its user, or must not be inspected.
pub fn owner(tid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{tid}")).ok().map(|folder| folder.uid())
}

/// Returns the namespaces of a thread, each as device and inode. The order is that of `NET_NS_INDEX` and the other
/// constants in `include/uapi/linux/perf_event.h`. A namespace that this kernel does not support is zero. Returns
/// `None` without permission to read the namespaces.
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

/// Returns whether a thread has exited. True for a zombie that its parent has not reaped yet.
pub fn has_exited(tid: u32) -> bool {
    // The state is a letter that follows a space.
    stat(tid).is_none_or(|stat| matches!(stat.get(1), None | Some(b'Z' | b'X')))
}

/// Returns `kernel.perf_event_paranoid`, which limits what users without privileges may trace.
pub fn perf_event_paranoid() -> Option<i32> {
    sysctl("perf_event_paranoid")
}

/// Returns `kernel.perf_event_mlock_kb`: how much ring memory a user without privileges may lock on each CPU, in KiB.
pub fn perf_event_mlock_kb() -> Option<i32> {
    sysctl("perf_event_mlock_kb")
}

/// Returns `kernel.perf_event_max_stack`: the largest number of frames in a callchain.
pub fn perf_event_max_stack() -> Option<i32> {
    sysctl("perf_event_max_stack")
}

/// Returns `kernel.perf_event_max_sample_rate`: the highest sample frequency that an event may request, in samples per
/// second on each CPU.
pub fn perf_event_max_sample_rate() -> Option<u64> {
    sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok())
}

/// Returns whether the kernel ignores `kernel.perf_event_paranoid` for this thread because of a capability
/// (`perfmon_capable()` in `include/linux/capability.h`). Capabilities inside a user namespace do not count.
pub fn is_perfmon_capable() -> bool {
    is_in_first_user_namespace() && [CAP_PERFMON, CAP_SYS_ADMIN].into_iter().any(capability::has)
}

/// Returns whether this process is in the initial PID namespace. Process and thread ids in the data of tracepoints are
/// ids of the initial namespace.
pub fn is_in_first_pid_namespace() -> bool {
    // `PROC_PID_INIT_INO` of include/linux/proc_ns.h. A kernel without PID namespaces does not have the file that is
    // read here.
    const FIRST: u64 = 0xEFFF_FFFC;
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) => namespace.ino() == FIRST,
        Err(error) => error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists(),
    }
}

/// Returns whether this process is in the initial user namespace. The kernel accepts only capabilities of the initial
/// user namespace. /proc/self/uid_map would not be enough: it can look the same in a namespace that maps all users. So
/// the inode number is compared.
pub fn is_in_first_user_namespace() -> bool {
    // `PROC_USER_INIT_INO` of include/linux/proc_ns.h. A kernel without user namespaces does not have the file that is
    // read here.
    const FIRST: u64 = 0xEFFF_FFFD;
    fs::metadata("/proc/self/ns/user").map_or(true, |namespace| namespace.ino() == FIRST)
}

fn sysctl(name: &str) -> Option<i32> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

/// Returns the text of a file. The error contains the path.
pub(super) fn read(path: impl AsRef<Path>) -> Result<String, CallError> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| CallError::new(format!("read {}", path.display()), error))
}
