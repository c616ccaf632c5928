//! Loads the programs that pair system calls, and the events to which they write the pairs.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use perf_prof_format::abi::bpf::{MapType, ProgramType};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition, Program as Loaded},
    topology,
};

use super::{
    InterpretersInKernel, Refusal, SelectedTasks, Slow,
    open::{MostOpen, bytes_of_hash},
    strings::{arguments_of_calls, interpreters},
};
use crate::{
    frames::FRAMES_BYTES,
    instruction::{MapUse, Program},
    paths::PATHS_BYTES,
    span::{KEPT_STRING_BYTES, KernelFrames, PairPrograms, SpanCounters, SystemCall},
    table::Counters,
};

/// The maximum number of threads that are about to run a program or to close a descriptor at the same time. Names and paths
/// of further threads are missing.
const MOST_NAMES: u32 = 1 << 10;

/// The programs that pair the system calls of a span. Dropping this value detaches them.
#[derive(Debug)]
pub struct PairsInKernel {
    programs: Vec<(Loaded, &'static CStr, Option<OwnedFd>)>,
    page: CounterPage,
    /// The counts at the last reading.
    read: SpanCounters,
    read_own: u64,
    /// The memory of the maps in the kernel, in bytes.
    bytes: usize,
    /// The events to whose rings the programs write, one for each CPU. When this map is closed, the kernel removes the
    /// events from the map.
    output: Map,
    /// How to find the frames of the interpreter of each process, if records have such frames.
    interpreters: Option<Arc<Map>>,
}

/// The maps with which a record is built.
#[derive(Default)]
struct RecordMaps {
    record: Option<Map>,
    names: Option<Map>,
    paths: Option<Map>,
    arguments: Option<Map>,
    frames: Option<Map>,
    interpreters: Option<Arc<Map>>,
}

impl RecordMaps {
    /// Creates the maps that a program uses. `bytes` is the size of the largest record.
    fn of(program: &Program, bytes: usize) -> Result<RecordMaps, CallError> {
        let of_cpu =
            |map: MapUse, name, value_size| program.uses(map).then(|| value_of_cpu(name, value_size)).transpose();
        let (name, map_type) = ("names", MapType::Hash);
        let names = MapDefinition {
            name,
            map_type,
            key_size: 8,
            value_size: KEPT_STRING_BYTES,
            entries: MOST_NAMES,
            flags: 0,
            inner: None,
        };
        Ok(RecordMaps {
            record: of_cpu(MapUse::Record, "record", bytes)?,
            names: program.uses(MapUse::Names).then(|| Map::new(&names)).transpose()?,
            paths: of_cpu(MapUse::Paths, "paths", PATHS_BYTES)?,
            arguments: program.uses(MapUse::Arguments).then(arguments_of_calls).transpose()?,
            frames: of_cpu(MapUse::Frames, "frames", FRAMES_BYTES)?,
            interpreters: program.uses(MapUse::Interpreters).then(interpreters).transpose()?.map(Arc::new),
        })
    }

    /// Returns the memory that the maps take in the kernel, in bytes.
    fn bytes(&self) -> usize {
        let RecordMaps { record, names, paths, arguments, frames, interpreters } = self;
        let all = [record, names, paths, arguments, frames].map(Option::as_ref);
        all.into_iter().chain([interpreters.as_deref()]).flatten().map(bytes_of_hash).sum()
    }

    fn get(&self, map: MapUse) -> Option<&Map> {
        match map {
            MapUse::Record => self.record.as_ref(),
            MapUse::Names => self.names.as_ref(),
            MapUse::Paths => self.paths.as_ref(),
            MapUse::Arguments => self.arguments.as_ref(),
            MapUse::Frames => self.frames.as_ref(),
            MapUse::Interpreters => self.interpreters.as_deref(),
            _ => None,
        }
    }
}

/// Creates a map with one value on each CPU.
fn value_of_cpu(name: &str, value_size: usize) -> Result<Map, CallError> {
    let (map_type, key_size, entries) = (MapType::PerCpuArray, 4, 1);
    Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags: 0, inner: None })
}

