//! A table in the kernel. A reading replaces it by an empty one, so each event is counted exactly once. Or the table stays
//! in use, and the next reading returns only what was added since.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

use perf_prof_events::{aggregate::Amount, event::AddressChain};
use perf_prof_format::abi::bpf::{MapType, ProgramType, TASK_COMM_LEN};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition, Program as Loaded},
};

use super::{
    Attached, Refusal, SelectedTasks, Slow, Tracepoint,
    chains::{self, ChainMaps, SEGMENTS},
    known_rows::KnownRows,
    load,
    open::{MostOpen, bytes_of_entry, bytes_of_hash},
    slot::Slot,
    witnessed::Witnessed,
};
use crate::{
    instruction::{MapUse, Program},
    lower::Unsuited,
    span::{GAP_BYTES, MARKS_BYTES, SpanCounters, SpanPrograms, SystemCall},
    table::{
        Counters, Row, Shape,
        chain::{self, Segments},
    },
};

/// How many rows a table can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The maximum number of rows at the start.
    pub first: u32,
    /// The maximum number of rows after the table has grown.
    pub most: u32,
}

impl Room {
    /// The number of rows at the start, if there is memory. To read an empty hash of this size takes 0.1 ms.
    const FIRST: u32 = 1 << 16;
    /// Returns how many rows a table can have, with at most `limit` rows and `bytes` of memory.
    pub fn new(shape: &Shape, limit: usize, bytes: usize) -> Room {
        // During a reading, the kernel has two tables. This process has up to half of the rows of one table, in a `Vec`
        // whose capacity may be twice as large.
        let of_row = 2 * bytes_of_row(shape) + shape.key_bytes + shape.value_bytes;
        let fitting = u32::try_from(bytes / of_row).unwrap_or(u32::MAX).max(1);
        // A limit below `FIRST` is applied after a reading, because the kernel cannot drop the rows with the smallest
        // values.
        let wanted = u32::try_from(limit).unwrap_or(u32::MAX).clamp(Room::FIRST, 1 << 30);
        let most = wanted.min(fitting);
        Room { first: Room::FIRST.min(most), most }
    }
}

/// Returns the memory that a row takes in the kernel, in bytes.
fn bytes_of_row(shape: &Shape) -> usize {
    let of_segment = bytes_of_entry((chain::KEY_BYTES, chain::VALUE_BYTES));
    let of_chain = if shape.has_chain() { SEGMENTS as usize * of_segment } else { 0 };
    bytes_of_entry((shape.key_bytes, shape.value_bytes)) + of_chain
}

/// The rows and counts since the previous reading.
#[derive(Debug)]
pub struct Reading {
    /// The rows, in any order.
    pub rows: Vec<Row>,
    /// The call chains of the rows, by id.
    pub chains: HashMap<u64, AddressChain>,
    /// The number of events that were refused: they had a new key, and the table was full.
    pub refused: u64,
    /// What the refused events would have added: the sum of their values, and for a distribution their count too.
    pub refused_amount: Amount,
    /// The number of events that were added up or refused.
    pub added: u64,
    /// The number of perf-prof's own events.
    pub own: u64,
}

/// A table in the kernel, and the program that fills it.
#[derive(Debug)]
pub struct TableInKernel {
    shape: Shape,
    /// The hash of rows that programs fill.
    slot: Slot,
    /// The maps of call chains; `None` if keys contain none.
    chains: Option<ChainMaps>,
    /// The rows of the last reading, if the table has stayed in use since.
    known: KnownRows,
    /// The table that was taken out of its slot and is not read yet.
    taken: Option<Taken>,
    room: Room,
    page: CounterPage,
    /// The counters at the last reading.
    read: Counters,
    /// The counters when programs began to fill the table.
    begun: Counters,
    program: ProgramState,
    /// The counters of spans at the last call of `spans_since`.
    read_spans: SpanCounters,
    /// The number of events that witnesses missed themselves. A witness is a program that notices which events another
    /// program missed.
    unwitnessed: u64,
    /// The tasks with missing events; `read_gaps` contains the numbers at the last reading.
    gaps: Option<Map>,
    read_gaps: ReadGaps,
    /// The open spans. Only programs use this map.
    open: Option<Map>,
}

/// A table that no program fills any more.
#[derive(Debug)]
struct Taken {
    rows: Arc<Map>,
    /// The segments of its call chains; `None` if there are none, or if they could not be taken out.
    segments: Option<Arc<Map>>,
}

