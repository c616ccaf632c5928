//! Begins and ends without each other, in recordings: spans that began before the recording, and spans of which an event is
//! missing or damaged.

use super::{
    Engine, Output,
    threads::{BeforeBegin, Stage, Threads},
};
use crate::{
    derive::{
        source::UnseenBegin,
        span::{key::Key, missing::MissingSpan},
    },
    event::SpanSamples,
};

/// Which open span an end contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contradicted {
    Nothing,
    /// A span that the user did not select.
    Other,
    Selected,
}

impl Engine {
    /// Notes that a thread begins a span.
    #[inline]
    pub(super) fn note_begin(&mut self, key: &Key, time: u64) {
        let before = self.threads.as_mut().and_then(|threads| threads.begins(key.numbers(), time));
        let Some(BeforeBegin { unbegun, open }) = before else { return };
        // The end may have been in an earlier part, whose reading in advance does not know which tasks are selected.
        if let Some((task, at)) = unbegun {
            self.add_unpaired(task, at);
        }
        if let (Some(open), true, 0) = (open, self.of_threads.is_some(), self.lossy_rings) {
            self.keep_unended(Key::two(key.numbers()[0], open), time);
        }
    }

    /// Notes that a thread ends a span whose begin is known.
    #[inline]
    pub(super) fn note_end(&mut self, key: &Key, time: u64) {
        if let Some(threads) = self.threads.as_mut().filter(|_| self.of_threads.is_some()) {
            let unended = threads.ends(key.numbers(), time);
            self.count_unended(unended);
        }
    }

    /// Keeps the open span with this key until it is known whether its end is missing.
    #[cold]
    fn keep_unended(&mut self, key: Key, time: u64) {
        let Some(begin) = self.close_begun_until(&key, time) else { return };
        let thread = key.numbers()[0];
        let span = MissingSpan { key, begin, until: time };
        let without_room = self.threads.as_mut().and_then(|threads| threads.keep(thread, span));
        self.count_unended(without_room);
    }

    /// Counts spans whose ends are missing.
    fn count_unended(&mut self, spans: impl IntoIterator<Item = MissingSpan>) {
        for span in spans {
            self.counts.add_dropped(1);
            if let Some(task) = self.lacking_task(span.key.numbers(), &span.begin, span.until) {
                self.counts.add_unpaired(1);
                self.counts.incomplete().add(task, span.until);
            }
            self.count_missing([span]);
        }
    }

    /// Counts the spans that wait for an end of their thread, if the end events were still on.
    pub(super) fn count_last_unended(&mut self) {
        let spans = self.threads.as_mut().map(Threads::take_last_unended);
        self.count_unended(spans.into_iter().flatten());
    }

    /// Forgets the threads, because events were lost.
    pub(super) fn forget_threads(&mut self) {
        let spans = self.threads.as_mut().map(Threads::lost);
        self.count_unended(spans.into_iter().flatten());
    }

    pub(super) fn note_created(&mut self, tid: i32, time: u64) {
        self.threads.iter_mut().for_each(|threads| threads.created(i64::from(tid) as u64, time));
    }

    pub(super) fn note_exited(&mut self, tid: i32, time: u64) {
        self.threads.iter_mut().for_each(|threads| threads.exited(i64::from(tid) as u64, time));
    }

    /// Counts an end whose begin is not known, if it is certain that the thread's span began. If the thread had no span
    /// before, the span began before the recording, and lasted at least from the recording's start on.
    pub(super) fn count_unbegun(&mut self, key: &Key, time: u64, end: (usize, &[u8])) {
        self.count_begun_before(key, time, end);
        let unseen = self.span.definition.and_then(|of| of.unseen_begin);
        let (Some(threads), Some(unseen)) = (&mut self.threads, unseen) else { return };
        let thread = key.numbers()[0];
        let is_known = threads.are_known();
        let before = threads.ends_unbegun(key.numbers(), time);
        let unended = threads.take_unended(thread);
        self.count_unended(unended);
        let is_missing = match before.stage {
            None if is_known && self.output == Output::Delivered && self.was_open_before(thread) => false,
            // Of the scheduler's sources, other rules find missing begins.
            Some(Stage::Begun | Stage::Ended) if self.of_threads.is_some() => true,
            _ => return,
        };
        let duration = if is_missing { 0 } else { time.saturating_sub(self.context.recorded_since().unwrap_or(time)) };
        let samples = SpanSamples { begin: end, end: Some(end), notes: &[], key: key.numbers(), duration, ran: None };
        // The key names the thread. In the sample of a switch, the task that leaves is another one.
        let task = thread as i32;
        let begin = unseen(&self.format.view(&samples, None));
        if begin == UnseenBegin::NotReported {
            return;
        }
        let contradicted = before.open.map(|open| self.drop_contradicted(Key::two(thread, open), time));
        let contradicted = contradicted.unwrap_or(Contradicted::Nothing);
        let is_certain = match begin {
            UnseenBegin::Reported => true,
            UnseenBegin::ReportedIfMade => before.has_made || contradicted != Contradicted::Nothing,
            _ => contradicted != Contradicted::Nothing,
        };
        if !is_certain {
            return;
        }
        let is_selected =
            self.delivers_spans_of(task) && self.selects_thread(|| task, &samples) && self.passes(&samples);
        if !is_selected && contradicted != Contradicted::Selected {
            return;
        }
        if contradicted != Contradicted::Nothing {
            self.add_unpaired(task, time);
        } else if is_missing {
            self.threads.iter_mut().for_each(|threads| threads.note_unbegun(thread, task, time));
        } else {
            self.counts.add_begun_before(1);
            self.counts.add_time_before(duration);
        }
    }

    /// Returns whether it is certain that the thread's first end is that of a span from before the recording. A call that
    /// returns was entered, but a new task was never off its CPU when it comes to one for the first time.
    fn was_open_before(&self, thread: u64) -> bool {
        let is_known = |(at, is_read): (usize, &bool)| !is_read || self.format.is_known_at_end(at);
        self.of_threads.is_some()
            || self.context.with_tasks(|tasks| tasks.existed_before(thread as i32))
                && self.filtered_fields.iter().enumerate().all(is_known)
    }

    /// Counts a span of which an event is missing.
    fn add_unpaired(&self, task: i32, time: u64) {
        if self.may_lack_spans(task, time) {
            self.counts.add_unpaired(1);
            self.counts.incomplete().add(task, time);
        }
    }

    /// Drops the open span of a thread that ended another span at `time`. A thread has one span at a time. So an event is
    /// missing or damaged: the end of the open span, or the begin of the other one.
    fn drop_contradicted(&mut self, open: Key, time: u64) -> Contradicted {
        let Some(begin) = self.close_begun_until(&open, time) else { return Contradicted::Nothing };
        self.counts.add_dropped(1);
        match self.count_missing([MissingSpan { key: open, begin, until: time }]) {
            0 => Contradicted::Other,
            _ => Contradicted::Selected,
        }
    }
}
