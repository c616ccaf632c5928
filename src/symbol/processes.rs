//! Which mapping an address was in, of every process at any time: from side-band records, and from /proc/PID/maps where
//! they have told nothing. Knows nothing of what is in the files.

use std::{
    collections::HashMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{
    Reason,
    maps::{self, Backing, Mapping},
    process::{FileKey, Image, Known, Located, MappedFile, Process},
};
use crate::sys::procfs;

/// Exited processes that are kept; the ones that nobody asked for longest go first.
const EXITED_LIMIT: usize = 4096;
/// Mappings that are kept of all exited processes together, about 16 MiB.
const EXITED_MAPPINGS_LIMIT: usize = 1 << 18;
/// A process's maps are not read again before that, however many addresses are in none of them: a damaged chain of
/// frames has any number of such addresses.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// The mappings of all processes that were heard of.
#[derive(Debug, Default)]
pub struct Processes {
    processes: FxHashMap<u32, Process>,
    files: HashMap<FileKey, Arc<MappedFile>>,
    /// How many of `files` there may be before those are dropped that nobody maps any more.
    files_limit: usize,
    ids: u64,
    clock: u64,
    exited: usize,
    whose: Whose,
}

/// Whose processes they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// This machine's: what is not told of them is read from procfs.
    #[default]
    Ours,
    /// A recording's: nothing is known of them but what is told.
    Recorded,
}

impl Processes {
    /// None was heard of yet.
    pub fn new(whose: Whose) -> Self {
        Self { whose, ..Self::default() }
    }

    /// A mapping was made (PERF_RECORD_MMAP2). Ones without code are of no interest. Returns it if its file is new.
    pub fn mmap(&mut self, pid: u32, time: u64, mapping: &Mapping) -> Option<Known> {
        if !mapping.executable || mapping.start >= mapping.end {
            return None;
        }
        let known = self.known(time, mapping);
        // This one and the one in the list of files.
        let new = known.file.backing == Backing::File && Arc::strong_count(&known.file) == 2;
        let new = new.then(|| known.clone());
        self.lives(pid, time);
        let (id, first) = (self.next_id(), self.next_id());
        let image = self.entry(pid).of_mapping(time, || Image::new(first, 0));
        if image.insert(known) {
            image.id = id;
        }
        new
    }

    /// The process executes another program from now on (PERF_RECORD_COMM with PERF_RECORD_MISC_COMM_EXEC).
    pub fn exec(&mut self, pid: u32, time: u64) {
        let (image, renewed) = (Image::new(self.next_id(), time), self.next_id());
        match self.processes.get_mut(&pid) {
            Some(process) => {
                process.begin(image, renewed);
                self.lives(pid, time);
            }
            None => drop(self.processes.insert(pid, Process::new(image))),
        }
    }

    /// A process was created (PERF_RECORD_FORK whose pid is not its ppid): it begins with its parent's mappings.
    pub fn forked(&mut self, ppid: u32, pid: u32, time: u64) {
        if ppid == pid {
            return;
        }
        if !self.processes.contains_key(&ppid) {
            self.read(ppid);
        }
        let parent = self.processes.get(&ppid).map(|parent| {
            let image = &parent.images[parent.at(time)];
            // What the parent mapped later is not its child's.
            let until = image.mappings.partition_point(|known| known.time <= time);
            match until == image.mappings.len() {
                true => Arc::clone(&image.mappings),
                false => Arc::new(image.mappings[..until].to_vec()),
            }
        });
        let (mut image, renewed) = (Image::new(self.next_id(), time), self.next_id());
        image.mappings = parent.unwrap_or_default();
        match self.processes.get_mut(&pid) {
            // Its number was another process's.
            Some(process) => {
                process.begin(image, renewed);
                self.lives(pid, time);
            }
            None => drop(self.processes.insert(pid, Process::new(image))),
        }
    }

    /// A process has exited (PERF_RECORD_EXIT whose tid is its pid). What it had mapped is kept for a while. Its other
    /// threads may go on, and one that calls exec ends the main thread first, and takes its place.
    pub fn exited(&mut self, pid: u32, time: u64) {
        self.clock += 1;
        let clock = self.clock;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.used = process.used.max(clock);
        if process.exited.replace(time).is_none() {
            self.exited += 1;
            self.bound();
        }
    }

    /// A process did something at a time: it has not exited before.
    fn lives(&mut self, pid: u32, time: u64) {
        if let Some(process) = self.processes.get_mut(&pid)
            && process.exited.take_if(|exited| *exited < time).is_some()
        {
            self.exited -= 1;
        }
    }

    /// Forgets a process, as if nobody had heard of it.
    pub fn forget(&mut self, pid: u32) {
        if self.processes.remove(&pid).is_some_and(|process| process.exited.is_some()) {
            self.exited -= 1;
        }
    }

