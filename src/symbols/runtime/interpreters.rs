//! The processes that run an interpreter, and the functions of their frames.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs,
    sync::Arc,
    time::Duration,
};

use perf_prof_format::{record::Record, tracefs::InterpreterFrame};
use rustc_hash::FxHashMap;

use super::{
    Function, Unnamed, Walk,
    budget::{Budget, Limit},
    changes::{Changes, Fork, Order},
    files::{Files, MappedInterpreter, may_have_interpreter},
    functions::{Functions, Key},
    python::{self, Build, FrameKind, NotSupported},
    reader::{NoAnswer, Reader, Request},
};
use crate::symbol::{Mapping, maps};

/// The maximum number of processes that are kept.
const MOST_PROCESSES: usize = 1 << 14;
/// The maximum number of ended processes among the processes that are kept.
const MOST_ENDED: usize = 1 << 10;
/// The maximum memory for functions of all processes together, in bytes.
const MOST_FUNCTION_BYTES: usize = 64 << 20;
/// The limit on the bytes that are read from all processes together.
const OF_ALL: Limit = Limit { at_once: 256 << 20, each_second: 128 << 20 };
/// The limit on the time for which the run waits for reads, in ns, for all processes together.
const WAITS: Limit = Limit { at_once: 2_000_000_000, each_second: 200_000_000 };
/// The minimum time that a read gets. If less time is left of `WAITS`, nothing is read. Reads take less than this time,
/// unless the machine is very busy.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// After a read that took too long, nothing is read from the process for this many times the time that the read got.
const SLOW_FOR: u32 = 30;

/// Tells BPF programs how to find the frames of a process. Callers pass an implementation that writes a BPF map.
pub trait Publish: Send {
    /// Publishes the walk of the process `pid`. `walk` is `None` if the process has ended, or executes another program.
    fn publish(&self, pid: u32, walk: Option<&Walk>);
}

/// The processes that run an interpreter.
pub struct Interpreters {
    publish: Box<dyn Publish>,
    files: Files,
    reader: Reader,
    /// The number of bytes that may still be read from all processes together.
    budget: Budget,
    /// The time for which the run may still wait for reads, in ns.
    waits: Budget,
    /// The processes whose interpreters cannot be read.
    refused: FxHashMap<u32, Refused>,
    processes: FxHashMap<u32, Interpreter>,
    /// The process ids in the order in which they were found. Some may no longer be in `processes`.
    order: VecDeque<u32>,
    /// The ids of ended processes with the numbers of their interpreters, in the order of their ends.
    ended: VecDeque<(u32, u32)>,
    /// The memory of all functions, in bytes.
    function_bytes: usize,
    last: u32,
    /// The times at which processes changed, according to the records that were read so far.
    changes: Changes,
}

/// Why the interpreter of a process cannot be read.
struct Refused {
    reason: NotSupported,
    since: u64,
}

/// The interpreter of a process.
struct Interpreter {
    number: u32,
    build: Arc<Build>,
    /// The address in the process minus the address in the file.
    bias: u64,
    /// The time at which the process mapped the interpreter, or was created with it. 0 if the process had the
    /// interpreter before the first event.
    since: u64,
    /// The latest mapping after `since` that may contain an interpreter, and its time. If it turns out that the process
    /// executed another program before this mapping, the process runs the interpreter in the mapping.
    later: Option<(Mapping, u64)>,
    state: State,
    functions: Functions,
    /// The interpreter that the process had before, or another process with the same id. Its events may not have been
    /// delivered yet.
    former: Option<Box<Interpreter>>,
}

/// Whether a process still runs with its interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// The process has ended, or executes another program. Its earlier events get names only for functions that were
    /// already read.
    Ended {
        at: u64,
    },
}

impl Interpreter {
    fn runs(&self) -> bool {
        self.state == State::Runs
    }

    fn ran_at(&self, time: u64) -> bool {
        let State::Ended { at } = self.state else { return self.since <= time };
        (self.since..at).contains(&time)
    }

