//! What perf-prof tells in records of its own: the filters of events, when the events were off, and the end of a pipe.
//!
//! These are records of the type PERF_RECORD_EVENT_UPDATE with update types that perf does not know and ignores, if the id
//! in them is that of an event (`perf_event__process_event_update()` in `tools/perf/util/header.c`); `perf inject` copies
//! them. Each is written as soon as the fact is known, so it is there if the recorder is killed or if the end of the file is
//! missing.

use perf_prof_format::{
    abi::perf_data::{EVENT_UPDATE_END, EVENT_UPDATE_FILTER, EVENT_UPDATE_OFF, PERF_RECORD_EVENT_UPDATE},
    record::RECORD_HEADER,
};

use super::{
    bytes::{ByteOrder, ByteReader},
    header::Section,
};
use crate::{
    error::PerfDataError,
    input::{
        feed::{Next, RecordReader},
        random_access::Input,
    },
};

/// The size in bytes of a record before the text or the times.
const HEAD: usize = RECORD_HEADER + 16;

/// A fact in a record of perf-prof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnUpdate {
    /// The filter with which the event with this id was recorded.
    Filter(u64, Vec<u8>),
    /// The recorder takes commands that turn the events off, so the recording may have records of the next two kinds.
    Switchable,
    /// The events were turned off at this time, in ns of the records' clock.
    Off(u64),
    /// The events were off in this time. The first and the last nanosecond belong to it.
    OffFor(u64, u64),
    /// This pipe will end with [`OwnUpdate::End`]. Without it, its recorder was killed, or the last records are missing.
    WillEnd,
    /// The end of a pipe. No record follows.
    End,
}

/// The number that stands for a time that is not known yet.
const LATER: u64 = u64::MAX;

impl OwnUpdate {
    /// Returns the record. `id` is the id of any event of the recording, for facts that belong to no event.
    pub fn record(&self, id: u64) -> Vec<u8> {
        let times = |from: u64, to: u64| [from, to].map(u64::to_ne_bytes).as_flattened().to_vec();
        let (kind, id, mut body) = match self {
            OwnUpdate::Filter(of, text) => (EVENT_UPDATE_FILTER, *of, text.clone()),
            OwnUpdate::Switchable => (EVENT_UPDATE_OFF, id, times(0, 0)),
            OwnUpdate::Off(since) => (EVENT_UPDATE_OFF, id, times(*since, LATER)),
            OwnUpdate::OffFor(since, to) => (EVENT_UPDATE_OFF, id, times(*since, *to)),
            OwnUpdate::WillEnd => (EVENT_UPDATE_END, id, vec![0; 8]),
            OwnUpdate::End => (EVENT_UPDATE_END, id, 1u64.to_ne_bytes().to_vec()),
        };
        // A kernel takes no filter that is longer than a page.
        body.truncate(usize::from(u16::MAX) - HEAD - 8);
        body.resize(body.len().next_multiple_of(8), 0);
        let size = (HEAD + body.len()) as u16;
        let header = [&PERF_RECORD_EVENT_UPDATE.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes()].concat();
        [&header, [kind, id].map(u64::to_ne_bytes).as_flattened(), &body].concat()
    }

    /// Returns the fact in a record; `None` if it is another record.
    pub(crate) fn parse(record: &[u8], order: ByteOrder) -> Option<OwnUpdate> {
        if ByteReader::new(record, order).u32()? != PERF_RECORD_EVENT_UPDATE {
            return None;
        }
        let mut read = ByteReader::new(record.get(RECORD_HEADER..)?, order);
        match (read.u64()?, read.u64()?) {
            (EVENT_UPDATE_FILTER, id) => {
                let text = read.rest();
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                Some(OwnUpdate::Filter(id, text[..end].to_vec()))
            }
            (EVENT_UPDATE_OFF, _) => Some(match (read.u64()?, read.u64()?) {
                (0, 0) => OwnUpdate::Switchable,
                (since, LATER) => OwnUpdate::Off(since),
                (since, to) => OwnUpdate::OffFor(since, to.max(since)),
            }),
            (EVENT_UPDATE_END, _) => Some(if read.u64()? == 0 { OwnUpdate::WillEnd } else { OwnUpdate::End }),
            _ => None,
        }
    }
}

/// The memory that filters may take, in bytes. A damaged recording may hold any number of them.
const MOST_TEXT: usize = 1 << 20;

/// What is known of the end of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndMark {
    /// The recorder writes no such mark. A pipe of perf, or of an older perf-prof, ends after any record.
    #[default]
    Never,
    /// The mark will come, if nothing is missing.
    Awaited,
    Found,
}

impl EndMark {
    /// Notes the mark, or that it will come, if this record says so.
    pub fn note(&mut self, record: &[u8], order: ByteOrder) {
        match OwnUpdate::parse(record, order) {
            Some(OwnUpdate::WillEnd) if *self == EndMark::Never => *self = EndMark::Awaited,
            Some(OwnUpdate::End) => *self = EndMark::Found,
            _ => {}
        }
    }
}

