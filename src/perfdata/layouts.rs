//! Which event a record of a recording belongs to, and where its time lies: worked out per attr, once.

use super::header::AttrIds;
use crate::{
    abi::{PERF_RECORD_SAMPLE, perf_data::FIRST_OF_USER_SPACE},
    record::{EventIds, SampleLayout, SampleMember, TrailerLayout, record_type},
    tracefs::{ElementType, EventFormat, FieldKind},
};

/// The layouts of all events of a recording.
#[derive(Debug)]
pub struct Layouts {
    attrs: Vec<(SampleLayout, Option<TrailerLayout>)>,
    ids: EventIds,
    times: Times,
    /// Per attr, the numbers in its raw data; of a recording of the other byte order.
    raw: Vec<RawWords>,
}

/// The numbers in a tracepoint's data: what has to be turned when they come in the other byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawWords {
    /// Offset, width and count of those at fixed places.
    fixed: Vec<(usize, usize, usize)>,
    /// Where words lie that say where arrays are, what those are relative to, and the width of the arrays' elements.
    arrays: Vec<(usize, usize, usize)>,
}

impl RawWords {
    /// The numbers of a tracepoint's fields.
    pub fn of(format: &EventFormat) -> RawWords {
        let mut words = RawWords::default();
        let width = |element: ElementType| match element {
            ElementType::Int { width, .. } => usize::from(width),
            ElementType::Char | ElementType::Opaque => 1,
        };
        for field in format.common_fields().iter().chain(format.fields()) {
            match field.kind {
                FieldKind::Int { .. } | FieldKind::Pointer | FieldKind::Bool => {
                    words.fixed.push((field.offset, field.size, 1));
                }
                FieldKind::Array(element) => {
                    let count = if field.size == 0 { usize::MAX } else { field.size / width(element) };
                    words.fixed.push((field.offset, width(element), count));
                }
                FieldKind::DataLoc(element) => words.arrays.push((field.offset, 0, width(element))),
                FieldKind::RelLoc(element) => words.arrays.push((field.offset, field.offset + 4, width(element))),
            }
        }
        words
    }

    /// Turns them.
    pub fn turn(&self, raw: &mut [u8]) {
        for &(offset, width, count) in self.fixed.iter().filter(|(_, width, _)| *width > 1) {
            let from = raw.get_mut(offset..).unwrap_or_default();
            from.chunks_exact_mut(width).take(count).for_each(<[u8]>::reverse);
        }
        for &(offset, base, width) in &self.arrays {
            let Some(word) = raw.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<4>()) else { continue };
            word.reverse();
            let word = u32::from_ne_bytes(*word);
            let (start, size) = ((word & 0xffff) as usize + base, (word >> 16) as usize);
            let array = raw.get_mut(start..).unwrap_or_default();
            let size = size.min(array.len());
            if width > 1 {
                array[..size].chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
        }
    }
}

/// Where the times of samples lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// At the same place for all attrs, as in nearly every recording.
    At(usize),
    /// Where the attr says.
    ByAttr,
}

/// Whether a record's time says anything.
#[inline]
fn is_time(time: &u64) -> bool {
    *time != 0 && *time != u64::MAX
}

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
        Layouts { attrs, ids, times: first.map_or(Times::ByAttr, Times::At), raw: Vec::new() }
    }

    /// The layouts of a recording all of whose samples have their time where this one has it, which is ours to write. Which
    /// event a record belongs to is not known.
    pub(super) fn of_all(layout: SampleLayout) -> Layouts {
        let trailer = TrailerLayout::new(layout.format.sample_type);
        let times = layout.fixed_offset(SampleMember::Time).map_or(Times::ByAttr, Times::At);
        Layouts { attrs: vec![(layout, Some(trailer))], ids: EventIds::new(&[]), times, raw: Vec::new() }
    }

    /// The layouts of a recording of the other byte order, whose tracepoints look like this.
    pub(super) fn with_raw_words(mut self, raw: Vec<RawWords>) -> Layouts {
        self.raw = raw;
        self
    }

    /// The numbers in the raw data of an attr's samples.
    pub(super) fn raw_words(&self, attr: usize) -> &RawWords {
        const NONE: &RawWords = &RawWords { fixed: Vec::new(), arrays: Vec::new() };
        self.raw.get(attr).unwrap_or(NONE)
    }

    /// The attr of a sample whose members are in the other byte order yet.
    pub(super) fn foreign_attr_of(&self, sample: &[u8]) -> Option<usize> {
        if self.attrs.len() == 1 {
            return Some(0);
        }
        let id = |attr: &usize| self.attrs[*attr].0.id(sample).and_then(|id| self.ids.event(id.swap_bytes()));
        id(&0).or_else(|| (1..self.attrs.len().min(64)).find(|attr| id(attr) == Some(*attr)))
    }

    /// How many bytes the sample id takes at the end of records that are no samples: all of perf's attrs agree.
    pub(super) fn trailer_size(&self) -> usize {
        self.attrs[0].1.map_or(0, |trailer| trailer.size())
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
    #[inline(always)]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        // Nearly every record of nearly every recording.
        if let Times::At(at) = self.times
            && record_type(record) == PERF_RECORD_SAMPLE
            && let Some(time) = record.get(at..).and_then(|rest| rest.first_chunk())
        {
            return Some(u64::from_ne_bytes(*time)).filter(is_time);
        }
        self.other_time(record)
    }

    #[inline(never)]
    fn other_time(&self, record: &[u8]) -> Option<u64> {
        let kind = record_type(record);
        let time = match self.times {
            // It is cut off.
            Times::At(_) if kind == PERF_RECORD_SAMPLE => None,
            Times::ByAttr if kind == PERF_RECORD_SAMPLE => self.attrs[self.attr_of(record)?].0.time(record),
            _ if kind >= FIRST_OF_USER_SPACE => None,
            Times::At(_) => self.attrs[0].1?.time(record),
            Times::ByAttr => self.attrs[self.attr_of_trailer(record)].1?.time(record),
        };
        time.filter(is_time)
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
