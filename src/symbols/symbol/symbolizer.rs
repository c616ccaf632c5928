//! Resolves addresses of processes to names. It uses all other files of this folder.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    Extent, Reason, Slot,
    dwarf::DwarfFrame,
    jit::Jit,
    mapping_history::{Contents, MappingAt, TimedMapping},
    maps::{Backing, Mapping},
    object::styled_name,
    objects::Objects,
    options::{Inline, Options, Srcline},
    processes::{ProcessOrigin, Processes},
    recorded_binaries::RecordedBinaries,
    unnamed_frames::UnnamedFrames,
};

/// What the address of a frame refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// The instruction that was executed.
    Instruction,
    /// A return address, which is the instruction after a call. The return address may be in the next function: if the
    /// called function never returns, the call is the last instruction of its own function.
    Return,
}

impl AddressKind {
    fn lookup_distance(self) -> u64 {
        u64::from(self == Self::Return)
    }
}

/// What is known about an address. `D` is the type of the data that the caller derives from the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<D = ()> {
    /// The function, or the reason why it is not known.
    pub symbol: Result<Name, Reason>,
    /// The file's path as the process sees it, or a name such as `[vdso]` or `//anon`. `[unknown]` if the address is in
    /// no mapping.
    pub dso: Arc<str>,
    /// The offset of the address in the file, in bytes.
    pub dso_offset: u64,
    /// The mapping that contains the address.
    pub mapped: Option<Mapped>,
    /// The file's build id.
    pub build_id: Option<Arc<[u8]>>,
    /// With `Inline::Yes`: the functions that were inlined at this address into the function `symbol`, innermost first.
    pub inlined: Vec<InlinedFrame>,
    /// With `Srcline::Yes`: the source file and line of the address. With `Inline::Yes`, the line is in the function
    /// `symbol`, and `inlined` contains the lines in the inlined functions. Otherwise, the line is in the innermost
    /// function.
    pub srcline: Option<(Arc<str>, u32)>,
    /// Data that the caller derives from this result. It is cached together with the result.
    pub slot: Slot<D>,
}

/// The range and the contents of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after the last address of the mapping.
    pub end: u64,
    /// Where the mapping starts in its file, as it was recorded, in bytes. 0 for the vdso.
    pub file_offset: u64,
    /// The contents of the mapping.
    pub contents: Contents,
}

/// A function, and the offset of an address in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name of the function.
    pub name: Arc<str>,
    /// The offset of the address from the function's start, in bytes.
    pub offset: u64,
    /// The function's range and binding in its symbol table.
    pub extent: Extent,
}

/// A function that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedFrame {
    /// The function's name.
    pub name: Arc<str>,
    /// The source file; empty if it is not known.
    pub file: Arc<str>,
    /// The line; 0 if it is not known.
    pub line: u32,
}

/// Resolves addresses of processes. It starts no threads, and waits only for reads of files.
#[derive(Debug)]
pub struct Symbolizer<D = ()> {
    options: Options,
    processes: Processes,
    objects: Objects,
    jit: Jit,
    /// The cached results by image id, address and kind of address, each with the range of times in which it is valid.
    /// When `young` is full, it replaces `old`. A result in `old` that is used again moves to `young`, so that it is
    /// not dropped.
    young: FxHashMap<(u64, u64, AddressKind), Cached<D>>,
    old: FxHashMap<(u64, u64, AddressKind), Cached<D>>,
    /// The estimated memory of the results in `young` and in `old`, in bytes.
    young_bytes: usize,
    old_bytes: usize,
    /// The maximum memory of the results in `young`, and of the results in `old`, in bytes.
    results_limit: usize,
    nameless: UnnamedFrames,
    /// The dso `[unknown]`, which all results of addresses without a mapping share.
    unknown: Arc<str>,
}

#[derive(Debug)]
struct Cached<D> {
    from: u64,
    until: u64,
    resolved: Arc<Resolved<D>>,
}

impl<D> Cached<D> {
    fn holds(&self, time: u64) -> bool {
        self.from <= time && (time < self.until || self.until == u64::MAX)
    }
}

