//! The thread of a run: it opens the events and delivers them to a queue. It never holds the interpreter's lock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Result;
use perf_prof_session::{engine::ExitStatus, plan::RunPlan, recording::columns::ColumnParts, spine::About};
use perf_prof_system::signals::Signals;

use super::{
    background::{Internal, start_thread},
    queue::{Delivery, Queue, QueueSink},
};
use crate::run;

/// The result of a run, for the program that reads its events.
type EndSlot = Arc<Mutex<Option<Result<ExitStatus>>>>;

/// A run whose events are enabled.
pub struct RunThread {
    pub queue: Arc<Queue>,
    pub run: Arc<About>,
    /// The recording, prepared for decoding columns in parts, if this is possible.
    pub parts: Option<Box<ColumnParts>>,
    end: EndSlot,
    thread: Option<JoinHandle<()>>,
}

/// A run that is being opened.
pub struct Opening {
    queue: Arc<Queue>,
    opened: Receiver<(Arc<About>, Option<Box<ColumnParts>>)>,
    end: EndSlot,
    thread: JoinHandle<()>,
}

impl Opening {
    /// Starts the thread of a run.
    pub fn start(plan: RunPlan, delivery: Delivery) -> Result<Opening> {
        let queue = Queue::new(delivery)?;
        let (sender, opened) = mpsc::sync_channel(1);
        let end = EndSlot::default();
        let (source, ended) = (queue.clone(), (queue.clone(), end.clone()));
        let thread = start_thread(
            move || deliver(&plan, &source, sender),
            move |result| {
                let (queue, end) = ended;
                *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                queue.end();
            },
        )?;
        Ok(Opening { queue, opened, end, thread })
    }

    /// Waits for this time until the events are enabled.
    pub fn wait(self, time: Duration) -> Opened {
        match self.opened.recv_timeout(time) {
            Ok((run, parts)) => {
                let Opening { queue, end, thread, .. } = self;
                Opened::Now(Ok(RunThread { queue, run, parts, end, thread: Some(thread) }))
            }
            Err(RecvTimeoutError::Timeout) => Opened::Later(self),
            Err(RecvTimeoutError::Disconnected) => {
                // A panic was caught in the thread.
                let _ = self.thread.join();
                let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
                let error = end.and_then(Result::err);
                Opened::Now(Err(error.unwrap_or_else(|| Internal("the run ended before it began".into()).into())))
            }
        }
    }

    /// Gives up. The thread ends by itself: it may be blocked in a system call, for example where it opens a pipe.
    pub fn abandon(self) {
        self.queue.close();
        self.queue.requests.end_now();
    }
}

/// Whether the events of a run are enabled.
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

fn deliver(
    plan: &RunPlan,
    queue: &Arc<Queue>,
    opened: SyncSender<(Arc<About>, Option<Box<ColumnParts>>)>,
) -> Result<ExitStatus> {
    let signals = Signals::of_program(queue.requests.clone());
    run::deliver(plan, &signals, |run, parts| {
        let run = run.clone();
        QueueSink::new(queue.clone(), move || {
            // This fails if the program no longer waits; then the run is not needed.
            let _ = opened.send((run, parts));
        })
    })
}

impl RunThread {
    /// Ends the run and waits for its end. Events that were not delivered are dropped.
    pub fn close(&mut self) {
        self.queue.close();
        self.queue.requests.end_now();
        if let Some(thread) = self.thread.take() {
            // A panic was caught in the thread.
            let _ = thread.join();
        }
    }

    /// Waits for the end of the thread, after the end of the queue. The first call returns how the run ended; later
    /// calls return `None`.
    pub fn end(&mut self) -> Option<Result<ExitStatus>> {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Forgets the thread in a forked child, where it does not exist.
    pub fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}
