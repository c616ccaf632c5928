//! What becomes of a recording's samples: the events that were selected of it, intervals by the samples' own time, and
//! counts of what was lost. Knows nothing of where the records are.

use std::{sync::Arc, time::Duration};

use rustc_hash::FxHashMap;

use crate::{
    abi::{PERF_RECORD_LOST_SAMPLES, PERF_SAMPLE_READ},
    perfdata::{Layouts, ring_of},
    record::{Counters, LossCounts, Record, SampleLayout, SampleMember, record_type},
    spec::CpuSet,
    tracefs::Filter,
};

/// A selected event that gets samples of an attr.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its index among the selected events.
    pub event: usize,
    /// The CPUs that it was limited to.
    pub cpus: Option<CpuSet>,
    /// What samples have to pass.
    pub filter: Option<Filter>,
}

/// The state of a replay, beside the pump's own.
#[derive(Debug)]
pub struct Replayed {
    layouts: Arc<Layouts>,
    /// The selected events of each attr.
    routes: Vec<Vec<Route>>,
    /// Of each attr, the event that gets all of its samples as they are, if it is one.
    only: Vec<Option<usize>>,
    /// How many events were selected.
    events: usize,
    intervals: Option<Intervals>,
    /// What counters showed when they were last read, by id.
    counters: FxHashMap<u64, u64>,
    /// Samples lost per attr, as perf counted them at the recording's end.
    lost: Vec<u64>,
    told: Told,
    strangers: u64,
    last: u64,
}

/// `__interval__` by the samples' time.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    every: u64,
    /// When it is next due; `None` before the first sample.
    next: Option<u64>,
    /// The last time that it may be due at when no sample comes any more.
    end: u64,
    /// Of a silence with more intervals than that they are called once.
    longest: u64,
}

/// Times of a recording: those that are replayed, and those that a part of the replay has of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first, from which intervals are counted.
    pub begin: u64,
    /// The last of all parts.
    pub last: u64,
    /// Intervals that end by then are another part's.
    pub after: u64,
    /// The last.
    pub end: u64,
}

impl Span {
    /// How many intervals of this length there are in all parts.
    pub fn intervals(&self, every: Duration) -> u64 {
        self.last.saturating_sub(self.begin) / nanos(every)
    }
}

fn nanos(every: Duration) -> u64 {
    u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Whether counts of the recording's end are told here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// All is replayed here.
    Here,
    /// Other parts are replayed elsewhere, and the counts are of all of them.
    WithAllParts,
    /// They are not: of all CPUs only some are replayed, and which of the lost samples were theirs nobody has counted.
    Nowhere,
}

impl Told {
    /// When these CPUs are replayed, and all of that here.
    pub fn of(cpus: Option<&CpuSet>) -> Told {
        if cpus.is_none() { Told::Here } else { Told::Nowhere }
    }
}

/// If a replay has no more intervals than that, each is called: those of parts then are those of the whole. There may be any
/// number of them where a time is damaged, or the replay is long and they are short.
pub const MOST_INTERVALS: u64 = 10_000_000;

/// Otherwise those of a silence with more intervals than that are called once.
const MOST_IN_SILENCE: u64 = 100_000;

impl Intervals {
    /// Intervals of this length in a span; where that is not known, from the first sample to the last.
    pub fn new(every: Duration, span: Option<Span>) -> Self {
        let longest = span.map(|span| span.intervals(every)).filter(|&intervals| intervals <= MOST_INTERVALS);
        let (every, longest) = (nanos(every), longest.unwrap_or(0).max(MOST_IN_SILENCE));
        let Some(Span { begin, after, end, .. }) = span else { return Self { every, next: None, end: 0, longest } };
        let passed = after.saturating_sub(begin) / every;
        let next = begin.saturating_add(every.saturating_mul(passed.saturating_add(1)));
        Self { every, next: Some(next), end, longest }
    }
}

/// Where and when a sample was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Its attr.
    attr: usize,
    /// Its time.
    pub time: u64,
    /// The ring that it counts for: its CPU's.
    pub ring: usize,
    cpu: Option<u32>,
}

/// Whether samples hold counters.
fn has_readings(layout: &SampleLayout) -> bool {
    layout.format.sample_type & PERF_SAMPLE_READ != 0
}

impl Replayed {
    /// A replay of which these events were selected: of each attr, those that get its samples.
    pub fn new(layouts: Arc<Layouts>, routes: Vec<Vec<Route>>, intervals: Option<Intervals>, told: Told) -> Self {
        let events = routes.iter().map(Vec::len).sum();
        let lost = vec![0; layouts.len()];
        let counters = FxHashMap::default();
        let only = |(attr, routes): (usize, &Vec<Route>)| match routes.as_slice() {
            [Route { event, cpus: None, filter: None }] if !has_readings(layouts.sample(attr)) => Some(*event),
            _ => None,
        };
        let only = routes.iter().enumerate().map(only).collect();
        Self { layouts, routes, only, events, intervals, counters, lost, told, strangers: 0, last: 0 }
    }

    /// Samples whose id no event of the recording has.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// The time of the last sample.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Where and when a sample was taken; `None` for one that belongs to no event.
    #[inline]
    pub(super) fn sample(&mut self, record: &[u8], rings: usize) -> Option<Taken> {
        let Some(attr) = self.layouts.attr_of(record) else {
            self.strangers += 1;
            return None;
        };
        let layout = self.layouts.sample(attr);
        let (time, cpu) = (layout.time(record).unwrap_or(self.last), layout.cpu(record));
        self.last = time;
        Some(Taken { attr, time, ring: ring_of(cpu, rings), cpu })
    }

