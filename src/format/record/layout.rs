//! The offsets of the members of a sample, and of the members of the sample id at the end of other records (here called
//! trailer). The offsets are computed once per attr instead of once per record.
//!
//! The kernel writes the members in this order (`kernel/events/core.c`): `perf_output_sample()` for samples,
//! `perf_event__output_id_sample()` for trailers.

use super::{
    other::SampleId,
    parse::{RECORD_HEADER, record_type},
};
use crate::abi::*;

/// The value that stands for "no offset": the layout does not have the member.
pub(super) const ABSENT: u16 = 0;

/// The fields of an attr that determine the format of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleFormat {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`, the mask of the user-space registers.
    pub regs_user: u64,
    /// `sample_regs_intr`, the mask of the registers that are read when the sample is taken.
    pub regs_intr: u64,
    /// `sample_period`. If samples do not contain a period, this value is their period, as in perf
    /// (`evsel__parse_sample()` in `tools/perf/util/evsel.c`).
    pub period: u64,
}

/// The offsets of a sample's fixed members from the start of its record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout {
    /// The format that the offsets were computed from.
    pub format: SampleFormat,
    pub(super) identifier: u16,
    pub(super) ip: u16,
    pub(super) tid: u16,
    pub(super) time: u16,
    pub(super) addr: u16,
    /// The offset of PERF_SAMPLE_ID.
    pub(super) sample_id: u16,
    pub(super) stream_id: u16,
    pub(super) cpu: u16,
    pub(super) period: u16,
    /// The offset of the id that identifies the event. This is the offset of PERF_SAMPLE_IDENTIFIER if the layout has
    /// this member, otherwise the offset of PERF_SAMPLE_ID.
    id: u16,
    /// The offset after the last fixed member, where the other members start.
    pub(super) fixed_end: u16,
}

impl SampleLayout {
    /// Returns the layout of the samples of an attr with this `sample_type` and `read_format`. The other fields of
    /// [`SampleFormat`] are 0.
    pub fn new(sample_type: u64, read_format: u64) -> Self {
        Self::from_format(SampleFormat { sample_type, read_format, ..SampleFormat::default() })
    }

    /// Returns the layout of samples of an attr with this format.
    pub fn from_format(format: SampleFormat) -> Self {
        let mut at = RECORD_HEADER as u16;
        let mut next = |bit: u64| {
            let here = if format.sample_type & bit != 0 { at } else { ABSENT };
            at += if format.sample_type & bit != 0 { 8 } else { 0 };
            here
        };
        let identifier = next(PERF_SAMPLE_IDENTIFIER);
        let ip = next(PERF_SAMPLE_IP);
        let tid = next(PERF_SAMPLE_TID);
        let time = next(PERF_SAMPLE_TIME);
        let addr = next(PERF_SAMPLE_ADDR);
        let sample_id = next(PERF_SAMPLE_ID);
        let stream_id = next(PERF_SAMPLE_STREAM_ID);
        let cpu = next(PERF_SAMPLE_CPU);
        let period = next(PERF_SAMPLE_PERIOD);
        let id = if identifier != ABSENT { identifier } else { sample_id };
        Self { format, identifier, ip, tid, time, addr, sample_id, stream_id, cpu, period, id, fixed_end: at }
    }

    /// Returns the layout of samples that perf-prof makes from counter readings. A sample with PERF_SAMPLE_READ is
    /// split into one sample for each counter. Each new sample contains a period, even if the attr does not request
    /// one: the number of events since the previous reading. Without PERF_SAMPLE_READ, returns this layout.
    pub fn for_counter_readings(&self) -> Self {
        let mut format = self.format;
        if format.sample_type & PERF_SAMPLE_READ != 0 {
            format.sample_type |= PERF_SAMPLE_PERIOD;
        }
        Self::from_format(format)
    }

