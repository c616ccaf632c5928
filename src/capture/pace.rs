//! When the reader goes round: often while records come, seldom when nothing happens.

use std::time::{Duration, Instant};

/// Between two rounds while records come: what a consumer waits for its events.
const BUSY: Duration = Duration::from_millis(10);
/// Between two rounds when nothing happens: four wake-ups a second cost nothing that can be measured.
const IDLE: Duration = Duration::from_millis(250);
/// Empty rounds until it slows down.
const PATIENCE: u32 = 8;

/// Decides when the next round is due.
#[derive(Debug)]
pub(super) struct Pace {
    due: Instant,
    empty_rounds: u32,
    /// The first round without records since there were some, if there was one.
    settling_since: Option<Instant>,
    settled: bool,
    /// Somebody waits for a round at this time.
    at_latest: Option<Instant>,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self { due: now + BUSY, empty_rounds: 0, settling_since: None, settled: true, at_latest: None }
    }

    /// How long until the next round.
    pub fn until_round(&self, now: Instant) -> Duration {
        self.next().saturating_duration_since(now)
    }

    /// Whether the next round is due.
    pub fn round_is_due(&self, now: Instant) -> bool {
        self.next() <= now
    }

    fn next(&self) -> Instant {
        self.at_latest.map_or(self.due, |at| at.min(self.due))
    }

    /// The next round is due at once.
    pub fn hasten(&mut self) {
        self.due = self.due.min(Instant::now());
    }

    /// A round begins: whoever waited for one by now has it.
    pub fn went_round(&mut self, now: Instant) {
        self.at_latest = self.at_latest.filter(|&at| at > now);
    }

    /// A round gave records.
    pub fn records(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.settled = false;
        self.settling_since = None;
        self.due = now + BUSY;
    }

    /// A single ring gave records.
    pub fn records_between_rounds(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.settled = false;
        self.settling_since = None;
        self.due = self.due.min(now + BUSY);
    }

    /// A round gave no samples, but other records, which the sorter holds.
    pub fn side_band(&mut self, now: Instant) {
        self.settled = false;
        self.settling_since = None;
        self.quiet(now);
    }

    /// A round gave nothing.
    pub fn quiet(&mut self, now: Instant) {
        self.empty_rounds += 1;
        let slower = BUSY * (1 << self.empty_rounds.saturating_sub(PATIENCE).min(10));
        self.due = now + slower.min(IDLE);
    }

    /// A round could not be done for want of memory. The reader is woken when there is some; this is the latest.
    pub fn starved(&mut self, now: Instant) {
        self.empty_rounds = 0;
        self.due = now + BUSY;
    }

    /// The next round is due at `at` at the latest, whatever was said last about this one.
    pub fn settle_by(&mut self, at: Instant) {
        self.at_latest = Some(at);
    }

    /// Whether the sorter still holds records that an empty round that begins now lets it release: those that were seen
    /// a margin before it.
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
        let mut pace = Pace::new(start);
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
        let mut pace = Pace::new(now);
        assert!(!pace.is_settling(now, ms(20)));
        pace.records(now);
        let settling = [10, 20, 30, 40].map(|at| pace.is_settling(now + ms(at), ms(20)));
        assert_eq!(settling, [true, true, true, false]);
        pace.side_band(now + ms(50));
        let settling = [300, 550, 800].map(|at| pace.is_settling(now + ms(at), ms(20)));
        assert_eq!(settling, [true, true, false]);
    }

    #[test]
    fn somebody_who_waits_is_not_forgotten() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        (0..20).for_each(|_| pace.quiet(now));
        pace.settle_by(now + ms(1));
        pace.quiet(now);
        assert_eq!(pace.until_round(now), ms(1));
        pace.went_round(now + ms(1));
        assert_eq!(pace.until_round(now), ms(250));
        pace.hasten();
        assert!(pace.round_is_due(Instant::now()));
    }
}
