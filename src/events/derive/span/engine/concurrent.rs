//! Spans of which several with the same key may be open at once, such as requests for the same sector of a disk. Conditions of
//! the source tell which of them a sample belongs to. If a sample may belong to several spans, all spans with the key are
//! dropped when they end, until none is open: their number and the sum of their durations are known, but not which of them
//! ended when.

use perf_prof_format::spec::Nesting;

use super::{Engine, Which};
use crate::{
    derive::span::{Action, Belongs, OpenCondition, key::Key, table::Place},
    event::{Flow, PartView, SpanCounts, SpanSamples, SpanView},
};

/// The maximum number of open spans that a sample is compared with. Of more spans with one key, nobody knows which one is
/// meant, so a recording with very many costs little time.
const MOST: usize = 64;

/// The open spans that a sample may belong to.
enum Candidates {
    None,
    One(Place),
    /// Several. The place is that of the span that fits best.
    Several(Place),
}

impl Engine {
    /// Applies the step at the index `at` of an input to one of the open spans with this key.
    pub(super) fn concurrent(
        &mut self,
        at: usize,
        belongs: Belongs,
        key: &Key,
        (input, record): (usize, &[u8]),
        emit: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        let step = &self.span.inputs[input].steps[at];
        let (action, after) = (step.action, step.after);
        if action == Action::Begin {
            self.begin_beside(key, (input, record));
            return Flow::Continue(());
        }
        if action == Action::End {
            return self.end_one(belongs, after, key, (input, record), emit);
        }
        let place = match self.candidates(belongs, key, (input, record)) {
            Candidates::None if action == Action::BeginUnlessOpen => {
                self.begin_beside(key, (input, record));
                return Flow::Continue(());
            }
            Candidates::None => return Flow::Continue(()),
            Candidates::One(place) => place,
            Candidates::Several(best) => {
                self.open.set_unclear(key);
                best
            }
        };
        match action {
            Action::Note(keep) if after.is_none_or(|after| self.view_at(place, after)) => {
                let without_room = self.open.note_at(place, (input, at), record, keep);
                self.drop_without_room(without_room);
            }
            Action::Discard => self.counts.add_dropped(self.open.close_at(place).map_or(0, |_| 1)),
            _ => {}
        }
        Flow::Continue(())
    }

    /// Opens a span. The open spans with its key stay open, unless they are overdue.
    fn begin_beside(&mut self, key: &Key, (input, record): (usize, &[u8])) {
        let time = self.format.inputs[input].layout.time(record).unwrap_or(0);
        self.counts.add_opened(1);
        self.count_lost_before(key, time);
        while let Some(begin) = self.first_overdue(key, time).and_then(|place| self.open.close_at(place)) {
            self.drop_ended(key, Some(begin), time, SpanCounts::add_unended);
        }
        let opened = self.open.open_nested(key, input, record, Nesting::Nested);
        self.drop_without_room(opened.without_room);
    }

    /// Ends the span that a sample belongs to. If nobody knows which span this is, drops the one that fits best.
    fn end_one(
        &mut self,
        belongs: Belongs,
        after: Option<OpenCondition>,
        key: &Key,
        (input, record): (usize, &[u8]),
        emit: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        let time = self.format.inputs[input].layout.time(record).unwrap_or(0);
        let open = self.open.places(key).take(MOST + 1).count();
        if open == 0 {
            self.end_unknown(key, time, (input, record));
            return Flow::Continue(());
        }
        let is_unclear = self.open.is_unclear(key);
        let is_met = |engine: &Engine, place| after.is_none_or(|after| engine.view_at(place, after));
        let best = match self.candidates(belongs, key, (input, record)) {
            // The end of a span from before the run. While events are lost, what the open spans lack may be lost too.
            Candidates::None if open <= MOST && !is_unclear && self.lossy_rings == 0 => {
                self.end_unknown(key, time, (input, record));
                return Flow::Continue(());
            }
            Candidates::One(place) if !is_unclear && is_met(self, place) => {
                return self.end(key, Which::At(place), input, time, record, emit);
            }
            Candidates::One(_) if !is_unclear => return Flow::Continue(()),
            Candidates::One(place) | Candidates::Several(place) => Some(place).filter(|&place| is_met(self, place)),
            Candidates::None => None,
        };
        let oldest = || self.open.places(key).take(MOST).filter(|&place| is_met(self, place)).last();
        let dropped = best.or_else(oldest);
        if let Some(begin) = dropped.and_then(|dropped| self.open.close_at(dropped)) {
            self.open.set_unclear(key);
            self.drop_ended(key, Some(begin), time, SpanCounts::add_ambiguous);
        }
        Flow::Continue(())
    }

    /// Finds the open spans that a sample may belong to.
    fn candidates(&self, belongs: Belongs, key: &Key, (input, record): (usize, &[u8])) -> Candidates {
        let sample = PartView::new(&self.format.inputs[input], record);
        let places = self.open.places(key).take(MOST);
        let fits = places.filter_map(|place| Some((self.view_at(place, |span| belongs(span, &sample))?, place)));
        let fits: Vec<_> = fits.collect();
        // The places come with the last one first. Of equal elements, `min_by_key` returns the first one.
        match (fits.as_slice(), fits.iter().rev().min_by_key(|(change, _)| change)) {
            ([(_, only)], _) => Candidates::One(*only),
            (_, Some(&(_, best))) => Candidates::Several(best),
            (_, None) => Candidates::None,
        }
    }

    /// Finds an open span with this key that should have ended before `time`. Returns `None` while a ring loses events.
    fn first_overdue(&self, key: &Key, time: u64) -> Option<Place> {
        let overdue = self.overdue.as_ref().filter(|_| self.lossy_rings == 0)?;
        let age = |place| time.saturating_sub(self.time_of(&self.open.at(place)));
        self.open.places(key).take(MOST).find(|&place| overdue.is_overdue(age(place)))
    }

    /// Calls a function with the view of an open span.
    fn view_at<T>(&self, place: Place, call: impl FnOnce(&SpanView<'_>) -> T) -> T {
        let open = self.open.at(place);
        let (record, notes) = open.split();
        let begin = (open.input, record);
        call(&self.format.view(&SpanSamples { begin, end: None, notes, key: [0; 2], duration: 0, ran: None }, None))
    }
}
