//! All open binaries, by the file that processes have mapped. Processes that map the same file share one object. The
//! memory and the number of open files are limited.

use std::{
    os::unix::fs::MetadataExt,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{
    Reason, elf::Elf, mapping_history::TimedMapping, maps::Backing, object::Object, open::open, options::Data,
    recorded_binaries::RecordedBinaries, vdso,
};

/// The maximum number of open files. The least recently used file is closed first.
const HANDLES_LIMIT: usize = 256;
/// The maximum number of entries in `by_file`. When it is reached, all entries are dropped.
const FILES_LIMIT: usize = 1 << 15;
/// The minimum time between two attempts to open a file that could not be opened.
const RETRY: Duration = Duration::from_secs(1);

/// The open binaries.
#[derive(Debug)]
pub struct Objects {
    objects: FxHashMap<u64, Entry>,
    by_key: FxHashMap<BinaryIdentity, u64>,
    /// The result of opening each file, by the id of the mapped file: the id of its object, or the reason why it could
    /// not be opened and the time of the last attempt.
    by_file: FxHashMap<u64, Result<u64, (Reason, Instant)>>,
    ids: u64,
    clock: u64,
    limit: usize,
    bytes: usize,
    /// Finds the binaries of a recording. `None` for processes of this machine.
    recorded: Option<RecordedBinaries>,
    /// Whether symbols of data are read too.
    data: Data,
}

#[derive(Debug)]
struct Entry {
    object: Object,
    keys: Vec<BinaryIdentity>,
    used: u64,
    /// The memory that the object took after its last use, in bytes.
    bytes: usize,
    /// The part of `bytes` that `Object::unload` would free.
    loaded: usize,
}

impl Entry {
    /// Computes how much memory the object takes, and stores and returns the result.
    fn measure(&mut self) -> usize {
        self.loaded = self.object.bytes();
        self.bytes = self.loaded + self.object.header_bytes();
        self.bytes
    }
}

/// The property by which two files are known to be the same binary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BinaryIdentity {
    BuildId(Arc<[u8]>),
    File { device: u64, inode: u64, size: u64, modified: (i64, i64) },
    Vdso,
}

impl Objects {
    /// Creates a value without binaries. `limit` is the maximum memory for symbols and debug information, in bytes.
    /// `data` says whether symbols of data are read too.
    pub fn new(limit: usize, data: Data) -> Self {
        Self {
            objects: FxHashMap::default(),
            by_key: FxHashMap::default(),
            by_file: FxHashMap::default(),
            ids: 0,
            clock: 0,
            limit,
            bytes: 0,
            recorded: None,
            data,
        }
    }

    /// From now on, opens the binaries of a recording.
    pub fn set_recorded(&mut self, recorded: RecordedBinaries) {
        self.recorded = Some(recorded);
    }

    /// Returns whether the binaries belong to a recording.
    pub fn are_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Returns the build id that a recording contains for the file of a mapping. The file may be missing on this
    /// machine.
    pub fn recorded_build_id(&self, known: &TimedMapping) -> Option<Arc<[u8]>> {
        self.recorded.as_ref()?.build_id(known)
    }

    /// Returns the id of the object for the file of a mapping, for [`Objects::with_object`]. Opens the file if it is
    /// not open.
    pub fn object_id(&mut self, pid: u32, known: &TimedMapping) -> Result<u64, Reason> {
        // The vdso has the same name in all processes, so it has the same file id in all processes. But a 32-bit
        // process has a different vdso.
        if known.file.backing == Backing::Vdso && !vdso::is_ours(known.start, known.end) {
            return Err(Reason::OtherVdso);
        }
        match self.by_file.get(&known.file.id) {
            Some(Ok(id)) if self.objects.contains_key(id) => return Ok(*id),
            Some(Err((reason, tried))) if tried.elapsed() < RETRY => return Err(reason.clone()),
            _ => {}
        }
        let found = self.open(pid, known);
        if self.by_file.len() >= FILES_LIMIT {
            self.by_file.clear();
        }
        self.by_file.insert(known.file.id, found.clone().map_err(|reason| (reason, Instant::now())));
        found
    }

