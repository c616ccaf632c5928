//! Finds the mapping that contained an address of a process at a time. The mappings come from side-band records.
//! Missing mappings come from /proc/PID/maps. This module does not read the mapped files.

use std::{
    collections::HashMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_system::procfs;
use rustc_hash::FxHashMap;

use super::{
    Data, Reason,
    mapping_history::{FileKey, Image, ImageOrigin, MappedFile, MappingAt, Process, TimedMapping},
    mapping_index::{MAPPING_BYTES, Mappings},
    maps::{self, Backing, Mapping},
};

/// The maximum number of exited processes that are kept. The least recently used processes are dropped first.
const EXITED_LIMIT: usize = 4096;
/// The maximum number of mappings that are kept for all exited processes together. This many mappings take about 16
/// MiB.
const EXITED_MAPPINGS_LIMIT: usize = 1 << 18;
/// The maximum memory for the mappings of all processes and for their files, in bytes. Usually they take far less: 24
/// MB for 10,000 processes with 60 mappings each, if no two processes share a list.
const MAPPING_BYTES_LIMIT: usize = 128 << 20;
/// The minimum time between two reads of /proc/PID/maps for a process. Each address outside of the known mappings would
/// cause a read, and a damaged call chain can contain any number of such addresses.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// The mappings of all known processes.
#[derive(Debug, Default)]
pub struct Processes {
    processes: FxHashMap<u32, Process>,
    files: HashMap<FileKey, Arc<MappedFile>>,
    /// When `files` reaches this length, files that no process maps any more are dropped.
    files_limit: usize,
    ids: u64,
    clock: u64,
    exited: usize,
    /// An upper bound of the memory of all mappings and their files, in bytes.
    mapping_bytes: usize,
    whose: ProcessOrigin,
    data: Data,
}

/// On which machine the processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessOrigin {
    /// This machine. Mappings that were not reported are read from procfs.
    #[default]
    ThisMachine,
    /// The machine of a recording. Only reported mappings are known.
    Recording,
}

impl Processes {
    /// Creates an empty set of processes.
    pub fn new(whose: ProcessOrigin, data: Data) -> Self {
        Self { whose, data, ..Self::default() }
    }

    /// Notes a new mapping (PERF_RECORD_MMAP2). Ignores mappings without code, unless mappings of data are kept.
    /// Returns the mapping if its file was not known.
    pub fn mmap(&mut self, pid: u32, time: u64, mapping: &Mapping) -> Option<TimedMapping> {
        if (!mapping.executable && self.data == Data::No) || mapping.start >= mapping.end {
            return None;
        }
        let known = self.known(time, mapping);
        // A new file has two references: one in `known`, and one in `files`.
        let new = known.file.backing == Backing::File && Arc::strong_count(&known.file) == 2;
        let new = new.then(|| known.clone());
        self.note_activity(pid, time);
        let (id, first) = (self.next_id(), self.next_id());
        let image = self.entry(pid).image_for_mapping(time, || Image::new(first, 0, ImageOrigin::Start));
        let before = image.own_bytes();
        if image.insert(known) {
            image.id = id;
        }
        let grown = image.own_bytes().saturating_sub(before);
        self.note_growth(grown);
        new
    }

    /// Notes that mappings take more memory. If the memory exceeds the limit, the processes with the most mappings lose
    /// their oldest mappings.
    fn note_growth(&mut self, bytes: usize) {
        self.mapping_bytes += bytes;
        if self.mapping_bytes <= MAPPING_BYTES_LIMIT {
            return;
        }
        // This number is exact: shared lists count once, and dropped lists do not count.
        let lists = shared_lists(&self.processes);
        self.files.retain(|_, file| Arc::strong_count(file) > 1);
        let files: usize = self.files.values().map(|file| file.bytes()).sum();
        let lengths: Vec<usize> = lists.values().map(|list| list.len()).collect();
        self.mapping_bytes = files + lengths.iter().sum::<usize>() * MAPPING_BYTES;
        if self.mapping_bytes <= MAPPING_BYTES_LIMIT {
            return;
        }
        // A quarter of the limit is freed in addition, so that mappings are dropped rarely. The memory of the files is
        // divided equally among the mappings.
        let wanted = MAPPING_BYTES_LIMIT - MAPPING_BYTES_LIMIT / 4;
        let count = lengths.iter().sum::<usize>() as u128 * wanted as u128 / self.mapping_bytes as u128;
        let most = most_for_each(lengths, count as usize);
        let cut: FxHashMap<usize, Arc<Mappings>> = lists
            .into_iter()
            .filter(|(_, list)| list.len() > most)
            .map(|(at, list)| (at, Arc::new(list[list.len() - most..].to_vec().into())))
            .collect();
        for image in self.processes.values_mut().flat_map(|process| &mut process.images) {
            if let Some(list) = cut.get(&(Arc::as_ptr(&image.mappings) as usize)) {
                image.mappings = Arc::clone(list);
            }
        }
        let kept: usize = shared_lists(&self.processes).values().map(|list| list.len()).sum();
        self.files.retain(|_, file| Arc::strong_count(file) > 1);
        let files: usize = self.files.values().map(|file| file.bytes()).sum();
        self.mapping_bytes = files + kept * MAPPING_BYTES;
    }

