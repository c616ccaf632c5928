//! Finds functions that processes generated at run time. Processes write the names of these functions to jitdumps or
//! perf maps. A function is searched in the jitdumps first.

use std::{
    fs::{self, File},
    ops::Range,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_system::{file::open_regular, process, procfs};
use rustc_hash::FxHashMap;

use super::{Reason, jitdump::JitDump, mapping_history::TimedMapping, open::open, perf_map::PerfMap};

/// The maximum number of processes whose generated functions are kept.
const PROCESSES_LIMIT: usize = 64;
/// The maximum number of jitdump files of a process. Each library that generates code has its own file.
const DUMPS_LIMIT: usize = 3;
/// The minimum time between two checks whether a file has grown: `RECHECK_IF_MISSING` if no function is known at the
/// address, `RECHECK` otherwise.
const RECHECK_IF_MISSING: Duration = Duration::from_millis(20);
const RECHECK: Duration = Duration::from_secs(1);
/// Additional time until the next check, for each byte that the last check read. So a large file that always changes
/// takes only a small part of a CPU.
const RECHECK_PER_BYTE: Duration = Duration::from_nanos(50);

/// The functions that processes generated at run time, for all processes.
#[derive(Debug)]
pub struct Jit {
    processes: FxHashMap<(u32, u64), Process>,
    clock: u64,
    limit: usize,
}

#[derive(Debug)]
struct Process {
    map: PerfMap,
    /// The perf map, if it was found. The file stays open, so that it can be read after the process has exited.
    file: Option<File>,
    dumps: Vec<(u64, File, JitDump)>,
    looked: Option<Instant>,
    used: u64,
}

impl Jit {
    /// Creates an empty value. `limit` is the maximum memory in bytes.
    pub fn new(limit: usize) -> Self {
        Self { processes: FxHashMap::default(), clock: 0, limit }
    }

    /// Returns the function that contains an address: the range of its addresses, and its name. `image` is the time at
    /// which the process's current image started. `dumps` returns the jitdump files that the process has mapped.
    pub fn lookup(
        &mut self,
        pid: u32,
        image: u64,
        address: u64,
        dumps: impl FnOnce() -> Vec<TimedMapping>,
    ) -> Result<(Range<u64>, Arc<str>), Reason> {
        self.clock += 1;
        let clock = self.clock;
        // A process has one perf map and at most `DUMPS_LIMIT` jitdumps. Each of these files gets an equal share of the
        // limit.
        let limit = self.limit / (1 + DUMPS_LIMIT);
        let new = || Process { map: PerfMap::new(limit), file: None, dumps: Vec::new(), looked: None, used: 0 };
        let process = self.processes.entry((pid, image)).or_insert_with(new);
        process.used = clock;
        let found = process.find(address);
        let wait = process.wait(if found.is_some() { RECHECK } else { RECHECK_IF_MISSING });
        if process.looked.is_some_and(|looked| looked.elapsed() < wait) {
            return found.ok_or_else(|| process.reason(pid));
        }
        process.update(pid, dumps(), limit);
        let found = process.find(address).ok_or_else(|| process.reason(pid));
        self.bound((pid, image));
        found
    }

    /// Forgets the functions of a process.
    pub fn forget(&mut self, pid: u32) {
        self.processes.retain(|&(of, _), _| of != pid);
    }

    /// Returns the memory that is used, in bytes.
    pub fn bytes(&self) -> usize {
        self.processes.values().map(Process::bytes).sum()
    }

    fn bound(&mut self, current: (u32, u64)) {
        while self.processes.len() > PROCESSES_LIMIT || self.bytes() > self.limit {
            let others = self.processes.iter().filter(|(id, _)| **id != current);
            let Some(oldest) = others.min_by_key(|(_, process)| process.used).map(|(&id, _)| id) else { return };
            self.processes.remove(&oldest);
        }
    }
}

impl Process {
    fn find(&self, address: u64) -> Option<(Range<u64>, Arc<str>)> {
        let dumped = self.dumps.iter().find_map(|(_, _, dump)| dump.code.lookup_range(address));
        let (range, name) = dumped.or_else(|| self.map.code.lookup_range(address))?;
        Some((range, Arc::clone(name)))
    }

    /// Returns the time until the next check of the files. `least` is the minimum.
    fn wait(&self, least: Duration) -> Duration {
        let read = self.map.last_read() + self.dumps.iter().map(|(_, _, dump)| dump.last_read()).sum::<u64>();
        least.max(RECHECK_PER_BYTE * u32::try_from(read).unwrap_or(u32::MAX))
    }

    fn update(&mut self, pid: u32, dumps: Vec<TimedMapping>, limit: usize) {
        self.looked = Some(Instant::now());
        for known in dumps {
            if self.dumps.len() < DUMPS_LIMIT
                && self.dumps.iter().all(|(id, ..)| *id != known.file.id)
                && let Ok(opened) = open(pid, &known)
            {
                self.dumps.push((known.file.id, opened.file, JitDump::new(limit)));
            }
        }
        for (_, file, dump) in &mut self.dumps {
            // If the file is damaged, the functions before the damage are used.
            let _ = dump.update(file);
        }
        // The path is opened again, because the process may have written a new file. But if the process has exited, the
        // file at the path may belong to another process.
        let PerfMapPaths { paths, owners } = perf_map_paths(pid);
        if self.file.is_none() || paths.iter().all(|(_, of)| *of == MapOwner::Running) {
            let open = |path: &PathBuf| open_regular(path).ok().filter(|file| is_owned(file, &owners));
            self.file = paths.iter().find_map(|(path, _)| open(path)).or_else(|| self.file.take());
        }
        if let Some(file) = &self.file {
            let _ = self.map.update(file);
        }
    }

    fn bytes(&self) -> usize {
        self.map.code.bytes() + self.dumps.iter().map(|(_, _, dump)| dump.code.bytes()).sum::<usize>()
    }

    fn reason(&self, pid: u32) -> Reason {
        match (&self.file, self.dumps.is_empty()) {
            (None, true) => Reason::NoPerfMap { pid },
            _ if self.map.is_incomplete() || self.dumps.iter().any(|(_, _, dump)| dump.code.has_dropped()) => {
                Reason::TooLarge {
                    path: format!("the perf map or jitdump of process {pid}"),
                    bytes: self.bytes() as u64,
                }
            }
            _ => Reason::NotInPerfMap { pid },
        }
    }
}

/// Whether the process to which the path of a perf map belongs still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapOwner {
    Running,
    Exited,
}