    /// Returns this interpreter, or the former one if it has the number.
    fn with_number(&mut self, number: u32) -> Option<&mut Interpreter> {
        if self.number == number {
            return Some(self);
        }
        self.former.as_deref_mut().filter(|former| former.number == number)
    }

    /// Returns how much memory the functions take, in bytes.
    fn bytes(&self) -> usize {
        self.functions.bytes() + self.former.as_ref().map_or(0, |former| former.functions.bytes())
    }
}

impl fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreters").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

impl Interpreters {
    /// Creates a list without processes.
    pub fn new(publish: Box<dyn Publish>) -> Interpreters {
        Interpreters {
            publish,
            files: Files::default(),
            reader: Reader::default(),
            budget: Budget::new(OF_ALL),
            waits: Budget::new(WAITS),
            refused: FxHashMap::default(),
            processes: FxHashMap::default(),
            order: VecDeque::new(),
            ended: VecDeque::new(),
            function_bytes: 0,
            last: 0,
            changes: Changes::default(),
        }
    }

    /// Notes what a record says about a process. `time` is the time of the record. Records may be read in any order.
    pub fn follow(&mut self, record: &Record<'_>, time: u64) {
        match *record {
            Record::Mmap2(mmap) => self.mapped(mmap.pid, &mmap.into(), time),
            Record::Fork { pid, ppid, .. } if pid != ppid => self.forked(ppid, pid, time),
            Record::Comm { pid, exec: true, .. } => self.ended(pid, time),
            Record::Exit { pid, tid } if pid == tid => self.ended(pid, time),
            _ => {}
        }
    }

    /// Notes that a process has mapped a file. Looks for an interpreter in the file if it is named like an interpreter.
    fn mapped(&mut self, pid: u32, mapping: &Mapping, time: u64) {
        if !mapping.executable || !may_have_interpreter(&mapping.path) || time < self.changes.latest(pid) {
            return;
        }
        if let Some(known) = self.processes.get_mut(&pid).filter(|known| known.runs()) {
            if known.later.as_ref().map_or(known.since, |later| later.1) < time {
                known.later = Some((mapping.clone(), time));
            }
            return;
        }
        let found = self.files.find(pid, mapping, time);
        self.note(pid, found, time);
        self.pass_on(pid);
    }

    /// Gives the interpreter of a process to its children whose fork records were read before the interpreter was
    /// known, and in turn to their children.
    fn pass_on(&mut self, parent: u32) {
        let mut parents = vec![parent];
        while let Some(parent) = parents.pop() {
            for fork in self.changes.take_forks(parent) {
                let has_none = self.processes.get(&fork.child).is_none_or(|known| !known.runs());
                if has_none && self.inherit(fork).is_some() {
                    parents.push(fork.child);
                }
            }
        }
    }

    /// Looks for an interpreter in the mappings of a process that already runs at the first event.
    pub fn find(&mut self, pid: u32) {
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        for map in maps::parse(&text).filter(|map| map.executable && may_have_interpreter(&map.path)) {
            let found = self.files.find(pid, &map, 0);
            if self.note(pid, found, 0).is_some() {
                return;
            }
        }
    }

    /// Notes the result of looking for an interpreter in a file of a process. Returns `None` if the file contains no
    /// interpreter whose frames can be read.
    fn note(&mut self, pid: u32, found: Result<MappedInterpreter, NotSupported>, since: u64) -> Option<()> {
        let added = found.and_then(|found| self.add(pid, found, since));
        if self.refused.len() >= MOST_PROCESSES {
            self.refused.clear();
        }
        match added {
            Ok(()) => _ = self.refused.remove(&pid),
            // Another file of the process may contain the interpreter.
            Err(NotSupported::NoInterpreter) => {}
            Err(reason) => _ = self.refused.insert(pid, Refused { reason, since }),
        }
        added.ok()
    }