impl PairsInKernel {
    /// Loads the programs of a span without attaching them. `most_open` limits the open calls, and the memory of all maps. At
    /// least half of this memory is for open calls.
    pub fn load(
        PairPrograms { begin, end, exit, open_bytes, record_bytes }: &PairPrograms,
        selected: &SelectedTasks,
        most_open: MostOpen,
    ) -> Result<PairsInKernel, Refusal> {
        let of_record = record_bytes.map(|bytes| RecordMaps::of(end, bytes)).transpose()?.unwrap_or_default();
        let (needed, left) = (of_record.bytes(), most_open.bytes / 2);
        if needed > left {
            return Err(Refusal::Memory { needed, left });
        }
        let open = MostOpen { bytes: most_open.bytes - needed, ..most_open }.hash(*open_bytes)?;
        let output = Map::new(&MapDefinition {
            name: "output",
            map_type: MapType::PerfEventArray,
            key_size: 4,
            value_size: 4,
            entries: topology::possible_cpus() as u32,
            flags: 0,
            inner: None,
        })?;
        let (counters, page) = CounterPage::new("counters", KernelFrames::ALL_WORDS)?;
        let descriptor = |map: MapUse| {
            let own = match map {
                MapUse::Open => Some(&open),
                MapUse::Output => Some(&output),
                MapUse::Counters => Some(&counters),
                map => of_record.get(map),
            };
            let own = own.map(|map| map.as_fd().as_raw_fd() as u32);
            own.or_else(|| selected.descriptor(map)).unwrap_or(u32::MAX)
        };
        let load = |program: &Program, tracepoint| {
            let loaded = Loaded::load("calls", ProgramType::RawTracepoint, &program.with_maps(descriptor));
            loaded.map(|loaded| (loaded, tracepoint, None))
        };
        // First the programs of the ends: an end whose begin was seen must not be missed.
        let programs = vec![
            load(exit, c"sched_process_exit")?,
            load(end, SystemCall::Exit.name())?,
            load(begin, SystemCall::Enter.name())?,
        ];
        let (read, bytes) = (SpanCounters::default(), needed + bytes_of_hash(&open));
        let interpreters = of_record.interpreters;
        Ok(PairsInKernel { programs, page, read, read_own: 0, bytes, output, interpreters })
    }

    /// Returns the kernel's frames in which calls begin and end, if programs note them. Programs do so at the first calls after
    /// they were attached.
    pub fn kernel_frames(&self) -> [Vec<u64>; 2] {
        KernelFrames::noted(|word| self.page.word(word))
    }

    /// Returns the map of processes with an interpreter, if records have frames of interpreters.
    pub fn interpreters(&self) -> Option<InterpretersInKernel> {
        self.interpreters.clone().map(InterpretersInKernel::new)
    }

    /// Lets the programs write to these events, one for each CPU. Calls that end before this function was called count as
    /// calls that belong to no run.
    pub fn write_to<'a>(&self, outputs: impl Iterator<Item = (u32, BorrowedFd<'a>)>) -> Result<(), CallError> {
        for (cpu, event) in outputs {
            self.output.set_descriptor(cpu, event)?;
        }
        Ok(())
    }

    /// Runs the programs at each call from now on.
    pub fn attach(&mut self) -> Result<(), CallError> {
        for (program, tracepoint, descriptor) in &mut self.programs {
            *descriptor = Some(program.attach_to_raw_tracepoint(tracepoint)?);
        }
        Ok(())
    }

    /// Begins the run. The programs were attached before the run: calls that have ended by now do not count, and calls that
    /// are open now do.
    pub fn begin(&mut self) {
        let now = self.spans();
        self.read = SpanCounters { opened: now.ended + now.dropped, ..now };
        self.own_since();
    }

    fn spans(&self) -> SpanCounters {
        std::array::from_fn::<u64, { SpanCounters::WORDS }, _>(|word| self.page.word(Counters::WORDS + word)).into()
    }

    /// Returns what the programs have counted since the last time.
    pub fn spans_since(&mut self) -> SpanCounters {
        let mut now = self.spans();
        // A call that ends while the events are off does not belong to the run. If its begin was counted before, the call
        // still counts as open.
        let counted = now.opened.saturating_sub(self.page.word(SpanCounters::OFF_WORD));
        now.opened = counted.max(self.read.opened);
        now.since(std::mem::replace(&mut self.read, now))
    }

    /// Returns how many begins and ends of perf-prof's own calls were left out since the last call of this function.
    pub fn own_since(&mut self) -> u64 {
        let now = Counters::from(std::array::from_fn(|word| self.page.word(word))).own;
        now.wrapping_sub(std::mem::replace(&mut self.read_own, now))
    }

    /// Returns the memory that the maps take in the kernel, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many begins and ends the programs missed, because they were running on the CPU already.
    pub fn missed(&self) -> u64 {
        self.programs.iter().map(|(program, ..)| program.recursion_misses().unwrap_or(0)).sum()
    }

    /// Returns the file descriptors that keep the programs attached.
    pub fn into_slow(self) -> impl Iterator<Item = Slow> {
        self.programs.into_iter().filter_map(|(.., descriptor)| descriptor.map(Slow::Program))
    }
}
