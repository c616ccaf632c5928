//! Addresses of processes to names, through everything that this room knows.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    Reason, Slot,
    dwarf::DwarfFrame,
    jit::Jit,
    maps::{Backing, Mapping},
    nameless::Nameless,
    object::shown,
    objects::Objects,
    options::{Inline, Options, Srcline},
    process::{Known, Located},
    processes::{Processes, Whose},
    recorded::Recorded,
};

/// What a frame's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The instruction that was executed.
    Exact,
    /// The one after a call. After a call that never returns, at a function's end, that is the next function's first.
    Return,
}

impl Place {
    fn back(self) -> u64 {
        u64::from(self == Self::Return)
    }
}

/// All that is known of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The function, or why there is none.
    pub symbol: Result<Name, Reason>,
    /// The file's path as the process sees it; `[vdso]`, `//anon`; `[unknown]` for what is in no mapping.
    pub dso: Arc<str>,
    /// The place in the file.
    pub dso_offset: u64,
    /// What the file was built from.
    pub build_id: Option<Arc<[u8]>>,
    /// With `Inline::Yes` the functions that were inlined into `symbol` there, innermost first.
    pub inlined: Vec<InlinedFrame>,
    /// With `Srcline::Yes` file and line. Where inlined functions are told: of the call in `symbol`.
    pub srcline: Option<(Arc<str>, u32)>,
    /// For who asked: a result that is kept keeps this too.
    pub slot: Slot,
}

/// A function, and how far an address is behind its begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its name.
    pub name: Arc<str>,
    /// The distance.
    pub offset: u64,
}

/// A function that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedFrame {
    /// Its name.
    pub name: Arc<str>,
    /// The source file; empty when that is not known.
    pub file: Arc<str>,
    /// The line, 0 when that is not known.
    pub line: u32,
}

/// Resolves addresses of processes. It has no threads and waits for nothing but files.
#[derive(Debug)]
pub struct Symbolizer {
    options: Options,
    processes: Processes,
    objects: Objects,
    jit: Jit,
    /// By image, address and place: what was resolved, and when it holds. Two generations: when the young one is full it
    /// becomes the old one, so that what is asked for again stays.
    young: FxHashMap<(u64, u64, Place), Cached>,
    old: FxHashMap<(u64, u64, Place), Cached>,
    /// How many each of the two may have.
    results_limit: usize,
    nameless: Nameless,
    /// Shared, so that each miss costs no memory.
    unknown: Arc<str>,
}

#[derive(Clone, Debug)]
struct Cached {
    from: u64,
    until: u64,
    resolved: Arc<Resolved>,
}

impl Cached {
    fn holds(&self, time: u64) -> bool {
        self.from <= time && (time < self.until || self.until == u64::MAX)
    }
}

/// What a result takes: itself, its place in the table, its name, and what who asked keeps with it, a script's frame.
const RESULT: usize = 1024;

impl Symbolizer {
    /// Nothing is known yet. Of the memory, half is for binaries, a quarter for code made at run time, and the rest for
    /// results.
    pub fn new(options: Options) -> Self {
        let quarter = options.cache_bytes / 4;
        Self {
            options,
            processes: Processes::default(),
            objects: Objects::new(2 * quarter),
            jit: Jit::new(quarter),
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            results_limit: (quarter / RESULT / 2).max(64),
            nameless: Nameless::default(),
            unknown: "[unknown]".into(),
        }
    }

    /// Of processes of a recording, of which this machine knows nothing.
    pub fn recorded(mut self, recorded: Recorded) -> Self {
        self.processes = Processes::new(Whose::Recorded);
        self.objects.set_recorded(recorded);
        self
    }

    /// What is known of processes, to be told more.
    pub fn processes(&mut self) -> &mut Processes {
        &mut self.processes
    }

    /// Forgets a process: what was read of it is of a program that it does not execute any more.
    pub fn forget(&mut self, pid: u32) {
        self.processes.forget(pid);
        self.jit.forget(pid);
    }

    /// What had no names because a recording's binaries are not here.
    pub fn nameless_frames(&self) -> &Nameless {
        &self.nameless
    }

    pub(super) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// A process made a mapping. A file that is mapped for the first time is opened now, while the process is there.
    pub fn mmap(&mut self, pid: u32, time: u64, mapping: &Mapping) {
        if let Some(new) = self.processes.mmap(pid, time, mapping)
            && !self.objects.are_recorded()
        {
            // Why not is found out again when somebody asks for a name.
            let _ = self.objects.find(pid, &new);
        }
    }

