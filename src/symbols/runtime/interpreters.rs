//! The processes that run an interpreter, and the functions that their frames belong to.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs,
    sync::Arc,
    time::Duration,
};

use perf_prof_format::tracefs::InterpreterFrame;
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
/// The maximum number of ended processes among them.
const MOST_ENDED: usize = 1 << 10;
/// The maximum memory for functions of all processes together, in bytes.
const MOST_FUNCTION_BYTES: usize = 64 << 20;
/// How much may be read of all processes.
const OF_ALL: Limit = Limit { at_once: 256 << 20, each_second: 128 << 20 };
/// How long reads of all processes may let the run wait, in ns.
const WAITS: Limit = Limit { at_once: 2_000_000_000, each_second: 200_000_000 };
/// The shortest time for a read. Reads take less, unless the machine is very busy.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// For how many times as long nothing is read of a process after a read that took too long.
const SLOW_FOR: u32 = 30;

/// Tells BPF programs how to find the frames of a process. Callers pass an implementation that writes a BPF map.
pub trait Publish: Send {
    /// Publishes the walk of a process. `None` if the process has ended, or executes another program.
    fn publish(&self, pid: u32, walk: Option<&Walk>);
}

/// The processes that run an interpreter.
pub struct Interpreters {
    publish: Box<dyn Publish>,
    files: Files,
    reader: Reader,
    /// How much may be read of all processes together.
    budget: Budget,
    /// How long reads may still let the run wait, in ns.
    waits: Budget,
    /// Processes with an interpreter that cannot be read.
    refused: FxHashMap<u32, Refused>,
    processes: FxHashMap<u32, Interpreter>,
    /// The process ids in the order in which they were found. Some may no longer be in `processes`.
    order: VecDeque<u32>,
    /// The ids of ended processes with the numbers of their interpreters, in the order of their ends.
    ended: VecDeque<(u32, u32)>,
    /// The memory of all functions, in bytes.
    function_bytes: usize,
    last: u32,
    /// When processes changed, as far as records said.
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
    /// When the process mapped it, or was created. 0 if it had it before the first event.
    since: u64,
    /// The latest mapping since that may have an interpreter too, and its time. If the process has executed another program in between,
    /// it has the interpreter of that program.
    later: Option<(Mapping, u64)>,
    state: State,
    functions: Functions,
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

    /// Notes that a process has mapped a file. Looks for an interpreter in the file if it is named like an interpreter.
    ///
    /// This, [`Interpreters::forked`] and [`Interpreters::ended`] take the times of their records, which may come in any order.
    pub fn mapped(&mut self, pid: u32, mapping: &Mapping, time: u64) {
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

    /// Gives the interpreter of a process to the children that it created since, whose forks were read before.
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

    /// Looks for an interpreter in the mappings of a process that runs before the first event.
    pub fn find(&mut self, pid: u32) {
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        for map in maps::parse(&text).filter(|map| map.executable && may_have_interpreter(&map.path)) {
            let found = self.files.find(pid, &map, 0);
            if self.note(pid, found, 0).is_some() {
                return;
            }
        }
    }

    /// Notes what was found in a file of a process. `None` if it is not an interpreter whose frames can be read.
    fn note(&mut self, pid: u32, found: Result<MappedInterpreter, NotSupported>, since: u64) -> Option<()> {
        let added = found.and_then(|found| self.add(pid, found, since));
        if self.refused.len() >= MOST_PROCESSES {
            self.refused.clear();
        }
        match added {
            Ok(()) => _ = self.refused.remove(&pid),
            // The interpreter may be in another file.
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
        let interpreter = Interpreter { number, build, bias, since, later: None, state, functions };
        match self.processes.insert(pid, interpreter) {
            Some(replaced) => self.function_bytes -= replaced.functions.bytes(),
            None => self.order.push_back(pid),
        }
        while self.processes.len() > MOST_PROCESSES {
            let Some(first) = self.order.pop_front() else { break };
            self.publish.publish(first, None);
            self.forget(first);
        }
        // The list contains a process several times if other processes had its id before. Those entries are removed.
        if self.order.len() > 2 * MOST_PROCESSES {
            self.order.retain(|pid| self.processes.contains_key(pid));
        }
        Ok(())
    }

    /// Notes that a process was created by fork. The child has a copy of the parent's memory, and so the same
    /// interpreter.
    pub fn forked(&mut self, parent: u32, child: u32, time: u64) {
        if self.changes.note(child, time) == Order::Late {
            return;
        }
        // Ends an earlier process with the child's id.
        self.end(child, time);
        // What the child has mapped since then may be known already.
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

    /// Gives the interpreter that a process had at a fork to the child. `None` if it had none.
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
        // Otherwise each child of a process that lets reads wait would take its time.
        self.processes.entry(child).and_modify(|child| child.functions.slow_until = slow_until);
        Some(())
    }

    /// Notes that a process has ended or executes another program.
    pub fn ended(&mut self, pid: u32, time: u64) {
        if self.changes.note(pid, time) == Order::InTime {
            self.end(pid, time);
        }
    }

    /// Ends what a process had before a time.
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
            self.function_bytes -= forgotten.functions.bytes();
        }
    }