/// The possible paths and owners of a process's perf map.
struct PerfMapPaths {
    paths: Vec<(PathBuf, MapOwner)>,
    /// The ids of the users to whom the perf map may belong.
    owners: Vec<u32>,
}

/// Returns the paths at which a process may have written its perf map, and the users to whom the file may belong. The
/// path is in the mount namespace of the process. The path contains the process id in the process's own PID namespace.
///
/// Everybody may write to /tmp, so another user may have written a file with this name. The file has to belong to root,
/// to the user of perf-prof, or to a user of the process. perf also checks the owner.
fn perf_map_paths(pid: u32) -> PerfMapPaths {
    let thread = procfs::living_thread(pid);
    // This reads the status of the process, not of the thread, because the thread has another id in the namespace.
    let status = thread.and_then(|_| fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let own: u32 = line("NSpid:").split_whitespace().next_back().and_then(|pid| pid.parse().ok()).unwrap_or(pid);
    let path = PathBuf::from(format!("/proc/{}/root", thread.unwrap_or(pid))).join(format!("tmp/perf-{own}.map"));
    let mut paths = vec![(path, MapOwner::Running)];
    // procfs has no root directory of an exited process. Its perf map is searched in perf-prof's own /tmp.
    if status.is_empty() {
        paths.push((format!("/tmp/perf-{pid}.map").into(), MapOwner::Exited));
    }
    // The line contains the real, effective, saved and file system user ids of the process.
    let users = line("Uid:").split_whitespace().filter_map(|user| user.parse().ok());
    PerfMapPaths { paths, owners: [0, process::effective_user()].into_iter().chain(users).collect() }
}

/// Returns whether a file belongs to one of these users.
fn is_owned(file: &File, owners: &[u32]) -> bool {
    file.metadata().is_ok_and(|metadata| owners.contains(&metadata.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perf_map_belongs_to_a_user_of_the_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let owners = perf_map_paths(child.id()).owners;
        child.kill().unwrap();
        child.wait().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(is_owned(&file, &owners) && !is_owned(&file, &[file.metadata().unwrap().uid() + 1]));
        assert!(owners.iter().all(|&owner| owner == 0 || owner == process::effective_user()), "{owners:?}");
    }

    #[test]
    fn a_file_is_checked_less_often_the_more_was_read() {
        let mut process = Process { map: PerfMap::new(1 << 20), file: None, dumps: Vec::new(), looked: None, used: 0 };
        assert_eq!(process.wait(RECHECK_IF_MISSING), RECHECK_IF_MISSING);
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &b"1000 10 function\n".repeat(1 << 17)).unwrap();
        process.map.update(&file).unwrap();
        let read = file.metadata().unwrap().len() as u32;
        assert_eq!(process.wait(RECHECK_IF_MISSING), RECHECK_PER_BYTE * read);
    }
}
