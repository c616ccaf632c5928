//! A source of records whose records are written into a recording once they have been delivered. Knows nothing of what they
//! are delivered to.
//!
//! So a recording holds what was delivered and nothing else: where delivery ends within a batch, the recording ends there.
//! What perf sorts by are the marks of rounds. Each is the answer to a flush, our own or one that the run loop has asked for.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::recording::Recording;
use crate::{
    record::{Batch, LossCounts, Source, Wait},
    sys::output,
};

/// How long records are gathered before perf may sort them: longer than any writer is interrupted between taking the time
/// and taking its place in a ring.
const ROUND: Duration = Duration::from_millis(100);

/// A source, and the recording of it, if there is to be one.
#[derive(Debug)]
pub struct Recorded<S> {
    /// Where records come from.
    pub source: S,
    recording: Option<Recording>,
    rounds: Rounds,
    then: AfterFailure,
    /// The failure has been attended to.
    failed: bool,
}

/// What follows when the recording cannot be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The source is stopped: the recording was all it was for.
    Stop,
    /// The source goes on.
    GoOn,
}

impl<S: Source> Recorded<S> {
    /// The source alone.
    pub fn new(source: S, then: AfterFailure) -> Self {
        Self { source, recording: None, rounds: Rounds::new(Instant::now()), then, failed: false }
    }

    /// From now on records are written into this.
    pub fn record(&mut self, recording: Recording) {
        self.recording = Some(recording);
        self.look_for_failure();
    }

    /// The recording.
    pub fn recording(&mut self) -> Option<&mut Recording> {
        self.recording.as_mut()
    }

    /// Ends the recording: what is delivered now is not in it.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Says why the recording cannot be written any more, and does what follows.
    pub fn look_for_failure(&mut self) {
        let Some(recording) = self.recording.as_ref().filter(|_| !self.failed) else { return };
        let Some(error) = recording.failure() else { return };
        self.failed = true;
        // Whoever has read enough of a pipe closes it.
        if !recording.was_closed() {
            let what = format!("cannot write {}: {error}; the recording ends here", recording.form());
            match self.then {
                AfterFailure::Stop => output::say(what),
                AfterFailure::GoOn => output::say(format_args!("{what}, the script goes on")),
            }
        }
        if self.then == AfterFailure::Stop {
            self.source.stop();
        }
    }
}

impl<S: Source> Source for Recorded<S> {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        if self.recording.is_none() {
            return self.source.wait(until);
        }
        loop {
            let now = Instant::now();
            if self.rounds.is_due(now) {
                self.rounds.asked(Asker::Recording, now);
                self.source.flush();
            }
            let wait = self.source.wait(until.into_iter().chain(self.rounds.next()).min());
            match wait {
                Wait::Timeout if until.is_none_or(|until| Instant::now() < until) => {}
                Wait::Flushed => {
                    let (asker, mark) = self.rounds.answered(Instant::now());
                    if let (true, Some(recording)) = (mark, &mut self.recording) {
                        recording.mark_round();
                        self.look_for_failure();
                    }
                    if asker == Asker::RunLoop {
                        return Wait::Flushed;
                    }
                }
                wait => return wait,
            }
        }
    }

    fn delivered(&mut self, batch: &Batch, count: usize) {
        if let Some(recording) = &mut self.recording {
            recording.take(batch, count);
            self.rounds.any = true;
            self.look_for_failure();
        }
    }

    fn flush(&mut self) {
        if self.recording.is_some() {
            self.rounds.asked(Asker::RunLoop, Instant::now());
        }
        self.source.flush();
    }

    fn stop(&mut self) {
        self.source.stop();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        self.source.losses()
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.source.ring_cpus()
    }

    fn late(&self) -> u64 {
        self.source.late()
    }

    fn limited(&self) -> u64 {
        self.source.limited()
    }

    fn backlog(&self) -> usize {
        self.source.backlog()
    }
}

/// Who has asked for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Recording,
    RunLoop,
}

/// When the rounds of a recording end.
#[derive(Debug)]
struct Rounds {
    /// Records came since the last mark.
    any: bool,
    /// Flushes that were not answered yet, and when they were asked for. Each gets an answer, in this order.
    asked: VecDeque<(Asker, Instant)>,
    last: Instant,
}

impl Rounds {
    fn new(now: Instant) -> Rounds {
        Rounds { any: false, asked: VecDeque::new(), last: now }
    }

    /// When a flush is to be asked for.
    fn next(&self) -> Option<Instant> {
        (self.any && self.asked.is_empty()).then_some(self.last + ROUND)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| now >= next)
    }

    fn asked(&mut self, asker: Asker, now: Instant) {
        self.asked.push_back((asker, now));
    }

    /// A flush was answered: whose it was, and whether its answer ends a round. It does if it was asked for so long after
    /// the last mark that nothing which comes now was written when that was made.
    fn answered(&mut self, now: Instant) -> (Asker, bool) {
        let Some((asker, at)) = self.asked.pop_front() else { return (Asker::RunLoop, false) };
        let mark = self.any && at >= self.last + ROUND;
        if mark {
            (self.any, self.last) = (false, now);
        }
        (asker, mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_a_round_apart_whoever_asks() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut rounds = Rounds::new(start);
        assert_eq!(rounds.next(), None, "nothing came");
        rounds.any = true;
        assert_eq!(rounds.next(), Some(at(100)));
        // The run loop's are used where they come late enough.
        rounds.asked(Asker::RunLoop, at(50));
        assert!(!rounds.is_due(at(120)));
        rounds.asked(Asker::RunLoop, at(110));
        assert_eq!(rounds.answered(at(120)), (Asker::RunLoop, false));
        assert_eq!(rounds.answered(at(130)), (Asker::RunLoop, true));
        assert_eq!(rounds.next(), None);
        rounds.any = true;
        assert!(!rounds.is_due(at(229)) && rounds.is_due(at(230)));
        rounds.asked(Asker::Recording, at(235));
        assert!(!rounds.is_due(at(400)));
        // Records that came between the question and the answer belong to both rounds.
        assert_eq!(rounds.answered(at(500)), (Asker::Recording, true));
        assert!(!rounds.is_due(at(700)));
    }
}