    /// The ring and the time of a record that is no sample.
    pub(super) fn place(&self, record: &[u8], rings: usize) -> (usize, u64) {
        (ring_of(self.layouts.cpu(record), rings), self.layouts.time(record).unwrap_or(0))
    }

    /// The selected event that gets all samples of this sample's attr as they are, if it is one.
    #[inline]
    pub(super) fn only_event(&self, taken: &Taken) -> Option<usize> {
        self.only[taken.attr]
    }

    /// The selected events that get a sample.
    pub(super) fn events<'a>(&'a self, taken: &Taken, record: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
        let &Taken { attr, cpu, .. } = taken;
        self.routes[attr].iter().filter(move |route| self.wants(route, attr, cpu, record)).map(|route| route.event)
    }

    #[inline]
    fn wants(&self, route: &Route, attr: usize, cpu: Option<u32>, record: &[u8]) -> bool {
        let on_cpu = match (&route.cpus, cpu) {
            (None, _) => true,
            (Some(cpus), Some(cpu)) => cpus.contains(cpu),
            (Some(_), None) => false,
        };
        let raw = || self.layouts.sample(attr).of_readings().raw(record).unwrap_or(&[]);
        on_cpu && route.filter.as_ref().is_none_or(|filter| filter.passes(raw(), cpu))
    }

    /// Of a sample that holds counters (PERF_SAMPLE_READ), one for each counter that has counted since it was last read,
    /// with that as its period, as perf has it (`deliver_sample_group()` in `tools/perf/util/session.c`): so the members of a
    /// group that only its leader samples have samples too. `None` for one that holds none.
    #[inline]
    pub(super) fn readings(&mut self, taken: &Taken, record: &[u8]) -> Option<Vec<(Taken, Vec<u8>)>> {
        let layout = *self.layouts.sample(taken.attr);
        if !has_readings(&layout) {
            return None;
        }
        Some(self.read(taken, &layout, record))
    }

    fn read(&mut self, taken: &Taken, layout: &SampleLayout, record: &[u8]) -> Vec<(Taken, Vec<u8>)> {
        let counters = match layout.reading(record).unwrap_or_default().counters {
            Counters::One(counter) => vec![counter],
            Counters::Group(counters) => counters,
        };
        let of_readings = layout.of_readings();
        let mut samples = Vec::new();
        for counter in counters {
            let Some(id) = counter.id.or_else(|| layout.id(record)) else { continue };
            let Some(attr) = self.layouts.attr_with(id) else {
                self.strangers += 1;
                continue;
            };
            let before = self.counters.insert(id, counter.value).unwrap_or(0);
            let period = counter.value.wrapping_sub(before);
            if period == 0 {
                continue;
            }
            let mut own = layout.with_room_for_period(record);
            let mut put = |member: SampleMember, value: u64| {
                let at = of_readings.fixed_offset(member);
                if let Some(place) = at.and_then(|at| own.get_mut(at..at + 8)) {
                    place.copy_from_slice(&value.to_ne_bytes());
                }
            };
            put(SampleMember::Identifier, id);
            put(SampleMember::Id, id);
            put(SampleMember::Period, period);
            samples.push((Taken { attr, ..*taken }, own));
        }
        samples
    }

    /// The end of an interval that has ended before a sample of this time; to be asked until there is none.
    #[inline]
    pub(super) fn interval_passed(&mut self, time: u64) -> Option<u64> {
        let Intervals { every, next: due, longest, .. } = self.intervals.as_mut()?;
        let next = *due.get_or_insert(time.saturating_add(*every));
        if next > time || next == u64::MAX {
            return None;
        }
        let ahead = (time - next) / *every;
        let skipped = if ahead > *longest { ahead } else { 0 };
        let passed = next.saturating_add(every.saturating_mul(skipped));
        *due = Some(passed.saturating_add(*every));
        Some(passed)
    }

    /// The same when no sample comes any more.
    pub(super) fn interval_left(&mut self) -> Option<u64> {
        let end = self.intervals.filter(|intervals| intervals.next.is_some())?.end;
        self.interval_passed(end)
    }

    /// Takes perf's own count of an event's lost samples (PERF_FORMAT_LOST), which it writes at the end, without a time.
    /// The ring's PERF_RECORD_LOST have told of the same losses at their places.
    pub(super) fn counts(&mut self, record: &[u8]) -> bool {
        if record_type(record) != PERF_RECORD_LOST_SAMPLES || self.layouts.time(record).is_some() {
            return false;
        }
        let (Some(attr), Record::Lost { lost }) = (self.layouts.event_of_trailer(record), Record::parse(record)) else {
            return false;
        };
        if self.told != Told::Nowhere {
            self.lost[attr] += lost;
        }
        true
    }

    /// The lost samples of the selected events, if perf has counted them and this is where they are told.
    pub(super) fn losses(&self, rings: usize) -> Option<LossCounts> {
        let counted = self.told == Told::Here && self.lost.iter().any(|&lost| lost != 0);
        let (per_ring, samples_per_ring) = (vec![0; rings], Vec::new());
        counted.then(|| LossCounts { per_event: self.lost_per_event(), per_ring, samples_per_ring })
    }

    /// The lost samples of the selected events, as perf has counted them.
    pub fn lost_per_event(&self) -> Vec<u64> {
        let mut per_event = vec![0; self.events];
        for (routes, &lost) in self.routes.iter().zip(&self.lost) {
            for route in routes {
                per_event[route.event] = lost;
            }
        }
        per_event
    }
}
