//! The maximum durations of the spans that losses dropped.

use perf_prof_format::spec::Nesting;
use rustc_hash::FxHashMap;

use super::Engine;
use crate::{
    derive::span::{
        Action, Filters, Span,
        key::{Key, Part},
        missing::MissingSpan,
        table::{OpenSpan, OpenSpans},
    },
    event::{SpanCounts, SpanSamples},
};

/// The open spans of each thread while events are lost, for spans of which a thread has one at a time. Their keys start with
/// the thread, so any event of the thread with another key shows that the thread's open span is over.
#[derive(Default)]
pub(super) struct OfThreads(FxHashMap<u64, Key>);

impl OfThreads {
    /// Follows these open spans from now on.
    pub fn follow(&mut self, open: &OpenSpans) {
        self.0 = open.iter().map(|(key, _)| (key.numbers()[0], key.clone())).collect();
    }
}

impl Span {
    /// Returns whether a thread has at most one of these spans at a time, such as a system call, although the thread is not
    /// the whole key.
    pub(super) fn has_one_per_thread(&self) -> bool {
        let mut begins = self.inputs.iter().flat_map(|input| &input.steps).filter(|step| step.action.begins());
        self.definition.is_some()
            && self.spec.nesting == Nesting::Replaced
            && begins.all(|step| matches!(step.key.parts(), [Part::Tid, _]))
    }
}

impl Engine {
    /// Drops all open spans, because a loss is over: each of them may have ended, or begun again, among the lost samples. A
    /// span that begins after this call began after the loss.
    pub(super) fn drop_open(&mut self, end: u64) {
        for (key, begin) in self.open.iter() {
            self.add_gap_of(key.numbers(), &begin, self.last);
        }
        let mut dropped = self.open.take_all();
        let number = dropped.len();
        let mut ended = self.missing.end_loss(self.last.max(end), number, self.lossy_rings != 0);
        while let Some((key, begin)) = dropped.take_oldest_with_key() {
            let key = self.missing_key(&key);
            if self.of_threads.is_some() {
                ended.extend(self.missing.end(&key, self.time_of(&begin)));
            }
            ended.extend(self.missing.add(key, begin));
        }
        self.count_missing(ended);
        if let Some(of_threads) = &mut self.of_threads {
            of_threads.0.clear();
        }
        self.counts.add_dropped(number);
        self.counts.add_lost(number);
    }

    /// Drops the open span of a thread while events are lost, because the thread has an event with another key.
    pub(super) fn drop_other_of_thread(&mut self, key: &Key, action: Action, time: u64) {
        let Some(OfThreads(open)) = &mut self.of_threads else { return };
        if !action.begins() && !action.ends() {
            return;
        }
        let thread = key.numbers()[0];
        let other = match open.get(&thread) {
            Some(other) if other != key => open.remove(&thread),
            _ => None,
        };
        if action.begins() {
            open.insert(thread, key.clone());
        }
        let Some(other) = other else { return };
        let Some(begin) = self.close_begun_until(&other, time) else { return };
        self.counts.add_dropped(1);
        self.counts.add_lost(1);
        self.add_gap_of(other.numbers(), &begin, time);
        self.count_missing([MissingSpan { key: other, begin, until: time }]);
    }

    /// Closes the open span with this key, unless it began after `time`.
    pub(super) fn close_begun_until(&mut self, key: &Key, time: u64) -> Option<OpenSpan<Box<[u8]>>> {
        let inputs = &self.format.inputs;
        let is_earlier = |begin: OpenSpan<&[u8]>| inputs[begin.input].layout.time(begin.split().0) <= Some(time);
        self.open.close_if(key, is_earlier)
    }

    /// Counts a missing span as a gap of its task, unless its begin shows that the user did not select it.
    pub(super) fn add_gap_of(&self, key: [u64; 2], begin: &OpenSpan<impl AsRef<[u8]>>, time: u64) {
        if let Some(task) = self.lacking_task(key, begin, time) {
            self.counts.incomplete().add(task, time);
        }
    }

