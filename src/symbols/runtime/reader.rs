//! Reads functions from the memory of processes, within a time limit. The process decides how long a read of its memory
//! takes: with userfaultfd(2), it can let a read wait as long as it likes, and only the end of perf-prof ends the read.
//! So the reads happen in a separate thread. If the thread does not answer in time, perf-prof stops waiting for it.
//! Such a thread ends when the process lets the read continue.

use std::{
    cell::Cell,
    mem,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use perf_prof_system::{own_threads, process_memory};

use super::{
    Function, Memory, Unnamed,
    functions::Key,
    python::{self, Build},
};

/// The maximum number of threads that did not answer in time and have not ended yet.
const MOST_GIVEN_UP: usize = 8;
/// The cost of a read in addition to its bytes: the number of bytes that could be copied in the time of the system
/// call.
const COST_OF_READ: u64 = 256;

/// A request to read functions of a process.
#[derive(Clone, Debug)]
pub struct Request {
    pub pid: u32,
    pub build: Arc<Build>,
    /// The address in the process minus the address in the interpreter's file.
    pub bias: u64,
    pub keys: Vec<Key>,
    /// The limit on the cost of all reads, in bytes. When the limit is reached, the remaining functions are not read.
    pub most: u64,
}

/// The functions that were read for a request.
#[derive(Debug)]
pub struct Answer {
    pub functions: Vec<(Key, Result<Arc<Function>, Unnamed>)>,
    /// The cost of the reads, in bytes.
    pub cost: u64,
    /// The time that the reads took.
    pub took: Duration,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The reads took longer than the caller allowed.
    Slow,
    /// No time is left for a read, or no thread can make it. The process of the request is not the reason.
    Busy,
}

/// Reads functions in a separate thread.
#[derive(Default)]
pub struct Reader {
    thread: Option<ReaderThread>,
    given_up: Vec<JoinHandle<()>>,
}

struct ReaderThread {
    /// The id of the process that started the thread. After a fork, the child does not have the thread.
    of: u32,
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    handle: JoinHandle<()>,
}

impl Reader {
    /// Reads functions. Waits at most `longest` for the answer. On a busy machine, this includes the time for which the
    /// thread waits for a CPU.
    pub fn read(&mut self, request: Request, longest: Duration) -> Result<Answer, NoAnswer> {
        let of = std::process::id();
        if self.thread.as_ref().is_some_and(|thread| thread.of != of) {
            // This process is a forked child. The channels belong to a thread of the parent. They are not dropped,
            // because that thread may have held one of their locks at the fork.
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
    /// Returns a reader whose threads all wait. Dropping the senders ends the threads.
    pub fn busy() -> (Reader, Vec<Sender<()>>) {
        let waiting = || {
            let (end, ends) = channel();
            (std::thread::spawn(move || _ = ends.recv()), end)
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
            // The thread ends when the receiver of the answers has been dropped.
            let _ = requested.into_iter().try_for_each(|request| answer.send(read(request)));
        };
        let handle = own_threads::spawn("perf-prof-names", body).ok()?;
        Some(ReaderThread { of, requests, answers, handle })
    }
}

/// The memory of a process. Counts the cost of the reads, in bytes.
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
