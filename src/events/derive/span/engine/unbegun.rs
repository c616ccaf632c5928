//! Ends without a begin, in recordings: spans that began before the recording, and spans whose begin is missing in it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, Output};
use crate::{
    derive::span::{key::Key, missing::MissingSpan, table::OpenSpan},
    event::SpanSamples,
};

/// The maximum number of threads that are remembered. With more threads, ends without a begin are no longer told apart.
const MOST: usize = 1 << 16;

/// The maximum number of open spans among which those of a thread are searched. With more, damage would take too much time.
const MOST_SEARCHED: u64 = 4096;

/// Which open spans an end contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contradicted {
    Nothing,
    /// Spans that the user did not select.
    Others,
    Selected,
}

/// The threads that have begun or ended a span since the start of a recording or since the last loss.
#[derive(Default)]
pub(super) struct Begun {
    threads: FxHashSet<u64>,
    /// The last thread of `threads`. Most spans of a thread follow each other.
    last: Option<u64>,
    /// For each thread whose span ended without a begin: its task and the time. At its end, a recorder may turn the begin
    /// events off first, and the end events a moment later. So a begin counts as missing only if the thread begins another span
    /// later.
    unbegun: FxHashMap<u64, (i32, u64)>,
    /// Whether events were lost. The begin of a thread's first end may be one of them.
    had_loss: bool,
}

impl Begun {
    /// Notes that a thread begins a span. Returns the task and the time of its end whose begin is missing, if there is one.
    #[inline]
    pub fn begins(&mut self, thread: u64) -> Option<(i32, u64)> {
        self.add(thread);
        if self.unbegun.is_empty() { None } else { self.unbegun.remove(&thread) }
    }

    #[inline]
    fn add(&mut self, thread: u64) {
        if self.last != Some(thread) && self.threads.len() < MOST {
            self.threads.insert(thread);
            self.last = Some(thread);
        }
    }

    pub fn lost(&mut self) {
        *self = Begun { had_loss: true, ..Begun::default() };
    }
}

impl Engine {
    /// Counts an end whose begin is not known, if it is certain that the thread's span began. If the thread had no span
    /// before, the span began before the recording, and lasted at least from the recording's start on.
    pub(super) fn count_unbegun(&mut self, key: &Key, time: u64, end: (usize, &[u8])) {
        let (Some(begun), Some(has_begun)) = (&mut self.begun, self.span.definition.and_then(|of| of.has_begun)) else {
            return;
        };
        let thread = key.numbers()[0];
        let is_missing = begun.threads.contains(&thread);
        let is_known = !begun.had_loss && begun.threads.len() < MOST;
        begun.add(thread);
        if !is_missing && (!is_known || self.output == Output::Muted || !self.was_open_before(thread)) {
            return;
        }
        // Of the scheduler's sources, other rules find missing begins.
        if is_missing && self.of_threads.is_none() {
            return;
        }
        let duration = if is_missing { 0 } else { time.saturating_sub(self.context.recorded_since().unwrap_or(time)) };
        let samples = SpanSamples { begin: end, end: Some(end), notes: &[], key: key.numbers(), duration, ran: None };
        // The key names the thread. In the sample of a switch, the task that leaves is another one.
        let task = thread as i32;
        if !has_begun(&self.format.view(&samples, None)) {
            return;
        }
        let contradicted = if is_missing { self.drop_contradicted(key, time) } else { Contradicted::Nothing };
        let is_selected =
            self.delivers_spans_of(task) && self.selects_thread(|| task, &samples) && self.passes(&samples);
        if !is_selected && contradicted != Contradicted::Selected {
            return;
        }
        if contradicted != Contradicted::Nothing {
            self.add_unbegun(task, time);
        } else if is_missing {
            self.begun.iter_mut().for_each(|begun| _ = begun.unbegun.insert(thread, (task, time)));
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

    /// Counts a span whose begin is missing.
    pub(super) fn add_unbegun(&self, task: i32, time: u64) {
        if self.may_lack_spans(task, time) {
            self.counts.add_unbegun(1);
            self.counts.incomplete().add(task, time);
        }
    }

    /// Drops the open spans of the thread that ended another span at `time`. A thread has one span at a time. So an end of
    /// these spans is missing, or the begin of the other span is, or one of these events is damaged.
    fn drop_contradicted(&mut self, key: &Key, time: u64) -> Contradicted {
        if self.of_threads.is_none() || self.open.len() > MOST_SEARCHED {
            return Contradicted::Nothing;
        }
        let is_of_thread = |other: &Key| other.numbers()[0] == key.numbers()[0] && other != key;
        let is_earlier = |begin: &OpenSpan<&[u8]>| self.time_of(begin) <= time;
        let open = self.open.iter().filter(|(other, begin)| is_of_thread(other) && is_earlier(begin));
        let mut contradicted = Contradicted::Nothing;
        for key in open.map(|(other, _)| other.clone()).collect::<Vec<_>>() {
            let Some(begin) = self.open.close(&key) else { continue };
            self.counts.add_dropped(1);
            let selected = self.count_missing([MissingSpan { key, begin, until: time }]);
            contradicted = if selected != 0 { Contradicted::Selected } else { contradicted.max(Contradicted::Others) };
        }
        contradicted
    }
}
