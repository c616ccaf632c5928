//! Finds spans that should have ended: their ends were not delivered, although no loss was reported.
//!
//! A span that is open at the end of a run is normal if it began shortly before. A span is overdue if it has been open for
//! much longer than the longest span that ended.

use rustc_hash::FxHashMap;

/// An overdue span has been open for at least `LEAST` ns, and `TIMES` times as long as the longest span that ended.
const LEAST: u64 = 100_000_000;
const TIMES: u64 = 10;

/// While the run goes on, a span that is open for at least this many ns is told to be missing, if it is overdue too. After 30 s,
/// the kernel itself takes a request for stuck: this is its `io_timeout`.
const LEAST_TO_TELL: u64 = 30_000_000_000;

/// If no span has ended, an overdue span has been open for at least this many ns. This time is longer than `LEAST`, because
/// a device may be slow.
const LEAST_OF_ALL: u64 = 1_000_000_000;

/// If no span has ended, and at least `MANY` spans have been open for longer than `LEAST_OF_MANY` ns, all these spans are
/// overdue at the end of the run. A working device would have completed one of so many requests.
const MANY: usize = 8;

/// If at least `KNOWN` spans of a kind have ended, this kind is known well. At the end of the run, a span of a known kind
/// is overdue if it has been open for at least `LEAST_OF_MANY` ns, and `TIMES` times as long as the longest span of its
/// kind that ended.
const KNOWN: u64 = 32;
const LEAST_OF_MANY: u64 = 10_000_000;

/// The maximum number of kinds. A damaged recording may contain any number.
const MOST: usize = 1 << 12;

/// The maximum number of exits. If there are more, the oldest are forgotten: spans of these tasks have been open for long.
const MOST_EXITS: usize = 1 << 16;

/// Finds overdue spans: compares open spans with the longest span that ended.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// The duration of the longest span that ended, in ns; `None` if no span has ended.
    longest: Option<u64>,
    kinds: FxHashMap<u64, Ended>,
    /// When tasks exited: the latest ones.
    exits: FxHashMap<i32, u64>,
}

/// The spans of a kind that ended: their number, and the duration of the longest one in ns.
#[derive(Debug, Default)]
struct Ended {
    count: u64,
    longest: u64,
}

/// A span that is open: its kind, and for how many ns it has been open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub kind: u64,
    pub age: u64,
}

impl Overdue {
    /// Notes that a span of this kind and duration has ended.
    pub fn ended(&mut self, kind: u64, duration: u64) {
        self.longest = self.longest.max(Some(duration));
        if self.kinds.len() < MOST || self.kinds.contains_key(&kind) {
            let ended = self.kinds.entry(kind).or_default();
            ended.count += 1;
            ended.longest = ended.longest.max(duration);
        }
    }

    /// Notes that a task exited at this time.
    pub fn exited(&mut self, tid: i32, time: u64) {
        if self.exits.len() >= MOST_EXITS {
            self.exits.retain(|_, exit| time.saturating_sub(*exit) < LEAST);
        }
        if self.exits.len() < MOST_EXITS {
            self.exits.insert(tid, time);
        }
    }

    /// Returns when a task exited, if it did.
    pub fn exit_of(&self, tid: i32) -> Option<u64> {
        self.exits.get(&tid).copied()
    }

    /// Returns whether a span that has been open for `age` ns is overdue.
    pub fn is_overdue(&self, age: u64) -> bool {
        age > self.longest.map_or(LEAST_OF_ALL, |longest| longest.saturating_mul(TIMES).max(LEAST))
    }

    /// Returns whether a span that has been open for `age` ns is told to be missing while the run goes on.
    pub fn is_told(&self, age: u64) -> bool {
        age > LEAST_TO_TELL && self.is_overdue(age)
    }

    /// Returns a function that returns whether an open span is overdue at the end of the run. `all` are all open spans. At
    /// the end of the run, a span is overdue after a shorter time than during the run. During the run, the late end of a
    /// span that counts as overdue could be mistaken for the end of another span.
    pub fn at_end(&self, all: impl Iterator<Item = Open>) -> impl Fn(Open) -> bool {
        let mut old = all.filter(|open| open.age > LEAST_OF_MANY);
        let are_many = self.longest.is_none() && old.nth(MANY - 1).is_some();
        move |Open { kind, age }| {
            let known = self.kinds.get(&kind).filter(|ended| ended.count >= KNOWN);
            let is_of_known_kind = |ended: &Ended| age > ended.longest.saturating_mul(TIMES).max(LEAST_OF_MANY);
            self.is_overdue(age) || are_many && age > LEAST_OF_MANY || known.is_some_and(is_of_known_kind)
        }
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
            ended.iter().for_each(|duration| overdue.ended(0, duration * MS));
            assert_eq!(overdue.is_overdue(age * MS), expected, "{ended:?} {age}");
        }
    }

    #[test]
    fn if_none_of_many_spans_has_ended_a_shorter_time_tells() {
        let count = |overdue: &Overdue, ages: &[u64]| {
            let open = ages.iter().map(|age| Open { kind: 0, age: age * MS });
            let is_overdue = overdue.at_end(open.clone());
            open.filter(|&open| is_overdue(open)).count()
        };
        let mut overdue = Overdue::default();
        assert_eq!(count(&overdue, &[1, 5, 11, 12, 13, 14, 15, 16, 17, 18]), 8);
        assert_eq!(count(&overdue, &[1, 5, 9, 12, 13, 14, 15, 16, 17, 18]), 0);
        assert_eq!(count(&overdue, &[1100, 5]), 1);
        overdue.ended(0, 1);
        assert_eq!(count(&overdue, &[11, 12, 13, 14, 15, 16, 17, 18, 19]), 0);
    }

    #[test]
    fn at_the_end_a_span_of_a_known_kind_is_compared_with_its_own_kind() {
        let mut overdue = Overdue::default();
        let is_overdue = |overdue: &Overdue, kind, ms| {
            let open = Open { kind, age: ms * MS };
            overdue.at_end([open].into_iter())(open)
        };
        (1..KNOWN).for_each(|_| overdue.ended(1, MS / 4));
        overdue.ended(2, 50 * MS);
        assert!(!is_overdue(&overdue, 1, 55));
        overdue.ended(1, MS / 3);
        assert!(is_overdue(&overdue, 1, 55) && is_overdue(&overdue, 1, 11));
        // A span that began shortly before the end of the run is not overdue.
        assert!(!is_overdue(&overdue, 1, 9));
        assert!(!is_overdue(&overdue, 2, 400) && !is_overdue(&overdue, 3, 400));
        assert!(is_overdue(&overdue, 2, 510) && is_overdue(&overdue, 3, 510));
        overdue.ended(1, 5 * MS);
        assert!(!is_overdue(&overdue, 1, 49) && is_overdue(&overdue, 1, 55));
        // During the run, a late end could be mistaken for the end of another span.
        assert!(!overdue.is_overdue(55 * MS));
    }
}
