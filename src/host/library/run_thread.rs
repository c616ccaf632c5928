//! The thread of a run: it opens the events and delivers them to a queue. It never holds the interpreter's lock.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Result, anyhow};
use perf_prof_core::sys::{
    own_threads::OwnThread,
    signals::{self, Signals},
};

use super::{
    background::text_of,
    queue::{Queue, QueueSink},
};
use crate::{
    run::{self, RunEnd, plan::ScriptPlan},
    script::Run,
};

/// The result of a run, for the program that reads its events.
type EndSlot = Arc<Mutex<Option<Result<RunEnd>>>>;

/// A run whose events are enabled.
pub struct RunThread {
    pub queue: Arc<Queue>,
    pub run: Arc<Run>,
    end: EndSlot,
    thread: Option<JoinHandle<()>>,
}

/// A run that is being opened.
pub struct Opening {
    queue: Arc<Queue>,
    opened: Receiver<Arc<Run>>,
    end: EndSlot,
    thread: JoinHandle<()>,
}

impl Opening {
    /// Starts the thread of a run.
    pub fn start(plan: ScriptPlan) -> Result<Opening> {
        let queue = Queue::new()?;
        let (sender, opened) = mpsc::sync_channel(1);
        let end = EndSlot::default();
        let body = {
            let (queue, end) = (queue.clone(), end.clone());
            move || {
                signals::block_in_this_thread();
                let _own = OwnThread::enter();
                let delivered = panic::catch_unwind(AssertUnwindSafe(|| deliver(&plan, &queue, sender)));
                let result = delivered.unwrap_or_else(|panic| Err(anyhow!("internal error: {}", text_of(&*panic))));
                *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                queue.end();
            }
        };
        let thread = thread::Builder::new().name("perf_prof".into()).spawn(body)?;
        Ok(Opening { queue, opened, end, thread })
    }

    /// Waits until the events are enabled. Returns the error if they cannot be opened.
    pub fn finish(self) -> Result<RunThread> {
        let Opening { queue, opened, end, thread } = self;
        if let Ok(run) = opened.recv() {
            return Ok(RunThread { queue, run, end, thread: Some(thread) });
        }
        // A panic was caught in the thread.
        let _ = thread.join();
        let end = end.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(end.and_then(Result::err).unwrap_or_else(|| anyhow!("the run ended before it began")))
    }
}

fn deliver(plan: &ScriptPlan, queue: &Arc<Queue>, opened: SyncSender<Arc<Run>>) -> Result<RunEnd> {
    let signals = Signals::of_program(queue.requests.clone());
    run::deliver(plan, &signals, |run| {
        QueueSink::new(queue.clone(), move || {
            // The program waits for it. If it does not any more, nobody needs it.
            let _ = opened.send(run);
        })
    })
}

impl RunThread {
    /// Ends the run and waits for the end. What was recorded is dropped.
    pub fn close(&mut self) {
        self.queue.close();
        // The second request ends the delivery.
        self.queue.requests.request();
        self.queue.requests.request();
        if let Some(thread) = self.thread.take() {
            // A panic was caught in the thread.
            let _ = thread.join();
        }
    }

    /// Waits for the end of the thread, after the end of the queue. Returns how the run ended, once.
    pub fn end(&mut self) -> Option<Result<RunEnd>> {
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