impl<D> Resolved<D> {
    /// Returns the estimated memory of the result in bytes, without the dso and the build id, which belong to the file.
    fn bytes(&self) -> usize {
        let name = self.symbol.as_ref().map_or(0, |symbol| symbol.name.len());
        let inlined: usize = self.inlined.iter().map(|frame| INLINED + frame.name.len() + frame.file.len()).sum();
        RESULT + name + inlined + self.srcline.as_ref().map_or(0, |(file, _)| file.len())
    }
}

/// The estimated memory of a result in bytes, without the text of its names. This includes the entry in the table, and
/// the data in the slot (frames for a script).
const RESULT: usize = 1024;
/// The estimated memory of an inlined function in a result in bytes, without the text of its name.
const INLINED: usize = 96;

impl Symbolizer {
    /// Creates a symbolizer for a caller that derives no data from results.
    pub fn new(options: Options) -> Self {
        Self::deriving(options)
    }
}

impl<D> Symbolizer<D> {
    /// Creates a symbolizer that knows no process yet. Half of the cache is for binaries, a quarter for functions that
    /// were generated at run time, and the rest for results.
    pub fn deriving(options: Options) -> Self {
        let quarter = options.cache_bytes / 4;
        Self {
            options,
            processes: Processes::default(),
            objects: Objects::new(2 * quarter, options.data),
            jit: Jit::new(quarter),
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            young_bytes: 0,
            old_bytes: 0,
            results_limit: (quarter / 2).max(64 * RESULT),
            nameless: UnnamedFrames::default(),
            unknown: "[unknown]".into(),
        }
    }

    /// Resolves addresses of processes in a recording from now on. This machine's procfs is not used for these
    /// processes.
    pub fn with_recorded_binaries(mut self, recorded: RecordedBinaries) -> Self {
        self.processes = Processes::new(ProcessOrigin::Recording, self.options.data);
        self.objects.set_recorded(recorded);
        self
    }

    /// Returns the known processes. The caller reports to them what processes do.
    pub fn processes(&mut self) -> &mut Processes {
        &mut self.processes
    }

    /// Forgets the mappings and the generated functions of a process, because the process now executes another program.
    pub fn forget(&mut self, pid: u32) {
        self.processes.forget(pid);
        self.jit.forget(pid);
    }

    /// Returns the numbers of frames without a name, for each recorded file that is missing on this machine.
    pub fn unnamed_frames(&self) -> &UnnamedFrames {
        &self.nameless
    }

    pub(super) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// Notes that a process made a mapping. The file is opened at its first mapping, while the process still exists.
    pub fn mmap(&mut self, pid: u32, time: u64, mapping: &Mapping) {
        if let Some(new) = self.processes.mmap(pid, time, mapping)
            && !self.objects.are_recorded()
        {
            // If opening fails, a later lookup of a name finds the reason again.
            let _ = self.objects.object_id(pid, &new);
        }
    }

    /// Resolves the address in a process at `time`.
    #[inline]
    pub fn user(&mut self, pid: u32, address: u64, time: u64, kind: AddressKind) -> Arc<Resolved<D>> {
        if let Some(image) = self.processes.image(pid, time)
            && let Some(hit) = self.young.get(&(image.id, address, kind))
            && hit.holds(time)
        {
            return Arc::clone(&hit.resolved);
        }
        self.resolve(pid, address, time, kind)
    }

    /// Returns the build id of the file that a process had at an address. Unlike [`Symbolizer::user`], counts no frame
    /// without a name.
    pub fn build_id(&mut self, pid: u32, address: u64, time: u64) -> Option<Arc<[u8]>> {
        let MappingAt { mapping, .. } = self.processes.locate(pid, address, time).ok()?;
        match self.objects.object_id(pid, &mapping) {
            Ok(id) => self.objects.with_object(id, |object, _| object.build_id().cloned())?,
            Err(_) => self.objects.recorded_build_id(&mapping),
        }
    }

    /// Returns the source file and line of an address, or the reason why they are not known. The result does not depend
    /// on `Options::inline` and `Options::srcline`.
    pub fn srcline(&mut self, pid: u32, address: u64, time: u64, kind: AddressKind) -> Result<(Arc<str>, u32), Reason> {
        let frames = self.source_frames(pid, address, time, kind)?;
        let innermost = frames.into_iter().next();
        line(innermost.as_ref()).ok_or(Reason::NoLine)
    }