    fn add(&mut self, pid: u32, found: MappedInterpreter, since: u64) -> Result<(), NotSupported> {
        let MappedInterpreter { build, bias } = found;
        let number = self.last.wrapping_add(1);
        let walk = build.walk(bias, number)?;
        self.last = number;
        self.publish.publish(pid, Some(&walk));
        let (state, functions) = (State::Runs, Functions::new());
        let former = self.processes.remove(&pid).map(|mut replaced| {
            self.function_bytes -= replaced.bytes() - replaced.functions.bytes();
            replaced.former = None;
            Box::new(replaced)
        });
        if former.is_none() {
            self.order.push_back(pid);
        }
        let interpreter = Interpreter { number, build, bias, since, later: None, state, functions, former };
        self.processes.insert(pid, interpreter);
        while self.processes.len() > MOST_PROCESSES {
            let Some(first) = self.order.pop_front() else { break };
            self.publish.publish(first, None);
            self.forget(first);
        }
        // The list contains the ids of processes that are no longer kept, and may contain an id several times. The ids
        // of processes that are not kept are removed.
        if self.order.len() > 2 * MOST_PROCESSES {
            self.order.retain(|pid| self.processes.contains_key(pid));
        }
        Ok(())
    }

    /// Notes that a process was created by fork. The child has a copy of the parent's memory, so it has the same
    /// interpreter.
    fn forked(&mut self, parent: u32, child: u32, time: u64) {
        if self.changes.note(child, time) == Order::Late {
            return;
        }
        // If an earlier process had the child's id, this process has ended.
        self.end(child, time);
        // The record of a mapping that the child made after the fork may have been read before the record of the fork.
        let has_none = self.processes.get(&child).is_none_or(|known| !known.runs());
        let fork = Fork { parent, child, time };
        if !has_none {
            return;
        }
        match self.inherit(fork) {
            Some(()) => self.pass_on(child),
            None => self.changes.wait(fork),
        }
    }

    /// Gives the interpreter that a process had at the time of a fork to the child. Returns `None` if the process had
    /// no interpreter at that time.
    fn inherit(&mut self, Fork { parent, child, time }: Fork) -> Option<()> {
        let had = |known: &&Interpreter| known.ran_at(time);
        let refused = self.refused.get(&parent).filter(|refused| refused.since <= time);
        let Some(known) = self.processes.get(&parent).filter(had) else {
            self.note(child, Err(refused?.reason), time);
            return Some(());
        };
        let slow_until = known.functions.slow_until;
        let found = MappedInterpreter { build: Arc::clone(&known.build), bias: known.bias };
        self.note(child, Ok(found), time);
        // The child takes over `slow_until`. Otherwise, if reads of a process take too long, reads of each of its
        // children would take as long again.
        self.processes.entry(child).and_modify(|child| child.functions.slow_until = slow_until);
        Some(())
    }

    /// Notes that a process has ended or executes another program.
    fn ended(&mut self, pid: u32, time: u64) {
        if self.changes.note(pid, time) == Order::InTime {
            self.end(pid, time);
        }
    }

    /// Notes that the interpreter that the process `pid` had before `time` no longer runs.
    fn end(&mut self, pid: u32, time: u64) {
        if self.refused.get(&pid).is_some_and(|refused| refused.since <= time) {
            self.refused.remove(&pid);
        }
        let is_earlier = |known: &&mut Interpreter| known.runs() && known.since <= time;
        let Some(known) = self.processes.get_mut(&pid).filter(is_earlier) else { return };
        let later = known.later.take();
        known.state = State::Ended { at: time };
        self.ended.push_back((pid, known.number));
        self.publish.publish(pid, None);
        if self.ended.len() > MOST_ENDED
            && let Some((first, number)) = self.ended.pop_front()
            && self.processes.get(&first).is_some_and(|known| known.number == number)
        {
            self.forget(first);
        }
        if let Some((mapping, time)) = later {
            self.mapped(pid, &mapping, time);
        }
    }

    fn forget(&mut self, pid: u32) {
        if let Some(forgotten) = self.processes.remove(&pid) {
            self.function_bytes -= forgotten.bytes();
        }
    }

    /// Returns an interpreter that a process has or had before.
    fn interpreter(&mut self, pid: u32, number: u32) -> Option<&mut Interpreter> {
        self.processes.get_mut(&pid)?.with_number(number)
    }