/// Whether the table that programs fill is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InUse {
    Read,
    NotRead,
}

/// How many events a task misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// The thread id. `None` stands for all tasks that did not fit into the map.
    pub task: Option<i32>,
    /// The name of the task.
    pub comm: [u8; TASK_COMM_LEN],
    /// The number of its missing events.
    pub count: u64,
}

/// The numbers of missing events at the last reading.
#[derive(Debug, Default)]
struct ReadGaps {
    all: u64,
    tasks: HashMap<i32, u64>,
    /// The missing events of tasks that did not fit into the map.
    others: u64,
}

/// The program of a table, or the programs of its spans.
#[derive(Debug)]
enum ProgramState {
    Loaded(Loaded),
    Attached(Attached),
    OfCalls(Vec<(Loaded, SystemCall, Option<OwnedFd>)>),
    OfEvents(Vec<Witnessed>),
    /// A program could not be attached.
    Gone,
}

/// The maximum number of tasks with missing events.
const MOST_GAPS: u32 = 4096;
/// The factor by which a table grows. It is large, because rows may come faster during the exchange.
const GROWTH: u32 = 8;

fn hash(shape: &Shape, entries: u32) -> Result<Map, CallError> {
    let (key_size, value_size) = (shape.key_bytes, shape.value_bytes);
    let map_type = MapType::Hash;
    Map::new(&MapDefinition { name: "rows", map_type, key_size, value_size, entries, flags: 0, inner: None })
}

impl TableInKernel {
    /// Creates an empty table, and loads its program without attaching it.
    pub fn load(
        tracepoint: Tracepoint<'_>,
        (program, shape): (&Program, Shape),
        selected: &SelectedTasks,
        room: Room,
    ) -> Result<TableInKernel, Refusal> {
        let maps = Maps::new(&shape, room, None)?;
        let loaded = load(program, tracepoint, maps.descriptors(selected))?;
        Ok(maps.table(shape, room, ProgramState::Loaded(loaded)))
    }

    /// Creates an empty table of system calls, and loads its programs without attaching them. `most_open` limits the open
    /// calls and their memory.
    pub fn load_calls(
        SpanPrograms { programs, open_bytes, shape, .. }: &SpanPrograms,
        selected: &SelectedTasks,
        room: Room,
        most_open: MostOpen,
    ) -> Result<TableInKernel, Refusal> {
        let maps = Maps::new(shape, room, Some((*open_bytes, most_open)))?;
        let load = |(input, program): &(usize, Program)| {
            let words = program.with_maps(maps.descriptors(selected));
            let loaded = Loaded::load("calls", ProgramType::RawTracepoint, &words)?;
            Ok((loaded, SystemCall::of_input(*input), None))
        };
        let loaded = programs.iter().map(load).collect::<Result<_, Refusal>>()?;
        Ok(maps.table(shape.clone(), room, ProgramState::OfCalls(loaded)))
    }

