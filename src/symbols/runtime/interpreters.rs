//! The processes that have an interpreter, and the functions that they run.

use std::{collections::VecDeque, fmt, fs, path::Path, sync::Arc};

use perf_prof_format::tracefs::InterpreterFrame;
use perf_prof_system::process_memory;
use rustc_hash::FxHashMap;

use super::{
    Function, Memory, Unnamed, Walk,
    python::{self, Build, FrameKind},
};
use crate::symbol::{elf::Elf, maps};

/// The most processes that are kept, and the most of them that have ended.
const MOST_PROCESSES: usize = 1 << 14;
const MOST_ENDED: usize = 1 << 10;
/// The most memory for functions of all processes, in bytes.
const MOST_FUNCTION_BYTES: usize = 64 << 20;
/// The most files whose interpreters are kept.
const MOST_FILES: usize = 1 << 12;

/// Receives how programs in the kernel find the frames of processes.
pub trait Publish: Send {
    /// Sets it for a process. `None` if the process has ended, or executes another program.
    fn publish(&self, pid: u32, walk: Option<&Walk>);
}

/// The processes that have an interpreter.
pub struct Interpreters {
    publish: Box<dyn Publish>,
    /// `None` if a file has no interpreter that can be read.
    files: FxHashMap<FileKey, Option<Arc<Build>>>,
    processes: FxHashMap<u32, Interpreter>,
    /// The processes in the order in which they were found. Some may be gone.
    order: VecDeque<u32>,
    /// The processes that have ended, with the numbers of their interpreters, in the order of their ends.
    ended: VecDeque<(u32, u32)>,
    /// The memory for functions, in bytes.
    function_bytes: usize,
    last: u32,
}

/// The device of a file, and its inode.
type FileKey = ((u32, u32), u64);

/// The interpreter of a process.
struct Interpreter {
    number: u32,
    build: Arc<Build>,
    /// The distance between addresses in the process and in the file.
    bias: u64,
    state: State,
    functions: FxHashMap<(u64, [u64; 3]), Arc<Function>>,
}

impl Interpreter {
    fn function_bytes(&self) -> usize {
        self.functions.values().map(|function| bytes_of(function)).sum()
    }
}

/// Returns how much memory a function takes.
fn bytes_of(function: &Function) -> usize {
    size_of::<Function>() + function.name.len() + function.file.len() + function.lines.len()
}

/// Whether a process still runs with its interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// It has ended, or executes another program. Events from before are named as far as their functions are known.
    Ended,
}

/// The memory of a process that runs.
struct Running(u32);

impl Memory for Running {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        process_memory::read(self.0, address, to).is_ok()
    }
}

impl fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreters").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

impl Interpreters {
    /// Returns a value without processes.
    pub fn new(publish: Box<dyn Publish>) -> Interpreters {
        Interpreters {
            publish,
            files: FxHashMap::default(),
            processes: FxHashMap::default(),
            order: VecDeque::new(),
            ended: VecDeque::new(),
            function_bytes: 0,
            last: 0,
        }
    }

    /// Notes a process that has mapped a file.
    pub fn mapped(&mut self, pid: u32, path: &Path) {
        let is_known = self.processes.get(&pid).is_some_and(|known| known.state == State::Runs);
        if may_have_interpreter(path) && !is_known {
            self.find(pid);
        }
    }

    /// Looks for an interpreter in a process.
    pub fn find(&mut self, pid: u32) {
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        let candidates = maps::parse(&text).filter(|map| map.executable && may_have_interpreter(&map.path));
        for map in candidates {
            let relative = map.path.strip_prefix("/").unwrap_or(&map.path);
            let path = Path::new(&format!("/proc/{pid}/root")).join(relative);
            let build = self.build_of((map.device, map.inode), &path);
            let Some(build) = build else { continue };
            // The file is open again, because only its segments say where the mapping is in its own addresses.
            let Some(start) = Elf::open(&path).ok().and_then(|elf| elf.address_of(map.file_offset)) else { continue };
            self.add(pid, build, map.start.wrapping_sub(start));
            return;
        }
    }

    fn build_of(&mut self, key: FileKey, path: &Path) -> Option<Arc<Build>> {
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        // If the process has ended, the path leads nowhere. Another process may have the same file.
        let elf = Elf::open(path).ok()?;
        let build = Build::of(&elf, path).ok().map(Arc::new);
        if self.files.len() >= MOST_FILES {
            self.files.clear();
        }
        self.files.insert(key, build.clone());
        build
    }

    fn add(&mut self, pid: u32, build: Arc<Build>, bias: u64) {
        let number = self.last.wrapping_add(1);
        let Ok(walk) = build.walk(bias, number) else { return };
        self.last = number;
        self.publish.publish(pid, Some(&walk));
        let interpreter = Interpreter { number, build, bias, state: State::Runs, functions: FxHashMap::default() };
        match self.processes.insert(pid, interpreter) {
            Some(replaced) => self.function_bytes -= replaced.function_bytes(),
            None => self.order.push_back(pid),
        }
        while self.processes.len() > MOST_PROCESSES {
            let Some(first) = self.order.pop_front() else { break };
            self.publish.publish(first, None);
            self.forget(first);
        }
        // Processes that were replaced are in the list several times.
        if self.order.len() > 2 * MOST_PROCESSES {
            self.order.retain(|pid| self.processes.contains_key(pid));
        }
    }

    /// Notes that a process has created another one, which has a copy of its memory.
    pub fn forked(&mut self, parent: u32, child: u32) {
        // An earlier process may have had the id.
        self.ended(child);
        if let Some(interpreter) = self.processes.get(&parent).filter(|known| known.state == State::Runs) {
            let (build, bias) = (Arc::clone(&interpreter.build), interpreter.bias);
            self.add(child, build, bias);
        }
    }

    /// Notes that a process has ended or executes another program.
    pub fn ended(&mut self, pid: u32) {
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
            self.function_bytes -= forgotten.function_bytes();
        }
    }

    /// Returns what a frame is. `number` is that of the process's interpreter in the record.
    pub fn kind(&self, pid: u32, number: u32, mark: u8) -> Result<FrameKind, Unnamed> {
        let interpreter = self.processes.get(&pid).filter(|known| known.number == number).ok_or(Unnamed::Replaced)?;
        Ok(interpreter.build.kind(mark))
    }

    /// Returns the function of a frame, and the line of its instruction.
    pub fn function(
        &mut self,
        pid: u32,
        number: u32,
        frame: &InterpreterFrame,
    ) -> Result<(Arc<Function>, Option<u32>), Unnamed> {
        let known = self.processes.get_mut(&pid).filter(|known| known.number == number).ok_or(Unnamed::Replaced)?;
        let key = (frame.code & !7, frame.identity);
        let function = match known.functions.get(&key) {
            Some(function) => Arc::clone(function),
            None => {
                if known.state == State::Ended {
                    return Err(Unnamed::Ended);
                }
                let function = Arc::new(python::function(&known.build, known.bias, &Running(pid), key.0, key.1)?);
                let bytes = bytes_of(&function);
                if self.function_bytes + bytes > MOST_FUNCTION_BYTES {
                    // They are read again from the processes that still run.
                    self.processes.values_mut().for_each(|process| process.functions.clear());
                    self.function_bytes = 0;
                }
                self.function_bytes += bytes;
                if let Some(known) = self.processes.get_mut(&pid) {
                    known.functions.insert(key, Arc::clone(&function));
                }
                function
            }
        };
        let line = python::line(&function, frame.instruction);
        Ok((function, line))
    }
}

/// Returns whether a file may have an interpreter, by its name.
fn may_have_interpreter(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}
