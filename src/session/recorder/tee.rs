//! A source of records that also writes each record into a recording, after the record has been delivered.
//!
//! The recording contains exactly the records that were delivered. If delivery ends within a batch, the recording ends at
//! the same record. perf sorts the records with the help of PERF_RECORD_FINISHED_ROUND, the end of a round. This record is
//! written when a flush is done, no matter whether the recording or the run loop has requested the flush.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use perf_prof_format::record::{Batch, LossCounts, Source, Wait};
use perf_prof_system::output;

use super::{frame_names::FrameNames, lifecycle::RecordingWriter};

/// The minimum length of a round. After a round has ended, perf may sort its records. The kernel may be interrupted
/// after it has read a record's time and before it reserves the record's place in the ring. A round has to be longer
/// than such an interruption.
const ROUND: Duration = Duration::from_millis(100);

/// A source of records, and the recording that the records are written to, if there is one.
#[derive(Debug)]
pub struct RecordingTee<S> {
    /// The source of the records.
    pub source: S,
    recording: Option<RecordingWriter>,
    /// The names of the frames of interpreters, if samples have such frames.
    names: Option<FrameNames>,
    rounds: Rounds,
    then: AfterFailure,
    /// True if a failure was already reported and handled.
    failed: bool,
}

/// What happens when the recording cannot be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The source is stopped, because it was opened only for the recording.
    Stop,
    /// The source continues, because a script also receives the records.
    GoOn,
}

impl<S: Source> RecordingTee<S> {
    /// Creates the source without a recording.
    pub fn new(source: S, then: AfterFailure) -> Self {
        Self { source, recording: None, names: None, rounds: Rounds::new(Instant::now()), then, failed: false }
    }

    /// Writes records into this recording from now on.
    pub fn record(&mut self, recording: RecordingWriter) {
        self.recording = Some(recording);
        self.handle_failure();
    }

    /// Adds to the recording what the frames of interpreters stand for.
    pub fn name_frames(&mut self, names: Option<FrameNames>) {
        self.rounds.are_flushed = names.is_some();
        self.names = names;
    }

    /// Returns the recording, if there is one.
    pub fn recording(&mut self) -> Option<&mut RecordingWriter> {
        self.recording.as_mut()
    }

    /// Removes and returns the recording. Records that are delivered later are not written.
    pub fn take_recording(&mut self) -> Option<RecordingWriter> {
        let mut recording = self.recording.take()?;
        if let Some(names) = &self.names {
            recording.name_frames(names.frames());
            names.report_incomplete_samples(recording.destination());
        }
        Some(recording)
    }

    /// If the recording cannot be written any more, reports the reason, and then stops the source or not (see
    /// [`AfterFailure`]). Only the first call after the failure does this.
    pub fn handle_failure(&mut self) {
        let Some(recording) = self.recording.as_ref().filter(|_| !self.failed) else { return };
        let Some(error) = recording.failure() else { return };
        self.failed = true;
        // It is no failure if the reader of a pipe closes it early.
        if !recording.was_closed() {
            let what = format!("cannot write {}: {error}; the recording ends here", recording.destination());
            match self.then {
                AfterFailure::Stop => output::say(what),
                AfterFailure::GoOn => output::say(format_args!("{what}; the script goes on")),
            }
        }
        if self.then == AfterFailure::Stop {
            self.source.stop();
        }
    }
}