    /// Returns the task to which a missing span belongs; `None` if the begin of the span shows that the user did not select it.
    pub(super) fn lacking_task(&self, key: [u64; 2], begin: &OpenSpan<impl AsRef<[u8]>>, time: u64) -> Option<i32> {
        let (record, notes) = begin.split();
        let begin = (begin.input, record);
        let samples = SpanSamples { begin, end: None, notes, key, duration: 0, ran: None };
        let task = self.format.thread(&samples);
        let is_known = |offset| self.format.is_known_at_begin(offset);
        (self.may_lack_spans(task, time) && self.may_pass(&samples, &is_known)).then_some(task)
    }

    /// Returns whether a span may pass the filter. `is_known` returns whether the value of the field at an offset is known.
    pub(super) fn may_pass(&self, samples: &SpanSamples<'_>, is_known: &dyn Fn(usize) -> bool) -> bool {
        match &self.span.filters {
            Some(Filters::OfSpan(filter)) => {
                let mut record = Vec::new();
                self.format.write_for_filter(samples, &self.filtered_fields, Some(&self.context), &mut record);
                filter.may_pass(&record, is_known)
            }
            _ => true,
        }
    }

    /// Returns the key of a span among the dropped spans: the thread alone, if a thread has one span at a time.
    pub(super) fn missing_key(&self, key: &Key) -> Key {
        if self.of_threads.is_some() { Key::One(key.numbers()[0]) } else { key.clone() }
    }

    /// Returns the key of a dropped span with all its parts.
    fn whole_key(&self, key: Key, begin: &OpenSpan<Box<[u8]>>) -> Key {
        if self.of_threads.is_none() {
            return key;
        }
        let step = self.span.inputs[begin.input].steps.iter().find(|step| step.action.begins());
        let layout = &self.format.inputs[begin.input].layout;
        step.and_then(|step| step.key.key(layout, begin.split().0)).unwrap_or(key)
    }

    /// Adds up the maximum durations of dropped spans. Skips spans whose begin shows that the user did not select them.
    /// Returns how many of the spans it did not skip.
    pub(super) fn count_missing(&mut self, spans: impl IntoIterator<Item = MissingSpan>) -> u64 {
        let mut counted = 0;
        for MissingSpan { key, begin, until } in spans {
            let key = self.whole_key(key, &begin);
            let (record, notes) = begin.split();
            let time = self.format.inputs[begin.input].layout.time(record).unwrap_or(0);
            let duration = until.saturating_sub(time);
            let begin = (begin.input, record);
            let samples = SpanSamples { begin, end: None, notes, key: key.numbers(), duration, ran: None };
            let task = self.format.thread(&samples);
            let is_selected = duration >= self.span.spec.min
                && self.delivers_spans_of(task)
                && self.selects_task(&samples)
                && self.passes(&samples);
            if !is_selected {
                continue;
            }
            counted += 1;
            self.counts.incomplete().add_time(task, duration);
            if let Some(records) = &mut self.missing_records {
                self.format.write(&self.layout, &samples, Some(&self.context), &mut self.record);
                records.push(self.record.as_slice().into());
            }
        }
        counted
    }

    /// Adds up the maximum durations of spans with this key that a loss dropped. Called when a span with the key begins.
    pub(super) fn count_lost_before(&mut self, key: &Key, time: u64) {
        if !self.missing.is_empty() {
            let dropped = self.missing.begin(&self.missing_key(key), time, self.lossy_rings != 0);
            self.count_missing(dropped);
        }
    }

    /// Counts an open span that was dropped because a second span with its key began at `time`.
    pub(super) fn count_replaced(&mut self, key: &Key, begin: OpenSpan<Box<[u8]>>, time: u64) {
        if self.span.definition.is_some_and(|definition| definition.reports_ends) {
            return self.drop_ended(key, Some(begin), time, SpanCounts::add_unended);
        }
        self.counts.add_dropped(1);
        let is_source = self.span.spec.is_source();
        if !is_source {
            self.counts.add_replaced(1);
            self.add_gap_of(key.numbers(), &begin, time);
        }
        // The kernel does not report some ends of these sources, so a second begin alone does not show that an end is missing. For
        // the scheduler's sources, `schedule` finds what is missing.
        let task = key.numbers()[0] as i32;
        if self.lossy_rings != 0 || !is_source || self.scheduler.contradicted().contains(&task) {
            self.count_missing([MissingSpan { key: key.clone(), begin, until: time }]);
        }
    }
}
