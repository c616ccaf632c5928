//! Ends long work on files if the user requests the end of perf-prof.

use std::{
    sync::{
        Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use perf_prof_system::{output, signals};

/// The time for which work goes on that had begun before the first request to end. This time is enough to read the files of
/// ordinary programs, so the last events of a run still get names.
const GRACE: Duration = Duration::from_secs(1);

/// The time for all work that begins after the first request to end. The events of a run may need the names of hundreds of
/// files then.
const AFTER_REQUEST: Duration = Duration::from_secs(20);

/// After this time, a message says what goes on.
const SILENT: Duration = Duration::from_secs(2);

/// How long work lasted that began after the first request to end, in ns.
static SPENT: AtomicU64 = AtomicU64::new(0);

static TOLD: Once = Once::new();
static TOLD_END: Once = Once::new();

/// Work on a file that ends early if the user asked perf-prof to end.
#[derive(Debug)]
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

    /// Returns whether to give up the work: after two requests to end, or after one request if the work takes long.
    pub fn is_requested(&self) -> bool {
        let (requests, own) = (signals::end_requests(), self.begun.elapsed());
        if requests == 0 {
            return false;
        }
        let all = Duration::from_nanos(SPENT.load(Relaxed)) + own;
        if requests == 1 && self.before != 0 {
            if all > SILENT {
                let what = "the names of functions are being read; a second Ctrl-C or SIGTERM leaves out the rest";
                TOLD.call_once(|| output::say(what));
            }
            if all > AFTER_REQUEST {
                let what = "reading names of functions takes too long: functions of further files have no names";
                TOLD_END.call_once(|| output::say(what));
            }
        }
        is_over(requests, self.before, own, all)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if self.before != 0 {
            SPENT.fetch_add(self.begun.elapsed().as_nanos() as u64, Relaxed);
        }
    }
}

/// Returns whether to give up work that has lasted for the time `own`. `requests` is the number of requests to end, `before`
/// the number of those before the work began, and `all` the time of all work that began after the first request.
fn is_over(requests: u32, before: u32, own: Duration, all: Duration) -> bool {
    match (requests, before) {
        (0, _) => false,
        (1, 0) => own > GRACE,
        (1, _) => all > AFTER_REQUEST,
        (2.., _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_first_request_all_files_together_have_a_bound() {
        let [none, short, long] = [0, 1, 60].map(Duration::from_secs);
        assert!(!is_over(0, 0, long, long), "nobody asked for the end");
        assert!(!is_over(1, 0, short, short) && is_over(1, 0, long, long), "a file that is read at the request");
        assert!(!is_over(1, 1, none, short) && is_over(1, 1, none, long), "the files after it");
        assert!(is_over(2, 1, none, none) && is_over(3, 0, none, none));
    }
}