    /// Notes an exec: the process executes another program from now on (PERF_RECORD_COMM with
    /// PERF_RECORD_MISC_COMM_EXEC).
    pub fn exec(&mut self, pid: u32, time: u64) {
        let image = Image::new(self.next_id(), time, ImageOrigin::Exec);
        self.add_image(pid, time, image);
    }

    /// Starts a new image of a process. The process may be unknown so far.
    fn add_image(&mut self, pid: u32, time: u64, image: Image) {
        let renewed = self.next_id();
        match self.processes.get_mut(&pid) {
            Some(process) => {
                process.add_image(image, renewed);
                self.note_activity(pid, time);
            }
            None => drop(self.processes.insert(pid, Process::new(image))),
        }
    }

    /// Notes that a process was created (PERF_RECORD_FORK in which pid and ppid differ). The new process starts with
    /// the mappings of its parent.
    pub fn forked(&mut self, ppid: u32, pid: u32, time: u64) {
        if ppid == pid {
            return;
        }
        if !self.processes.contains_key(&ppid) {
            self.read(ppid);
        }
        let parent = self.processes.get(&ppid).map(|parent| {
            let image = &parent.images[parent.image_index_at(time)];
            // Mappings that the parent made after the fork do not belong to the child.
            let until = image.mappings.partition_point(|known| known.time <= time);
            match until == image.mappings.len() {
                true => Arc::clone(&image.mappings),
                false => Arc::new(image.mappings[..until].to_vec().into()),
            }
        });
        let mut image = Image::new(self.next_id(), time, ImageOrigin::Start);
        image.mappings = parent.unwrap_or_default();
        let grown = image.own_bytes();
        self.note_growth(grown);
        // If an earlier process had this pid, its images stay, and the new image is added to them.
        self.add_image(pid, time, image);
    }

    /// Notes that the main thread of a process has exited (PERF_RECORD_EXIT in which pid and tid are equal). The
    /// mappings are kept for a while, because other threads may still run. If another thread calls exec, the main
    /// thread exits first, and the other thread takes its place.
    pub fn exited(&mut self, pid: u32, time: u64) {
        self.clock += 1;
        let clock = self.clock;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.used = process.used.max(clock);
        if process.exited.replace(time).is_none() {
            self.exited += 1;
            self.drop_oldest_exited();
        }
    }

    /// Notes that a process did something at `time`, so it cannot have exited before `time`.
    fn note_activity(&mut self, pid: u32, time: u64) {
        if let Some(process) = self.processes.get_mut(&pid)
            && process.exited.take_if(|exited| *exited < time).is_some()
        {
            self.exited -= 1;
        }
    }

    /// Forgets a process and its mappings.
    pub fn forget(&mut self, pid: u32) {
        if self.processes.remove(&pid).is_some_and(|process| process.exited.is_some()) {
            self.exited -= 1;
        }
    }

    /// Reads the current mappings of a process from /proc/PID/maps. Returns whether a mapping was new. `locate` calls
    /// this method if no known mapping contains an address.
    pub fn read(&mut self, pid: u32) -> bool {
        if self.whose == ProcessOrigin::Recording {
            return false;
        }
        let text = self.maps(pid);
        let mappings: Vec<Mapping> = maps::parse(&text).filter(|mapping| mapping.executable).collect();
        if mappings.is_empty() && !self.processes.contains_key(&pid) {
            // The process is a kernel thread, or no longer exists. It is not kept.
            return false;
        }
        let begin = self.entry(pid).images.last().map_or(0, |image| image.start);
        let known = mappings.iter().map(|mapping| self.known(begin, mapping)).collect();
        let id = self.next_id();
        let Some(image) = self.entry(pid).images.last_mut() else { return false };
        image.read = Some(Instant::now());
        let before = image.own_bytes();
        let (new, replaces) = image.merge(known);
        if replaces {
            image.id = id;
        }
        let grown = image.own_bytes().saturating_sub(before);
        self.note_growth(grown);
        new
    }

