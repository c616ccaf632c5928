//! All binaries that are open, by the files that processes mapped: one object for all that map the same, within a bound of
//! memory and of open files.

use std::{
    os::unix::fs::MetadataExt,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{Reason, elf::Elf, maps::Backing, object::Object, open::open, process::Known, vdso};

/// Open files that are kept; what nobody asked for longest goes first.
const HANDLES_LIMIT: usize = 256;
/// Files whose way to an object is remembered.
const FILES_LIMIT: usize = 1 << 15;
/// A file that could not be opened is not tried again before that.
const RETRY: Duration = Duration::from_secs(1);

/// The binaries.
#[derive(Debug)]
pub struct Objects {
    objects: FxHashMap<u64, Entry>,
    by_key: FxHashMap<Key, u64>,
    /// By the id of a mapped file.
    by_file: FxHashMap<u64, Result<u64, (Reason, Instant)>>,
    ids: u64,
    clock: u64,
    limit: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    object: Object,
    keys: Vec<Key>,
    used: u64,
    bytes: usize,
}

/// What tells that two files are one binary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    BuildId(Arc<[u8]>),
    File { device: u64, inode: u64, size: u64, modified: (i64, i64) },
    Vdso,
}

impl Objects {
    /// None yet; `limit` bounds the bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self {
            objects: FxHashMap::default(),
            by_key: FxHashMap::default(),
            by_file: FxHashMap::default(),
            ids: 0,
            clock: 0,
            limit,
            bytes: 0,
        }
    }

    /// The object of a mapping's file, for `of`. Opens it if nobody has yet.
    pub fn find(&mut self, pid: u32, known: &Known) -> Result<u64, Reason> {
        // All processes' have the same name, and so the same id.
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

    fn open(&mut self, pid: u32, known: &Known) -> Result<u64, Reason> {
        let expected: Option<Arc<[u8]>> = known.file.key.build_id.as_deref().map(Arc::from);
        if let Some(&id) = expected.as_ref().and_then(|id| self.by_key.get(&Key::BuildId(Arc::clone(id)))) {
            return Ok(id);
        }
        if known.file.backing == Backing::Vdso {
            return match self.by_key.get(&Key::Vdso) {
                Some(&id) => Ok(id),
                None => Ok(self.add(Object::new(vdso::read()?, "[vdso]".into(), Default::default()), vec![Key::Vdso])),
            };
        }
        let path = &known.file.key.path;
        let wrong = |error: String| Reason::Damaged { path: path.display().to_string(), error };
        let opened = open(pid, known)?;
        let metadata = opened.file.metadata().map_err(|error| wrong(error.to_string()))?;
        let key = Key::File {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        // Without an expectation the same file is the same binary; with one it has to be read what it is.
        if let (Some(&id), None) = (self.by_key.get(&key), &expected) {
            return Ok(id);
        }
        let elf = Elf::of_file(opened.file).map_err(|error| wrong(error.to_string()))?;
        if expected.is_some() && elf.build_id != expected {
            return Err(Reason::Replaced { path: path.display().to_string() });
        }
        let mut keys = vec![key];
        if let Some(build_id) = &elf.build_id {
            let key = Key::BuildId(Arc::clone(build_id));
            if let Some(&id) = self.by_key.get(&key) {
                return Ok(id);
            }
            keys.push(key);
        }
        Ok(self.add(Object::new(elf, path.clone(), opened.root), keys))
    }

    fn add(&mut self, object: Object, keys: Vec<Key>) -> u64 {
        if self.objects.len() >= HANDLES_LIMIT
            && let Some((&id, _)) = self.objects.iter().min_by_key(|(_, entry)| entry.used)
            && let Some(gone) = self.objects.remove(&id)
        {
            self.bytes -= gone.bytes;
            for key in &gone.keys {
                self.by_key.remove(key);
            }
        }
        self.ids += 1;
        self.by_key.extend(keys.iter().map(|key| (key.clone(), self.ids)));
        self.clock += 1;
        self.objects.insert(self.ids, Entry { object, keys, used: self.clock, bytes: 0 });
        self.ids
    }

    /// Asks an object for something that may make it read; others are unloaded when that is too much together. This one
    /// never is, as it is the one that is asked next: it admits no more than the limit.
    pub fn of<R>(&mut self, id: u64, ask: impl FnOnce(&mut Object, usize) -> R) -> Option<R> {
        self.clock += 1;
        let entry = self.objects.get_mut(&id)?;
        entry.used = self.clock;
        let answer = ask(&mut entry.object, self.limit);
        if entry.object.bytes() > self.limit {
            entry.object.forget_names();
        }
        let bytes = entry.object.bytes();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        while self.bytes > self.limit {
            let loaded = self.objects.iter_mut().filter(|(of, entry)| **of != id && entry.bytes > 0);
            let Some((_, oldest)) = loaded.min_by_key(|(_, entry)| entry.used) else { break };
            oldest.object.unload();
            self.bytes -= std::mem::take(&mut oldest.bytes);
        }
        Some(answer)
    }

    /// Bytes of memory that symbols and debug information take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
