//! Caches the unwind information of files, and the rules of recently used addresses.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    Arch, FileKey, Mapping, Missing, Modules,
    rule::{Context, Entry, Rule, Rules, TableRow},
};

/// The number of bytes that the cache counts for a file without readable unwind information. The cache contains such
/// files so that they are not opened again for each address.
const EMPTY: usize = 256;

/// The minimum time between two attempts to open a file that could not be opened. A later attempt may succeed: the
/// process may have been exiting, and another process may have mapped the file since.
const RETRY: Duration = Duration::from_secs(1);

/// A cache of the unwind information of files.
#[derive(Debug)]
pub(super) struct Cache {
    arch: &'static Arch,
    files: HashMap<FileKey, CachedFile>,
    bytes: usize,
    limit: usize,
    /// The number of lookups so far. This number serves as a clock, to find the least recently used file.
    uses: u64,
    /// The number of files that were read so far. Each reading of a file gets its unique number from this counter.
    reads: u64,
    recent: Vec<RecentRule>,
    context: Context,
}

/// The cached unwind information of a file.
#[derive(Debug)]
struct CachedFile {
    /// The unique number of this reading of the file. If the file is read again, it gets a new number.
    number: u64,
    used: u64,
    bytes: usize,
    read: Instant,
    own: Result<Rules, Missing>,
    /// The rules of the separate debug file. `None` before the search for this file, `Some(None)` if there is no such
    /// file.
    debug: Option<Option<Rules>>,
}

impl CachedFile {
    fn holds(&self) -> bool {
        !matches!(self.own, Err(Missing::Unreadable)) || self.read.elapsed() < RETRY
    }
}

/// A rule that was found recently.
#[derive(Clone, Copy, Debug)]
struct RecentRule {
    file: u64,
    place: u64,
    rule: Result<Rule, Missing>,
}

/// The number of recently used rules in the cache, enough for a few hundred stacks.
const RECENT: usize = 1 << 12;

impl Cache {
    pub(super) fn new(arch: &'static Arch, limit: usize) -> Cache {
        let none = RecentRule { file: 0, place: 0, rule: Err(Missing::NoEntry) };
        Cache {
            arch,
            files: HashMap::new(),
            bytes: 0,
            limit,
            uses: 0,
            reads: 0,
            recent: vec![none; RECENT],
            context: Context::new(),
        }
    }

    /// Returns the memory that the unwind information of files takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the rule for an address in a mapping.
    pub(super) fn rule(&mut self, modules: &dyn Modules, mapping: &Mapping, address: u64) -> Result<Rule, Missing> {
        let key = mapping.file.ok_or(Missing::NoFile)?;
        let place = mapping.offset.wrapping_add(address.wrapping_sub(mapping.start));
        self.uses += 1;
        let uses = self.uses;
        let number = match self.files.get_mut(&key) {
            Some(known) if known.holds() => {
                known.used = uses;
                known.number
            }
            _ => self.read(modules, key, address),
        };
        // Neighboring addresses get neighboring slots. A multiplicative hash would spread them over more memory.
        let slot = (place ^ number << 5) as usize % RECENT;
        let recent = self.recent[slot];
        if recent.file == number && recent.place == place {
            return recent.rule;
        }
        let rule = self.look_up(modules, key, place, address);
        self.recent[slot] = RecentRule { file: number, place, rule };
        rule
    }

    /// Calls `then` with the row of the unwind section for `address`.
    pub(super) fn with_row<T>(
        &mut self,
        mapping: &Mapping,
        address: u64,
        then: impl FnOnce(&TableRow, Entry<'_>) -> T,
    ) -> Option<T> {
        let known = self.files.get(&mapping.file?)?;
        let own = known.own.as_ref().ok()?;
        let address = own.address(mapping.offset.wrapping_add(address.wrapping_sub(mapping.start)))?;
        let mut then = Some(then);
        for rules in [own].into_iter().chain(known.debug.iter().flatten()) {
            let done =
                rules.with_row(address, &mut self.context, |row, entry| then.take().map(|then| then(row, entry)));
            if let Some(done) = done {
                return done;
            }
        }
        None
    }

    /// Reads a file's unwind information and returns its number.
    fn read(&mut self, modules: &dyn Modules, key: FileKey, address: u64) -> u64 {
        let image = modules.open(address).map_err(|_| Missing::Unreadable);
        let own = image.and_then(|image| Rules::read(image, self.arch, self.limit));
        let bytes = own.as_ref().map_or(EMPTY, Rules::bytes);
        self.make_room(bytes);
        self.reads += 1;
        self.bytes += bytes;
        // The file has a new number, so that cached rules from the previous reading are not used.
        let known = CachedFile { number: self.reads, used: self.uses, bytes, read: Instant::now(), own, debug: None };
        if let Some(before) = self.files.insert(key, known) {
            self.bytes -= before.bytes;
        }
        self.reads
    }

    fn look_up(&mut self, modules: &dyn Modules, key: FileKey, place: u64, address: u64) -> Result<Rule, Missing> {
        let known = self.files.get_mut(&key).ok_or(Missing::NoFile)?;
        let own = known.own.as_ref().map_err(|&why| why)?;
        let at = own.address(place).ok_or(Missing::NoEntry)?;
        let missing = match own.rule(self.arch, at, &mut self.context) {
            Ok(rule) => return Ok(rule),
            Err(why) => why,
        };
        if known.debug.is_none() {
            let image = modules.open_debug(address);
            let rules = image.and_then(|image| Rules::read(image, self.arch, self.limit).ok());
            let bytes = rules.as_ref().map_or(0, Rules::bytes);
            known.bytes += bytes;
            known.debug = Some(rules);
            self.bytes += bytes;
            self.make_room(0);
        }
        // [`Cache::make_room`] may have removed this file from the cache.
        let debug = self.files.get(&key).and_then(|known| known.debug.as_ref()?.as_ref());
        let Some(debug) = debug else { return Err(missing) };
        debug.rule(self.arch, at, &mut self.context).map_err(|_| missing)
    }

    /// Removes the least recently used files if there is no room for `bytes` more bytes. If files are removed, a
    /// quarter of the limit is freed in addition, so that this happens rarely.
    fn make_room(&mut self, bytes: usize) {
        if self.bytes.saturating_add(bytes) <= self.limit {
            return;
        }
        let wanted = (self.limit - self.limit / 4).saturating_sub(bytes);
        let mut oldest: Vec<_> = self.files.iter().map(|(&key, known)| (known.used, key)).collect();
        oldest.sort_unstable();
        for (_, key) in oldest {
            if self.bytes <= wanted {
                return;
            }
            if let Some(known) = self.files.remove(&key) {
                self.bytes -= known.bytes;
            }
        }
    }
}
