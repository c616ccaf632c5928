//! The state of tasks, mappings, code and cgroups, in bounded memory. Each dump begins with this state, so that all samples
//! in the dump get their names.
//!
//! Records that are newer than the oldest samples are kept unchanged: a task that has exited may have samples from
//! before its exit. Of older records, only the resulting state is kept: an exited task is removed, and a new mapping
//! replaces an old mapping.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use perf_prof_format::{
    abi::{PERF_RECORD_BPF_EVENT, PERF_RECORD_NAMESPACES},
    record::{Record, Records, TrailerLayout},
};
use perf_prof_recordings::write::{Synthesis, TaskIds};

/// The state of all tasks at some time, and the newer records.
#[derive(Debug)]
pub struct SideBand {
    trailer: TrailerLayout,
    state: State,
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// The maximum memory, in bytes.
    limit: usize,
    /// The number of records that were added to the state too early, or dropped, because memory is limited.
    forgotten: u64,
}

/// A record that is newer than the state.
#[derive(Debug)]
struct Recent {
    time: u64,
    record: Box<[u8]>,
}

/// The author of a record about a new process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    /// The kernel, at a fork: the child gets the mappings of its parent.
    Kernel,
    /// perf-prof, for an existing process: the mappings of the process follow as records.
    List,
}

#[derive(Debug, Default)]
struct State {
    processes: BTreeMap<u32, Process>,
    /// Mappings of the kernel and its modules.
    kernel: Vec<Box<[u8]>>,
    /// Code that was added to the kernel, by address.
    symbols: BTreeMap<u64, Box<[u8]>>,
    /// Loaded BPF programs, by id.
    programs: BTreeMap<u32, Box<[u8]>>,
    cgroups: BTreeMap<u64, Box<[u8]>>,
    /// The number of mappings so far. This number gives each mapping its place in the order in which the mappings were
    /// made.
    mapped: u64,
    /// The approximate memory, in bytes.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Process {
    parent: u32,
    threads: BTreeMap<u32, Thread>,
    /// The mappings by their first address.
    mappings: BTreeMap<u64, Mapped>,
}

#[derive(Debug, Default)]
struct Thread {
    comm: Box<[u8]>,
    namespaces: Option<Box<[u8]>>,
}

#[derive(Clone, Debug)]
struct Mapped {
    end: u64,
    order: u64,
    /// The record of the mapping. A child shares its parent's mappings, so the record may contain the parent's pid.
    record: Arc<[u8]>,
}

/// The memory of a small entry in addition to its bytes.
const ENTRY: usize = 64;

impl SideBand {
    /// Creates the state of a machine without tasks. `trailer` is the layout of the sample ids.
    pub fn new(trailer: TrailerLayout, limit: usize) -> SideBand {
        let (state, recent) = Default::default();
        SideBand { trailer, state, recent, recent_bytes: 0, limit, forgotten: 0 }
    }

    /// Adds records about tasks and mappings that existed at the start.
    pub fn add_existing(&mut self, records: &[u8]) {
        Records::new(records).for_each(|record| self.state.apply(record, Author::List));
    }

    /// Adds a record from the kernel.
    pub fn add(&mut self, record: &[u8]) {
        let time = self.trailer.time(record).unwrap_or(0);
        self.recent.push_back(Recent { time, record: record.into() });
        self.recent_bytes += ENTRY + record.len();
        while self.recent_bytes + self.state.bytes > self.limit && self.settle_oldest() {
            self.forgotten += 1;
        }
    }

    /// Adds the records from before `time` to the state, because no later dump contains samples from before `time`.
    /// This frees memory.
    pub fn settle_before(&mut self, time: u64) {
        while self.recent.front().is_some_and(|oldest| oldest.time < time) {
            self.settle_oldest();
        }
    }

    fn settle_oldest(&mut self) -> bool {
        let Some(Recent { record, .. }) = self.recent.pop_front() else { return false };
        self.recent_bytes -= ENTRY + record.len();
        // An exit frees memory, so it is always processed.
        let is_exit = matches!(Record::parse(&record), Record::Exit { .. });
        if is_exit || self.state.bytes < self.limit {
            self.state.apply(&record, Author::Kernel);
        }
        true
    }

    /// Returns the number of records that could not be kept long enough, since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns the records of a dump: the state as records without times, then the newer records.
    pub fn records(&self) -> Vec<u8> {
        let mut out = Synthesis::new(self.trailer);
        self.state.describe(&mut out);
        let mut bytes = out.bytes().to_vec();
        self.recent.iter().for_each(|recent| bytes.extend(&recent.record[..]));
        bytes
    }
}

