//! Code that processes made at run time, by what they tell of it: jitdump files, else perf maps.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{Reason, jitdump::JitDump, open::open, perf_map::PerfMap, process::Known};
use crate::sys::{file::open_regular, procfs};

/// Processes whose code is kept.
const PROCESSES_LIMIT: usize = 64;
/// Jitdump files of a process: each library that makes code has its own.
const DUMPS_LIMIT: usize = 3;
/// How often is looked whether a file has grown: when a name is missing, and otherwise.
const MISSING: Duration = Duration::from_millis(20);
const FRESH: Duration = Duration::from_secs(1);

/// The run-time code of all processes.
#[derive(Debug)]
pub struct Jit {
    processes: FxHashMap<(u32, u64), Process>,
    clock: u64,
    limit: usize,
}

#[derive(Debug)]
struct Process {
    map: PerfMap,
    /// The perf map, once there is one: kept open, so that it can be read when the process has exited.
    file: Option<File>,
    dumps: Vec<(u64, File, JitDump)>,
    looked: Option<Instant>,
    used: u64,
}

impl Jit {
    /// Nothing is read yet; `limit` bounds the bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self { processes: FxHashMap::default(), clock: 0, limit }
    }

    /// The function that an address is in, and its start. `image` is when the process's image began, `dumps` are the
    /// jitdump files that it maps.
    pub fn lookup(
        &mut self,
        pid: u32,
        image: u64,
        address: u64,
        dumps: impl FnOnce() -> Vec<Known>,
    ) -> Result<(u64, Arc<str>), Reason> {
        self.clock += 1;
        let clock = self.clock;
        // A process has a perf map and a few jitdumps.
        let limit = self.limit / (1 + DUMPS_LIMIT);
        let new = || Process { map: PerfMap::new(limit), file: None, dumps: Vec::new(), looked: None, used: 0 };
        let process = self.processes.entry((pid, image)).or_insert_with(new);
        process.used = clock;
        let found = process.find(address);
        let wait = if found.is_some() { FRESH } else { MISSING };
        if process.looked.is_some_and(|looked| looked.elapsed() < wait) {
            return found.ok_or_else(|| process.reason(pid));
        }
        process.update(pid, dumps(), limit);
        let found = process.find(address).ok_or_else(|| process.reason(pid));
        self.bound((pid, image));
        found
    }

    /// Forgets the code of a process.
    pub fn forget(&mut self, pid: u32) {
        self.processes.retain(|&(of, _), _| of != pid);
    }

    /// Bytes of memory.
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
    fn find(&self, address: u64) -> Option<(u64, Arc<str>)> {
        let dumped = self.dumps.iter().find_map(|(_, _, dump)| dump.code.lookup(address));
        let (start, name) = dumped.or_else(|| self.map.code.lookup(address))?;
        Some((start, Arc::clone(name)))
    }

    fn update(&mut self, pid: u32, dumps: Vec<Known>, limit: usize) {
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
            // What was read of a damaged file is what there is.
            let _ = dump.update(file);
        }
        // It may have been written anew beside the old one. Of a process that has exited that is another one's.
        let paths = perf_map_paths(pid);
        if self.file.is_none() || paths.iter().all(|(_, of)| *of == Of::Alive) {
            self.file = paths.iter().find_map(|(path, _)| open_regular(path).ok()).or_else(|| self.file.take());
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
            _ if self.map.is_cut() || self.dumps.iter().any(|(_, _, dump)| dump.code.is_cut()) => Reason::TooLarge {
                path: format!("the map of run-time code of process {pid}"),
                bytes: self.bytes() as u64,
            },
            _ => Reason::NotInPerfMap { pid },
        }
    }
}

/// Whose perf map is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Alive,
    Exited,
}

/// Where a process writes its perf map: in its own mount namespace, under the number that it has in its own pid
/// namespace.
fn perf_map_paths(pid: u32) -> Vec<(PathBuf, Of)> {
    let thread = procfs::living_thread(pid);
    // Of the process, not of the thread: each has a number of its own there.
    let status = thread.and_then(|_| fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().next_back()?.parse().ok());
    let own: u32 = own.unwrap_or(pid);
    let path = PathBuf::from(format!("/proc/{}/root", thread.unwrap_or(pid))).join(format!("tmp/perf-{own}.map"));
    let mut paths = vec![(path, Of::Alive)];
    // A process that has exited has no root.
    if status.is_empty() {
        paths.push((format!("/tmp/perf-{pid}.map").into(), Of::Exited));
    }
    paths
}
