//! Decides when the reader empties the rings: often while records arrive, rarely when nothing happens.

use std::time::{Duration, Instant};

use super::IdleRounds;

/// The interval between two rounds while records arrive. A consumer waits up to this long for its events.
const BUSY: Duration = Duration::from_millis(10);
/// The interval between two rounds when no records arrive. Four wakeups a second have no measurable cost.
const IDLE: Duration = Duration::from_millis(250);
/// After this many empty rounds in a row, the reader slows down.
const PATIENCE: u32 = 8;

/// Decides when the next round is due.
#[derive(Debug)]
pub(super) struct Pace {
    idle: IdleRounds,
    due: Instant,
    empty_rounds: u32,
    /// The start of the first empty round since the last records; `None` if no round was empty since.
    settling_since: Option<Instant>,
    settled: bool,
    /// The latest start of the next round, if a caller waits for this round.
    at_latest: Option<Instant>,
}

impl Pace {
    pub fn new(now: Instant, idle: IdleRounds) -> Self {
        Self { idle, due: now + BUSY, empty_rounds: 0, settling_since: None, settled: true, at_latest: None }
    }

    /// Returns the time until the next round.
    pub fn until_round(&self, now: Instant) -> Duration {
        self.next().saturating_duration_since(now)
    }

    /// Returns whether the next round is due.
    pub fn round_is_due(&self, now: Instant) -> bool {
        self.next() <= now
    }

    fn next(&self) -> Instant {
        self.at_latest.map_or(self.due, |at| at.min(self.due))
    }

    /// Makes the next round due at once.
    pub fn hasten(&mut self) {
        self.due = self.due.min(Instant::now());
    }

    /// Called when a round starts. Clears `at_latest` if this time has come.
    pub fn went_round(&mut self, now: Instant) {
        self.at_latest = self.at_latest.filter(|&at| at > now);
    }

    /// Called after a round that found records.
    pub fn records(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.settled = false;
        self.settling_since = None;
        self.due = now + BUSY;
    }

    /// Called after a single ring was drained between two rounds, if the ring contained records.
    pub fn records_between_rounds(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.settled = false;
        self.settling_since = None;
        self.due = self.due.min(now + BUSY);
    }

    /// Called after a round that found side-band records and no samples. The sorter still keeps these records.
    pub fn side_band(&mut self, now: Instant) {
        self.settled = false;
        self.settling_since = None;
        self.quiet(now);
    }

    /// Called after a round that found nothing.
    pub fn quiet(&mut self, now: Instant) {
        self.empty_rounds = self.empty_rounds.saturating_add(1);
        let slower = BUSY * (1 << self.empty_rounds.saturating_sub(PATIENCE).min(10));
        self.due = now
            + match self.idle {
                IdleRounds::Rare => slower.min(IDLE),
                IdleRounds::Frequent => BUSY,
            };
    }

    /// Called when there was not enough memory for a round. The reader is woken when memory becomes free. If it is not
    /// woken, it tries again after [`BUSY`].
    pub fn starved(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.due = now + BUSY;
    }

    /// Makes the next round start at `at` at the latest, even if it would be due later.
    pub fn settle_by(&mut self, at: Instant) {
        self.at_latest = Some(at);
    }

    /// Returns whether the sorter still keeps records that it would release after an empty round that starts now. After
    /// an empty round, the sorter releases the records that it received at least `margin` before the round.
    pub fn is_settling(&mut self, now: Instant, margin: Duration) -> bool {
        if self.settled {
            return false;
        }
        let since = *self.settling_since.get_or_insert(now);
        self.settled = now >= since + margin;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn slower_when_nothing_happens_and_fast_again() {
        let start = Instant::now();
        let mut pace = Pace::new(start, IdleRounds::Rare);
        let mut now = start;
        let mut intervals = Vec::new();
        for _ in 0..15 {
            now += pace.until_round(now);
            assert!(pace.round_is_due(now));
            pace.quiet(now);
            intervals.push(pace.until_round(now).as_millis());
        }
        assert_eq!(intervals, [10, 10, 10, 10, 10, 10, 10, 10, 20, 40, 80, 160, 250, 250, 250]);
        pace.side_band(now);
        assert_eq!(pace.until_round(now), ms(250));
        pace.records(now);
        assert_eq!(pace.until_round(now), ms(10));
    }

    #[test]
    fn settles_a_margin_after_the_last_records() {
        let now = Instant::now();
        let mut pace = Pace::new(now, IdleRounds::Rare);
        assert!(!pace.is_settling(now, ms(20)));
        pace.records(now);
        let settling = [10, 20, 30, 40].map(|at| pace.is_settling(now + ms(at), ms(20)));
        assert_eq!(settling, [true, true, true, false]);
        pace.side_band(now + ms(50));
        let settling = [300, 550, 800].map(|at| pace.is_settling(now + ms(at), ms(20)));
        assert_eq!(settling, [true, true, false]);
    }

    #[test]
    fn a_deadline_is_kept_when_rounds_slow_down() {
        let now = Instant::now();
        let mut pace = Pace::new(now, IdleRounds::Rare);
        (0..20).for_each(|_| pace.quiet(now));
        pace.settle_by(now + ms(1));
        pace.quiet(now);
        assert_eq!(pace.until_round(now), ms(1));
        pace.went_round(now + ms(1));
        assert_eq!(pace.until_round(now), ms(250));
        pace.hasten();
        assert!(pace.round_is_due(Instant::now()));
    }

    #[test]
    fn the_first_record_after_a_pause_is_read_soon_if_what_it_is_about_may_be_gone_later() {
        let now = Instant::now();
        let mut pace = Pace::new(now, IdleRounds::Frequent);
        (0..1000).for_each(|_| pace.quiet(now));
        assert_eq!(pace.until_round(now), BUSY);
        pace.side_band(now);
        assert_eq!(pace.until_round(now), BUSY);
    }
}
