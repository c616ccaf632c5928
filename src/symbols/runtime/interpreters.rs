//! The processes that run an interpreter, and the functions that their frames belong to.

use std::{collections::VecDeque, fmt, fs, path::Path, sync::Arc};

use perf_prof_format::tracefs::InterpreterFrame;
use perf_prof_system::process_memory;
use rustc_hash::FxHashMap;

use super::{
    Function, Memory, Unnamed, Walk,
    python::{self, Build, FrameKind},
};
use crate::symbol::{elf::Elf, maps};

/// The maximum number of processes that are kept.
const MOST_PROCESSES: usize = 1 << 14;
/// The maximum number of ended processes among them.
const MOST_ENDED: usize = 1 << 10;
/// The maximum memory for functions of all processes together, in bytes.
const MOST_FUNCTION_BYTES: usize = 64 << 20;
/// The maximum number of files in `Interpreters::files`.
const MOST_FILES: usize = 1 << 12;

/// Tells BPF programs how to find the frames of a process. Callers pass an implementation that writes a BPF map.
pub trait Publish: Send {
    /// Publishes the walk of a process. `None` if the process has ended, or executes another program.
    fn publish(&self, pid: u32, walk: Option<&Walk>);
}

/// The processes that run an interpreter.
pub struct Interpreters {
    publish: Box<dyn Publish>,
    /// The interpreter of each executable or library. `None` if the file contains no supported interpreter.
    files: FxHashMap<FileKey, Option<Arc<Build>>>,
    processes: FxHashMap<u32, Interpreter>,
    /// The process ids in the order in which they were found. Some may no longer be in `processes`.
    order: VecDeque<u32>,
    /// The ids of ended processes with the numbers of their interpreters, in the order of their ends.
    ended: VecDeque<(u32, u32)>,
    /// The memory of all functions, in bytes.
    function_bytes: usize,
    last: u32,
}

/// The device of a file (major, minor), and its inode.
type FileKey = ((u32, u32), u64);

/// The interpreter of a process.
struct Interpreter {
    number: u32,
    build: Arc<Build>,
    /// The address in the process minus the address in the file.
    bias: u64,
    state: State,
    functions: FxHashMap<(u64, [u64; 3]), Arc<Function>>,
}

impl Interpreter {
    fn function_bytes(&self) -> usize {
        self.functions.values().map(|function| bytes_of(function)).sum()
    }
}

fn bytes_of(function: &Function) -> usize {
    size_of::<Function>() + function.name.len() + function.file.len() + function.lines.len()
}

/// Whether a process still runs with its interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// The process has ended, or executes another program. Its earlier events get names only for functions that were
    /// already read.
    Ended,
}

/// The memory of a running process.
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
    /// Creates a list without processes.
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

    /// Notes that a process has mapped a file. Looks for an interpreter in the file if it is named like an interpreter.
    pub fn mapped(&mut self, pid: u32, path: &Path) {
        let is_known = self.processes.get(&pid).is_some_and(|known| known.state == State::Runs);
        if may_have_interpreter(path) && !is_known {
            self.find(pid);
        }
    }

    /// Looks for an interpreter in the mappings of a process.
    pub fn find(&mut self, pid: u32) {
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        let candidates = maps::parse(&text).filter(|map| map.executable && may_have_interpreter(&map.path));
        for map in candidates {
            let relative = map.path.strip_prefix("/").unwrap_or(&map.path);
            let path = Path::new(&format!("/proc/{pid}/root")).join(relative);
            let build = self.build_of((map.device, map.inode), &path);
            let Some(build) = build else { continue };
            // The file is opened again, because its segments are needed to convert the offset of the mapping to an
            // address.
            let Some(start) = Elf::open(&path).ok().and_then(|elf| elf.address_of(map.file_offset)) else { continue };
            self.add(pid, build, map.start.wrapping_sub(start));
            return;
        }
    }

    fn build_of(&mut self, key: FileKey, path: &Path) -> Option<Arc<Build>> {
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        // If the process has ended, the path does not exist. The failure is not stored, because another process may map
        // the same file.
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
        // The list contains a process several times if other processes had its id before. Those entries are removed.
        if self.order.len() > 2 * MOST_PROCESSES {
            self.order.retain(|pid| self.processes.contains_key(pid));
        }
    }

    /// Notes that a process was created by fork. The child has a copy of the parent's memory, and so the same
    /// interpreter.
    pub fn forked(&mut self, parent: u32, child: u32) {
        // Ends an earlier process with the child's id.
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

    /// Returns the kind of a frame. Both numbers come from the record: `number` identifies the process's interpreter,
    /// and `mark` identifies the kind of the frame.
    pub fn kind(&self, pid: u32, number: u32, mark: u8) -> Result<FrameKind, Unnamed> {
        let interpreter = self.processes.get(&pid).filter(|known| known.number == number).ok_or(Unnamed::Replaced)?;
        Ok(interpreter.build.kind(mark))
    }

    /// Returns the function of a frame, and the line of the frame's instruction.
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
                    // All functions are dropped. Those of running processes are read again when their frames come.
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

/// Returns whether the file has the name of an interpreter or of its library.
fn may_have_interpreter(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}
