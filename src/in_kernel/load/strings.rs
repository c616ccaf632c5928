//! Loads programs that write records with strings, and the events to which they write.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
};

use perf_prof_format::abi::{
    bpf::{BPF_ANY, BPF_F_NO_PREALLOC, MapType},
    system_calls,
};
use perf_prof_symbols::runtime::{Publish, Walk};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition},
    topology,
};

use super::{Attached, Occasion, Refusal, SelectedTasks, Slow, open::bytes_of_hash};
use crate::{
    frames::{FRAMES_BYTES, IdOffsets},
    instruction::MapUse,
    paths::{MOST_CALLS, PATHS_BYTES, bits_of_call},
    strings::{StringProgram, UNREAD_BYTES},
};

/// The programs that write the records of a run. Dropping this value detaches them.
#[derive(Debug, Default)]
pub struct StringWriters {
    selected: SelectedTasks,
    writers: Vec<(usize, StringWriter)>,
    /// The arguments of open calls whose strings could not be read yet. The programs of begins and ends share this map.
    unread: Option<Map>,
    /// How to find the frames of the interpreter of each process. All programs share this map.
    interpreters: Option<Arc<Map>>,
    /// The memory that the maps of programs take, and the most that those of probes may take, in bytes. A probe can have
    /// hundreds of programs, with many values each.
    bytes: usize,
    most_bytes: usize,
}

/// Tells the programs which processes have an interpreter.
#[derive(Debug)]
pub struct InterpretersInKernel {
    /// Those of different programs.
    maps: Vec<Arc<Map>>,
    ids: Option<IdOffsets>,
}

impl InterpretersInKernel {
    pub(super) fn new(map: Arc<Map>) -> InterpretersInKernel {
        InterpretersInKernel { maps: vec![map], ids: None }
    }

    /// Tells the programs of both.
    pub fn and(self, other: InterpretersInKernel) -> InterpretersInKernel {
        InterpretersInKernel { maps: [self.maps, other.maps].concat(), ids: self.ids.or(other.ids) }
    }

    /// Sets where the kernel has the ids of tasks, so that programs find threads in other PID namespaces.
    pub fn with_ids(self, ids: Option<IdOffsets>) -> InterpretersInKernel {
        InterpretersInKernel { ids, ..self }
    }
}

impl Publish for InterpretersInKernel {
    fn publish(&self, pid: u32, walk: Option<&Walk>) {
        let walk = walk.cloned().map(|mut walk| {
            self.ids.iter().for_each(|ids| ids.add_to(&mut walk));
            walk
        });
        for map in &self.maps {
            // If the map is full, the frames of this process are missing, and its call chains say so.
            let _ = match &walk {
                Some(walk) => map.set(&pid.to_ne_bytes(), &walk.bytes(), BPF_ANY),
                None => map.remove(&pid.to_ne_bytes()).map(|_| ()),
            };
        }
    }
}

/// A program that writes records with strings.
#[derive(Debug)]
struct StringWriter {
    attached: Attached,
    /// The counter of events without a record: see `StringProgram::values`.
    without_value: Option<CounterPage>,
    /// Not read, but kept open. When a file descriptor of this map is closed, the kernel removes the events from the map
    /// (`perf_event_fd_array_release()` in kernel/bpf/arraymap.c).
    _output: Map,
}

impl StringWriters {
    /// Creates a value without programs. `selected` selects the tasks of the run. `most_bytes` limits the memory of maps.
    pub fn new(selected: SelectedTasks, most_bytes: usize) -> StringWriters {
        StringWriters { selected, most_bytes, ..StringWriters::default() }
    }

    /// Returns the memory that the maps of the programs take in the kernel, in bytes.
    pub fn bytes(&self) -> usize {
        let shared = [self.unread.as_ref(), self.interpreters.as_deref()];
        self.bytes + shared.into_iter().flatten().map(bytes_of_hash).sum::<usize>()
    }

    /// Loads and attaches the program of an event. `outputs` are the perf events to whose rings it writes, one for each CPU.
    pub fn add<'a>(
        &mut self,
        event: usize,
        occasion: Occasion<'_>,
        program: &StringProgram,
        outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)>,
    ) -> Result<(), Refusal> {
        let (needed, left) =
            (program.bytes_of_cpu() * topology::possible_cpus(), self.most_bytes.saturating_sub(self.bytes));
        if program.values > 1 && needed > left {
            return Err(Refusal::Memory { needed, left });
        }
        if program.uses(MapUse::Unread) && self.unread.is_none() {
            self.unread = Some(unread()?);
        }
        if program.uses(MapUse::Interpreters) && self.interpreters.is_none() {
            self.interpreters = Some(Arc::new(interpreters()?));
        }
        let shared = |map: MapUse| match map {
            MapUse::Interpreters => self.interpreters.as_ref().map(|map| map.as_fd().as_raw_fd() as u32),
            MapUse::Unread => self.unread.as_ref().map(|map| map.as_fd().as_raw_fd() as u32),
            map => self.selected.descriptor(map),
        };
        let writer = StringWriter::start(occasion, program, shared, outputs)?;
        self.writers.push((event, writer));
        self.bytes += needed;
        Ok(())
    }

    /// Returns the map of processes with an interpreter, if a program reads frames.
    pub fn interpreters(&self) -> Option<InterpretersInKernel> {
        self.interpreters.clone().map(InterpretersInKernel::new)
    }

    /// Returns how many times each event has no record, because another BPF program was running on the CPU, or because too many
    /// tasks were preempted in its programs. Each number includes the misses of the programs that select tasks.
    pub fn missed(&self) -> BTreeMap<usize, u64> {
        let of_tasks = self.selected.missed();
        let mut all = BTreeMap::new();
        for (event, StringWriter { attached, without_value, .. }) in &self.writers {
            let without_value = without_value.as_ref().map_or(0, |counter| counter.word(0));
            *all.entry(*event).or_insert(of_tasks) += attached.missed() + without_value;
        }
        all
    }

    /// Returns the file descriptors that keep the programs attached.
    pub fn into_slow(self) -> impl Iterator<Item = Slow> {
        let writers = self.writers.into_iter().flat_map(|(_, writer)| writer.attached.into_slow());
        writers.chain(self.selected.into_slow())
    }
}

