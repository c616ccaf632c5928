//! The threads that read the rings of a capture: their settings, their start and their end.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::JoinHandle,
    time::Instant,
};

use perf_prof_format::{record::Chunk, spec::CpuSet};
use perf_prof_system::{CallError, epoll::Epoll, own_threads};

use super::{
    Capture, IdleRounds,
    mailbox::NoMessage,
    memory::Memory,
    message::{Control, Rounds},
    open::Descriptor,
    pace::Pace,
    reader::{Outlet, Phase, Reader},
};

/// A consumer of records that runs in the reader thread.
pub trait RecordConsumer: Send {
    /// Takes records of one ring.
    fn consume(&mut self, chunk: Chunk);

    /// Called when a round over the rings found no records.
    fn pause(&mut self);

    /// Called after the last records.
    fn end(&mut self);
}

/// A separate reader thread for some rings.
pub struct ExtraReader {
    /// The thread reads the rings of these CPUs.
    pub cpus: CpuSet,
    /// The CPUs that the thread may run on; `None` for all.
    pub affinity: Option<CpuSet>,
    /// The consumer of the thread's records.
    pub taker: Box<dyn RecordConsumer>,
}

/// Whether the reader thread still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The thread still runs.
    On,
    /// The thread has ended.
    Over,
}

impl Capture {
    /// Waits until the capture is woken, or until the time `until`. Used after the tasks of the capture have exited and
    /// no more records arrive: `wait` would return at once then.
    pub fn wait_woken(&mut self, until: Option<Instant>) -> Reading {
        let message = self.messages.take(until);
        // The message that woke this call has been received, so the flag is cleared.
        self.control.woken.store(false, SeqCst);
        if matches!(message, Err(NoMessage::Closed)) { Reading::Over } else { Reading::On }
    }
}

/// Sees records in the order in which they are read from the rings, some 30 ms before they are delivered in the order of
/// their times.
pub trait Preview: Send {
    /// Looks at the records of a ring.
    fn look(&mut self, chunk: &Chunk);
}

/// A separate reader thread, and the flags that make it end.
pub(super) struct ReaderThread {
    pub control: Arc<Control>,
    pub state: State,
}

pub(super) enum State {
    /// The reader does not run yet.
    Idle(Box<Reader>),
    /// The reader runs in this thread.
    Running(JoinHandle<()>),
    /// The reader has ended.
    Gone,
}

impl State {
    /// Starts the thread, if it has not been started yet.
    pub fn start(&mut self) -> Result<(), CallError> {
        *self = match std::mem::replace(self, State::Gone) {
            State::Idle(mut reader) => {
                reader.watch()?;
                let running = own_threads::spawn("perf-prof-reader", || reader.run());
                State::Running(running.map_err(|error| CallError::new("clone", error))?)
            }
            other => other,
        };
        Ok(())
    }

    /// Waits until the thread has ended.
    pub fn join(&mut self) {
        if let State::Running(thread) = std::mem::replace(self, State::Gone) {
            // A reader that panicked has already printed the panic to stderr.
            let _ = thread.join();
        }
    }
}

impl Reader {
    /// Creates a reader without rings.
    pub fn without_rings(
        descriptors: Arc<Vec<Descriptor>>,
        memory: Arc<Memory>,
        control: Arc<Control>,
        outlet: Outlet,
    ) -> Result<Reader, CallError> {
        Ok(Reader {
            rings: Vec::new(),
            numbers: Vec::new(),
            descriptors,
            watched: Vec::new(),
            memory,
            control,
            outlet,
            affinity: None,
            wake: None,
            tasks: Vec::new(),
            rounds: Rounds::Unmarked,
            epoll: Epoll::new()?,
            pace: Pace::new(Instant::now(), IdleRounds::Rare),
            phase: Phase::Running,
            flushed: 0,
            flush: None,
            first: 0,
            largest_record: 0,
            room: Vec::new(),
            reserve: 0,
            release_requested: false,
            limiter: None,
            counter: None,
            offline: None,
            ring_cpus: Vec::new(),
            own_samples: None,
            is_awaited: false,
            sampled: false,
        })
    }
}
