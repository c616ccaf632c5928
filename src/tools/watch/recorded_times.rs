//! How long a run has taken, and how much of a recording's time it has read. Rates per second are divided by it.

use std::time::{Duration, Instant};

use perf_prof_events::event::Context;
use perf_prof_session::spine::{RecordingFacts, SelectedTimes};

/// How the start and the length of a run are measured.
pub enum Times {
    /// By this machine's clock, since the events were enabled.
    Clock(Option<Instant>),
    /// By the clock of a recording.
    Recorded(RecordedTimes),
}

impl Times {
    /// Returns the time from the start of the run to the end of an interval. A recording may go on after it.
    pub fn until_interval(&self, context: &Context) -> Duration {
        if let Times::Recorded(times) = self { times.until(context.reached_time()) } else { self.elapsed(context) }
    }

    pub fn elapsed(&self, context: &Context) -> Duration {
        match self {
            Times::Clock(start) => start.map_or(Duration::ZERO, |start| start.elapsed()),
            Times::Recorded(times) => times.elapsed(context.reached_time()),
        }
    }
}

/// The selected times of a recording, and how far they were read.
///
/// Time without any event counts too: two recordings of equal length have equal lengths even if the events of one of
/// them are close together.
pub struct RecordedTimes {
    selected: SelectedTimes,
    /// The time of the first sample in the recording. For a pipe that does not state it, the time of the first event.
    first: Option<u64>,
    /// The time of the last event so far. It is needed for records that have no order of time.
    last_event: u64,
    /// The end of the recording or of the selected times. `None` until all events were read.
    end: Option<u64>,
}

impl RecordedTimes {
    pub fn new(recording: &RecordingFacts) -> RecordedTimes {
        RecordedTimes {
            selected: SelectedTimes::new(&recording.selected, &recording.off),
            first: recording.times.map(|(first, _)| first),
            last_event: 0,
            end: None,
        }
    }

    /// Notes the time of an event that is added up.
    #[inline]
    pub fn note_event(&mut self, time: u64) {
        self.first.get_or_insert(time);
        self.last_event = self.last_event.max(time);
    }

    /// Notes that no event follows after `time`.
    pub fn note_end(&mut self, time: u64) {
        self.end = Some(time);
    }

    /// Returns the length of the selected times up to `reached`.
    pub fn until(&self, reached: u64) -> Duration {
        let reached = reached.max(self.last_event);
        let first = self.first.unwrap_or(reached);
        Duration::from_nanos(self.selected.length_within(first, reached))
    }

    /// Returns the length of the selected times up to `reached`, or up to their end if all events were read.
    pub fn elapsed(&self, reached: u64) -> Duration {
        self.until(self.end.unwrap_or(reached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length in ns of these selected times in a recording from 100 to `end`, of which the events were off from
    /// 400 to 450 and from 500 to 540.
    fn length(selected: &[(u64, u64)], end: u64) -> u128 {
        let facts = RecordingFacts {
            path: "x".into(),
            hostname: None,
            kernel: None,
            is_of_this_kernel: false,
            times: Some((100, 1000)),
            selected: selected.to_vec(),
            off: vec![(400, 450), (500, 540)],
        };
        let mut times = RecordedTimes::new(&facts);
        times.note_event(300);
        times.note_end(end);
        times.elapsed(0).as_nanos()
    }

    #[test]
    fn only_selected_times_of_the_recording_with_events_count_and_each_once() {
        assert_eq!(length(&[], 1000), 810);
        assert_eq!(length(&[(0, u64::MAX)], 1000), 810);
        assert_eq!(length(&[(420, 510)], 510), 50);
        assert_eq!(length(&[(250, 350)], 350), 100);
        assert_eq!(length(&[(600, 700), (0, 200), (650, 800)], 800), 300);
        assert_eq!(length(&[(u64::MAX, u64::MAX)], 1000), 0);
    }
}