impl State {
    fn apply(&mut self, record: &[u8], author: Author) {
        match Record::parse(record) {
            Record::Fork { pid, ppid, tid, ptid } => self.fork((pid, tid), (ppid, ptid), author),
            Record::Comm { pid, tid, comm, exec } => {
                let process = self.processes.entry(pid).or_default();
                if exec {
                    self.bytes -= std::mem::take(&mut process.mappings).values().map(Mapped::cost).sum::<usize>();
                }
                let thread = thread_of(process, tid, &mut self.bytes);
                self.bytes = self.bytes + comm.len() - thread.comm.len();
                thread.comm = comm.into();
            }
            Record::Exit { pid, tid } => self.exit(pid, tid),
            Record::Mmap2(mapped) if mapped.pid == u32::MAX => {
                self.bytes += record.len();
                self.kernel.push(record.into());
            }
            Record::Mmap2(mapped) => self.map(mapped.pid, mapped.addr, mapped.addr.saturating_add(mapped.len), record),
            Record::Ksymbol(symbol) => keep(&mut self.symbols, symbol.addr, record, symbol.removed, &mut self.bytes),
            Record::Cgroup { id, .. } => keep(&mut self.cgroups, id, record, false, &mut self.bytes),
            Record::Other(PERF_RECORD_BPF_EVENT) => {
                const UNLOADED: u16 = 2;
                let kind = u16::from_ne_bytes(record.get(8..10).map_or([0; 2], |kind| [kind[0], kind[1]]));
                if let Some(id) = word(record, 12) {
                    keep(&mut self.programs, id, record, kind == UNLOADED, &mut self.bytes);
                }
            }
            Record::Other(PERF_RECORD_NAMESPACES) => {
                if let (Some(pid), Some(tid)) = (word(record, 8), word(record, 12)) {
                    let thread = thread_of(self.processes.entry(pid).or_default(), tid, &mut self.bytes);
                    self.bytes = self.bytes + record.len() - thread.namespaces.as_ref().map_or(0, |old| old.len());
                    thread.namespaces = Some(record.into());
                }
            }
            // Records about lost side-band records and throttling say nothing about tasks.
            _ => {}
        }
    }

    fn fork(&mut self, (pid, tid): (u32, u32), (ppid, ptid): (u32, u32), author: Author) {
        let parent = self.processes.get(&ppid);
        let comm = parent.and_then(|parent| parent.threads.get(&ptid)).map(|thread| thread.comm.clone());
        if pid != ppid || pid == tid {
            let mappings = match (parent, author) {
                (Some(parent), Author::Kernel) => parent.mappings.clone(),
                _ => BTreeMap::new(),
            };
            self.bytes += mappings.len() * ENTRY;
            self.remove(pid);
            self.processes.insert(pid, Process { parent: ppid, mappings, ..Process::default() });
        }
        let thread = thread_of(self.processes.entry(pid).or_default(), tid, &mut self.bytes);
        let comm = comm.unwrap_or_default();
        self.bytes = self.bytes + comm.len() - thread.comm.len();
        thread.comm = comm;
    }

    fn exit(&mut self, pid: u32, tid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(thread) = process.threads.remove(&tid) {
            self.bytes -= thread.cost();
        }
        if process.threads.is_empty() {
            self.remove(pid);
        }
    }

    fn remove(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            let threads: usize = process.threads.values().map(Thread::cost).sum();
            self.bytes -= threads + process.mappings.values().map(Mapped::cost).sum::<usize>();
        }
    }

    fn map(&mut self, pid: u32, start: u64, end: u64, record: &[u8]) {
        let process = self.processes.entry(pid).or_default();
        let covered = process.mappings.range(start..end).filter(|(_, mapped)| mapped.end <= end);
        let covered: Vec<u64> = covered.map(|(&start, _)| start).collect();
        let replaced = covered.iter().filter_map(|start| process.mappings.remove(start));
        self.bytes -= replaced.map(|mapped| mapped.cost()).sum::<usize>();
        self.mapped += 1;
        let new = Mapped { end, order: self.mapped, record: record.into() };
        self.bytes += new.cost();
        // An old mapping with the same start is dropped even if it is longer, because the new mapping replaces its start.
        let old = process.mappings.insert(start, new);
        self.bytes -= old.map_or(0, |old| old.cost());
    }

    fn describe(&self, out: &mut Synthesis) {
        let of_kernel = self.kernel.iter().chain(self.symbols.values()).chain(self.programs.values());
        of_kernel.chain(self.cgroups.values()).for_each(|record| out.again(record, None));
        for (&pid, process) in &self.processes {
            out.fork(TaskIds::first(pid), TaskIds::first(process.parent));
            if let Some(first) = process.threads.get(&pid) {
                out.comm(TaskIds::first(pid), &first.comm);
            }
            let mut mappings: Vec<&Mapped> = process.mappings.values().collect();
            mappings.sort_unstable_by_key(|mapped| mapped.order);
            mappings.iter().for_each(|mapped| out.again(&mapped.record, Some(TaskIds::first(pid))));
            for (&tid, thread) in &process.threads {
                if tid != pid {
                    out.fork(TaskIds { pid, tid }, TaskIds::first(pid));
                    out.comm(TaskIds { pid, tid }, &thread.comm);
                }
                thread.namespaces.iter().for_each(|record| out.again(record, None));
            }
        }
    }
}

