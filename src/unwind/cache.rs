//! Unwind information of files, kept as long as there is room, and the rules of addresses asked for lately. Knows no stack.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    Arch, FileKey, Mapping, Missing, Modules,
    rule::{Context, Entry, Rule, Rules, TableRow},
};

/// What a file takes of which nothing could be read: that too is remembered.
const EMPTY: usize = 256;

/// A file that could not be opened is not tried again before that. Not being able to is no knowledge of the file: its
/// process may have been about to exit, and another one map it later.
const RETRY: Duration = Duration::from_secs(1);

/// The files whose unwind information was asked for.
#[derive(Debug)]
pub(super) struct Cache {
    arch: &'static Arch,
    files: HashMap<FileKey, Known>,
    bytes: usize,
    limit: usize,
    /// Counts the uses, for what was not used the longest.
    uses: u64,
    /// Counts the files that were read.
    reads: u64,
    retry: Duration,
    recent: Vec<Recent>,
    context: Context,
}

/// What is known of a file.
#[derive(Debug)]
struct Known {
    /// No other file has it, and it does not come again when the file is read again.
    number: u64,
    used: u64,
    bytes: usize,
    read: Instant,
    own: Result<Rules, Missing>,
    /// Of the separate debug file, once that was looked for.
    debug: Option<Option<Rules>>,
}

impl Known {
    fn holds(&self, retry: Duration) -> bool {
        !matches!(self.own, Err(Missing::Unreadable)) || self.read.elapsed() < retry
    }
}

/// A rule that was found lately.
#[derive(Clone, Copy, Debug)]
struct Recent {
    file: u64,
    place: u64,
    rule: Result<Rule, Missing>,
}

/// How many rules are remembered: those of some hundred stacks.
const RECENT: usize = 1 << 12;

impl Cache {
    pub(super) fn new(arch: &'static Arch, limit: usize) -> Cache {
        let none = Recent { file: 0, place: 0, rule: Err(Missing::NoEntry) };
        Cache {
            arch,
            files: HashMap::new(),
            bytes: 0,
            limit,
            uses: 0,
            reads: 0,
            retry: RETRY,
            recent: vec![none; RECENT],
            context: Context::new(),
        }
    }

    /// How many bytes the files' unwind information takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rule at an address of a mapping.
    pub(super) fn rule(&mut self, modules: &dyn Modules, mapping: &Mapping, address: u64) -> Result<Rule, Missing> {
        let key = mapping.file.ok_or(Missing::NoFile)?;
        let place = mapping.offset.wrapping_add(address.wrapping_sub(mapping.start));
        self.uses += 1;
        let uses = self.uses;
        let number = match self.files.get_mut(&key) {
            Some(known) if known.holds(self.retry) => {
                known.used = uses;
                known.number
            }
            _ => self.read(modules, key, address),
        };
        // Neighbouring addresses get neighbouring places: a multiplication would only spread them over more memory.
        let slot = (place ^ number << 5) as usize % RECENT;
        let recent = self.recent[slot];
        if recent.file == number && recent.place == place {
            return recent.rule;
        }
        let rule = self.look_up(modules, key, place, address);
        self.recent[slot] = Recent { file: number, place, rule };
        rule
    }

    /// Gives the rules at an address as they stand in the section.
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

    /// Reads a file's unwind information and gives its number.
    fn read(&mut self, modules: &dyn Modules, key: FileKey, address: u64) -> u64 {
        let image = modules.open(address).map_err(|_| Missing::Unreadable);
        let own = image.and_then(|image| Rules::read(&image, self.arch, self.limit));
        let bytes = own.as_ref().map_or(EMPTY, Rules::bytes);
        self.make_room(bytes);
        self.reads += 1;
        self.bytes += bytes;
        // A new number, so that nothing of the last try is remembered.
        let known = Known { number: self.reads, used: self.uses, bytes, read: Instant::now(), own, debug: None };
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
            let rules = image.and_then(|image| Rules::read(&image, self.arch, self.limit).ok());
            let bytes = rules.as_ref().map_or(0, Rules::bytes);
            known.bytes += bytes;
            known.debug = Some(rules);
            self.bytes += bytes;
            self.make_room(0);
        }
        // It may have been the one to go.
        let debug = self.files.get(&key).and_then(|known| known.debug.as_ref()?.as_ref());
        let Some(debug) = debug else { return Err(missing) };
        debug.rule(self.arch, at, &mut self.context).map_err(|_| missing)
    }

    /// Forgets files that were not used for long, a quarter of all bytes at once, so that it is done seldom.
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

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs::File, io};

    use super::*;
    use crate::unwind::Image;

    /// This program, whose file can be opened at times.
    struct Own {
        readable: Cell<bool>,
        opened: Cell<usize>,
    }

    impl Modules for Own {
        fn mapping(&self, code: u64) -> Option<Mapping> {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().find_map(|line| {
                let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
                let mut words = line.split_whitespace();
                let (start, end) = words.next()?.split_once('-')?;
                let (start, end, offset) = (number(start), number(end), number(words.nth(1)?));
                let mapping = Mapping { start, end, offset, file: Some(FileKey([7, 0, 0, 0])) };
                mapping.contains(code).then_some(mapping)
            })
        }

        fn open(&self, _: u64) -> io::Result<Image> {
            self.opened.set(self.opened.get() + 1);
            if self.readable.get() {
                Ok(Image::File(File::open("/proc/self/exe")?))
            } else {
                Err(io::Error::other("gone"))
            }
        }
    }

    #[test]
    fn a_file_that_could_not_be_opened_is_tried_again() {
        let Some(arch) = Arch::native() else { return println!("skipped: no rules for this processor") };
        let own = Own { readable: Cell::new(false), opened: Cell::new(0) };
        let code = Cache::new as *const () as u64 + 4;
        let mapping = own.mapping(code).unwrap();
        let mut cache = Cache::new(arch, 64 << 20);
        for _ in 0..3 {
            assert!(matches!(cache.rule(&own, &mapping, code), Err(Missing::Unreadable)));
        }
        // Not for each address.
        assert_eq!(own.opened.get(), 1);
        cache.retry = Duration::ZERO;
        assert!(matches!(cache.rule(&own, &mapping, code), Err(Missing::Unreadable)));
        own.readable.set(true);
        assert!(cache.rule(&own, &mapping, code).is_ok());
        assert_eq!(cache.bytes(), cache.files.values().map(|known| known.bytes).sum::<usize>());
        // What was read holds.
        assert!(cache.rule(&own, &mapping, code).is_ok());
        assert_eq!(own.opened.get(), 3);
    }
}
