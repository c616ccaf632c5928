//! The thread of a run. It opens the events and delivers them to a queue. It never holds the GIL.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Result;
use perf_prof_session::{
    engine::{ExitStatus, kernel_tables::EventUse},
    plan::RunPlan,
    recording::columns::ColumnParts,
    spine::About,
};
use perf_prof_system::{mutex::Mutex, signals::Signals};

use super::{
    background::{Internal, start_thread},
    queue::{Delivery, Queue, QueueSink},
};
use crate::run;

/// The result of a run. It is stored here from the end of the run until the program takes it.
type EndSlot = Arc<Mutex<Option<Result<ExitStatus>>>>;

/// A run whose events are enabled.
pub struct RunThread {
    pub queue: Arc<Queue>,
    pub run: Arc<About>,
    /// The recording, prepared for decoding columns in parts; `None` if it cannot be decoded in parts.
    pub parts: Option<Box<ColumnParts>>,
    end: EndSlot,
    thread: Option<JoinHandle<()>>,
}

/// A run whose events are not enabled yet.
pub struct Opening {
    queue: Arc<Queue>,
    /// Receives the run with its selected events, before the events are enabled.
    selected: Receiver<Arc<About>>,
    /// Sends to the run how the program uses each event type. `None` if the run does not wait for this message.
    uses: Option<SyncSender<Vec<EventUse>>>,
    opened: Receiver<(Arc<About>, Option<Box<ColumnParts>>)>,
    end: EndSlot,
    thread: JoinHandle<()>,
}

impl Opening {
    /// Starts the thread of a run.
    pub fn start(plan: RunPlan, delivery: Delivery, enabling: Enabling) -> Result<Opening> {
        let queue = Queue::new(delivery)?;
        let (sender, opened) = mpsc::sync_channel(1);
        let (about, selected) = mpsc::sync_channel(1);
        let (uses, told) = mpsc::sync_channel(1);
        let uses = (enabling == Enabling::WhenTold).then_some(uses);
        let end = EndSlot::default();
        let (source, ended) = (queue.clone(), (queue.clone(), end.clone()));
        let thread = start_thread(
            move || deliver(&plan, &source, Program { about, told, opened: sender }),
            move |result| {
                let (queue, end) = ended;
                *end.lock() = Some(result);
                queue.end();
            },
        )?;
        Ok(Opening { queue, selected, uses, opened, end, thread })
    }

    /// Waits until the events are selected, at most for `time`. Returns `None` if this takes longer. Fails if the run
    /// has ended earlier.
    pub fn selected(&mut self, time: Duration) -> Option<Result<Arc<About>, NotOpened>> {
        match self.selected.recv_timeout(time) {
            Ok(about) => Some(Ok(about)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(NotOpened)),
        }
    }

    /// Sends to the run how the program uses each event type. The run then enables the events.
    pub fn tell(&mut self, uses: Vec<EventUse>) {
        // The send fails if the run has ended.
        let _ = self.uses.take().map(|told| told.send(uses));
    }

    /// Waits until the events are enabled, at most for `time`.
    pub fn wait(self, time: Duration) -> Opened {
        match self.opened.recv_timeout(time) {
            Ok((run, parts)) => {
                let Opening { queue, end, thread, .. } = self;
                Opened::Now(Ok(RunThread { queue, run, parts, end, thread: Some(thread) }))
            }
            Err(RecvTimeoutError::Timeout) => Opened::Later(self),
            Err(RecvTimeoutError::Disconnected) => {
                // `join` returns no error, because the thread catches panics.
                let _ = self.thread.join();
                let end = self.end.lock().take();
                let error = end.and_then(Result::err);
                Opened::Now(Err(error.unwrap_or_else(|| Internal("the run ended before it began".into()).into())))
            }
        }
    }

    /// Requests the end of the run without waiting for it: the thread may be blocked in a system call, for example
    /// while it opens a pipe.
    pub fn abandon(self) {
        self.queue.close();
        self.queue.requests.end_now();
    }
}

/// When the events of a run are enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabling {
    /// As soon as the events are open.
    AtOnce,
    /// When [`Opening::tell`] is called.
    WhenTold,
}

/// The run has ended before its events were selected. [`Opening::wait`] returns the reason.
pub struct NotOpened;

/// The run's ends of the channels to the program.
struct Program {
    about: SyncSender<Arc<About>>,
    told: Receiver<Vec<EventUse>>,
    opened: SyncSender<(Arc<About>, Option<Box<ColumnParts>>)>,
}

/// Whether the events of a run are enabled yet.
pub enum Opened {
    Now(Result<RunThread>),
    Later(Opening),
}

impl Drop for RunThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.close();
        }
    }
}

fn deliver(plan: &RunPlan, queue: &Arc<Queue>, program: Program) -> Result<ExitStatus> {
    let Program { about, told, opened } = program;
    let signals = Signals::of_program(queue.requests.clone());
    run::deliver(plan, &signals, |run, parts| {
        // The sends fail if the program no longer waits. Such a program does not need the run.
        let _ = about.send(run.clone());
        let uses = told.recv().unwrap_or_default();
        let run = run.clone();
        let sink = QueueSink::new(queue.clone(), move || _ = opened.send((run, parts)));
        (sink, uses)
    })
}

impl RunThread {
    /// Ends the run and waits for its end. Events that were not delivered are dropped.
    pub fn close(&mut self) {
        self.queue.close();
        self.queue.requests.end_now();
        if let Some(thread) = self.thread.take() {
            // `join` returns no error, because the thread catches panics.
            let _ = thread.join();
        }
    }

    /// Waits for the end of the thread. Must be called after the queue has ended. The first call returns the result of
    /// the run; later calls return `None`.
    pub fn end(&mut self) -> Option<Result<ExitStatus>> {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.end.lock().take()
    }

    /// Forgets the thread, because it does not exist in this forked child.
    pub fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}
