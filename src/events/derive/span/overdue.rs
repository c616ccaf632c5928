//! Finds spans that should have ended: their ends were not delivered, although no loss was reported.
//!
//! A span that is open at the end of a run is normal if it began shortly before. A span is overdue if it has been open for
//! much longer than the longest span that ended.

/// An overdue span has been open for at least `LEAST` ns, and `TIMES` times as long as the longest span that ended.
const LEAST: u64 = 100_000_000;
const TIMES: u64 = 10;

/// If no span has ended, an overdue span has been open for at least this many ns. The time is longer, because a device may
/// be slow.
const LEAST_OF_ALL: u64 = 1_000_000_000;

/// If no span has ended, and at least `MANY` spans have been open for longer than `LEAST_OF_MANY` ns, all these spans are
/// overdue. A working device would have completed one of so many requests.
const MANY: usize = 8;
const LEAST_OF_MANY: u64 = 10_000_000;

/// Finds overdue spans: compares open spans with the longest span that ended.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// The duration of the longest span that ended, in ns; `None` if no span has ended.
    longest: Option<u64>,
}

impl Overdue {
    /// Notes that a span of this duration has ended.
    pub fn ended(&mut self, duration: u64) {
        self.longest = self.longest.max(Some(duration));
    }

    /// Returns whether a span that has been open for `age` ns is overdue.
    pub fn is_overdue(&self, age: u64) -> bool {
        age > self.longest.map_or(LEAST_OF_ALL, |longest| longest.saturating_mul(TIMES).max(LEAST))
    }

    /// Returns a function that returns whether a span of a given age, in ns, is overdue at the end of the run. `ages` are
    /// the ages of all open spans.
    pub fn at_end(&self, ages: impl Iterator<Item = u64>) -> impl Fn(u64) -> bool {
        let are_many = self.longest.is_none() && ages.filter(|&age| age > LEAST_OF_MANY).nth(MANY - 1).is_some();
        move |age| self.is_overdue(age) || are_many && age > LEAST_OF_MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_span_is_overdue_if_it_is_open_for_much_longer_than_all_that_ended() {
        let rows = [
            (&[][..], 900, false),
            (&[], 1100, true),
            (&[1, 2], 90, false),
            (&[1, 2], 110, true),
            (&[40, 30], 390, false),
            (&[40, 30], 410, true),
        ];
        for (ended, age, expected) in rows {
            let mut overdue = Overdue::default();
            ended.iter().for_each(|duration| overdue.ended(duration * MS));
            assert_eq!(overdue.is_overdue(age * MS), expected, "{ended:?} {age}");
        }
    }

    #[test]
    fn if_none_of_many_spans_has_ended_a_shorter_time_tells() {
        let count = |overdue: &Overdue, ages: &[u64]| {
            let ages = ages.iter().map(|age| age * MS);
            let is_overdue = overdue.at_end(ages.clone());
            ages.filter(|&age| is_overdue(age)).count()
        };
        let mut overdue = Overdue::default();
        assert_eq!(count(&overdue, &[1, 5, 11, 12, 13, 14, 15, 16, 17, 18]), 8);
        assert_eq!(count(&overdue, &[1, 5, 9, 12, 13, 14, 15, 16, 17, 18]), 0);
        assert_eq!(count(&overdue, &[1100, 5]), 1);
        overdue.ended(1);
        assert_eq!(count(&overdue, &[11, 12, 13, 14, 15, 16, 17, 18, 19]), 0);
    }
}
