//! The processes that run an interpreter, and the functions that their frames belong to.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs,
    sync::Arc,
};

use perf_prof_format::tracefs::InterpreterFrame;
use rustc_hash::FxHashMap;

use super::{
    Function, Unnamed, Walk,
    budget::{Budget, Limit},
    files::{Files, MappedInterpreter, may_have_interpreter},
    functions::{Functions, Key},
    python::{self, Build, FrameKind, NotSupported},
    reader::{Reader, Request},
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
/// How long nothing is read of a process after a read that took too long, in ns.
const SLOW_FOR: u64 = 60_000_000_000;

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
    /// Processes with an interpreter that cannot be read.
    refused: FxHashMap<u32, NotSupported>,
    processes: FxHashMap<u32, Interpreter>,
    /// The process ids in the order in which they were found. Some may no longer be in `processes`.
    order: VecDeque<u32>,
    /// The ids of ended processes with the numbers of their interpreters, in the order of their ends.
    ended: VecDeque<(u32, u32)>,
    /// The memory of all functions, in bytes.
    function_bytes: usize,
    last: u32,
}

/// The interpreter of a process.
struct Interpreter {
    number: u32,
    build: Arc<Build>,
    /// The address in the process minus the address in the file.
    bias: u64,
    state: State,
    functions: Functions,
}

/// Whether a process still runs with its interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// The process has ended, or executes another program. Its earlier events get names only for functions that were
    /// already read.
    Ended,
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
            refused: FxHashMap::default(),
            processes: FxHashMap::default(),
            order: VecDeque::new(),
            ended: VecDeque::new(),
            function_bytes: 0,
            last: 0,
        }
    }

    /// Notes that a process has mapped a file at a time. Looks for an interpreter in the file if it is named like an interpreter.
    pub fn mapped(&mut self, pid: u32, mapping: &Mapping, time: u64) {
        let is_known = self.processes.get(&pid).is_some_and(|known| known.state == State::Runs);
        if is_known || !mapping.executable || !may_have_interpreter(&mapping.path) {
            return;
        }
        let found = self.files.find(pid, mapping, time);
        self.note(pid, found);
    }

    /// Looks for an interpreter in the mappings of a process that runs before the first event.
    pub fn find(&mut self, pid: u32) {
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        for map in maps::parse(&text).filter(|map| map.executable && may_have_interpreter(&map.path)) {
            let found = self.files.find(pid, &map, 0);
            if self.note(pid, found).is_some() {
                return;
            }
        }
    }

    /// Notes what was found in a file of a process. `None` if it is not an interpreter whose frames can be read.
    fn note(&mut self, pid: u32, found: Result<MappedInterpreter, NotSupported>) -> Option<()> {
        let added = found.and_then(|MappedInterpreter { build, bias }| self.add(pid, build, bias));
        if self.refused.len() >= MOST_PROCESSES {
            self.refused.clear();
        }
        match added {
            Ok(()) => _ = self.refused.remove(&pid),
            // The interpreter may be in another file.
            Err(NotSupported::NoInterpreter) => {}
            Err(reason) => _ = self.refused.insert(pid, reason),
        }
        added.ok()
    }

    fn add(&mut self, pid: u32, build: Arc<Build>, bias: u64) -> Result<(), NotSupported> {
        let number = self.last.wrapping_add(1);
        let walk = build.walk(bias, number)?;
        self.last = number;
        self.publish.publish(pid, Some(&walk));
        let interpreter = Interpreter { number, build, bias, state: State::Runs, functions: Functions::new() };
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
    pub fn forked(&mut self, parent: u32, child: u32) {
        // Ends an earlier process with the child's id.
        self.ended(child);
        if let Some(interpreter) = self.processes.get(&parent).filter(|known| known.state == State::Runs) {
            let found = MappedInterpreter { build: Arc::clone(&interpreter.build), bias: interpreter.bias };
            self.note(child, Ok(found));
        } else if let Some(reason) = self.refused.get(&parent) {
            self.note(child, Err(*reason));
        }
    }

    /// Notes that a process has ended or executes another program.
    pub fn ended(&mut self, pid: u32) {
        self.refused.remove(&pid);
        let Some(known) = self.processes.get_mut(&pid).filter(|known| known.state == State::Runs) else { return };
        known.state = State::Ended;
        self.ended.push_back((pid, known.number));
        self.publish.publish(pid, None);
        if self.ended.len() > MOST_ENDED
            && let Some((first, number)) = self.ended.pop_front()
            && self.processes.get(&first).is_some_and(|known| known.number == number)
        {
            self.forget(first);
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
        self.processes.get(&pid).is_some_and(|known| known.number == number && known.state == State::Runs)
    }

    /// Returns why a process has no interpreter.
    pub fn unknown(&self, pid: u32) -> Unnamed {
        self.refused.get(&pid).map_or(Unnamed::NotKnown, |reason| Unnamed::NotSupported(*reason))
    }

    /// Reads the functions of frames, unless they are known. `time` is that of their event.
    pub fn read(&mut self, pid: u32, number: u32, frames: impl Iterator<Item = InterpreterFrame>, time: u64) {
        let Interpreters { processes, reader, budget, .. } = self;
        let is_asked = |known: &&mut Interpreter| known.number == number && known.state == State::Runs;
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
        let keys = keys.into_iter().collect();
        match reader.read(Request { pid, build: Arc::clone(&known.build), bias: known.bias, keys, most }) {
            Some(answer) => {
                functions.budget.spend(answer.cost);
                budget.spend(answer.cost);
                answer.functions.iter().for_each(|(key, result)| functions.add(*key, result, time));
            }
            None => functions.slow_until = time.saturating_add(SLOW_FOR),
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
        let functions = &mut known.functions;
        let found = functions.get(&Key::from(*frame), time);
        let unread = || if known.state == State::Ended { Unnamed::Ended } else { functions.missing(time) };
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
