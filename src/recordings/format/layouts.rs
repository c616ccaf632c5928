//! Finds the event of a record, and the position of the time in a record. The positions are computed once per attr.

use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, perf_data::FIRST_USER_RECORD_TYPE},
    record::{EventIds, SampleLayout, SampleMember, TrailerLayout, record_type},
    tracefs::{ElementType, EventFormat, Extent},
};

use super::header::AttrIds;

/// The record layouts of all events in a recording.
#[derive(Debug)]
pub struct Layouts {
    attrs: Vec<(SampleLayout, Option<TrailerLayout>)>,
    ids: EventIds,
    times: TimeLocation,
    /// For each attr, the positions of the numbers in the raw data of its samples, whose bytes have to be swapped.
    /// Empty if the recording has native byte order.
    raw: Vec<RawNumbers>,
}

/// The positions of the numbers in a tracepoint's raw data. In a recording of foreign byte order, the bytes of these
/// numbers have to be swapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawNumbers {
    /// Numbers at fixed offsets. Each entry contains the offset of the first number, the width of a number in bytes,
    /// and the maximum number of consecutive numbers of this width.
    fixed: Vec<(usize, usize, usize)>,
    /// Arrays at variable offsets. A word of the raw data contains the location of such an array. Each entry contains
    /// the offset of this word, the offset to which the location is relative, and the width of the array's elements in
    /// bytes.
    arrays: Vec<(usize, usize, usize)>,
}

impl RawNumbers {
    /// Returns the positions of the numbers in the fields of a tracepoint.
    pub fn of_format(format: &EventFormat) -> RawNumbers {
        let mut words = RawNumbers::default();
        for field in format.common_fields().iter().chain(format.fields()) {
            let width = field.kind.element().and_then(ElementType::int).map_or(1, |int| usize::from(int.width));
            match field.extent() {
                None => words.fixed.push((field.offset, field.size, 1)),
                Some(Extent::Flexible { offset }) => words.fixed.push((offset, width, usize::MAX)),
                Some(Extent::Fixed { offset, size }) => words.fixed.push((offset, width, size / width)),
                Some(Extent::DataLoc { offset }) => words.arrays.push((offset, 0, width)),
                Some(Extent::RelLoc { offset }) => words.arrays.push((offset, offset + 4, width)),
            }
        }
        words
    }

    /// Swaps the bytes of the numbers in `raw`.
    pub fn swap_bytes(&self, raw: &mut [u8]) {
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

/// The location of the time in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeLocation {
    /// At the same offset for all attrs, as in nearly every recording.
    At(usize),
    /// At an offset that depends on the attr.
    ByAttr,
}

/// Returns whether a record's time is usable. A time of 0 or of all ones is not usable, because perf writes these
/// values in place of a time into its own records.
#[inline]
fn is_time(time: &u64) -> bool {
    *time != 0 && *time != u64::MAX
}

impl Layouts {
    /// Creates the layouts for `attrs`, which must not be empty.
    pub fn new(attrs: &[AttrIds]) -> Layouts {
        let ids = attrs.iter().enumerate().flat_map(|(at, attr)| attr.ids.iter().map(move |&id| (id, at)));
        let ids = EventIds::new(&ids.collect::<Vec<_>>());
        let attrs: Vec<_> = attrs.iter().map(|attr| (attr.attr.layout(), attr.attr.sample_id_layout())).collect();
        let place = |(sample, trailer): &(SampleLayout, Option<TrailerLayout>)| {
            (sample.fixed_offset(SampleMember::Time), *trailer)
        };
        let alike = attrs.windows(2).all(|two| place(&two[0]) == place(&two[1]));
        let first = attrs.first().and_then(|first| place(first).0).filter(|_| alike);
        Layouts { attrs, ids, times: first.map_or(TimeLocation::ByAttr, TimeLocation::At), raw: Vec::new() }
    }

    /// Creates the layouts for a recording that perf-prof is writing. All samples of the recording have the time at the
    /// same position as in `layout`. These layouts cannot find the event of a record.
    pub(crate) fn for_writing(layout: SampleLayout) -> Layouts {
        let trailer = TrailerLayout::new(layout.format.sample_type);
        let times = layout.fixed_offset(SampleMember::Time).map_or(TimeLocation::ByAttr, TimeLocation::At);
        Layouts { attrs: vec![(layout, Some(trailer))], ids: EventIds::new(&[]), times, raw: Vec::new() }
    }

    /// Sets the positions of the numbers in raw data, one element per attr. Only a recording of foreign byte order
    /// needs these positions.
    pub(crate) fn with_raw_words(mut self, raw: Vec<RawNumbers>) -> Layouts {
        self.raw = raw;
        self
    }

    /// Returns the positions of the numbers in the raw data of an attr's samples.
    #[inline]
    pub(crate) fn raw_words(&self, attr: usize) -> &RawNumbers {
        const NONE: &RawNumbers = &RawNumbers { fixed: Vec::new(), arrays: Vec::new() };
        self.raw.get(attr).unwrap_or(NONE)
    }

