//! The spans of flushes of block devices, and of tasks that wait for flushes.

use super::{Engine, Which};
use crate::{
    derive::span::{
        flushes::{End, FlushChange, Waits, flush_key, wait_key},
        key::Key,
        missing::MissingSpan,
        scheduler::At,
        table::OpenSpan,
    },
    event::{Flow, SpanCounts},
};
use perf_prof_format::spec::Nesting;

impl Engine {
    /// Handles a change of the flushes of the device `dev`. The sample comes with the index of its input.
    pub(super) fn flush(
        &mut self,
        change: FlushChange,
        dev: u64,
        (input, record): (usize, &[u8]),
        emit: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        let layout = &self.format.inputs[input].layout;
        let at = At { cpu: layout.cpu(record).unwrap_or(0), time: layout.time(record).unwrap_or(0) };
        let (key, end) = match change {
            FlushChange::Issued => {
                self.issue(dev, at, (input, record));
                return Flow::Continue(());
            }
            FlushChange::Requeued => match (self.flushes.requeued(dev), flush_key(dev)) {
                (End::First, key) => {
                    self.counts.add_dropped(self.open.close_first(&key).map_or(0, |_| 1));
                    return Flow::Continue(());
                }
                (End::Unknown, _) => return Flow::Continue(()),
                (unclear, key) => (key, unclear),
            },
            FlushChange::Ended => (flush_key(dev), self.flushes.ended(dev)),
            FlushChange::WaitEnded => {
                let key = wait_key(dev);
                let first = self.open.first(&key).map_or(u64::MAX, |begin| self.time_of(&begin));
                (key, self.flushes.wait_ended(dev, first))
            }
        };
        match end {
            End::First => return self.end(&key, Which::First, input, at.time, record, emit),
            End::Unclear | End::LastUnclear => {
                let first = self.open.close_first(&key);
                self.drop_ended(&key, first, at.time, SpanCounts::add_ambiguous);
            }
            End::Unknown => {
                self.counts.add_without_begin(1);
                let dropped = self.missing_waits.end_first(&key, |_| true, at.time);
                let dropped = dropped.or_else(|| self.missing.end(&key, at.time));
                self.count_missing(dropped);
            }
        }
        if end == End::LastUnclear {
            self.drop_waits(dev, at.time);
        }
        Flow::Continue(())
    }

    /// Opens the span of a flush, and drops spans that this flush shows to be over.
    fn issue(&mut self, dev: u64, at: At, (input, record): (usize, &[u8])) {
        let Self { flushes, context, .. } = self;
        let issue = flushes.issued(dev, at, || context.has_one_hardware_queue(dev));
        let key = flush_key(dev);
        if issue.is_end_missing {
            let first = self.open.close_first(&key);
            self.drop_ended(&key, first, at.time, SpanCounts::add_unended);
        }
        self.end_missing_waits(dev, issue.over_before, at.time);
        match issue.waits {
            Waits::GoOn => {}
            Waits::Ambiguous => self.drop_waits(dev, at.time),
            Waits::LeftOut => {
                let waits = std::iter::from_fn(|| self.open.close_first(&wait_key(dev))).count();
                self.counts.add_dropped(waits as u64);
            }
        }
        self.counts.add_opened(1);
        let opened = self.open.open_nested(&key, input, record, Nesting::Nested);
        self.drop_without_room(opened.without_room);
    }

    /// Drops a span that was over at the time `until`. `count` counts why its end is unknown.
    pub(super) fn drop_ended(
        &mut self,
        key: &Key,
        begin: Option<OpenSpan<Box<[u8]>>>,
        until: u64,
        count: fn(&SpanCounts, u64),
    ) {
        let Some(begin) = begin else { return };
        self.count_dropped(key, &begin, until, count);
        self.count_missing([MissingSpan { key: key.clone(), begin, until }]);
    }

    fn count_dropped(&self, key: &Key, begin: &OpenSpan<Box<[u8]>>, now: u64, count: fn(&SpanCounts, u64)) {
        self.counts.add_dropped(1);
        // If events were lost, the loss may be the reason.
        let count = if self.lossy_rings == 0 { count } else { SpanCounts::add_lost };
        count(&self.counts, 1);
        self.add_gap_of(key.numbers(), begin, now);
    }

    /// Drops all open waits for the flushes of a device. Some of them may go on. How long a wait lasted is counted when it
    /// is over.
    fn drop_waits(&mut self, dev: u64, now: u64) {
        let key = wait_key(dev);
        while let Some(begin) = self.open.close_first(&key) {
            self.count_dropped(&key, &begin, now, SpanCounts::add_ambiguous);
            let without_room = self.missing_waits.keep(&key, begin, now);
            self.count_missing(without_room);
        }
    }

    /// Counts the duration of dropped waits that began before `over_before`: they are over now.
    fn end_missing_waits(&mut self, dev: u64, over_before: u64, now: u64) {
        let key = wait_key(dev);
        loop {
            let inputs = &self.format.inputs;
            let began = |begin: &OpenSpan<&[u8]>| inputs[begin.input].layout.time(begin.split().0).unwrap_or(0);
            let over = self.missing_waits.end_first(&key, |begin| began(begin) < over_before, now);
            let Some(over) = over else { return };
            self.count_missing([over]);
        }
    }

    pub(super) fn time_of(&self, begin: &OpenSpan<impl AsRef<[u8]>>) -> u64 {
        self.format.inputs[begin.input].layout.time(begin.split().0).unwrap_or(0)
    }
}
