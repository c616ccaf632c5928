//! How much may be read of the memory of processes. A process can have any number of functions that are as large as it likes, so
//! what reads may cost is limited: so much at once, and so much more in each second.

/// Seconds of events, in ns.
const SECOND: u128 = 1_000_000_000;

/// A limit, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub at_once: u64,
    pub each_second: u64,
}

/// What is left of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limit: Limit,
    left: u64,
    /// The time of the latest event, in ns.
    time: u64,
}

impl Budget {
    /// Returns a value with the whole limit.
    pub fn new(limit: Limit) -> Budget {
        Budget { limit, left: limit.at_once, time: 0 }
    }

    /// Returns how much may be read for an event of this time. Times are those of events, so a run that lags gets no more than one
    /// that does not.
    pub fn left(&mut self, time: u64) -> u64 {
        let passed = u128::from(time.saturating_sub(self.time));
        let gained = passed * u128::from(self.limit.each_second) / SECOND;
        if gained > 0 {
            self.left = u128::from(self.left).saturating_add(gained).min(self.limit.at_once.into()) as u64;
            self.time = time;
        }
        self.left
    }

    /// Notes what was read.
    pub fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gives_as_much_as_it_may() {
        let mut budget = Budget::new(Limit { at_once: 100, each_second: 10 });
        let second = SECOND as u64;
        assert_eq!(budget.left(5 * second), 100);
        budget.spend(1000);
        assert_eq!((budget.left(5 * second), budget.left(0)), (0, 0));
        // Short times add up.
        (1..10).for_each(|part| assert_eq!(budget.left(5 * second + part * second / 100), 0));
        assert_eq!(budget.left(6 * second), 10);
        budget.spend(9);
        assert_eq!(budget.left(6 * second), 1);
        assert_eq!(budget.left(u64::MAX), 100);
    }
}
