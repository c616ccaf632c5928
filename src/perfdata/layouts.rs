//! Which event a record of a recording belongs to, and where its time lies: worked out per attr, once.

use super::header::AttrIds;
use crate::{
    abi::PERF_RECORD_SAMPLE,
    record::{EventIds, SampleLayout, SampleMember, TrailerLayout, record_type},
};

/// The layouts of all events of a recording.
#[derive(Debug)]
pub struct Layouts {
    attrs: Vec<(SampleLayout, Option<TrailerLayout>)>,
    ids: EventIds,
    times: Times,
}

/// Where the times of samples lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// At the same place for all attrs, as in nearly every recording.
    At(usize),
    /// Where the attr says.
    ByAttr,
}

/// What perf's user space writes itself begins here.
const FIRST_OF_USER_SPACE: u32 = 64;

impl Layouts {
    /// The layouts for these attrs. Not empty.
    pub fn new(attrs: &[AttrIds]) -> Layouts {
        let ids = attrs.iter().enumerate().flat_map(|(at, attr)| attr.ids.iter().map(move |&id| (id, at)));
        let ids = EventIds::new(&ids.collect::<Vec<_>>());
        let attrs: Vec<_> = attrs.iter().map(|attr| (attr.attr.layout(), attr.attr.trailer())).collect();
        let place = |(sample, trailer): &(SampleLayout, Option<TrailerLayout>)| {
            (sample.fixed_offset(SampleMember::Time), *trailer)
        };
        let alike = attrs.windows(2).all(|two| place(&two[0]) == place(&two[1]));
        let first = attrs.first().and_then(|first| place(first).0).filter(|_| alike);
        Layouts { attrs, ids, times: first.map_or(Times::ByAttr, Times::At) }
    }

    /// The layout of an attr's samples.
    pub fn sample(&self, attr: usize) -> &SampleLayout {
        &self.attrs[attr].0
    }

    /// The layout of what ends records that are no samples, of this attr.
    pub fn trailer(&self, attr: usize) -> Option<&TrailerLayout> {
        self.attrs[attr].1.as_ref()
    }

    /// How many attrs there are.
    pub fn len(&self) -> usize {
        self.attrs.len()
    }

    /// Whether there is none. Never: a recording without events is none.
    pub fn is_empty(&self) -> bool {
        self.attrs.is_empty()
    }

    /// The attr that a sample belongs to; `None` for an id that none has.
    #[inline]
    pub fn attr_of(&self, sample: &[u8]) -> Option<usize> {
        if self.attrs.len() == 1 {
            return Some(0);
        }
        // perf puts the id at the same place in all samples of a recording; what does not may still find its own.
        if let Some(attr) = self.attrs[0].0.id(sample).and_then(|id| self.ids.event(id)) {
            return Some(attr);
        }
        let own = |attr: &usize| self.attrs[*attr].0.id(sample).and_then(|id| self.ids.event(id)) == Some(*attr);
        (1..self.attrs.len().min(64)).find(own)
    }

    /// The attr whose layout a record's trailer has.
    fn attr_of_trailer(&self, record: &[u8]) -> usize {
        let id = self.attrs[0].1.and_then(|trailer| trailer.id(record));
        id.and_then(|id| self.ids.event(id)).unwrap_or(0)
    }

    /// When a record was written; `None` where it does not say: perf's own records have no time, or 0, or all ones.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        let kind = record_type(record);
        let time = match self.times {
            Times::At(at) if kind == PERF_RECORD_SAMPLE => {
                record.get(at..).and_then(|rest| rest.first_chunk()).map(|time| u64::from_ne_bytes(*time))
            }
            Times::ByAttr if kind == PERF_RECORD_SAMPLE => self.attrs[self.attr_of(record)?].0.time(record),
            _ if kind >= FIRST_OF_USER_SPACE => None,
            Times::At(_) => self.attrs[0].1?.time(record),
            Times::ByAttr => self.attrs[self.attr_of_trailer(record)].1?.time(record),
        };
        time.filter(|&time| time != 0 && time != u64::MAX)
    }

    /// The CPU that a record was written on, where it says.
    #[inline]
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        if record_type(record) == PERF_RECORD_SAMPLE {
            return self.attrs[self.attr_of(record)?].0.cpu(record);
        }
        self.attrs[self.attr_of_trailer(record)].1?.cpu(record)
    }

    /// The attr that an id belongs to.
    pub fn attr_with(&self, id: u64) -> Option<usize> {
        self.ids.event(id)
    }

    /// The attr of the event in whose ring a record that is no sample was written, where it says.
    pub fn event_of_trailer(&self, record: &[u8]) -> Option<usize> {
        self.ids.event(self.attrs[0].1?.id(record)?)
    }
}
