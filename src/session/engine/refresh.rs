//! Lets another thread ask a run to update its receiver's tables: the run delivers the records up to now, and reads the
//! tables in the kernel.

use std::{
    sync::{Condvar, PoisonError},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use perf_prof_system::{eventfd::EventFd, mutex::Mutex};

/// The requests of other threads to a run.
#[derive(Debug)]
pub struct Refresh {
    /// Wakes the run loop.
    wake: EventFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of requests so far.
    asked: u64,
    /// The number of the last request that was fulfilled.
    met: u64,
    /// When the run updated the tables last.
    at: Option<Instant>,
    /// The thread of the run loop; `None` while the loop does not run.
    thread: Option<ThreadId>,
}

/// Whether the tables are up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The tables contain everything up to the request, or are not older than the caller accepts.
    UpToDate,
    /// The run did not update the tables: it did not answer in time, has not begun, or has ended.
    AsTheyWere,
}

impl Refresh {
    /// Creates an empty list of requests. `wake` wakes the run.
    pub fn new(wake: EventFd) -> Refresh {
        Refresh { wake, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Asks the run to update its tables, and waits until it has done so. Returns at once if the tables are not older
    /// than `max_age`. A thread that holds the GIL must not call this function.
    pub fn ask(&self, max_age: Duration, timeout: Duration) -> Freshness {
        let mut state = self.state.lock();
        if state.at.is_some_and(|at| at.elapsed() <= max_age) {
            return Freshness::UpToDate;
        }
        // A callback runs in the thread of the run, so it would wait for itself.
        if state.thread.is_none_or(|thread| thread == thread::current().id()) {
            return Freshness::AsTheyWere;
        }
        state.asked += 1;
        let own = state.asked;
        self.wake.signal();
        let is_waiting = |state: &mut State| state.met < own && state.thread.is_some();
        let waited = self.changed.wait_timeout_while(state, timeout, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.met >= own { Freshness::UpToDate } else { Freshness::AsTheyWere }
    }

    /// Notes that the run loop runs in this thread from now on.
    pub(super) fn begin(&self) {
        self.state.lock().thread = Some(thread::current().id());
    }

    /// Notes that the run loop has ended. Waiting threads continue.
    pub(super) fn end(&self) {
        self.state.lock().thread = None;
        self.changed.notify_all();
    }

    /// Returns the number of the last request, if it was not fulfilled yet.
    pub(super) fn pending(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.asked > state.met).then_some(state.asked)
    }

    /// Notes that the requests up to number `request` are fulfilled.
    pub(super) fn met(&self, request: u64) {
        let mut state = self.state.lock();
        state.met = state.met.max(request);
        state.at = Some(Instant::now());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn refresh() -> Arc<Refresh> {
        Arc::new(Refresh::new(EventFd::new().unwrap()))
    }

    #[test]
    fn a_request_waits_until_it_is_met_and_a_later_one_takes_what_is_fresh() {
        let refresh = refresh();
        refresh.begin();
        let asking = thread::spawn({
            let refresh = refresh.clone();
            move || refresh.ask(Duration::ZERO, SOON)
        });
        let request = std::iter::from_fn(|| Some(refresh.pending())).flatten().next().unwrap();
        refresh.met(request);
        assert_eq!(asking.join().unwrap(), Freshness::UpToDate);
        assert_eq!((refresh.ask(SOON, SOON), refresh.pending()), (Freshness::UpToDate, None));
    }

    #[test]
    fn nobody_waits_for_a_run_that_is_not_there_or_for_itself() {
        let refresh = refresh();
        assert_eq!(refresh.ask(Duration::ZERO, SOON), Freshness::AsTheyWere);
        refresh.begin();
        assert_eq!(refresh.ask(Duration::ZERO, SOON), Freshness::AsTheyWere);
        let asking = thread::spawn({
            let refresh = refresh.clone();
            move || refresh.ask(Duration::ZERO, SOON)
        });
        while refresh.pending().is_none() {}
        refresh.end();
        assert_eq!(asking.join().unwrap(), Freshness::AsTheyWere);
    }
}