    /// Returns the kind of a frame. Both numbers come from the record: `number` identifies the process's interpreter,
    /// and `mark` identifies the kind of the frame.
    pub fn kind(&self, pid: u32, number: u32, mark: u8) -> Result<FrameKind, Unnamed> {
        let interpreter = self.processes.get(&pid).filter(|known| known.number == number).ok_or(Unnamed::Replaced)?;
        Ok(interpreter.build.kind(mark))
    }

    /// Returns whether a process still runs with this interpreter.
    pub fn runs(&self, pid: u32, number: u32) -> bool {
        self.processes.get(&pid).is_some_and(|known| known.number == number && known.runs())
    }

    /// Returns why a process has no interpreter.
    pub fn unknown(&self, pid: u32) -> Unnamed {
        self.refused.get(&pid).map_or(Unnamed::NotKnown, |refused| Unnamed::NotSupported(refused.reason))
    }

    /// Reads the functions of frames, unless they are known. `time` is that of their event.
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
        let bytes = |process: &&mut Interpreter| process.functions.bytes();
        if self.function_bytes > MOST_FUNCTION_BYTES
            && let Some(most) = self.processes.values_mut().max_by_key(bytes)
        {
            // They are read again if the process still runs.
            self.function_bytes -= most.functions.bytes();
            most.functions.clear();
        }
    }

    /// Returns the function of a frame that was read, and the line of its instruction.
    pub fn function(
        &mut self,
        pid: u32,
        number: u32,
        frame: &InterpreterFrame,
        time: u64,
    ) -> Result<(Arc<Function>, Option<u32>), Unnamed> {
        let known = self.processes.get_mut(&pid).filter(|known| known.number == number).ok_or(Unnamed::Replaced)?;
        let (runs, functions) = (known.runs(), &mut known.functions);
        let found = functions.get(&Key::from(*frame), time);
        let unread = || if runs { functions.missing(time) } else { Unnamed::Ended };
        let function = found.ok_or_else(unread)??;
        // Looking for a line takes about as long as reading the table of lines.
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

    /// The biases of the interpreters that BPF programs are told, by process.
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

    /// The address of the list of interpreters in the file.
    const HEAD: u64 = 0x4278;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        /// The process, and the address in units of a page.
        Mapped(u32, u64),
        /// The parent, and the child.
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

    /// Returns the address of the interpreter of each process, in pages.
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
        // Workers, and workers of workers.
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
    fn the_first_interpreter_of_a_program_is_its_own() {
        let changes = [(10, Mapped(1, 5)), (11, Mapped(1, 6)), (12, Forked(1, 2))];
        assert_eq!(found(changes.iter()), [(1, 5), (2, 5)].into());
    }

    const SECOND: u64 = 1_000_000_000;

    /// Returns why a function of a process has no name, after an attempt to read it. There is no code object.
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