impl<S: Source> Source for RecordingTee<S> {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        if self.recording.is_none() {
            return self.source.wait(until);
        }
        loop {
            let now = Instant::now();
            if self.rounds.is_due(now) {
                self.rounds.asked(FlushRequester::Recording, now);
                self.source.flush();
            }
            let wait = self.source.wait(until.into_iter().chain(self.rounds.next()).min());
            match wait {
                Wait::Timeout if until.is_none_or(|until| Instant::now() < until) => {}
                Wait::Flushed => {
                    let (asker, mark) = self.rounds.answered(Instant::now());
                    if let (true, Some(recording)) = (mark, &mut self.recording) {
                        recording.mark_round();
                        self.handle_failure();
                    }
                    if asker == FlushRequester::RunLoop {
                        return Wait::Flushed;
                    }
                }
                wait => return wait,
            }
        }
    }

    fn delivered(&mut self, batch: &Batch, count: usize) {
        if let Some(recording) = &mut self.recording {
            self.names.iter_mut().for_each(|names| names.note(batch, count));
            recording.write_batch(batch, count);
            self.rounds.any = true;
            self.handle_failure();
        }
    }

    fn flush(&mut self) {
        if self.recording.is_some() {
            self.rounds.asked(FlushRequester::RunLoop, Instant::now());
        }
        self.source.flush();
    }

    fn stop(&mut self) {
        self.source.stop();
    }

    fn drop_rest(&mut self) {
        self.source.drop_rest();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        self.source.losses()
    }

    fn lost_side_band(&mut self) -> Option<Vec<u64>> {
        self.source.lost_side_band()
    }

    fn take_offline_cpus(&mut self) -> Vec<u32> {
        self.source.take_offline_cpus()
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.source.ring_cpus()
    }

    fn ring_bytes(&self) -> Option<usize> {
        self.source.ring_bytes()
    }

    fn off_at(&self) -> Option<i64> {
        self.source.off_at()
    }

    fn late(&self) -> u64 {
        self.source.late()
    }

    fn dropped_by_limit(&self) -> u64 {
        self.source.dropped_by_limit()
    }

    fn backlog(&self) -> usize {
        self.source.backlog()
    }
}

/// The part of the program that has requested a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushRequester {
    Recording,
    RunLoop,
}

/// Decides when the rounds of a recording end.
#[derive(Debug)]
struct Rounds {
    /// True if records were written since the last end of a round.
    any: bool,
    /// The requested flushes that are not done yet, each with the time of the request. The oldest is the first.
    asked: VecDeque<(FlushRequester, Instant)>,
    last: Instant,
    /// True if a flush is also needed when no records were written: the names of a process can only be read while it runs,
    /// and the records of the process's start may be all that is in a ring.
    are_flushed: bool,
}

impl Rounds {
    fn new(now: Instant) -> Rounds {
        Rounds { any: false, asked: VecDeque::new(), last: now, are_flushed: false }
    }

    /// Returns the time at which the next flush has to be requested, if a flush is needed.
    fn next(&self) -> Option<Instant> {
        ((self.any || self.are_flushed) && self.asked.is_empty()).then_some(self.last + ROUND)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| now >= next)
    }

    fn asked(&mut self, asker: FlushRequester, now: Instant) {
        self.asked.push_back((asker, now));
    }

    /// Called when the oldest requested flush is done. Returns who requested it, and whether it ends a round. A flush ends
    /// a round if it was requested at least [`ROUND`] after the last end of a round. Then all later records are newer than
    /// the records before the last end of a round.
    fn answered(&mut self, now: Instant) -> (FlushRequester, bool) {
        let Some((asker, at)) = self.asked.pop_front() else { return (FlushRequester::RunLoop, false) };
        let is_late = at >= self.last + ROUND;
        let mark = self.any && is_late;
        if mark || is_late && self.are_flushed {
            (self.any, self.last) = (false, now);
        }
        (asker, mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_at_least_a_round_apart() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut rounds = Rounds::new(start);
        assert_eq!(rounds.next(), None, "nothing came");
        rounds.any = true;
        assert_eq!(rounds.next(), Some(at(100)));
        // A flush of the run loop ends a round if it was requested late enough.
        rounds.asked(FlushRequester::RunLoop, at(50));
        assert!(!rounds.is_due(at(120)));
        rounds.asked(FlushRequester::RunLoop, at(110));
        assert_eq!(rounds.answered(at(120)), (FlushRequester::RunLoop, false));
        assert_eq!(rounds.answered(at(130)), (FlushRequester::RunLoop, true));
        assert_eq!(rounds.next(), None);
        rounds.any = true;
        assert!(!rounds.is_due(at(229)) && rounds.is_due(at(230)));
        rounds.asked(FlushRequester::Recording, at(235));
        assert!(!rounds.is_due(at(400)));
        // Records that arrived between the request and the end of the flush belong to both rounds.
        assert_eq!(rounds.answered(at(500)), (FlushRequester::Recording, true));
        assert!(!rounds.is_due(at(700)));
    }
}