impl StringWriter {
    fn start<'a>(
        occasion: Occasion<'_>,
        program: &StringProgram,
        shared: impl Fn(MapUse) -> Option<u32>,
        outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)>,
    ) -> Result<StringWriter, Refusal> {
        let map = |name, map_type, value_size, entries| {
            Map::new(&MapDefinition { name, map_type, key_size: 4, value_size, entries, flags: 0, inner: None })
        };
        let output = map("output", MapType::PerfEventArray, 4, topology::possible_cpus() as u32)?;
        let record = map("record", MapType::PerCpuArray, program.record_bytes, program.values)?;
        let arguments = program.uses(MapUse::Arguments).then(arguments_of_calls).transpose()?;
        let paths =
            program.uses(MapUse::Paths).then(|| map("paths", MapType::PerCpuArray, PATHS_BYTES, 1)).transpose()?;
        let frames = || map("frames", MapType::PerCpuArray, FRAMES_BYTES, program.values);
        let frames = program.uses(MapUse::Frames).then(frames).transpose()?;
        let counter = program.uses(MapUse::Counters).then(|| CounterPage::new("counters", 1)).transpose()?;
        let mut cpus = BTreeSet::new();
        for (cpu, event) in outputs {
            output.set_descriptor(cpu, event)?;
            cpus.insert(cpu);
        }
        let descriptor = |map: MapUse| match map {
            MapUse::Output => output.as_fd().as_raw_fd() as u32,
            MapUse::Record => record.as_fd().as_raw_fd() as u32,
            MapUse::Arguments => arguments.as_ref().map_or(u32::MAX, |map| map.as_fd().as_raw_fd() as u32),
            MapUse::Paths => paths.as_ref().map_or(u32::MAX, |map| map.as_fd().as_raw_fd() as u32),
            MapUse::Frames => frames.as_ref().map_or(u32::MAX, |map| map.as_fd().as_raw_fd() as u32),
            MapUse::Counters => counter.as_ref().map_or(u32::MAX, |(map, _)| map.as_fd().as_raw_fd() as u32),
            map => shared(map).unwrap_or(u32::MAX),
        };
        let loaded = occasion.load(&program.program, descriptor)?;
        let without_value = counter.map(|(_, page)| page);
        Ok(StringWriter { attached: occasion.attach(loaded, &cpus)?, without_value, _output: output })
    }
}

/// The maximum number of open calls with strings that could not be read at their begin. Such strings of further calls are
/// missing.
const MOST_UNREAD: u32 = 1 << 14;

fn unread() -> Result<Map, CallError> {
    Map::new(&MapDefinition {
        name: "unread",
        map_type: MapType::Hash,
        key_size: 8,
        value_size: UNREAD_BYTES,
        entries: MOST_UNREAD,
        flags: BPF_F_NO_PREALLOC,
        inner: None,
    })
}

/// The maximum number of processes with an interpreter.
const MOST_INTERPRETERS: u32 = 1 << 14;

pub(super) fn interpreters() -> Result<Map, CallError> {
    Map::new(&MapDefinition {
        name: "interpreters",
        map_type: MapType::Hash,
        key_size: 4,
        value_size: 8 * Walk::WORDS,
        entries: MOST_INTERPRETERS,
        // Allocate the memory of all values at once: before Linux 6.1, programs of timers may use no other hash maps. While
        // the value of a process is removed, a program that still reads this value may read the value of another process.
        // The addresses in that value lead nowhere in the memory of the first process.
        flags: 0,
        inner: None,
    })
}

/// Creates the map that says which arguments of each system call are strings, file descriptors or names of files.
pub(super) fn arguments_of_calls() -> Result<Map, CallError> {
    let map = Map::new(&MapDefinition {
        name: "arguments",
        map_type: MapType::Array,
        key_size: 4,
        value_size: 8,
        entries: MOST_CALLS,
        flags: 0,
        inner: None,
    })?;
    for call in 0..MOST_CALLS {
        let name = system_calls::name_with_arguments(std::env::consts::ARCH, call.into()).unwrap_or_default();
        let bits = bits_of_call(name);
        if bits != 0 {
            map.set(&call.to_ne_bytes(), &bits.to_ne_bytes(), BPF_ANY)?;
        }
    }
    Ok(map)
}
