//! Ends long work on a file if the user requests the end of perf-prof.

use std::time::{Duration, Instant};

use perf_prof_system::signals;

/// The time for which work goes on after the first request to end. This time is enough to read the files of ordinary
/// programs, so the last events of a run still get names.
const GRACE: Duration = Duration::from_secs(1);

/// Work on a file that ends early if the user asked perf-prof to end.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt {
    /// The number of requests to end before the work began.
    before: u32,
    begun: Instant,
}

impl Interrupt {
    /// Notes that the work begins.
    pub fn begin() -> Self {
        Self { before: signals::end_requests(), begun: Instant::now() }
    }

    /// Returns whether to give up the work: after two requests to end, or after one request during work that takes
    /// long.
    pub fn is_requested(&self) -> bool {
        let requests = signals::end_requests();
        requests > 1 || requests > self.before && self.begun.elapsed() > GRACE
    }
}