impl Mapped {
    /// Returns the memory of a mapping. A record that several processes share is not counted for any of them.
    fn cost(&self) -> usize {
        ENTRY + if Arc::strong_count(&self.record) == 1 { self.record.len() } else { 0 }
    }
}

impl Thread {
    fn cost(&self) -> usize {
        ENTRY + self.comm.len() + self.namespaces.as_ref().map_or(0, |record| record.len())
    }
}

fn thread_of<'a>(process: &'a mut Process, tid: u32, bytes: &mut usize) -> &'a mut Thread {
    process.threads.entry(tid).or_insert_with(|| {
        *bytes += ENTRY;
        Thread::default()
    })
}

/// Keeps a record under a key. If `is_removed`, only forgets the record that was kept under the key.
fn keep<K: Ord>(records: &mut BTreeMap<K, Box<[u8]>>, key: K, record: &[u8], is_removed: bool, bytes: &mut usize) {
    let former = if is_removed {
        records.remove(&key)
    } else {
        *bytes += ENTRY + record.len();
        records.insert(key, record.into())
    };
    *bytes -= former.map_or(0, |former| ENTRY + former.len());
}

fn word(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_RECORD_EXIT, PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
        record::Mmap2,
    };
    use perf_prof_recordings::write::{MappedFile, MappedRange};
    use proptest::prelude::*;

    use super::*;

    fn trailer() -> TrailerLayout {
        TrailerLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)
    }

    /// Returns a record with a time.
    fn at(time: u64, make: impl FnOnce(&mut Synthesis)) -> Vec<u8> {
        let mut out = Synthesis::new(trailer());
        make(&mut out);
        let mut record = out.bytes().to_vec();
        trailer().put(&mut record, 0, 0, time);
        record
    }

    fn ids(pid: u32, tid: u32) -> TaskIds {
        TaskIds { pid, tid }
    }

    fn fork(time: u64, task: (u32, u32), parent: (u32, u32)) -> Vec<u8> {
        at(time, |out| out.fork(ids(task.0, task.1), ids(parent.0, parent.1)))
    }

    fn exit(time: u64, task: (u32, u32)) -> Vec<u8> {
        let mut record = fork(time, task, task);
        record[..4].copy_from_slice(&PERF_RECORD_EXIT.to_ne_bytes());
        record
    }

    fn comm(time: u64, pid: u32, name: &[u8]) -> Vec<u8> {
        at(time, |out| out.comm(ids(pid, pid), name))
    }

    fn map(time: u64, pid: u32, start: u64, len: u64, path: &[u8]) -> Vec<u8> {
        let range = MappedRange { start, len, offset: 0, prot: 5, flags: 2, path, file: MappedFile::Inode((1, 2), 3) };
        at(time, |out| out.mmap2(ids(pid, pid), &range))
    }

    /// Returns the contents of a dump, one line for each record.
    fn shown(side_band: &SideBand) -> Vec<String> {
        let bytes = side_band.records();
        let line = |record: &[u8]| {
            let time = trailer().time(record).unwrap();
            let text = match Record::parse(record) {
                Record::Fork { pid, tid, ppid, .. } => format!("fork {pid}/{tid} of {ppid}"),
                Record::Comm { pid, tid, comm, .. } => format!("comm {pid}/{tid} {}", String::from_utf8_lossy(comm)),
                Record::Exit { pid, tid } => format!("exit {pid}/{tid}"),
                Record::Mmap2(Mmap2 { pid, addr, len, filename, .. }) => {
                    format!("map {pid} {addr:x}+{len:x} {}", String::from_utf8_lossy(filename))
                }
                other => format!("{other:?}"),
            };
            format!("{time} {text}")
        };
        Records::new(&bytes).map(line).collect()
    }

    #[test]
    fn a_task_that_exited_is_known_as_long_as_it_may_have_samples() {
        let mut side_band = SideBand::new(trailer(), 1 << 20);
        side_band.add_existing(&[comm(0, 1, b"init"), map(0, 1, 0x1000, 0x1000, b"/bin/init")].concat());
        for record in [fork(10, (2, 2), (1, 1)), comm(11, 2, b"true"), exit(20, (2, 2))] {
            side_band.add(&record);
        }
        side_band.settle_before(15);
        let of_init = ["0 fork 1/1 of 0", "0 comm 1/1 init", "0 map 1 1000+1000 /bin/init"];
        // A child has the mappings that its parent had at the fork.
        let of_child = ["0 fork 2/2 of 1", "0 comm 2/2 true", "0 map 2 1000+1000 /bin/init", "20 exit 2/2"];
        assert_eq!(shown(&side_band), [&of_init[..], &of_child].concat());
        side_band.settle_before(21);
        assert_eq!(shown(&side_band), of_init);
    }

    #[test]
    fn mappings_are_those_of_the_present_program() {
        let mut side_band = SideBand::new(trailer(), 1 << 20);
        let mut exec = comm(3, 1, b"new");
        exec[4..6].copy_from_slice(&(1u16 << 13).to_ne_bytes());
        let covered = [map(1, 1, 0x1000, 0x1000, b"/old"), map(2, 1, 0x5000, 0x1000, b"/lib")];
        covered.iter().for_each(|record| side_band.add(record));
        side_band.add(&map(2, 1, 0x4000, 0x3000, b"/larger"));
        side_band.settle_before(3);
        assert_eq!(shown(&side_band)[1..], ["0 map 1 1000+1000 /old", "0 map 1 4000+3000 /larger"]);
        side_band.add(&exec);
        side_band.add(&map(4, 1, 0x9000, 0x1000, b"/new"));
        side_band.settle_before(5);
        assert_eq!(shown(&side_band), ["0 fork 1/1 of 0", "0 comm 1/1 new", "0 map 1 9000+1000 /new"]);
    }

    #[test]
    fn memory_is_bounded_and_what_had_no_room_is_counted() {
        const LIMIT: usize = 100_000;
        let mut side_band = SideBand::new(trailer(), LIMIT);
        for time in 1..20_000 {
            let pid = time as u32;
            [fork(time, (pid, pid), (1, 1)), comm(time, pid, b"short"), exit(time, (pid, pid))]
                .iter()
                .for_each(|record| side_band.add(record));
            assert!(side_band.recent_bytes + side_band.state.bytes <= LIMIT);
        }
        assert!(side_band.take_forgotten() > 40_000);
        assert_eq!(side_band.take_forgotten(), 0);
        // Tasks that do not exit fill the memory.
        (1..20_000).for_each(|pid| side_band.add(&fork(30_000, (pid, pid), (0, 0))));
        assert!(side_band.recent_bytes + side_band.state.bytes <= LIMIT + 1000);
    }

    proptest! {
        /// When all tasks have exited, no memory is counted any more.
        #[test]
        fn no_memory_is_left_when_all_tasks_have_exited(steps in prop::collection::vec((0u8..5, 1u32..6, 1u32..6), 0..200)) {
            let mut side_band = SideBand::new(trailer(), 1 << 30);
            for (time, (what, one, other)) in (1u64..).zip(&steps) {
                side_band.add(&match what {
                    0 => fork(time, (*one, *one), (*other, *other)),
                    1 => fork(time, (*one, one + 10 * other), (*one, *one)),
                    2 => comm(time, *one, &vec![b'x'; *other as usize]),
                    3 => map(time, *one, 0x1000 * u64::from(*other), 0x1800, b"/bin/x"),
                    _ => exit(time, (*one, *one)),
                });
            }
            for pid in 1..6 {
                (0..6).for_each(|other| side_band.add(&exit(1000, (pid, pid + 10 * other))));
            }
            side_band.settle_before(1001);
            let left: Vec<u32> = side_band.state.processes.keys().copied().collect();
            // A process is kept as long as its mappings are known, even if none of its threads is.
            let bytes: usize = left.iter().map(|pid| {
                side_band.state.processes[pid].mappings.values().map(Mapped::cost).sum::<usize>()
            }).sum();
            prop_assert_eq!(side_band.recent_bytes, 0);
            prop_assert!(side_band.state.bytes == bytes, "{} {bytes}", side_band.state.bytes);
        }
    }
}
