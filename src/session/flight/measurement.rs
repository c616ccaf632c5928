//! Measures how many bytes per second the events write into each ring. The measurement starts when the events are on.

use std::time::{Duration, Instant};

use perf_prof_capture::Written;

/// The duration of the measurement.
const MEASURED: Duration = Duration::from_millis(500);

/// The state of the measurement. It happens once.
#[derive(Debug, PartialEq, Eq)]
pub enum Measurement {
    /// The events are not on yet.
    Awaited,
    /// The measurement is going on. The values are its start, and the bytes that had been written into the rings by
    /// then.
    Since(Instant, Vec<Written>),
    /// The measurement has ended, or is not needed.
    Over,
}

impl Measurement {
    /// Begins the measurement if the events were off until now.
    pub fn events_are_on(&mut self, now: Instant, written: Vec<Written>) {
        if *self == Measurement::Awaited {
            *self = Measurement::Since(now, written);
        }
    }

    /// Cancels a measurement that is going on. It starts again when the events are on again.
    pub fn events_are_off(&mut self) {
        if let Measurement::Since(..) = self {
            *self = Measurement::Awaited;
        }
    }

    /// Returns when the measurement ends.
    pub fn due(&self) -> Option<Instant> {
        match self {
            Measurement::Since(start, _) => Some(*start + MEASURED),
            Measurement::Awaited | Measurement::Over => None,
        }
    }

    /// If the time of the measurement is over, ends it and returns the bytes per second of each ring.
    pub fn take_rates(&mut self, now: Instant, written: &[Written]) -> Option<Vec<f64>> {
        let Measurement::Since(start, before) = self else { return None };
        let elapsed = now.saturating_duration_since(*start);
        if elapsed < MEASURED {
            return None;
        }
        let rate = |(ring, now): (usize, &Written)| {
            let before = before.get(ring).copied().unwrap_or_default();
            now.0.saturating_sub(before.0) as f64 / elapsed.as_secs_f64()
        };
        let rates = written.iter().enumerate().map(rate).collect();
        *self = Measurement::Over;
        Some(rates)
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
        let mut measurement = Measurement::Awaited;
        assert_eq!((measurement.due(), measurement.take_rates(at(900), &written([9, 9]))), (None, None));
        measurement.events_are_on(at(1000), written([0, 0]));
        measurement.events_are_off();
        measurement.events_are_on(at(2000), written([100, 0]));
        measurement.events_are_on(at(2100), written([500, 500]));
        assert_eq!(measurement.due(), Some(at(2500)));
        assert_eq!(measurement.take_rates(at(2499), &written([9, 9])), None);
        // The rings are read late, 4 s after the start.
        assert_eq!(measurement.take_rates(at(6000), &written([500, 8])), Some(vec![100.0, 2.0]));
        assert_eq!(measurement.take_rates(at(9000), &written([900, 900])), None, "it is made once");
    }
}