    /// Returns the attr of a sample that is still in foreign byte order.
    pub(crate) fn foreign_attr_of(&self, sample: &[u8]) -> Option<usize> {
        if self.attrs.len() == 1 {
            return Some(0);
        }
        let id = |attr: &usize| self.attrs[*attr].0.id(sample).and_then(|id| self.ids.event(id.swap_bytes()));
        id(&0).or_else(|| (1..self.attrs.len().min(64)).find(|attr| id(attr) == Some(*attr)))
    }

    /// Returns the size in bytes of the sample id at the end of records other than samples. In recordings that perf
    /// writes, this size is the same for all attrs.
    #[inline]
    pub(crate) fn trailer_size(&self) -> usize {
        self.attrs[0].1.map_or(0, |trailer| trailer.size())
    }

    /// Returns the layout of an attr's samples.
    #[inline]
    pub fn sample(&self, attr: usize) -> &SampleLayout {
        &self.attrs[attr].0
    }

    /// Returns the layout of the sample id at the end of this attr's records other than samples.
    #[inline]
    pub fn trailer(&self, attr: usize) -> Option<&TrailerLayout> {
        self.attrs[attr].1.as_ref()
    }

    /// Returns the number of attrs.
    pub fn len(&self) -> usize {
        self.attrs.len()
    }

    /// Returns whether there are no attrs. The result is always false, because a recording without events cannot be
    /// opened.
    pub fn is_empty(&self) -> bool {
        self.attrs.is_empty()
    }

    /// Returns the attr that a sample belongs to; `None` if the id in the sample is unknown.
    #[inline(always)]
    pub fn attr_of(&self, sample: &[u8]) -> Option<usize> {
        if self.attrs.len() == 1 {
            return Some(0);
        }
        // perf puts the id at the same offset in all samples of a recording.
        let first = self.attrs[0].0.id(sample).and_then(|id| self.ids.event(id));
        first.or_else(|| self.attr_by_own_offset(sample))
    }

    /// Finds the attr of a sample if the ids are at different offsets for different attrs. Reads the id at the offset
    /// of each attr in turn.
    #[inline(never)]
    fn attr_by_own_offset(&self, sample: &[u8]) -> Option<usize> {
        let own = |attr: &usize| self.attrs[*attr].0.id(sample).and_then(|id| self.ids.event(id)) == Some(*attr);
        (1..self.attrs.len().min(64)).find(own)
    }

    /// Returns the attr that determines the layout of a record's sample id. If the id in the record is unknown, returns
    /// the first attr.
    #[inline]
    fn attr_of_trailer(&self, record: &[u8]) -> usize {
        let id = self.attrs[0].1.and_then(|trailer| trailer.id(record));
        id.and_then(|id| self.ids.event(id)).unwrap_or(0)
    }

    /// Returns the time of a record. Returns `None` for perf's own records, in which the time is missing, or is 0 or
    /// all ones.
    #[inline(always)]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        // The fast path: in nearly every recording, nearly all records are samples with the time at a fixed offset.
        if let TimeLocation::At(at) = self.times
            && record_type(record) == PERF_RECORD_SAMPLE
            && let Some(time) = record.get(at..).and_then(|rest| rest.first_chunk())
        {
            return Some(u64::from_ne_bytes(*time)).filter(is_time);
        }
        self.time_of_any_record(record)
    }

    #[inline(never)]
    fn time_of_any_record(&self, record: &[u8]) -> Option<u64> {
        let kind = record_type(record);
        let time = match self.times {
            // The sample is too short to have a time.
            TimeLocation::At(_) if kind == PERF_RECORD_SAMPLE => None,
            TimeLocation::ByAttr if kind == PERF_RECORD_SAMPLE => self.attrs[self.attr_of(record)?].0.time(record),
            _ if kind >= FIRST_USER_RECORD_TYPE => None,
            TimeLocation::At(_) => self.attrs[0].1?.time(record),
            TimeLocation::ByAttr => self.attrs[self.attr_of_trailer(record)].1?.time(record),
        };
        time.filter(is_time)
    }

    /// Returns the CPU that a record was written on, if the record states it.
    #[inline]
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        if record_type(record) == PERF_RECORD_SAMPLE {
            return self.attrs[self.attr_of(record)?].0.cpu(record);
        }
        self.trailer_of(record)?.cpu(record)
    }

    /// Returns the layout of the sample id at the end of a record other than a sample. Returns `None` if the record has
    /// no sample id. Records that perf's user space writes have no sample id.
    #[inline]
    pub fn trailer_of(&self, record: &[u8]) -> Option<&TrailerLayout> {
        if record_type(record) >= FIRST_USER_RECORD_TYPE {
            return None;
        }
        self.attrs[self.attr_of_trailer(record)].1.as_ref()
    }

    /// Returns the attr that a sample id belongs to.
    #[inline]
    pub fn attr_with(&self, id: u64) -> Option<usize> {
        self.ids.event(id)
    }

    /// Returns the attr of an event that writes into the same ring as this record. Returns `None` if the record does
    /// not contain the id of such an event. The record must not be a sample.
    #[inline]
    pub fn attr_of_ring(&self, record: &[u8]) -> Option<usize> {
        self.ids.event(self.attrs[0].1?.id(record)?)
    }
}