    /// Resolves an address of a process at a time.
    #[inline]
    pub fn user(&mut self, pid: u32, address: u64, time: u64, place: Place) -> Arc<Resolved> {
        if let Some(image) = self.processes.image(pid, time)
            && let Some(hit) = self.young.get(&(image.id, address, place))
            && hit.holds(time)
        {
            return Arc::clone(&hit.resolved);
        }
        self.resolve(pid, address, time, place)
    }

    /// File and line of an address, whatever the options say, or why they are not known.
    pub fn srcline(&mut self, pid: u32, address: u64, time: u64, place: Place) -> Result<(Arc<str>, u32), Reason> {
        let frames = self.source_frames(pid, address, time, place)?;
        let innermost = frames.into_iter().next();
        line(innermost.as_ref()).ok_or(Reason::NoLine)
    }

    /// The functions that an address is in by DWARF, innermost first, the one that is no inlined one last.
    pub fn source_frames(
        &mut self,
        pid: u32,
        address: u64,
        time: u64,
        place: Place,
    ) -> Result<Vec<InlinedFrame>, Reason> {
        let at = address.wrapping_sub(place.back());
        let found = self.processes.locate(pid, at, time)?;
        let known = file_of(&found);
        let id = self.objects.find(pid, known)?;
        let frames = self.objects.of(id, |object, limit| {
            let address = object.address_of(offset_in(known, at)).ok_or(Reason::NotMapped)?;
            object.frames(address, limit)
        });
        Ok(self.inlined(frames.unwrap_or(Err(Reason::NotMapped))?))
    }

    /// Bytes of memory that symbols, debug information and results take, roughly.
    pub fn bytes(&self) -> usize {
        self.objects.bytes() + self.jit.bytes() + (self.young.len() + self.old.len()) * RESULT
    }

    fn inlined(&self, frames: Vec<DwarfFrame>) -> Vec<InlinedFrame> {
        let frame = |frame: DwarfFrame| InlinedFrame {
            name: shown(frame.name.as_deref().unwrap_or("[inlined]"), self.options.demangle),
            file: frame.file.unwrap_or_default().into(),
            line: frame.line.unwrap_or(0),
        };
        frames.into_iter().map(frame).collect()
    }

    #[cold]
    fn resolve(&mut self, pid: u32, address: u64, time: u64, place: Place) -> Arc<Resolved> {
        let at = address.wrapping_sub(place.back());
        let key = |image: u64| (image, address, place);
        if let Some(image) = self.processes.image(pid, time).map(|image| image.id)
            && let Some(hit) = self.old.remove(&key(image))
            && hit.holds(time)
        {
            return self.keep(key(image), hit);
        }
        let found = match self.processes.locate(pid, at, time) {
            Ok(found) => found,
            Err(reason) => return Arc::new(self.nameless(reason, at)),
        };
        let (resolved, keep) = self.located(pid, &found, at, time, place);
        let resolved = Arc::new(resolved);
        match self.processes.image(pid, time) {
            Some(image) if keep => {
                let from = if found.known.time <= time { found.known.time } else { 0 };
                let id = image.id;
                self.keep(key(id), Cached { from, until: found.until, resolved })
            }
            _ => resolved,
        }
    }

    fn keep(&mut self, key: (u64, u64, Place), cached: Cached) -> Arc<Resolved> {
        if self.young.len() >= self.results_limit {
            self.old = std::mem::take(&mut self.young);
        }
        let resolved = Arc::clone(&cached.resolved);
        self.young.insert(key, cached);
        resolved
    }

    fn nameless(&self, reason: Reason, at: u64) -> Resolved {
        Resolved {
            symbol: Err(reason),
            dso: Arc::clone(&self.unknown),
            dso_offset: at,
            build_id: None,
            inlined: Vec::new(),
            srcline: None,
            slot: Slot::default(),
        }
    }