    /// Returns the functions at an address according to DWARF, innermost first. All but the last are inlined. Returns none
    /// with `Inline::No`, and where no DWARF has the address.
    pub fn inlined_functions(&mut self, pid: u32, address: u64, time: u64, kind: AddressKind) -> Vec<InlinedFrame> {
        match self.options.inline {
            Inline::No => Vec::new(),
            Inline::Yes | Inline::OnRequest => self.source_frames(pid, address, time, kind).unwrap_or_default(),
        }
    }

    /// Returns the functions at an address according to DWARF, innermost first. All but the last are inlined.
    fn source_frames(
        &mut self,
        pid: u32,
        address: u64,
        time: u64,
        kind: AddressKind,
    ) -> Result<Vec<InlinedFrame>, Reason> {
        let at = address.wrapping_sub(kind.lookup_distance());
        let found = self.processes.locate(pid, at, time)?;
        let known = mapping_with_code(&found);
        let id = self.objects.object_id(pid, known)?;
        let frames = self.objects.with_object(id, |object, limit| {
            let address = object.address_of(offset_in(known, at)).ok_or(Reason::NotMapped)?;
            object.frames(address, limit)
        });
        Ok(self.inlined(frames.unwrap_or(Err(Reason::NotMapped))?))
    }

    /// Returns the approximate memory that symbols, debug information and results use, in bytes.
    pub fn bytes(&self) -> usize {
        self.objects.bytes() + self.jit.bytes() + self.young_bytes + self.old_bytes
    }

    fn inlined(&self, frames: Vec<DwarfFrame>) -> Vec<InlinedFrame> {
        let frame = |frame: DwarfFrame| InlinedFrame {
            name: styled_name(frame.name.as_deref().unwrap_or("[inlined]"), self.options.demangle),
            file: frame.file.unwrap_or_default().into(),
            line: frame.line.unwrap_or(0),
        };
        frames.into_iter().map(frame).collect()
    }

    #[cold]
    fn resolve(&mut self, pid: u32, address: u64, time: u64, kind: AddressKind) -> Arc<Resolved<D>> {
        let at = address.wrapping_sub(kind.lookup_distance());
        let key = |image: u64| (image, address, kind);
        if let Some(image) = self.processes.image(pid, time).map(|image| image.id)
            && let Some(hit) = self.old.remove(&key(image))
        {
            self.old_bytes -= hit.resolved.bytes();
            if hit.holds(time) {
                return self.keep(key(image), hit);
            }
        }
        let found = match self.processes.locate(pid, at, time) {
            Ok(found) => found,
            Err(reason) => return Arc::new(self.nameless(reason, at)),
        };
        let (resolved, keep) = self.located(pid, &found, at, time, kind);
        let resolved = Arc::new(resolved);
        match self.processes.image(pid, time) {
            Some(image) if keep => {
                let from = if found.mapping.time <= time { found.mapping.time } else { 0 };
                let id = image.id;
                self.keep(key(id), Cached { from, until: found.until, resolved })
            }
            _ => resolved,
        }
    }

