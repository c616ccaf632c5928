//! Says that events are still being delivered after a signal, because a slow program may need minutes for all events that
//! wait in memory.

use std::time::{Duration, Instant};

use perf_prof_system::output;

/// The time after the signal in which nothing is said.
const SILENT: Duration = Duration::from_secs(2);

/// Events that are delivered after the signal that stopped the source.
#[derive(Debug, Default)]
pub enum LateDelivery {
    /// No signal has stopped the source.
    #[default]
    None,
    /// The signal came at this time, and nothing was said yet.
    Since(Instant),
    Told,
}

impl LateDelivery {
    /// Prints a message, once, if events are still being delivered some time after the signal. `is_stopped` says whether the
    /// signal has come. `backlog` returns the number of bytes that wait.
    pub fn say(&mut self, is_stopped: bool, backlog: impl FnOnce() -> usize) {
        if let Some(message) = self.message(is_stopped, Instant::now(), backlog) {
            output::say(message);
        }
    }

    fn message(&mut self, is_stopped: bool, now: Instant, backlog: impl FnOnce() -> usize) -> Option<String> {
        match *self {
            LateDelivery::None if is_stopped => *self = LateDelivery::Since(now),
            LateDelivery::Since(since) if now >= since + SILENT => {
                *self = LateDelivery::Told;
                let left = backlog().div_ceil(1 << 20);
                return Some(format!(
                    "events from before the signal are still being delivered ({left} MiB); a second signal drops them"
                ));
            }
            LateDelivery::None | LateDelivery::Since(_) | LateDelivery::Told => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_once_and_only_if_delivery_goes_on_after_a_signal() {
        let (mut late, now) = (LateDelivery::default(), Instant::now());
        let mut at = |is_stopped, secs| late.message(is_stopped, now + Duration::from_secs(secs), || 3 << 20);
        assert_eq!([at(false, 0), at(false, 60), at(true, 100), at(true, 101)], [None, None, None, None]);
        assert!(at(true, 103).is_some_and(|message| message.contains("(3 MiB)")));
        assert_eq!(at(true, 200), None);
    }
}