    /// Converts a record of this layout to [the layout of counter readings](Self::for_counter_readings). The converted
    /// record contains 0 in place of the period.
    pub fn with_room_for_period(&self, record: &[u8]) -> Vec<u8> {
        let mut record = record.to_vec();
        // The period is the last fixed member.
        let at = usize::from(self.fixed_end);
        if self.period == ABSENT && record.len() >= at {
            record.splice(at..at, [0; 8]);
            // A record of the maximum size is now too large for the 16 bits of the header's size field. In this case,
            // the header contains a size that is too small, but no caller reads the size.
            let size = u16::try_from(record.len()).unwrap_or(u16::MAX);
            record[6..8].copy_from_slice(&size.to_ne_bytes());
        }
        record
    }

    /// Returns the process id and the thread id of the task that the sample was taken in.
    #[inline]
    pub fn pid_tid(&self, record: &[u8]) -> Option<(u32, u32)> {
        member(record, self.tid).map(words)
    }

    /// Returns the sample's time in nanoseconds of the attr's clock.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        member(record, self.time)
    }

    /// Returns the id that identifies the sample's event.
    #[inline]
    pub fn id(&self, record: &[u8]) -> Option<u64> {
        member(record, self.id)
    }

    /// Returns the CPU that the sample was taken on.
    #[inline]
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        member(record, self.cpu).map(|both| words(both).0)
    }

    /// Returns the sample's period, or the attr's period if samples do not hold one.
    #[inline]
    pub fn period(&self, record: &[u8]) -> Option<u64> {
        if self.period == ABSENT { Some(self.format.period) } else { member(record, self.period) }
    }

    /// Returns the address of the sampled instruction.
    #[inline]
    pub fn ip(&self, record: &[u8]) -> Option<u64> {
        member(record, self.ip)
    }

    /// Returns the address that the sampled instruction accessed, or the address of the page fault.
    #[inline]
    pub fn addr(&self, record: &[u8]) -> Option<u64> {
        member(record, self.addr)
    }

    /// Returns the call chain's addresses as they are in the record: one u64 in native byte order for each address,
    /// including context markers such as `PERF_CONTEXT_KERNEL`.
    #[inline]
    pub fn callchain<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        self.variable(record, PERF_SAMPLE_CALLCHAIN)?.get(8..)
    }

    /// Returns the raw data (PERF_SAMPLE_RAW). For a tracepoint, it consists of the `trace_entry` and the fields.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let raw = match self.raw_offset() {
            Some(at) => record.get(at - 4..)?,
            None => self.variable(record, PERF_SAMPLE_RAW)?,
        };
        let size = u32::from_ne_bytes(*raw.first_chunk()?) as usize;
        raw.get(4..)?.get(..size)
    }

    /// Returns the offset of the raw data in a record.
    #[inline]
    pub fn raw_at(&self, record: &[u8]) -> Option<usize> {
        let raw = self.raw(record)?;
        Some(raw.as_ptr().addr() - record.as_ptr().addr())
    }

    /// Returns the offset after the last member of fixed size.
    #[inline]
    pub fn fixed_end(&self) -> usize {
        self.fixed_end.into()
    }

    /// Returns the offset of the raw data if it is the same in every record. Otherwise, if a member of variable size
    /// comes before the raw data, returns `None`.
    #[inline]
    pub fn raw_offset(&self) -> Option<usize> {
        let variable = PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
        (self.format.sample_type & PERF_SAMPLE_RAW != 0 && self.format.sample_type & variable == 0)
            .then(|| self.fixed_end as usize + 4)
    }
}

/// The layout of the sample id at the end of records other than samples (`sample_id_all`). Distances and sizes are in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerLayout {
    /// The distance of the time from the record's end, or 0 if the sample id has no time.
    time: u16,
    /// The distance of the event's id from the record's end, or 0.
    id: u16,
    /// The distance of the CPU from the record's end, or 0.
    cpu: u16,
    /// The distance of the process id and the thread id from the record's end, or 0.
    tid: u16,
    /// The distance of the stream id from the record's end, or 0.
    stream_id: u16,
    /// The size of the whole sample id.
    size: u16,
}