    /// Creates an empty table of spans, and loads the programs of their events without attaching them. `tracepoints`
    /// contains all events of the span. `most_open` limits the open spans and their memory.
    pub fn load_spans(
        SpanPrograms { programs, open_bytes, shape, are_of_tasks }: &SpanPrograms,
        tracepoints: &[Tracepoint<'_>],
        selected: &SelectedTasks,
        (room, most_open): (Room, MostOpen),
    ) -> Result<TableInKernel, Refusal> {
        let most_open = if *are_of_tasks { most_open.of_tasks() } else { most_open };
        let maps = Maps::new(shape, room, Some((*open_bytes, most_open)))?;
        let load = |(input, program): &(usize, Program)| {
            let &tracepoint = tracepoints.get(*input).ok_or(Refusal::Unsuited(Unsuited::NoTracepoint))?;
            Witnessed::load(*input, program, tracepoint, || maps.descriptors(selected))
        };
        let loaded = programs.iter().map(load).collect::<Result<_, Refusal>>()?;
        Ok(maps.table(shape.clone(), room, ProgramState::OfEvents(loaded)))
    }

    /// Returns what the programs of spans have counted since the last call.
    pub fn spans_since(&mut self) -> SpanCounters {
        let now: SpanCounters =
            std::array::from_fn::<u64, { SpanCounters::WORDS }, _>(|word| self.page.word(Counters::WORDS + word))
                .into();
        now.since(std::mem::replace(&mut self.read_spans, now))
    }

    /// Attaches the programs, those of the ends first: an end whose begin was seen must not be missed. `tracepoint` is
    /// needed for a table without spans only.
    pub fn attach(&mut self, tracepoint: Option<Tracepoint<'_>>) -> Result<(), Refusal> {
        self.slot.wait_until_filled()?;
        self.chains.as_mut().map_or(Ok(()), ChainMaps::wait_until_filled)?;
        self.program = match std::mem::replace(&mut self.program, ProgramState::Gone) {
            ProgramState::Loaded(program) => {
                let tracepoint = tracepoint.ok_or(Refusal::Unsuited(Unsuited::NoTracepoint))?;
                ProgramState::Attached(Attached::new(program, tracepoint)?)
            }
            ProgramState::OfEvents(mut programs) => {
                programs.iter_mut().rev().try_for_each(Witnessed::attach)?;
                // Witnesses come last: a witness must run after its program.
                programs.iter_mut().try_for_each(Witnessed::attach_witness)?;
                ProgramState::OfEvents(programs)
            }
            ProgramState::OfCalls(mut programs) => {
                for (program, call, descriptor) in programs.iter_mut().rev() {
                    *descriptor = Some(program.attach_to_raw_tracepoint(call.name())?);
                }
                ProgramState::OfCalls(programs)
            }
            state => state,
        };
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::from(std::array::from_fn(|word| self.page.word(word)))
    }

    /// Returns whether the keys contain call chains.
    pub fn has_chains(&self) -> bool {
        self.chains.is_some()
    }

    /// Returns the memory of the table in the kernel, and of the rows and call chains that this process keeps for the next
    /// reading, in bytes.
    pub fn bytes(&self) -> usize {
        let of_chains = self.chains.as_ref().map_or(0, ChainMaps::kept_bytes);
        let entries = self.slot.inner().entries() + self.taken.as_ref().map_or(0, |taken| taken.rows.entries());
        entries as usize * bytes_of_row(&self.shape) + self.known.bytes() + of_chains
    }

    /// Returns the memory of the open spans in the kernel, in bytes.
    pub fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, bytes_of_hash)
    }

    /// Returns whether the table will soon be full, and can grow.
    pub fn is_filling(&self) -> bool {
        let entries = self.slot.inner().entries();
        let since = difference(&self.counters(), &self.begun);
        let fullest = since.inserted.max(since.segments / u64::from(SEGMENTS));
        entries < self.room.most && fullest > u64::from(entries / 2)
    }

    /// Returns whether the table can stay in use when it is read. The table needs room for new rows. Its values have to
    /// show what was added since an earlier reading, which the smallest and the largest number do not show.
    pub fn can_stay(&self) -> bool {
        let inserted = difference(&self.counters(), &self.begun).inserted;
        self.chains.is_none() && !self.shape.has_extremes() && inserted <= u64::from(self.slot.inner().entries() / 2)
    }

    /// Returns how many events the programs missed, because another BPF program was running on the CPU.
    pub fn missed(&self) -> u64 {
        match &self.program {
            ProgramState::Attached(attached) => attached.missed(),
            ProgramState::OfCalls(programs) => {
                programs.iter().map(|(program, ..)| program.recursion_misses().unwrap_or(0)).sum()
            }
            ProgramState::OfEvents(programs) => {
                let of_witnesses: u64 = programs.iter().map(Witnessed::missed).sum();
                self.page.word(SpanCounters::MISSED_WORD) + of_witnesses
            }
            ProgramState::Loaded(_) | ProgramState::Gone => 0,
        }
    }

    /// Returns the tasks with missing events since the last call.
    pub fn gaps_since(&mut self) -> Result<Vec<Gaps>, CallError> {
        let all = if self.gaps.is_some() { self.page.word(SpanCounters::UNSEEN_WORD) } else { 0 };
        let (Some(gaps), true) = (&self.gaps, all != self.read_gaps.all) else { return Ok(Vec::new()) };
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let (mut since, tasks) = (Vec::new(), &mut self.read_gaps.tasks);
        gaps.for_each(|task, gap| {
            let (task, count) = (number(task) as i32, number(gap));
            let count = count - tasks.insert(task, count).unwrap_or(0).min(count);
            let comm = gap.get(8..).and_then(|comm| comm.first_chunk()).copied().unwrap_or_default();
            since.extend((count != 0).then_some(Gaps { task: Some(task), comm, count }));
        })?;
        let others = all.saturating_sub(self.read_gaps.tasks.values().sum());
        let count = others.saturating_sub(self.read_gaps.others);
        since.extend((count != 0).then_some(Gaps { task: None, comm: [0; TASK_COMM_LEN], count }));
        self.read_gaps.others += count;
        self.read_gaps.all = all;
        Ok(since)
    }

    /// Drops the open spans if a witness itself missed an event. Only an event in an interrupt, right after another event of
    /// the same kind, can escape a witness.
    pub fn notice_misses(&mut self) {
        let ProgramState::OfEvents(programs) = &self.program else { return };
        let missed = programs.iter().map(Witnessed::missed).sum();
        if std::mem::replace(&mut self.unwitnessed, missed) != missed {
            self.page.add_to_word(SpanCounters::GENERATION_WORD, 1);
        }
    }

    /// Returns everything that was added up since the previous reading. Waits until no program uses the old table. This
    /// takes about 10 ms, or longer on a busy machine. If the reading fails, the next one has what is missing.
    pub fn read(&mut self) -> Result<Reading, CallError> {
        if self.taken.is_none() {
            self.take_out()?;
        }
        self.reading(InUse::NotRead)
    }

    /// Returns what was added up since the previous reading. Does not exchange the table, so it waits for no program.
    /// Events that happen during this reading and are missing in it are in the next reading, and all of them if this reading
    /// fails.
    pub fn read_in_place(&mut self) -> Result<Reading, CallError> {
        self.reading(InUse::Read)
    }

    /// Takes the table out of its slot, and puts an empty one there.
    fn take_out(&mut self) -> Result<(), CallError> {
        let entries = self.slot.inner().entries();
        let entries = if self.is_filling() { entries.saturating_mul(GROWTH).min(self.room.most) } else { entries };
        let empty = hash(&self.shape, entries)?;
        let no_segments = self.chains.as_ref().map(|_| chains::hash(entries)).transpose()?;
        let begun = self.counters();
        let rows = self.slot.exchange(empty)?;
        self.begun = begun;
        let taken = self.taken.insert(Taken { rows, segments: None });
        // The rows were exchanged first. So the segments of their chains are in the hash that is taken now, or in the
        // previous one.
        if let Some((chains, empty)) = self.chains.as_mut().zip(no_segments) {
            taken.segments = Some(chains.exchange(empty)?);
        }
        Ok(())
    }

    /// Reads the table that was taken out, if there is one, and the table in use if `in_use` says so. A reading that fails
    /// changes nothing.
    fn reading(&mut self, in_use: InUse) -> Result<Reading, CallError> {
        let now = self.counters();
        let since = difference(&now, &self.read);
        let (mut rows, none) = (Vec::new(), KnownRows::default());
        let mut found = KnownRows::new(self.shape.key_bytes, self.shape.value_bytes);
        if let Some(taken) = &self.taken {
            self.rows_since(&taken.rows, &self.known, |row, _, _| rows.extend(row))?;
        }
        if in_use == InUse::Read {
            // The known rows are those of the table that was taken out.
            let known = if self.taken.is_some() { &none } else { &self.known };
            self.rows_since(self.slot.inner(), known, |row, key, value| {
                rows.extend(row);
                found.add(key, value);
            })?;
        }
        // Read the segments after the rows: a program adds the segments of a chain before the row.
        let segments = self.segments(in_use)?;
        self.read = now;
        self.known = found;
        self.taken = None;
        let chains = self.chains.as_mut().map_or_else(HashMap::new, |maps| maps.chains(&rows, segments));
        let (refused_amount, refused) = (self.shape.refused(&since), since.refused);
        let added = refused + rows.iter().map(|row| row.count).sum::<u64>();
        Ok(Reading { rows, chains, refused, refused_amount, added, own: since.own })
    }

    /// Reads the segments of the table that was taken out, and those in use if `in_use` says so, or if they could not be
    /// taken out.
    fn segments(&self, in_use: InUse) -> Result<Segments, CallError> {
        let taken = self.taken.as_ref().and_then(|taken| taken.segments.as_deref());
        let used = self.chains.as_ref().filter(|_| in_use == InUse::Read || taken.is_none()).map(ChainMaps::in_use);
        chains::read(taken.into_iter().chain(used))
    }

    /// Calls `found` with what was added to each row of a table since the last reading, and with the key and the value of the
    /// row. `known` are the rows of that reading.
    fn rows_since(
        &self,
        table: &Map,
        known: &KnownRows,
        mut found: impl FnMut(Option<Row>, &[u8], &[u8]),
    ) -> Result<(), CallError> {
        let mut known = known.finder();
        table.for_each(|key, value| {
            let row = match known.value(key) {
                Some(before) => self.shape.row_since(key, value, before),
                None => Some(self.shape.row(key, value)),
            };
            found(row, key, value);
        })
    }

    /// Returns the file descriptors that keep the programs attached.
    pub fn into_slow(self) -> Vec<Slow> {
        match self.program {
            ProgramState::Attached(attached) => attached.into_slow().collect(),
            ProgramState::OfCalls(programs) => {
                programs.into_iter().filter_map(|(.., descriptor)| descriptor.map(Slow::Program)).collect()
            }
            ProgramState::OfEvents(programs) => programs.into_iter().flat_map(Witnessed::into_slow).collect(),
            ProgramState::Loaded(_) | ProgramState::Gone => Vec::new(),
        }
    }
}