    /// Returns the text of /proc/PID/maps. After the main thread has exited, this file is empty, and only
    /// /proc/TID/maps of another thread shows the mappings. So if the main thread is known to have exited but
    /// /proc/PID/maps is not empty, it belongs to another process with the same pid.
    fn maps(&self, pid: u32) -> Vec<u8> {
        let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        if text.is_empty() {
            let thread = procfs::living_thread(pid).filter(|&tid| tid != pid);
            return thread.and_then(|tid| fs::read(format!("/proc/{tid}/maps")).ok()).unwrap_or_default();
        }
        if self.has_exited(pid) { Vec::new() } else { text }
    }

    /// Returns the image that a process executed at `time`.
    #[inline]
    pub fn image(&self, pid: u32, time: u64) -> Option<&Image> {
        let process = self.processes.get(&pid)?;
        match process.images.last() {
            Some(last) if last.start <= time => Some(last),
            _ => process.images.get(process.image_index_at(time)),
        }
    }

    /// Returns the mapping that contained `address` in a process at `time`. If the program that ran at `time` had no
    /// such mapping, returns the mapping of the program that ran before the exec.
    pub fn locate(&mut self, pid: u32, address: u64, time: u64) -> Result<MappingAt, Reason> {
        if let Some(mut found) = self.image(pid, time).and_then(|image| image.locate(address, time)) {
            if self.data == Data::Yes
                && let Some(image) = self.image(pid, time)
            {
                image.cut(&mut found, address, time);
            }
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
        if let Some(found) = self.processes.get(&pid).and_then(|process| process.locate_before_exec(address, time)) {
            return Ok(found);
        }
        match self.image(pid, time) {
            Some(image) if !image.mappings.is_empty() => Err(Reason::NotMapped),
            _ => Err(Reason::ProcessGone),
        }
    }

    /// Returns whether to read /proc/PID/maps for a mapping at `time`. The file shows only the mappings of the last
    /// image, and must not be read again within `READ_AGAIN`.
    fn may_read(&self, pid: u32, time: u64) -> bool {
        let Some(process) = self.processes.get(&pid) else { return true };
        let last = process.images.len() - 1;
        process.image_index_at(time) == last
            && process.images[last].read.is_none_or(|read| read.elapsed() >= READ_AGAIN)
    }

    /// Returns the jitdump files that are mapped in the image that a process executed at `time`.
    pub fn jitdumps(&self, pid: u32, time: u64) -> Vec<TimedMapping> {
        let Some(image) = self.image(pid, time) else { return Vec::new() };
        image.mappings.iter().filter(|known| super::jitdump::is_jitdump_name(&known.file.key.path)).cloned().collect()
    }

    /// Returns the number of processes that are kept.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Returns whether no process is known.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns whether the process is known to have exited.
    pub fn has_exited(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.exited.is_some())
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn entry(&mut self, pid: u32) -> &mut Process {
        let id = self.next_id();
        self.processes.entry(pid).or_insert_with(|| Process::new(Image::new(id, 0, ImageOrigin::Start)))
    }

    fn known(&mut self, time: u64, mapping: &Mapping) -> TimedMapping {
        let &Mapping { start, end, file_offset, .. } = mapping;
        TimedMapping { time, start, end, file_offset, file: self.file(FileKey::from_mapping(mapping)) }
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
        let backing = Backing::from_path(&key.path);
        let dso = match backing {
            Backing::Anonymous if key.path.as_os_str().is_empty() => "//anon".into(),
            // The kernel shows removed files with this suffix. The path without it may belong to another file now.
            Backing::File if key.deleted => format!("{} (deleted)", key.path.display()).into(),
            _ => key.path.to_string_lossy().into(),
        };
        let file = Arc::new(MappedFile { id, key: key.clone(), dso, backing });
        self.mapping_bytes += file.bytes();
        self.files.insert(key, Arc::clone(&file));
        file
    }

    /// Drops exited processes if there are more than the limits allow.
    fn drop_oldest_exited(&mut self) {
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
        // A quarter is dropped at once, so that not every exit drops processes.
        let gone = exited.len().div_ceil(4);
        for &(_, pid) in &exited[..gone] {
            self.processes.remove(&pid);
        }
        self.exited -= gone;
    }
}

/// Returns each list of mappings once, even if several processes share it. The key is the pointer to the list.
fn shared_lists(processes: &FxHashMap<u32, Process>) -> FxHashMap<usize, Arc<Mappings>> {
    let images = processes.values().flat_map(|process| &process.images);
    images.map(|image| (Arc::as_ptr(&image.mappings) as usize, Arc::clone(&image.mappings))).collect()
}

/// Returns the greatest length `n` for which the lists have at most `total` entries together, if every list longer than
/// `n` is cut to `n` entries.
fn most_for_each(mut lengths: Vec<usize>, total: usize) -> usize {
    lengths.sort_unstable();
    let mut left = total;
    for (at, &length) in lengths.iter().enumerate() {
        let share = left / (lengths.len() - at);
        if length > share {
            return share;
        }
        left -= length;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::Contents;

    fn mapping(start: u64, path: &str) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            file_offset: 0,
            device: (8, 1),
            inode: start,
            generation: 0,
            path: path.into(),
            deleted: false,
            executable: true,
            build_id: None,
        }
    }

