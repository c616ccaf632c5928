//! Delivers events without the GIL, to a program whose handlers are all aggregators.

use perf_prof_events::event::{Deliver, Flow};
use perf_prof_system::fork_lock::{self, HeldForkLock};
use pyo3::prelude::*;

use super::{
    callbacks::Callbacks,
    event::kept_events,
    failure::Failures,
    handlers::Handler,
    host::{Attached, AttachedProgram},
};

/// A program whose events go only to aggregators. The GIL is taken only for other callbacks, so the threads of a script
/// can run while its events are added up.
pub struct FeedingProgram<'a> {
    callbacks: &'a Callbacks,
    failures: &'a mut Failures,
    handlers: &'a mut Vec<Option<Handler>>,
    /// Prevents forks. Otherwise another thread of the script could fork while this thread holds locks, and the locks
    /// would stay locked in the child. `None` while this thread holds the GIL.
    held: Option<HeldForkLock>,
}

impl<'a> FeedingProgram<'a> {
    /// Creates the receiver of events. The receiver holds the fork lock until it is dropped, except while this thread
    /// holds the GIL.
    pub fn new(
        callbacks: &'a Callbacks,
        failures: &'a mut Failures,
        handlers: &'a mut Vec<Option<Handler>>,
    ) -> FeedingProgram<'a> {
        FeedingProgram { callbacks, failures, handlers, held: Some(fork_lock::hold()) }
    }

    /// Calls `work` with the GIL.
    fn attached(&mut self, work: impl FnOnce(&mut AttachedProgram<'_, '_>) -> Flow) -> Flow {
        // A thread that forks holds the GIL and waits for the fork lock. So the fork lock is released before the GIL is
        // taken.
        self.held = None;
        let flow = Python::attach(|py| {
            let attached = Attached { py, callbacks: self.callbacks, failures: self.failures };
            work(&mut AttachedProgram { attached, handlers: self.handlers })
        });
        self.held = Some(fork_lock::hold());
        flow
    }
}

impl Deliver for FeedingProgram<'_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        if let Some(Some(handler)) = self.handlers.get_mut(event) {
            handler.feeds.iter_mut().for_each(|feed| feed.sample(record));
        }
        Flow::Continue(())
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        match &self.callbacks.lost {
            Some(_) => self.attached(|program| program.lost(start, end)),
            None => Flow::Continue(()),
        }
    }

    fn interval(&mut self) -> Flow {
        match &self.callbacks.interval {
            Some(_) => self.attached(|program| program.interval()),
            None => Flow::Continue(()),
        }
    }

    fn print_stat(&mut self, indent: u32) -> Flow {
        self.attached(|program| program.print_stat(indent))
    }

    fn kept_events(&mut self) -> usize {
        kept_events()
    }

    fn flush(&mut self) -> Flow {
        self.attached(|program| program.flush())
    }

    fn exit(&mut self) -> Flow {
        self.attached(|program| program.exit())
    }
}