/// The maps of a table that has no program yet.
struct Maps {
    slot: Slot,
    counters: Map,
    page: CounterPage,
    open: Option<Map>,
    marks: Option<Map>,
    gaps: Option<Map>,
    chains: Option<ChainMaps>,
}

impl Maps {
    /// Creates the maps. `open` contains the sizes of the key and the value of open spans, and their limits.
    fn new(shape: &Shape, room: Room, open: Option<((usize, usize), MostOpen)>) -> Result<Maps, CallError> {
        let slot = Slot::new("slot", hash(shape, room.first)?)?;
        let words = if open.is_some() { SpanCounters::ALL_WORDS } else { Counters::WORDS };
        let (counters, page) = CounterPage::new("counters", words)?;
        let marks = open.is_some().then(|| {
            let (name, map_type, flags, inner) = ("marks", MapType::PerCpuArray, 0, None);
            let (key_size, value_size, entries) = (4, MARKS_BYTES, 1);
            Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags, inner })
        });
        let gaps = open.is_some().then(|| {
            let (name, map_type, flags, inner) = ("gaps", MapType::Hash, 0, None);
            let (key_size, value_size, entries) = (8, GAP_BYTES, MOST_GAPS);
            Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags, inner })
        });
        let open = open.map(|(sizes, most)| most.hash(sizes));
        let chains = shape.has_chain().then(|| ChainMaps::new(room.first)).transpose()?;
        Ok(Maps {
            slot,
            counters,
            page,
            open: open.transpose()?,
            marks: marks.transpose()?,
            gaps: gaps.transpose()?,
            chains,
        })
    }

    /// Returns a function that returns the file descriptor of each map that programs use.
    fn descriptors(&self, selected: &SelectedTasks) -> impl FnMut(MapUse) -> u32 {
        |map| {
            let own = match map {
                MapUse::Tables => return self.slot.descriptor(),
                MapUse::Counters => Some(&self.counters),
                MapUse::Open => self.open.as_ref(),
                MapUse::Marks => self.marks.as_ref(),
                MapUse::Gaps => self.gaps.as_ref(),
                _ => None,
            };
            let own = own.map(|map| map.as_fd().as_raw_fd() as u32);
            let own = own.or_else(|| self.chains.as_ref().and_then(|chains| chains.descriptor(map)));
            own.or_else(|| selected.descriptor(map)).unwrap_or(u32::MAX)
        }
    }

    fn table(self, shape: Shape, room: Room, program: ProgramState) -> TableInKernel {
        let Maps { slot, page, open, gaps, chains, .. } = self;
        let (read, read_spans) = (Counters::default(), SpanCounters::default());
        TableInKernel {
            shape,
            slot,
            chains,
            known: KnownRows::default(),
            taken: None,
            room,
            page,
            read,
            begun: read,
            program,
            read_spans,
            unwitnessed: 0,
            gaps,
            read_gaps: ReadGaps::default(),
            open,
        }
    }
}

fn difference(now: &Counters, before: &Counters) -> Counters {
    Counters {
        inserted: now.inserted.wrapping_sub(before.inserted),
        refused: now.refused.wrapping_sub(before.refused),
        refused_sums: std::array::from_fn(|half| now.refused_sums[half].wrapping_sub(before.refused_sums[half])),
        own: now.own.wrapping_sub(before.own),
        segments: now.segments.wrapping_sub(before.segments),
    }
}
