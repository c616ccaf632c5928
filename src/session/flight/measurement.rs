//! Measures how many bytes per second the events write into each ring. The measurement starts when the events are on, and
//! is repeated, because the events may come faster later.

use std::time::{Duration, Instant};

use perf_prof_capture::Written;

/// Which measurement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// The first one after the events were turned on.
    First,
    /// A later one.
    Later,
}

impl Round {
    /// Returns the duration of the measurement. The first one is short, because the rings have a small size until its end.
    fn duration(self) -> Duration {
        match self {
            Round::First => Duration::from_millis(500),
            Round::Later => Duration::from_secs(5),
        }
    }
}

/// The state of the measurement.
#[derive(Debug, PartialEq, Eq)]
pub enum Measurement {
    /// The events are off. This measurement starts when they are on.
    Awaited(Round),
    /// The measurement is going on. The values are its start, and the bytes that had been written into the rings by
    /// then.
    Since(Instant, Vec<Written>, Round),
    /// No measurement is needed, or none is possible any more.
    Over,
}

impl Measurement {
    /// Begins the measurement if the events were off until now.
    pub fn events_are_on(&mut self, now: Instant, written: Vec<Written>) {
        if let &mut Measurement::Awaited(round) = self {
            *self = Measurement::Since(now, written, round);
        }
    }

    /// Cancels a measurement that is going on. It starts again when the events are on again.
    pub fn events_are_off(&mut self) {
        if let &mut Measurement::Since(.., round) = self {
            *self = Measurement::Awaited(round);
        }
    }

    /// Returns when the measurement ends.
    pub fn due(&self) -> Option<Instant> {
        match self {
            Measurement::Since(start, _, round) => Some(*start + round.duration()),
            Measurement::Awaited(_) | Measurement::Over => None,
        }
    }

    /// If the time of the measurement is over, starts the next one and returns the bytes per second of each ring.
    pub fn take_rates(&mut self, now: Instant, written: &[Written]) -> Option<(Vec<f64>, Round)> {
        let Measurement::Since(start, before, round) = self else { return None };
        let (elapsed, round) = (now.saturating_duration_since(*start), *round);
        if elapsed < round.duration() {
            return None;
        }
        let rate = |(ring, now): (usize, &Written)| {
            let before = before.get(ring).copied().unwrap_or_default();
            now.0.saturating_sub(before.0) as f64 / elapsed.as_secs_f64()
        };
        let rates = written.iter().enumerate().map(rate).collect();
        *self = Measurement::Since(now, written.to_vec(), Round::Later);
        Some((rates, round))
    }

    /// Starts a later measurement again, because the rings were replaced and are empty.
    pub fn start_again(&mut self, now: Instant, written: Vec<Written>) {
        if let Measurement::Since(..) = self {
            *self = Measurement::Since(now, written, Round::Later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_time_in_which_events_were_on() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let written = |bytes: [u64; 2]| bytes.map(Written).to_vec();
        let mut measurement = Measurement::Awaited(Round::First);
        assert_eq!((measurement.due(), measurement.take_rates(at(900), &written([9, 9]))), (None, None));
        measurement.events_are_on(at(1000), written([0, 0]));
        measurement.events_are_off();
        measurement.events_are_on(at(2000), written([100, 0]));
        measurement.events_are_on(at(2100), written([500, 500]));
        assert_eq!(measurement.due(), Some(at(2500)));
        assert_eq!(measurement.take_rates(at(2499), &written([9, 9])), None);
        // The rings are read late, 4 s after the start.
        assert_eq!(measurement.take_rates(at(6000), &written([500, 8])), Some((vec![100.0, 2.0], Round::First)));
        assert_eq!((measurement.due(), measurement.take_rates(at(9000), &written([9, 9]))), (Some(at(11_000)), None));
        assert_eq!(measurement.take_rates(at(16_000), &written([500, 1008])), Some((vec![0.0, 100.0], Round::Later)));
        measurement.start_again(at(17_000), written([0, 0]));
        assert_eq!(measurement.take_rates(at(22_000), &written([50, 5])), Some((vec![10.0, 1.0], Round::Later)));
        measurement.events_are_off();
        measurement.events_are_on(at(30_000), written([50, 5]));
        assert_eq!(measurement.due(), Some(at(35_000)), "only the first measurement is short");
    }
}
