//! Limits on the reads of other processes' memory. A process can have any number of functions of any size. So the cost
//! of the reads is limited: a certain amount at once, and a certain amount in each further second.

/// One second in ns, the unit of the times of events.
const SECOND: u128 = 1_000_000_000;

/// A limit on an amount: bytes that are read, or ns that are waited.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub at_once: u64,
    pub each_second: u64,
}

/// A limit, and the amount that is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limit: Limit,
    left: u64,
    /// The time of the event for which `left` was last increased, in ns.
    time: u64,
}

impl Budget {
    /// Creates a budget from which nothing was spent.
    pub fn new(limit: Limit) -> Budget {
        Budget { limit, left: limit.at_once, time: 0 }
    }

    /// Returns the amount that is left for an event that happened at `time`. The budget grows with the times of events,
    /// and not with a clock, so a run that lags gets no more than a run that does not.
    pub fn left(&mut self, time: u64) -> u64 {
        let passed = u128::from(time.saturating_sub(self.time));
        let gained = passed * u128::from(self.limit.each_second) / SECOND;
        if gained > 0 {
            self.left = u128::from(self.left).saturating_add(gained).min(self.limit.at_once.into()) as u64;
            self.time = time;
        }
        self.left
    }

    /// Subtracts an amount that was spent.
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
        // Times that are too short for one byte add up.
        (1..10).for_each(|part| assert_eq!(budget.left(5 * second + part * second / 100), 0));
        assert_eq!(budget.left(6 * second), 10);
        budget.spend(9);
        assert_eq!(budget.left(6 * second), 1);
        assert_eq!(budget.left(u64::MAX), 100);
    }
}
