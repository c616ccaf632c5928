//! Spans that began before the run or the recording, so that they are in no sum.

use perf_prof_events::event::{SpanCounts, Stats};
use serde_json::{Value as Json, json};

/// How many there are, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct BegunBefore {
    /// How many ended in the run or recording.
    ended: u64,
    /// The time in ns that these lasted at least; 0 if it is not known.
    time: u64,
    /// The number of events that tell something about such spans, whether they ended or not: packets that were sent again.
    events: u64,
}

impl BegunBefore {
    /// Adds up the counts of a run.
    pub fn of(stats: &Stats) -> Self {
        let sum = |number: fn(&SpanCounts) -> u64| stats.spans().iter().map(|span| number(span)).sum();
        let (ended, time) = (sum(SpanCounts::begun_before), sum(SpanCounts::time_before));
        Self { ended, time, events: sum(SpanCounts::begun_before_events) }
    }

    /// Returns the members of a JSON object.
    pub fn members(self) -> [(String, Json); 3] {
        // In a pipe, nothing shows how long they lasted.
        let time = (self.ended == 0 || self.time != 0).then_some(self.time);
        let members = [
            ("begun_before", json!(self.ended)),
            ("begun_before_time", json!(time)),
            ("begun_before_events", json!(self.events)),
        ];
        members.map(|(name, value)| (name.to_owned(), value))
    }
}