    fn open(&mut self, pid: u32, known: &TimedMapping) -> Result<u64, Reason> {
        let expected: Option<Arc<[u8]>> = known.file.key.build_id.as_deref().map(Arc::from);
        if let Some(&id) = expected.as_ref().and_then(|id| self.by_key.get(&BinaryIdentity::BuildId(Arc::clone(id)))) {
            return Ok(id);
        }
        if let Some(recorded) = &self.recorded {
            let elf = recorded.open(known)?;
            let keys: Vec<BinaryIdentity> =
                elf.build_id.iter().map(|id| BinaryIdentity::BuildId(Arc::clone(id))).collect();
            if let Some(&id) = keys.first().and_then(|key| self.by_key.get(key)) {
                return Ok(id);
            }
            return Ok(self.add(Object::new(elf, known.file.key.path.clone(), Default::default()), keys));
        }
        if known.file.backing == Backing::Vdso {
            return match self.by_key.get(&BinaryIdentity::Vdso) {
                Some(&id) => Ok(id),
                None => Ok(self
                    .add(Object::new(vdso::read()?, "[vdso]".into(), Default::default()), vec![BinaryIdentity::Vdso])),
            };
        }
        let path = &known.file.key.path;
        let wrong = |error: String| Reason::Damaged { path: path.display().to_string(), error };
        let opened = open(pid, known)?;
        let metadata = opened.file.metadata().map_err(|error| wrong(error.to_string()))?;
        let key = BinaryIdentity::File {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        // If no build id is expected, the key of the file identifies the object. Otherwise the build id has to be read
        // from the file first.
        if let (Some(&id), None) = (self.by_key.get(&key), &expected) {
            return Ok(id);
        }
        let elf = Elf::of_file(opened.file).map_err(|error| wrong(error.to_string()))?;
        if elf.bytes() > self.limit {
            return Err(Reason::TooLarge { path: path.display().to_string(), bytes: elf.bytes() as u64 });
        }
        if expected.is_some() && elf.build_id != expected {
            return Err(Reason::Replaced { path: path.display().to_string() });
        }
        let mut keys = vec![key];
        if let Some(build_id) = &elf.build_id {
            let key = BinaryIdentity::BuildId(Arc::clone(build_id));
            if let Some(&id) = self.by_key.get(&key) {
                return Ok(id);
            }
            keys.push(key);
        }
        Ok(self.add(Object::new(elf, path.clone(), opened.root), keys))
    }

    fn add(&mut self, mut object: Object, keys: Vec<BinaryIdentity>) -> u64 {
        object.data = self.data;
        if self.objects.len() >= HANDLES_LIMIT {
            self.drop_oldest(None);
        }
        self.ids += 1;
        self.by_key.extend(keys.iter().map(|key| (key.clone(), self.ids)));
        self.clock += 1;
        let mut entry = Entry { object, keys, used: self.clock, bytes: 0, loaded: 0 };
        self.bytes += entry.measure();
        self.objects.insert(self.ids, entry);
        self.make_room(self.ids);
        self.ids
    }

    /// Closes the least recently used file except `kept`. Returns whether there was such a file.
    fn drop_oldest(&mut self, kept: Option<u64>) -> bool {
        let others = self.objects.iter().filter(|(id, _)| Some(**id) != kept);
        let Some((&id, _)) = others.min_by_key(|(_, entry)| entry.used) else { return false };
        if let Some(gone) = self.objects.remove(&id) {
            self.bytes -= gone.bytes;
            for key in &gone.keys {
                self.by_key.remove(key);
            }
        }
        true
    }

    /// Frees memory until all objects together are within the limit. First unloads objects, whose files stay open. If
    /// this is not enough, closes files. The object `kept` stays as it is.
    fn make_room(&mut self, kept: u64) {
        while self.bytes > self.limit {
            let loaded = self.objects.iter_mut().filter(|(id, entry)| **id != kept && entry.loaded > 0);
            if let Some((_, oldest)) = loaded.min_by_key(|(_, entry)| entry.used) {
                oldest.object.unload();
                self.bytes -= oldest.bytes;
                self.bytes += oldest.measure();
            } else if !self.drop_oldest(Some(kept)) {
                break;
            }
        }
    }

    /// Calls `ask` with the object `id` and the memory limit. The object may read its file. Afterwards, if all objects
    /// together take too much memory, other objects are unloaded or closed. The object `id` stays, because it is likely
    /// to be used next, and its own memory is within the limit.
    pub fn with_object<R>(&mut self, id: u64, ask: impl FnOnce(&mut Object, usize) -> R) -> Option<R> {
        self.clock += 1;
        let limit = self.limit;
        let entry = self.objects.get_mut(&id)?;
        entry.used = self.clock;
        let answer = ask(&mut entry.object, limit);
        if entry.object.bytes() > limit {
            entry.object.forget_names();
        }
        self.bytes -= entry.bytes;
        self.bytes += entry.measure();
        self.make_room(id);
        Some(answer)
    }

    /// Returns the memory that symbols, debug information and the headers of files use, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