    /// What is at an address whose mapping is known, and whether that will stay so.
    fn located(&mut self, pid: u32, found: &Located, at: u64, time: u64, place: Place) -> (Resolved, bool) {
        let known = &found.known;
        let mut resolved = Resolved {
            dso: Arc::clone(&known.file.dso),
            dso_offset: offset_in(known, at),
            ..self.nameless(Reason::NotMapped, at)
        };
        match known.file.backing {
            Backing::File | Backing::Vdso => match self.objects.find(pid, known) {
                Ok(id) => {
                    self.name(id, known, at, place, &mut resolved);
                    (resolved, true)
                }
                Err(reason) => {
                    // Code may be made in a file, too: in one that has no name, or in shared memory.
                    resolved.symbol = self.run_time_name(pid, time, at, place).map_err(|_| reason);
                    if let Err(reason) = &resolved.symbol {
                        self.nameless.add(reason);
                    }
                    (resolved, false)
                }
            },
            Backing::Anonymous => {
                resolved.symbol = self.run_time_name(pid, time, at, place);
                if resolved.symbol.is_err()
                    && let Some(below) = &found.below
                    && let Ok(id) = self.objects.find(pid, below)
                    && self.objects.of(id, |object, _| object.address_of(offset_in(below, at))).flatten().is_some()
                {
                    (resolved.dso, resolved.dso_offset) = (Arc::clone(&below.file.dso), offset_in(below, at));
                    self.name(id, below, at, place, &mut resolved);
                }
                // The process may make other code in its place at any time.
                (resolved, false)
            }
            Backing::Special => {
                resolved.symbol = Err(Reason::NoCode { mapping: known.file.dso.to_string() });
                (resolved, true)
            }
        }
    }

    fn run_time_name(&mut self, pid: u32, time: u64, at: u64, place: Place) -> Result<Name, Reason> {
        // perf maps and jitdumps that are here now are of processes of now.
        if self.objects.are_recorded() {
            return Err(Reason::NotRecorded);
        }
        let begin = self.processes.image(pid, time).map_or(0, |image| image.begin);
        let processes = &self.processes;
        let (start, name) = self.jit.lookup(pid, begin, at, || processes.jitdumps(pid, time))?;
        Ok(Name { name, offset: at + place.back() - start })
    }

    fn name(&mut self, id: u64, known: &Known, at: u64, place: Place, resolved: &mut Resolved) {
        let options = self.options;
        let ask = |object: &mut super::object::Object, limit: usize| {
            resolved.build_id = object.build_id().cloned();
            let address = match known.file.backing {
                // It is mapped as a whole, from its first byte.
                Backing::Vdso => at - known.start,
                _ => match object.address_of(resolved.dso_offset) {
                    Some(address) => address,
                    None => {
                        resolved.symbol = Err(Reason::NoFunction { path: known.file.dso.to_string() });
                        return Vec::new();
                    }
                },
            };
            resolved.symbol = object
                .name(address, options.demangle, limit)
                .map(|named| Name { name: named.name, offset: address - named.start + place.back() });
            match (options.inline, options.srcline) {
                (Inline::No, Srcline::No) => Vec::new(),
                _ => object.frames(address, limit).unwrap_or_default(),
            }
        };
        let mut frames = self.objects.of(id, ask).unwrap_or_default();
        let outer = if options.inline == Inline::Yes { frames.pop() } else { None };
        let of_line = if options.inline == Inline::Yes { outer.as_ref().cloned() } else { frames.first().cloned() };
        if options.srcline == Srcline::Yes {
            let of_line = self.inlined(of_line.into_iter().collect());
            resolved.srcline = line(of_line.first());
        }
        if options.inline == Inline::Yes {
            resolved.inlined = self.inlined(frames);
        }
    }
}

fn line(frame: Option<&InlinedFrame>) -> Option<(Arc<str>, u32)> {
    let frame = frame.filter(|frame| !frame.file.is_empty())?;
    Some((Arc::clone(&frame.file), frame.line))
}

/// The mapping whose file has the code: of code that was moved to huge pages the one that it came from.
fn file_of(found: &Located) -> &Known {
    found.below.as_ref().unwrap_or(&found.known)
}

fn offset_in(known: &Known, at: u64) -> u64 {
    match known.file.backing {
        // Their page offset is their address (perf_event_mmap_event() in kernel/events/core.c), or nothing.
        Backing::Vdso | Backing::Anonymous => at.wrapping_sub(known.start),
        _ => at.wrapping_sub(known.start).wrapping_add(known.file_offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_be_handed_to_another_thread() {
        fn send<T: Send>(_: &T) {}
        send(&Symbolizer::new(Options::default()));
    }
}
