//! A timer for periodic work.

use std::time::{Duration, Instant};

/// A period, and the time at which the current period ends. Missed periods are skipped; the timer does not catch up.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    every: Duration,
    next: Instant,
}

impl Interval {
    /// Creates a timer with the period `every`. The timer is first due one period after `now`. A period of zero becomes
    /// one nanosecond: a timer with period zero would always be due.
    pub fn new(every: Duration, now: Instant) -> Self {
        let every = every.max(Duration::from_nanos(1));
        Self { every, next: now + every }
    }

    /// Returns the next time at which the timer is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Returns whether the timer is due at the time `now`. If it is due, advances the next due time by whole periods
    /// until it is after `now`.
    pub fn expired(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let missed = (now - self.next).as_nanos() / self.every.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX - 1);
        self.next += self.every.saturating_mul(missed + 1);
        // If the period is very short, the number of missed periods may not fit into 32 bits. Then `next` is still in
        // the past.
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
        assert!(!interval.expired(start + ms(9)));
        assert!(interval.expired(start + ms(10)));
        assert_eq!(interval.next(), start + ms(20));
        assert!(interval.expired(start + ms(57)));
        assert_eq!(interval.next(), start + ms(60));
    }

    #[test]
    fn a_period_of_zero_does_not_hang() {
        let start = Instant::now();
        let mut interval = Interval::new(Duration::ZERO, start);
        assert!(interval.expired(start + Duration::from_secs(10)));
    }
}