    /// Reads a process's mappings as they are now, which is done by itself for an address that nothing is known of.
    pub fn read(&mut self, pid: u32) -> bool {
        if self.whose == Whose::Recorded {
            return false;
        }
        let text = self.maps(pid);
        let mappings: Vec<Mapping> = maps::parse(&text).filter(|mapping| mapping.executable).collect();
        if mappings.is_empty() && !self.processes.contains_key(&pid) {
            // A kernel thread, or a process that is gone: neither is kept.
            return false;
        }
        let begin = self.entry(pid).images.last().map_or(0, |image| image.begin);
        let known = mappings.iter().map(|mapping| self.known(begin, mapping)).collect();
        let id = self.next_id();
        let Some(image) = self.entry(pid).images.last_mut() else { return false };
        image.read = Some(Instant::now());
        let (new, replaces) = image.merge(known);
        if replaces {
            image.id = id;
        }
        new
    }

    /// The text of a process's mappings. A main thread that has exited has none, while the others still have: so where
    /// it did exit and has some, they are of another process with its number.
    fn maps(&self, pid: u32) -> Vec<u8> {
        let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        if text.is_empty() {
            let thread = procfs::living_thread(pid).filter(|&tid| tid != pid);
            return thread.and_then(|tid| fs::read(format!("/proc/{tid}/maps")).ok()).unwrap_or_default();
        }
        if self.has_exited(pid) { Vec::new() } else { text }
    }

    /// The image that a process executed at a time.
    #[inline]
    pub fn image(&self, pid: u32, time: u64) -> Option<&Image> {
        let process = self.processes.get(&pid)?;
        match process.images.last() {
            Some(last) if last.begin <= time => Some(last),
            _ => process.images.get(process.at(time)),
        }
    }

    /// Where an address of a process was at a time.
    pub fn locate(&mut self, pid: u32, address: u64, time: u64) -> Result<Located, Reason> {
        if let Some(found) = self.image(pid, time).and_then(|image| image.locate(address, time)) {
            self.clock += 1;
            let clock = self.clock;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.used = clock;
            }
            return Ok(found);
        }
        if self.may_read(pid, time)
            && self.read(pid)
            && let Some(found) = self.image(pid, time).and_then(|image| image.locate(address, time))
        {
            return Ok(found);
        }
        match self.image(pid, time) {
            Some(image) if !image.mappings.is_empty() => Err(Reason::NotMapped),
            _ => Err(Reason::ProcessGone),
        }
    }

    /// Whether /proc/PID/maps may tell what was at a time. It speaks of the last image only.
    fn may_read(&self, pid: u32, time: u64) -> bool {
        let Some(process) = self.processes.get(&pid) else { return true };
        let last = process.images.len() - 1;
        process.at(time) == last && process.images[last].read.is_none_or(|read| read.elapsed() >= READ_AGAIN)
    }

    /// The jitdump files that a process maps at a time.
    pub fn jitdumps(&self, pid: u32, time: u64) -> Vec<Known> {
        let Some(image) = self.image(pid, time) else { return Vec::new() };
        image.mappings.iter().filter(|known| super::jitdump::is_name(&known.file.key.path)).cloned().collect()
    }

    /// How many processes are kept.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Whether none was heard of.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Whether the process is known to have exited.
    pub fn has_exited(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.exited.is_some())
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn entry(&mut self, pid: u32) -> &mut Process {
        let id = self.next_id();
        self.processes.entry(pid).or_insert_with(|| Process::new(Image::new(id, 0)))
    }

    fn known(&mut self, time: u64, mapping: &Mapping) -> Known {
        let &Mapping { start, end, file_offset, .. } = mapping;
        Known { time, start, end, file_offset, file: self.file(FileKey::of(mapping)) }
    }

    fn file(&mut self, key: FileKey) -> Arc<MappedFile> {
        if let Some(file) = self.files.get(&key) {
            return Arc::clone(file);
        }
        if self.files.len() >= self.files_limit {
            self.files.retain(|_, file| Arc::strong_count(file) > 1);
            self.files_limit = (2 * self.files.len()).max(1024);
        }
        let id = self.next_id();
        let backing = Backing::of(&key.path);
        let dso = match backing {
            Backing::Anonymous if key.path.as_os_str().is_empty() => "//anon".into(),
            // As the kernel calls it: what has the path now is another file.
            Backing::File if key.deleted => format!("{} (deleted)", key.path.display()).into(),
            _ => key.path.to_string_lossy().into(),
        };
        let file = Arc::new(MappedFile { id, key: key.clone(), dso, backing });
        self.files.insert(key, Arc::clone(&file));
        file
    }

    /// Forgets exited processes beyond the bounds.
    fn bound(&mut self) {
        let over = |processes: &Self| {
            processes.exited > EXITED_LIMIT
                || processes.exited.is_multiple_of(64)
                    && processes
                        .processes
                        .values()
                        .filter(|process| process.exited.is_some())
                        .map(Process::mappings)
                        .sum::<usize>()
                        > EXITED_MAPPINGS_LIMIT
        };
        if !over(self) {
            return;
        }
        let mut exited: Vec<(u64, u32)> = self
            .processes
            .iter()
            .filter(|(_, process)| process.exited.is_some())
            .map(|(&pid, process)| (process.used, pid))
            .collect();
        exited.sort_unstable();
        // A quarter at once, so that this is not done for each that exits.
        let gone = exited.len().div_ceil(4);
        for &(_, pid) in &exited[..gone] {
            self.processes.remove(&pid);
        }
        self.exited -= gone;
    }
}