    /// Returns the kind of a frame. Both numbers come from the record: `number` identifies the process's interpreter,
    /// and `mark` identifies the kind of the frame.
    pub fn kind(&mut self, pid: u32, number: u32, mark: u8) -> Result<FrameKind, Unnamed> {
        Ok(self.interpreter(pid, number).ok_or(Unnamed::Replaced)?.build.kind(mark))
    }

    /// Returns whether a process ran with this interpreter at `time`.
    pub fn ran_at(&mut self, pid: u32, number: u32, time: u64) -> bool {
        self.interpreter(pid, number).is_some_and(|known| known.ran_at(time))
    }

    /// Returns why a process has no interpreter.
    pub fn unknown(&self, pid: u32) -> Unnamed {
        self.refused.get(&pid).map_or(Unnamed::NotKnown, |refused| Unnamed::NotSupported(refused.reason))
    }

    /// Reads the functions of `frames` that are not known yet. `time` is the time of the event that contains the
    /// frames.
    pub fn read(&mut self, pid: u32, number: u32, frames: impl Iterator<Item = InterpreterFrame>, time: u64) {
        let Interpreters { processes, reader, budget, waits, .. } = self;
        let is_asked = |known: &&mut Interpreter| known.number == number && known.runs();
        let Some(known) = processes.get_mut(&pid).filter(is_asked) else { return };
        let functions = &mut known.functions;
        let is_function = |frame: &InterpreterFrame| known.build.kind(frame.mark) != FrameKind::Boundary;
        let is_new = |key: &Key| functions.get(key, time).is_none();
        let keys: BTreeSet<Key> = frames.filter(is_function).map(Key::from).filter(is_new).collect();
        let most = functions.budget.left(time).min(budget.left(time));
        if keys.is_empty() || time < functions.slow_until || most == 0 {
            return;
        }
        let before = functions.bytes();
        let request =
            Request { pid, build: Arc::clone(&known.build), bias: known.bias, keys: keys.into_iter().collect(), most };
        let longest = Duration::from_nanos(waits.left(time));
        let answer = if longest < SHORTEST_WAIT { Err(NoAnswer::Busy) } else { reader.read(request, longest) };
        match answer {
            Ok(answer) => {
                functions.budget.spend(answer.cost);
                budget.spend(answer.cost);
                waits.spend(answer.took.saturating_sub(SHORTEST_WAIT).as_nanos() as u64);
                answer.functions.iter().for_each(|(key, result)| functions.add(*key, result, time));
            }
            Err(NoAnswer::Slow) => {
                waits.spend(longest.as_nanos() as u64);
                functions.slow_until = time.saturating_add((longest * SLOW_FOR).as_nanos() as u64);
            }
            Err(NoAnswer::Busy) => functions.busy_at = Some(time),
        }
        self.function_bytes += functions.bytes() - before;
        let bytes = |process: &&mut Interpreter| process.bytes();
        if self.function_bytes > MOST_FUNCTION_BYTES
            && let Some(most) = self.processes.values_mut().max_by_key(bytes)
        {
            // The functions are read again when they are needed, if the process still runs.
            self.function_bytes -= most.bytes();
            most.former = None;
            most.functions.clear();
        }
    }

    /// Returns the function of a frame, and the line of the frame's instruction. [`Interpreters::read`] must have read
    /// the function. `time` is the time of the event.
    pub fn function(
        &mut self,
        pid: u32,
        number: u32,
        frame: &InterpreterFrame,
        time: u64,
    ) -> Result<(Arc<Function>, Option<u32>), Unnamed> {
        let known = self.interpreter(pid, number).ok_or(Unnamed::Replaced)?;
        let (runs, functions) = (known.runs(), &mut known.functions);
        let found = functions.get(&Key::from(*frame), time);
        let unread = || if runs { functions.missing(time) } else { Unnamed::Ended };
        let function = found.ok_or_else(unread)??;
        // The search for the line takes about as long as reading the table of lines, so it counts as such a read.
        if functions.budget.left(time) == 0 {
            return Err(Unnamed::TooMuch);
        }
        functions.budget.spend(function.lines.len() as u64);
        let line = python::line(&function, frame.instruction);
        Ok((function, line))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use crate::runtime::WalkWord;

    /// The biases of the interpreters that are published now, by process id.
    #[derive(Clone, Default)]
    struct Published(Arc<Mutex<BTreeMap<u32, u64>>>);

    impl Publish for Published {
        fn publish(&self, pid: u32, walk: Option<&Walk>) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match walk {
                Some(walk) => _ = all.insert(pid, walk.get(WalkWord::Interpreters) - HEAD),
                None => _ = all.remove(&pid),
            }
        }
    }