/// The facts in the records before the first sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstUpdates {
    /// The filters, each with an id of the event.
    pub filters: Vec<(u64, Vec<u8>)>,
    /// Whether the events may have been turned off.
    pub is_switchable: bool,
    /// The memory that the filters take, in bytes.
    size: usize,
}

impl FirstUpdates {
    /// Adds the fact in a record, if it is one of perf-prof's.
    pub fn add(&mut self, record: &[u8], order: ByteOrder) {
        match OwnUpdate::parse(record, order) {
            Some(OwnUpdate::Filter(id, text)) => {
                self.size += text.len() + size_of::<(u64, Vec<u8>)>();
                if self.size <= MOST_TEXT {
                    self.filters.push((id, text));
                }
            }
            Some(OwnUpdate::Switchable) => self.is_switchable = true,
            Some(OwnUpdate::Off(_) | OwnUpdate::OffFor(..) | OwnUpdate::WillEnd | OwnUpdate::End) | None => {}
        }
    }
}

/// Returns whether a section with the records of a pipe has the mark of its end. It is the last record, unless a program such as
/// `perf inject` added others.
pub(crate) fn has_end_mark(
    input: &dyn Input,
    section: Section,
    mut records: RecordReader,
) -> Result<bool, PerfDataError> {
    let mut last = [0; HEAD + 8];
    let at = (section.offset + section.size).saturating_sub(last.len() as u64);
    let there = input.read_at(&mut last, at).map_err(|error| PerfDataError::io(&records.name, error))?;
    if OwnUpdate::parse(&last[..there], records.order) == Some(OwnUpdate::End) {
        return Ok(true);
    }
    while records.awaits_end_mark()
        && let Next::Record(size) = records.next()?
    {
        records.advance(size);
    }
    Ok(!records.awaits_end_mark())
}

/// The times at which the events of a recording were off.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OffTimes {
    /// The times after which the events were turned on again.
    pub over: Vec<(u64, u64)>,
    /// When the events were turned off last, if they stayed off.
    pub end: Option<u64>,
}

impl OffTimes {
    /// Finds the times in a file without a list of them. Reads all records up to the end, or up to a damaged one.
    pub fn read(records: &mut RecordReader) -> Result<OffTimes, PerfDataError> {
        let mut found = OffTimes::default();
        while let Next::Record(size) = records.next()? {
            let order = records.order;
            match OwnUpdate::parse(records.peek(size), order) {
                Some(OwnUpdate::Off(since)) => found.end = Some(since),
                Some(OwnUpdate::OffFor(since, to)) => {
                    found.end = None;
                    found.over.push((since, to));
                }
                Some(OwnUpdate::Filter(..) | OwnUpdate::Switchable | OwnUpdate::WillEnd | OwnUpdate::End) | None => {}
            }
            records.advance(size);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn update() -> impl Strategy<Value = OwnUpdate> {
        prop_oneof![
            (any::<u64>(), "[a-z <]{1,40}").prop_map(|(id, text)| OwnUpdate::Filter(id, text.into_bytes())),
            Just(OwnUpdate::Switchable),
            (1..LATER).prop_map(OwnUpdate::Off),
            (1..LATER / 2, 0..LATER / 2).prop_map(|(since, length)| OwnUpdate::OffFor(since, since + length)),
            Just(OwnUpdate::WillEnd),
            Just(OwnUpdate::End),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(update in update(), id in any::<u64>()) {
            let record = update.record(id);
            prop_assert_eq!(record.len() % 8, 0);
            prop_assert_eq!(usize::from(u16::from_ne_bytes([record[6], record[7]])), record.len());
            prop_assert_eq!(OwnUpdate::parse(&record, ByteOrder::Native), Some(update.clone()));
            // Parts of a record, and other records, are nothing.
            if !matches!(update, OwnUpdate::Filter(..)) {
                prop_assert_eq!(OwnUpdate::parse(&record[..record.len() - 1], ByteOrder::Native), None);
            }
            let other = [&68u32.to_ne_bytes()[..], &record[4..]].concat();
            prop_assert_eq!(OwnUpdate::parse(&other, ByteOrder::Native), None);
        }
    }

    #[test]
    fn the_last_time_has_no_end_if_the_events_stay_off() {
        let found = |updates: &[OwnUpdate]| {
            let bytes = updates.iter().flat_map(|update| update.record(7)).collect::<Vec<u8>>();
            let section = crate::Section { offset: 0, size: bytes.len() as u64 };
            let feed = crate::input::feed::FileFeed::new(std::sync::Arc::new(bytes), section);
            OffTimes::read(&mut RecordReader::new("x", ByteOrder::Native, Box::new(feed))).unwrap()
        };
        let [off, on] = [OwnUpdate::Off(5), OwnUpdate::OffFor(5, 9)];
        assert_eq!(
            found(&[OwnUpdate::Switchable, off.clone(), on.clone()]),
            OffTimes { over: vec![(5, 9)], end: None }
        );
        assert_eq!(found(&[off, on, OwnUpdate::Off(20)]), OffTimes { over: vec![(5, 9)], end: Some(20) });
    }
}
