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
