//! The times at which a recorder does something by itself: turns the events on, ends the recording, or prints
//! perf-prof's own CPU and memory use.

use std::time::Instant;

use perf_prof_system::usage::Usage;

use super::plan::RecordPlan;
use crate::engine::interval::Interval;

/// The times that are still to come.
pub struct Times {
    /// The time at which the events are turned on. `None` if they are already on, or if only a command turns them on.
    begin: Option<Instant>,
    /// The time at which the recording ends. `None` if there is no such time, or if it is over.
    end: Option<Instant>,
    /// The timer for lines about the use, and the use up to the last such line.
    usage: Option<(Interval, Usage)>,
}

/// What has to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Turn the events on.
    Begin,
    /// End the recording.
    End,
    /// Print this line about the use.
    Usage(String),
}

impl Times {
    /// Returns the times of a recording that starts now.
    pub fn of(plan: &RecordPlan) -> Times {
        let now = Instant::now();
        let begin = plan.delay.time().map(|time| now + time);
        let end = plan.duration.and_then(|duration| begin.unwrap_or(now).checked_add(duration));
        let usage = plan.usage_self.map(|every| (Interval::new(every, now), Usage::default()));
        Times { begin, end, usage }
    }

    /// Returns the next time at which something has to be done.
    pub fn next(&self) -> Option<Instant> {
        let usage = self.usage.as_ref().map(|(interval, _)| interval.next());
        [self.begin, self.end, usage].into_iter().flatten().min()
    }

    /// Returns one thing that is due at `now`. The caller repeats the call until nothing is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Due> {
        if self.begin.take_if(|at| now >= *at).is_some() {
            return Some(Due::Begin);
        }
        if self.end.take_if(|at| now >= *at).is_some() {
            return Some(Due::End);
        }
        let (interval, usage) = self.usage.as_mut()?;
        interval.expired(now).then(|| Due::Usage(usage.line()))
    }
}