    /// The address of the pointer to the first interpreter state, as the file counts addresses.
    const HEAD: u64 = 0x4278;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        /// The process id, and the address of the mapping in units of a page.
        Mapped(u32, u64),
        /// The ids of the parent and of the child.
        Forked(u32, u32),
        /// The process ends, or executes another program.
        Ended(u32),
    }

    use Change::{Ended, Forked, Mapped};

    fn mapping(page: u64) -> Mapping {
        let text = format!("{:x}000-{:x}000 r-xp 00000000 00:01 5 /none/python3\n", page, page + 1);
        maps::parse(text.as_bytes()).next().unwrap()
    }

    fn interpreters() -> (Interpreters, Published) {
        let published = Published::default();
        let mut interpreters = Interpreters::new(Box::new(published.clone()));
        interpreters.files.know(&mapping(1), python::tests::build());
        (interpreters, published)
    }

    /// Returns the address of each process's interpreter, in units of a page.
    fn found<'a>(changes: impl Iterator<Item = &'a (u64, Change)>) -> BTreeMap<u32, u64> {
        let (mut interpreters, published) = interpreters();
        for &(time, change) in changes {
            match change {
                Mapped(pid, page) => interpreters.mapped(pid, &mapping(page), time),
                Forked(parent, child) => interpreters.forked(parent, child, time),
                Ended(pid) => interpreters.ended(pid, time),
            }
        }
        let running = interpreters.processes.iter().filter(|(_, known)| known.runs());
        let running: BTreeMap<u32, u64> = running.map(|(pid, known)| (*pid, known.bias)).collect();
        let published = published.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(running, published);
        running.into_iter().map(|(pid, bias)| (pid, bias >> 12)).collect()
    }

    #[track_caller]
    fn check(changes: &[Change], expected: &[(u32, u64)]) {
        let timed: Vec<(u64, Change)> = (10..).zip(changes.iter().copied()).collect();
        for order in orders(&timed) {
            assert_eq!(found(order.iter()), expected.iter().copied().collect(), "{order:?}");
        }
    }

    fn orders(changes: &[(u64, Change)]) -> Vec<Vec<(u64, Change)>> {
        let Some((first, rest)) = changes.split_first() else { return vec![Vec::new()] };
        let with_first_at = |order: &Vec<(u64, Change)>, at: usize| [&order[..at], &[*first], &order[at..]].concat();
        let all = |order: Vec<(u64, Change)>| (0..=order.len()).map(move |at| with_first_at(&order, at));
        orders(rest).into_iter().flat_map(all).collect()
    }

    #[test]
    fn records_in_any_order_give_the_same_interpreters() {
        // A shell starts Python.
        check(&[Forked(1, 2), Ended(2), Mapped(2, 7)], &[(2, 7)]);
        check(&[Forked(1, 2), Ended(2), Mapped(2, 7), Ended(2)], &[]);
        // Python starts Python.
        check(&[Mapped(1, 5), Forked(1, 2), Ended(2), Mapped(2, 7)], &[(1, 5), (2, 7)]);
        check(&[Mapped(1, 5), Forked(1, 2), Ended(2)], &[(1, 5)]);
        // Python becomes another Python.
        check(&[Mapped(1, 5), Ended(1), Mapped(1, 7)], &[(1, 7)]);
        // Python forks workers, and a worker forks workers.
        check(&[Mapped(1, 5), Forked(1, 2), Forked(2, 3), Forked(1, 4)], &[(1, 5), (2, 5), (3, 5), (4, 5)]);
    }

    #[test]
    fn the_id_of_a_process_that_ended_can_be_used_again() {
        let changes = [Mapped(1, 5), Forked(1, 2), Ended(2), Forked(9, 2), Ended(2), Mapped(2, 7), Ended(2)];
        let timed: Vec<(u64, Change)> = (10..).zip(changes).collect();
        let expected: [&[(u32, u64)]; 4] = [&[(1, 5)], &[(1, 5)], &[(1, 5), (2, 7)], &[(1, 5)]];
        for (count, expected) in (4..).zip(expected) {
            assert_eq!(found(timed[..count].iter()), expected.iter().copied().collect(), "{count}");
        }
    }

    #[test]
    fn a_parent_can_end_before_the_record_of_its_fork_is_read() {
        let changes = [(10, Mapped(1, 5)), (12, Ended(1)), (11, Forked(1, 2)), (13, Forked(1, 3))];
        assert_eq!(found(changes.iter()), [(2, 5)].into());
    }

    #[test]
    fn what_a_process_ran_before_is_known_until_it_runs_a_third_program() {
        let (mut interpreters, _) = interpreters();
        let mut numbers = Vec::new();
        for (time, page) in [(10, 5), (20, 6), (30, 7)] {
            interpreters.ended(1, time);
            interpreters.mapped(1, &mapping(page), time + 1);
            numbers.push(interpreters.processes[&1].number);
        }
        let mut known = |number: u32| interpreters.kind(1, number, 0).is_ok();
        assert_eq!([0, 1, 2].map(|at| known(numbers[at])), [false, true, true]);
        let mut ran_at = |time: u64| [1, 2].map(|at: usize| interpreters.ran_at(1, numbers[at], time));
        assert_eq!([29, 31].map(&mut ran_at), [[true, false], [false, true]]);
        assert_eq!(interpreters.order, [1]);
    }

    #[test]
    fn the_first_interpreter_of_a_program_is_its_own() {
        let changes = [(10, Mapped(1, 5)), (11, Mapped(1, 6)), (12, Forked(1, 2))];
        assert_eq!(found(changes.iter()), [(1, 5), (2, 5)].into());
    }

    const SECOND: u64 = 1_000_000_000;

    /// Returns why a function of a process has no name, after an attempt to read it. The process has no code object at
    /// its address.
    fn reason(interpreters: &mut Interpreters, pid: u32, time: u64) -> Unnamed {
        let frame = InterpreterFrame { code: 8, instruction: 0, mark: 0, identity: [1, 2, 3] };
        let number = interpreters.processes[&pid].number;
        interpreters.read(pid, number, [frame].into_iter(), time);
        interpreters.function(pid, number, &frame, time).unwrap_err()
    }

    #[test]
    fn children_of_a_process_that_lets_reads_wait_are_not_read_either() {
        let (mut interpreters, _) = interpreters();
        let pid = std::process::id();
        interpreters.mapped(1, &mapping(5), 10);
        interpreters.processes.entry(1).and_modify(|known| known.functions.slow_until = 60);
        interpreters.forked(1, pid, 20);
        assert_eq!(reason(&mut interpreters, pid, 59), Unnamed::Slow);
        assert_eq!(reason(&mut interpreters, pid, 60), Unnamed::Unreadable);
    }

    #[test]
    fn reads_that_wait_take_a_part_of_the_time_and_make_no_other_process_slow() {
        let (mut interpreters, _) = interpreters();
        let pid = std::process::id();
        interpreters.mapped(pid, &mapping(5), 10);
        assert_eq!(interpreters.waits.left(SECOND), WAITS.at_once);
        interpreters.waits.spend(WAITS.at_once);
        assert_eq!(reason(&mut interpreters, pid, SECOND), Unnamed::Busy);
        let (reader, ends) = Reader::busy();
        interpreters.reader = reader;
        assert_eq!(reason(&mut interpreters, pid, 2 * SECOND), Unnamed::Busy);
        drop(ends);
        interpreters.reader = Reader::default();
        assert_eq!(reason(&mut interpreters, pid, 2 * SECOND), Unnamed::Unreadable);
    }
}
