//! Reads functions from the memory of processes, within a time limit. A process decides how long a read of its memory takes, for
//! example by userfaultfd(2), and only the end of perf-prof ends a read that waits. So a thread of its own reads. If it does not
//! answer in time, it is given up, and ends when the process lets it.

use std::{
    cell::Cell,
    mem,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use perf_prof_system::{own_threads::OwnThread, process_memory, signals};

use super::{
    Function, Memory, Unnamed,
    functions::Key,
    python::{self, Build},
};

/// The most threads that are given up and have not ended.
const MOST_GIVEN_UP: usize = 8;
/// What a read costs beside its bytes: so many bytes could have been read meanwhile.
const COST_OF_READ: u64 = 256;

/// Functions of a process to read.
#[derive(Clone, Debug)]
pub struct Request {
    pub pid: u32,
    pub build: Arc<Build>,
    /// The distance between addresses in the process and in the interpreter's file.
    pub bias: u64,
    pub keys: Vec<Key>,
    /// What all reads may cost, in bytes. Functions after that are not read.
    pub most: u64,
}

/// What was read.
#[derive(Debug)]
pub struct Answer {
    pub functions: Vec<(Key, Result<Arc<Function>, Unnamed>)>,
    /// What the reads cost, in bytes.
    pub cost: u64,
    /// How long they took.
    pub took: Duration,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The reads took too long.
    Slow,
    /// No thread can read, whatever the process does.
    Busy,
}

/// Reads functions.
#[derive(Default)]
pub struct Reader {
    thread: Option<ReaderThread>,
    given_up: Vec<JoinHandle<()>>,
}

struct ReaderThread {
    /// The process that has the thread. A child that is forked later has none.
    of: u32,
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    handle: JoinHandle<()>,
}

impl Reader {
    /// Reads functions, which may take as long as `longest`. On a busy machine, the thread may have to wait for a CPU.
    pub fn read(&mut self, request: Request, longest: Duration) -> Result<Answer, NoAnswer> {
        let of = std::process::id();
        if self.thread.as_ref().is_some_and(|thread| thread.of != of) {
            // A thread of the parent may have held a lock of these at the fork, so they are not dropped.
            mem::forget(mem::take(self));
        }
        self.given_up.retain(|thread| !thread.is_finished());
        if self.given_up.len() >= MOST_GIVEN_UP {
            return Err(NoAnswer::Busy);
        }
        let thread = self.thread.take().or_else(|| ReaderThread::start(of)).ok_or(NoAnswer::Busy)?;
        thread.requests.send(request).map_err(|_| NoAnswer::Busy)?;
        let answer = thread.answers.recv_timeout(longest);
        match answer {
            Ok(_) => self.thread = Some(thread),
            Err(_) => self.given_up.push(thread.handle),
        }
        answer.map_err(|_| NoAnswer::Slow)
    }
}

#[cfg(test)]
impl Reader {
    /// Returns a reader whose threads all wait, and what ends them when it is dropped.
    pub fn busy() -> (Reader, Vec<Sender<()>>) {
        let waiting = || {
            let (end, ends) = channel();
            (thread::spawn(move || _ = ends.recv()), end)
        };
        let (given_up, ends) = (0..MOST_GIVEN_UP).map(|_| waiting()).unzip();
        (Reader { thread: None, given_up }, ends)
    }
}

impl ReaderThread {
    fn start(of: u32) -> Option<ReaderThread> {
        let (requests, requested) = channel();
        let (answer, answers) = channel();
        let body = move || {
            signals::block_in_this_thread();
            let _own = OwnThread::enter();
            // It ends when nobody waits for answers any more.
            let _ = requested.into_iter().try_for_each(|request| answer.send(read(request)));
        };
        let handle = thread::Builder::new().name("perf-prof-names".to_owned()).spawn(body).ok()?;
        Some(ReaderThread { of, requests, answers, handle })
    }
}

/// The memory of a process, and what the reads of it cost.
struct Measured {
    pid: u32,
    cost: Cell<u64>,
}

impl Memory for Measured {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.cost.set(self.cost.get() + COST_OF_READ + to.len() as u64);
        process_memory::read(self.pid, address, to).is_ok()
    }
}

fn read(request: Request) -> Answer {
    let (begin, Request { pid, build, bias, keys, most }) = (Instant::now(), request);
    let memory = Measured { pid, cost: Cell::new(0) };
    let function = |key: Key| (key, python::function(&build, bias, &memory, key.code, key.identity).map(Arc::new));
    let functions = keys.into_iter().take_while(|_| memory.cost.get() < most).map(function).collect();
    Answer { functions, cost: memory.cost.get(), took: begin.elapsed() }
}
