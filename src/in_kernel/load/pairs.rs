//! Loads the programs that pair system calls, and the events to which they write the pairs.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use perf_prof_format::abi::bpf::{MapType, ProgramType};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition, Program as Loaded},
    topology,
};

use super::{
    Refusal, SelectedTasks, Slow,
    open::{MostOpen, bytes_of_hash},
    strings::arguments_of_calls,
};
use crate::{
    instruction::{MapUse, Program},
    paths::PATHS_BYTES,
    span::{KEPT_STRING_BYTES, PairPrograms, SpanCounters, SystemCall},
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
    /// The open calls. Only programs use this map.
    open: Map,
    /// The events to whose rings the programs write, one for each CPU. When this map is closed, the kernel removes the
    /// events from the map.
    output: Map,
}

impl PairsInKernel {
    /// Loads the programs of a span without attaching them. `most_open` limits the open calls and their memory.
    pub fn load(
        PairPrograms { begin, end, exit, open_bytes, record_bytes }: &PairPrograms,
        selected: &SelectedTasks,
        most_open: MostOpen,
    ) -> Result<PairsInKernel, Refusal> {
        let map = |name, map_type, (key_size, value_size), entries| {
            Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags: 0, inner: None })
        };
        let open = most_open.hash(*open_bytes)?;
        let output = map("output", MapType::PerfEventArray, (4, 4), topology::possible_cpus() as u32)?;
        let of_strings = |bytes: usize| -> Result<[Map; 4], CallError> {
            let names = map("names", MapType::Hash, (8, KEPT_STRING_BYTES), MOST_NAMES)?;
            let paths = map("paths", MapType::PerCpuArray, (4, PATHS_BYTES), 1)?;
            Ok([map("record", MapType::PerCpuArray, (4, bytes), 1)?, names, paths, arguments_of_calls()?])
        };
        let of_strings = record_bytes.map(of_strings).transpose()?;
        let (counters, page) = CounterPage::new("counters", SpanCounters::ALL_WORDS)?;
        let descriptor = |map: MapUse| {
            let own = match map {
                MapUse::Open => Some(&open),
                MapUse::Output => Some(&output),
                MapUse::Counters => Some(&counters),
                MapUse::Record => of_strings.as_ref().map(|[record, ..]| record),
                MapUse::Names => of_strings.as_ref().map(|[_, names, ..]| names),
                MapUse::Paths => of_strings.as_ref().map(|[_, _, paths, _]| paths),
                MapUse::Arguments => of_strings.as_ref().map(|[.., arguments]| arguments),
                _ => None,
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
        Ok(PairsInKernel { programs, page, read: SpanCounters::default(), read_own: 0, open, output })
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

    /// Returns the memory that the open calls take in the kernel, in bytes.
    pub fn open_bytes(&self) -> usize {
        bytes_of_hash(&self.open)
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