    fn keep(&mut self, key: (u64, u64, AddressKind), cached: Cached<D>) -> Arc<Resolved<D>> {
        let bytes = cached.resolved.bytes();
        if self.young_bytes + bytes > self.results_limit {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        let resolved = Arc::clone(&cached.resolved);
        self.young_bytes += bytes;
        if let Some(before) = self.young.insert(key, cached) {
            self.young_bytes -= before.resolved.bytes();
        }
        resolved
    }

    fn nameless(&self, reason: Reason, at: u64) -> Resolved<D> {
        Resolved {
            symbol: Err(reason),
            dso: Arc::clone(&self.unknown),
            dso_offset: at,
            mapped: None,
            build_id: None,
            inlined: Vec::new(),
            srcline: None,
            slot: Slot::default(),
        }
    }

    /// Resolves an address in a known mapping. Also returns whether the result may be cached.
    fn located(&mut self, pid: u32, found: &MappingAt, at: u64, time: u64, kind: AddressKind) -> (Resolved<D>, bool) {
        let mapping = &found.mapping;
        let mut resolved = Resolved {
            dso: Arc::clone(&mapping.file.dso),
            dso_offset: offset_in(mapping, at),
            mapped: Some(Mapped {
                start: mapping.start,
                end: mapping.end,
                file_offset: if mapping.file.backing == Backing::Vdso { 0 } else { mapping.file_offset },
                contents: mapping.file.key.contents,
            }),
            ..self.nameless(Reason::NotMapped, at)
        };
        match mapping.file.backing {
            Backing::File | Backing::Vdso => match self.objects.object_id(pid, mapping) {
                Ok(id) => {
                    self.name(id, mapping, at, kind, &mut resolved);
                    (resolved, true)
                }
                Err(reason) => {
                    resolved.build_id = self.objects.recorded_build_id(mapping);
                    // The mapping may contain generated code: processes also write it to files without a name and to
                    // shared memory.
                    resolved.symbol = self.run_time_name(pid, time, at, kind).map_err(|_| reason);
                    if let (Err(reason), Contents::Code) = (&resolved.symbol, mapping.file.key.contents) {
                        self.nameless.add(reason);
                    }
                    (resolved, false)
                }
            },
            Backing::Anonymous => {
                resolved.symbol = self.run_time_name(pid, time, at, kind);
                if resolved.symbol.is_err()
                    && let Some(below) = &found.replaced_file_mapping
                    && let Ok(id) = self.objects.object_id(pid, below)
                    && self
                        .objects
                        .with_object(id, |object, _| object.address_of(offset_in(below, at)))
                        .flatten()
                        .is_some()
                {
                    (resolved.dso, resolved.dso_offset) = (Arc::clone(&below.file.dso), offset_in(below, at));
                    self.name(id, below, at, kind, &mut resolved);
                }
                // The result is not cached, because the process may replace the code at this address at any time.
                (resolved, false)
            }
            Backing::Special => {
                resolved.symbol = Err(Reason::NoCode { mapping: mapping.file.dso.to_string() });
                (resolved, true)
            }
        }
    }

    fn run_time_name(&mut self, pid: u32, time: u64, at: u64, kind: AddressKind) -> Result<Name, Reason> {
        // The perf maps and jitdumps on this machine belong to running processes, and not to the recorded ones.
        if self.objects.are_recorded() {
            return Err(Reason::RunTimeCodeNotRecorded);
        }
        let begin = self.processes.image(pid, time).map_or(0, |image| image.start);
        let processes = &self.processes;
        let (range, name) = self.jit.lookup(pid, begin, at, || processes.jitdumps(pid, time))?;
        let extent = Extent { start: range.start, end: range.end, binding: object::elf::STB_GLOBAL.0 };
        Ok(Name { name, offset: at + kind.lookup_distance() - range.start, extent })
    }

    fn name(&mut self, id: u64, known: &TimedMapping, at: u64, kind: AddressKind, resolved: &mut Resolved<D>) {
        let options = self.options;
        let ask = |object: &mut super::object::Object, limit: usize| {
            resolved.build_id = object.build_id().cloned();
            let address = match known.file.backing {
                // The vdso is mapped as a whole, from its first byte.
                Backing::Vdso => at - known.start,
                _ => match object.address_of(resolved.dso_offset) {
                    Some(address) => address,
                    None => {
                        resolved.symbol = Err(Reason::NoFunction { path: known.file.dso.to_string() });
                        return Vec::new();
                    }
                },
            };
            resolved.symbol = object.name(address, options.demangle, limit).map(|named| Name {
                name: named.name,
                offset: address - named.start + kind.lookup_distance(),
                extent: named.extent,
            });
            match (options.inline, options.srcline) {
                (Inline::No | Inline::OnRequest, Srcline::No) => Vec::new(),
                _ => object.frames(address, limit).unwrap_or_default(),
            }
        };
        let mut frames = self.objects.with_object(id, ask).unwrap_or_default();
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

/// Returns the mapping of the file that contains the code. If the process moved the code to huge pages, it is the
/// earlier file mapping.
fn mapping_with_code(found: &MappingAt) -> &TimedMapping {
    found.replaced_file_mapping.as_ref().unwrap_or(&found.mapping)
}

fn offset_in(known: &TimedMapping, at: u64) -> u64 {
    match known.file.backing {
        // The page offset of these mappings is 0 or the address itself (perf_event_mmap_event() in
        // kernel/events/core.c), so it is not used.
        Backing::Vdso | Backing::Anonymous => at.wrapping_sub(known.start),
        _ => at.wrapping_sub(known.start).wrapping_add(known.file_offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbolizer_can_move_to_another_thread() {
        fn send<T: Send>(_: &T) {}
        send(&Symbolizer::new(Options::default()));
    }
}
