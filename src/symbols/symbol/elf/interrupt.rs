//! Ends long work on a file if the user requests the end of perf-prof.

use std::time::{Duration, Instant};

use perf_prof_system::signals;

/// The time for which work goes on after the first request to end. It is enough to read the files of ordinary programs,
/// so that the last events of a run get their names.
const GRACE: Duration = Duration::from_secs(1);

/// Work on a file. If it takes long, a request to end perf-prof ends it.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt {
    /// The number of requests to end that arrived before the work.
    before: u32,
    begun: Instant,
}

impl Interrupt {
    /// Notes that the work begins.
    pub fn begin() -> Self {
        Self { before: signals::end_requests(), begun: Instant::now() }
    }

    /// Returns whether the work should be given up: there were two requests to end, or there was one since the work
    /// began and the work takes long.
    pub fn is_requested(&self) -> bool {
        let requests = signals::end_requests();
        requests > 1 || requests > self.before && self.begun.elapsed() > GRACE
    }
}
