//! Where a sample's members lie, worked out once per attr instead of once per record.
//!
//! The order of members is that of `perf_output_sample` and `perf_event__output_id_sample` in
//! `kernel/events/core.c`.

use super::parse::RECORD_HEADER;
use crate::abi::*;

/// A member that this layout does not have.
pub(super) const ABSENT: u16 = 0;

/// Everything of an attr that tells how its samples look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleFormat {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`, the mask of registers.
    pub regs_user: u64,
    /// `sample_regs_intr`, the mask of registers.
    pub regs_intr: u64,
    /// `sample_period`: the period of samples that do not tell theirs, as perf takes it (`evsel__parse_sample()` in
    /// `tools/perf/util/evsel.c`).
    pub period: u64,
}

/// Offsets of a sample's fixed members from the start of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout {
    /// What it was made from.
    pub format: SampleFormat,
    pub(super) identifier: u16,
    pub(super) ip: u16,
    pub(super) tid: u16,
    pub(super) time: u16,
    pub(super) addr: u16,
    /// Of PERF_SAMPLE_ID.
    pub(super) sample_id: u16,
    pub(super) stream_id: u16,
    pub(super) cpu: u16,
    pub(super) period: u16,
    /// Of the id that every sample of the capture has at the same place.
    id: u16,
    /// Where the first member of variable size begins.
    pub(super) fixed_end: u16,
}

impl SampleLayout {
    /// The layout of samples of an attr that has nothing else to say of them.
    pub fn new(sample_type: u64, read_format: u64) -> Self {
        Self::of(SampleFormat { sample_type, read_format, ..SampleFormat::default() })
    }

    /// The layout of samples of an attr.
    pub fn of(format: SampleFormat) -> Self {
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

    /// The layout of samples that stand for readings of counters, where these are what samples hold: whatever the attr says,
    /// each has a period, which is what was counted since the reading before.
    pub fn of_readings(&self) -> Self {
        let mut format = self.format;
        if format.sample_type & PERF_SAMPLE_READ != 0 {
            format.sample_type |= PERF_SAMPLE_PERIOD;
        }
        Self::of(format)
    }

    /// A record of this layout in [that of readings](Self::of_readings): with room for the period.
    pub fn with_room_for_period(&self, record: &[u8]) -> Vec<u8> {
        let mut record = record.to_vec();
        // It is the last of the members at fixed places.
        let at = usize::from(self.fixed_end);
        if self.period == ABSENT && record.len() >= at {
            record.splice(at..at, [0; 8]);
            // Of a sample that is as long as one can be the size says a little less, and nobody asks.
            let size = u16::try_from(record.len()).unwrap_or(u16::MAX);
            record[6..8].copy_from_slice(&size.to_ne_bytes());
        }
        record
    }

    /// The process that the sample was taken in, and its thread.
    #[inline]
    pub fn pid_tid(&self, record: &[u8]) -> Option<(u32, u32)> {
        let both = member(record, self.tid)?.to_ne_bytes();
        Some((
            u32::from_ne_bytes([both[0], both[1], both[2], both[3]]),
            u32::from_ne_bytes([both[4], both[5], both[6], both[7]]),
        ))
    }

    /// Nanoseconds of the attr's clock.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        member(record, self.time)
    }

    /// The id that tells which event it is.
    #[inline]
    pub fn id(&self, record: &[u8]) -> Option<u64> {
        member(record, self.id)
    }

    /// The CPU.
    #[inline]
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        let both = member(record, self.cpu)?.to_ne_bytes();
        Some(u32::from_ne_bytes([both[0], both[1], both[2], both[3]]))
    }

    /// The sample's period, which is the attr's where samples do not tell theirs.
    #[inline]
    pub fn period(&self, record: &[u8]) -> Option<u64> {
        if self.period == ABSENT { Some(self.format.period) } else { member(record, self.period) }
    }

    /// The address of the instruction.
    pub fn ip(&self, record: &[u8]) -> Option<u64> {
        member(record, self.ip)
    }

    /// The call chain's addresses as they stand in the record, markers of context (`PERF_CONTEXT_KERNEL`) included:
    /// a run of native u64.
    pub fn callchain<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        self.variable(record, PERF_SAMPLE_CALLCHAIN)?.get(8..)
    }

    /// The raw data (PERF_SAMPLE_RAW), for a tracepoint its `trace_entry` and fields.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let raw = match self.raw_offset() {
            Some(at) => record.get(at - 4..)?,
            None => self.variable(record, PERF_SAMPLE_RAW)?,
        };
        let size = u32::from_ne_bytes(*raw.first_chunk()?) as usize;
        raw.get(4..)?.get(..size)
    }

    /// Where the raw data begins in every record, when no member of variable size comes before it.
    #[inline]
    pub fn raw_offset(&self) -> Option<usize> {
        let variable = PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
        (self.format.sample_type & PERF_SAMPLE_RAW != 0 && self.format.sample_type & variable == 0)
            .then(|| self.fixed_end as usize + 4)
    }
}

/// Where the sample id lies at the end of records that are no samples (`sample_id_all`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerLayout {
    /// Distance of the time from the record's end, 0 when it has none.
    time: u16,
    /// Distance of the event's id from there.
    id: u16,
    /// Distance of the CPU from there.
    cpu: u16,
    /// Size of the whole trailer.
    size: u16,
}

impl TrailerLayout {
    /// The trailer's layout for an attr with `sample_id_all`.
    pub fn new(sample_type: u64) -> Self {
        let mut size = 0;
        // From the last member to the first.
        let mut distance = |bit: u64| {
            size += if sample_type & bit != 0 { 8 } else { 0 };
            if sample_type & bit != 0 { size } else { ABSENT }
        };
        let identifier = distance(PERF_SAMPLE_IDENTIFIER);
        let cpu = distance(PERF_SAMPLE_CPU);
        distance(PERF_SAMPLE_STREAM_ID);
        let id = distance(PERF_SAMPLE_ID);
        let time = distance(PERF_SAMPLE_TIME);
        distance(PERF_SAMPLE_TID);
        Self { time, id: if identifier != ABSENT { identifier } else { id }, cpu, size }
    }

    /// When the record was written.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        self.member(record, self.time)
    }

    /// The id of the event in whose ring it was written.
    pub fn id(&self, record: &[u8]) -> Option<u64> {
        self.member(record, self.id)
    }

    /// The CPU that it was written on.
    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        let both = self.member(record, self.cpu)?.to_ne_bytes();
        Some(u32::from_ne_bytes([both[0], both[1], both[2], both[3]]))
    }

    /// Writes these into the sample id at the end of a record that has room for one.
    pub fn put(&self, record: &mut [u8], id: u64, cpu: u32, time: u64) {
        for (distance, value) in [(self.id, id), (self.cpu, cpu.into()), (self.time, time)] {
            let at = record.len().saturating_sub(distance.into());
            if let (true, Some(place)) = (distance != ABSENT, record.get_mut(at..at + 8)) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }

    /// How many bytes of the record it takes.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    #[inline]
    fn member(&self, record: &[u8], distance: u16) -> Option<u64> {
        if distance == ABSENT || record.len() < RECORD_HEADER + self.size as usize {
            return None;
        }
        u64_at(record, record.len() - distance as usize)
    }
}

#[inline]
pub(super) fn member(record: &[u8], at: u16) -> Option<u64> {
    if at == ABSENT { None } else { u64_at(record, at as usize) }
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}