impl TrailerLayout {
    /// Returns the layout of the sample id for an attr with `sample_id_all`.
    pub fn new(sample_type: u64) -> Self {
        let mut size = 0;
        // Distances are counted from the record's end, so the members are added from the last one to the first one.
        let mut distance = |bit: u64| {
            size += if sample_type & bit != 0 { 8 } else { 0 };
            if sample_type & bit != 0 { size } else { ABSENT }
        };
        let identifier = distance(PERF_SAMPLE_IDENTIFIER);
        let cpu = distance(PERF_SAMPLE_CPU);
        let stream_id = distance(PERF_SAMPLE_STREAM_ID);
        let id = distance(PERF_SAMPLE_ID);
        let time = distance(PERF_SAMPLE_TIME);
        let tid = distance(PERF_SAMPLE_TID);
        Self { time, id: if identifier != ABSENT { identifier } else { id }, cpu, tid, stream_id, size }
    }

    /// Returns the time at which the record was written, in nanoseconds of the attr's clock.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        self.member(record, self.time)
    }

    /// Returns the id of the event for which the kernel wrote the record.
    #[inline]
    pub fn id(&self, record: &[u8]) -> Option<u64> {
        self.member(record, self.id)
    }

    /// Returns the CPU that the record was written on.
    #[inline]
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        Some(words(self.member(record, self.cpu)?).0)
    }

    /// Returns all members of the sample id.
    pub fn sample_id(&self, record: &[u8]) -> SampleId {
        SampleId {
            pid_tid: self.member(record, self.tid).map(words),
            time: self.time(record),
            id: self.id(record),
            stream_id: self.member(record, self.stream_id),
            cpu: self.cpu(record),
        }
    }

    /// Writes `id`, `cpu` and `time` into the sample id at the end of `record`. The record must be long enough for a
    /// sample id.
    pub fn put(&self, record: &mut [u8], id: u64, cpu: u32, time: u64) {
        for (distance, value) in [(self.id, id), (self.cpu, cpu.into()), (self.time, time)] {
            let at = record.len().saturating_sub(distance.into());
            if let (true, Some(place)) = (distance != ABSENT, record.get_mut(at..at + 8)) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }

    /// Returns the offset in `record` at which its sample id ends. This is the end of the record, except for
    /// PERF_RECORD_KSYMBOL and PERF_RECORD_BPF_EVENT. The kernel writes the same record of these two types for several
    /// events, and enlarges the record by the size of a sample id for each of the events
    /// (`perf_event_ksymbol_output()`, `perf_event_bpf_output()`). The additional bytes contain nothing.
    pub fn end(&self, record: &[u8]) -> usize {
        // The size of a PERF_RECORD_KSYMBOL up to the symbol's name, and also the size of a whole
        // PERF_RECORD_BPF_EVENT. Both sizes include the header.
        const FIXED: usize = 24;
        let body = match record_type(record) {
            PERF_RECORD_KSYMBOL => {
                let name = record.get(FIXED..).unwrap_or_default();
                let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                FIXED + (length + 1).next_multiple_of(8)
            }
            PERF_RECORD_BPF_EVENT => FIXED,
            _ => return record.len(),
        };
        record.len().min(body + self.size())
    }

    /// Returns the size of the sample id in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size.into()
    }

    #[inline]
    fn member(&self, record: &[u8], distance: u16) -> Option<u64> {
        if distance == ABSENT || record.len() < RECORD_HEADER + self.size as usize {
            return None;
        }
        u64_at(record, self.end(record).checked_sub(distance.into())?)
    }
}

/// Returns the two 32-bit numbers that 8 bytes of a record contain, in their order in the record.
#[inline]
fn words(both: u64) -> (u32, u32) {
    let both = both.to_ne_bytes();
    (u32::from_ne_bytes([both[0], both[1], both[2], both[3]]), u32::from_ne_bytes([both[4], both[5], both[6], both[7]]))
}

#[inline]
pub(super) fn member(record: &[u8], at: u16) -> Option<u64> {
    if at == ABSENT { None } else { u64_at(record, at as usize) }
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}