    fn exact(processes: &Processes) -> usize {
        let lists = shared_lists(&processes.processes);
        let files: usize = processes.files.values().map(|file| file.bytes()).sum();
        files + lists.values().map(|list| list.len()).sum::<usize>() * MAPPING_BYTES
    }

    /// As in perf, if a mapping replaces the middle of an earlier mapping, two parts of the earlier mapping are left.
    #[test]
    fn mappings_of_data_are_found_if_they_are_kept() {
        let of = |start: u64, end: u64, executable| Mapping { end, executable, ..mapping(start, "/lib") };
        let mappings = [of(0x1000, 0x9000, false), of(0x3000, 0x5000, true), of(0x6000, 0x7000, false)];
        let check = |data, at, time, expected: Option<(u64, u64, u64, Contents)>| {
            let mut processes = Processes::new(ProcessOrigin::Recording, data);
            for (time, mapping) in (10..).zip(&mappings) {
                processes.mmap(1, time, mapping);
            }
            let found = processes.locate(1, at, time).ok().map(|found| found.mapping);
            let found = found.map(|found| (found.start, found.end, found.file_offset, found.file.key.contents));
            assert_eq!(found, expected, "{at:x} {time}");
        };
        check(Data::Yes, 0x2000, 20, Some((0x1000, 0x3000, 0, Contents::Data)));
        check(Data::Yes, 0x4000, 20, Some((0x3000, 0x5000, 0, Contents::Code)));
        check(Data::Yes, 0x5000, 20, Some((0x5000, 0x6000, 0x4000, Contents::Data)));
        check(Data::Yes, 0x8000, 20, Some((0x7000, 0x9000, 0x6000, Contents::Data)));
        check(Data::Yes, 0x8000, 11, Some((0x5000, 0x9000, 0x4000, Contents::Data)));
        check(Data::No, 0x4000, 20, Some((0x3000, 0x5000, 0, Contents::Code)));
        check(Data::No, 0x2000, 20, None);
    }

    #[test]
    fn all_processes_together_keep_a_bounded_number_of_mappings() {
        let mut processes = Processes::new(ProcessOrigin::Recording, Data::No);
        processes.mmap(1, 1, &mapping(0x5000, "/small"));
        let mut parent = Image::new(1_000_000, 0, ImageOrigin::Start);
        let file = processes.file(FileKey::from_mapping(&mapping(0, "/many")));
        let known = |at: u64| TimedMapping {
            time: 1,
            start: at << 13,
            end: (at << 13) + 4096,
            file_offset: 0,
            file: file.clone(),
        };
        parent.mappings = Arc::new((0..60_000).map(known).collect::<Vec<_>>().into());
        processes.note_growth(parent.own_bytes());
        processes.processes.insert(2, Process::new(parent));
        // Each child adds a mapping, so its list is no longer shared with the parent.
        for child in 3..203 {
            processes.forked(2, child, u64::from(child));
            processes.mmap(child, u64::from(child), &mapping(1 << 40, "/own"));
            assert!(exact(&processes) <= processes.mapping_bytes, "{child}");
        }
        assert!(processes.mapping_bytes <= MAPPING_BYTES_LIMIT && exact(&processes) <= MAPPING_BYTES_LIMIT);
        // Of each process, the newest mapping is kept. Of the process with few mappings, all mappings are kept.
        assert!((3..203).all(|child| processes.locate(child, 1 << 40, 1000).is_ok()));
        assert!(processes.locate(1, 0x5000, 1000).is_ok());
    }

    #[test]
    fn long_paths_count_too() {
        let mut processes = Processes::new(ProcessOrigin::Recording, Data::No);
        let long = "/long".repeat(800);
        for at in 0..20_000 {
            processes.mmap(1 + at / 5000, 1, &mapping(u64::from(at) << 12, &format!("{long}{at}")));
        }
        assert!(exact(&processes) <= MAPPING_BYTES_LIMIT, "{}", exact(&processes));
        assert!(processes.locate(4, 19_999 << 12, 1000).is_ok());
    }

    #[test]
    fn only_long_lists_are_cut() {
        assert_eq!(most_for_each(vec![10, 100, 50], 100), 45);
        assert_eq!(most_for_each(vec![10, 10], 20), usize::MAX);
        assert_eq!(most_for_each(vec![10, 10], 19), 9);
        assert_eq!(most_for_each(Vec::new(), 0), usize::MAX);
    }
}
