//! When something periodic is due.

use std::time::{Duration, Instant};

/// A period and its next time. Times that were missed are skipped, not made up for.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    every: Duration,
    next: Instant,
}

impl Interval {
    /// First due one period after `now`. A period of zero would be due for ever; it becomes a nanosecond.
    pub fn new(every: Duration, now: Instant) -> Self {
        let every = every.max(Duration::from_nanos(1));
        Self { every, next: now + every }
    }

    /// When it is next due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether it is due; if so, the next time is the first one of the period's grid after `now`.
    pub fn take(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let missed = (now - self.next).as_nanos() / self.every.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX - 1);
        self.next += self.every.saturating_mul(missed + 1);
        // A period so short that the grid cannot be counted.
        self.next = self.next.max(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_times_are_skipped_and_the_grid_is_kept() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut interval = Interval::new(ms(10), start);
        assert!(!interval.take(start + ms(9)));
        assert!(interval.take(start + ms(10)));
        assert_eq!(interval.next(), start + ms(20));
        assert!(interval.take(start + ms(57)));
        assert_eq!(interval.next(), start + ms(60));
    }

    #[test]
    fn a_period_of_zero_does_not_hang() {
        let start = Instant::now();
        let mut interval = Interval::new(Duration::ZERO, start);
        assert!(interval.take(start + Duration::from_secs(10)));
    }
}
