//! Where a sample's members lie, worked out once per attr instead of once per record.
//!
//! The order of members is that of `perf_output_sample` and `perf_event__output_id_sample` in
//! `kernel/events/core.c`.

use super::parse::RECORD_HEADER;
use crate::abi::*;

/// A member that this layout does not have.
const ABSENT: u16 = 0;

/// Offsets of a sample's fixed members from the start of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout {
    /// The attr's `sample_type`.
    pub sample_type: u64,
    /// The attr's `read_format`.
    pub read_format: u64,
    tid: u16,
    time: u16,
    id: u16,
    cpu: u16,
    period: u16,
    /// Where the first member of variable size begins.
    fixed_end: u16,
    /// The attr's `sample_regs_user`.
    regs_user: u64,
}

/// A task's registers in user space, and a copy of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// `PERF_SAMPLE_REGS_ABI_*`; 0 for a task that has no user space.
    pub abi: u64,
    /// Which registers there are (`sample_regs_user`).
    pub mask: u64,
    /// The registers' values in the order of the mask's bits: a run of native u64.
    pub registers: &'a [u8],
    /// The stack from the stack pointer upwards, as far as it could be copied.
    pub stack: &'a [u8],
}

impl SampleLayout {
    /// The layout of samples of an attr.
    pub fn new(sample_type: u64, read_format: u64) -> Self {
        let mut at = RECORD_HEADER as u16;
        let mut next = |bit: u64| {
            let here = if sample_type & bit != 0 { at } else { ABSENT };
            at += if sample_type & bit != 0 { 8 } else { 0 };
            here
        };
        let identifier = next(PERF_SAMPLE_IDENTIFIER);
        next(PERF_SAMPLE_IP);
        let tid = next(PERF_SAMPLE_TID);
        let time = next(PERF_SAMPLE_TIME);
        next(PERF_SAMPLE_ADDR);
        let id = next(PERF_SAMPLE_ID);
        next(PERF_SAMPLE_STREAM_ID);
        let cpu = next(PERF_SAMPLE_CPU);
        let period = next(PERF_SAMPLE_PERIOD);
        let id = if identifier != ABSENT { identifier } else { id };
        Self { sample_type, read_format, tid, time, id, cpu, period, fixed_end: at, regs_user: 0 }
    }

    /// With the attr's `sample_regs_user`.
    pub fn with_regs_user(self, regs_user: u64) -> Self {
        Self { regs_user, ..self }
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

    /// The sample's period.
    #[inline]
    pub fn period(&self, record: &[u8]) -> Option<u64> {
        member(record, self.period)
    }

    /// The call chain's addresses as they stand in the record, markers of context (`PERF_CONTEXT_KERNEL`) included:
    /// a run of native u64.
    pub fn callchain<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        if self.sample_type & PERF_SAMPLE_CALLCHAIN == 0 {
            return None;
        }
        let at = self.after_read(record)?;
        let count = usize::try_from(u64_at(record, at)?).ok()?;
        record.get(at + 8..)?.get(..count.checked_mul(8)?)
    }

    /// The raw data (PERF_SAMPLE_RAW), for a tracepoint its `trace_entry` and fields.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        if self.sample_type & PERF_SAMPLE_RAW == 0 {
            return None;
        }
        let mut at = self.fixed_end as usize;
        if self.sample_type & (PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN) != 0 {
            at = self.after_read(record)?;
            if self.sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
                let count = usize::try_from(u64_at(record, at)?).ok()?;
                at = at.checked_add(count.checked_mul(8)?)?.checked_add(8)?;
            }
        }
        let size = u32::from_ne_bytes(*record.get(at..)?.first_chunk()?) as usize;
        record.get(at + 4..)?.get(..size)
    }

    /// The registers and the stack of user space (PERF_SAMPLE_REGS_USER and PERF_SAMPLE_STACK_USER).
    pub fn user_stack<'a>(&self, record: &'a [u8]) -> Option<UserStack<'a>> {
        let both = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
        if self.sample_type & both != both {
            return None;
        }
        let mut at = self.after_read(record)?;
        if self.sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
            let count = usize::try_from(u64_at(record, at)?).ok()?;
            at = at.checked_add(count.checked_mul(8)?)?.checked_add(8)?;
        }
        if self.sample_type & PERF_SAMPLE_RAW != 0 {
            let size = u32::from_ne_bytes(*record.get(at..)?.first_chunk()?) as usize;
            at = at.checked_add(4)?.checked_add(size)?;
        }
        let abi = u64_at(record, at)?;
        let registers = if abi == 0 { 0 } else { 8 * self.regs_user.count_ones() as usize };
        let registers = record.get(at + 8..)?.get(..registers)?;
        at += 8 + registers.len();
        let size = usize::try_from(u64_at(record, at)?).ok()?;
        let stack = record.get(at + 8..)?.get(..size)?;
        // Behind it, how much of it was copied.
        let copied = if size == 0 { 0 } else { u64_at(record, at + 8 + size)? };
        let stack = &stack[..size.min(usize::try_from(copied).ok()?)];
        Some(UserStack { abi, mask: self.regs_user, registers, stack })
    }

    /// Where the raw data begins in every record, when no member of variable size comes before it.
    pub fn raw_offset(&self) -> Option<usize> {
        let variable = PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
        (self.sample_type & PERF_SAMPLE_RAW != 0 && self.sample_type & variable == 0)
            .then(|| self.fixed_end as usize + 4)
    }

    /// Where the member after PERF_SAMPLE_READ begins.
    fn after_read(&self, record: &[u8]) -> Option<usize> {
        let at = self.fixed_end as usize;
        if self.sample_type & PERF_SAMPLE_READ == 0 {
            return Some(at);
        }
        let has = |bit: u64| usize::from(self.read_format & bit != 0);
        let times = has(PERF_FORMAT_TOTAL_TIME_ENABLED) + has(PERF_FORMAT_TOTAL_TIME_RUNNING);
        let each = 1 + has(PERF_FORMAT_ID) + has(PERF_FORMAT_LOST);
        let words = if self.read_format & PERF_FORMAT_GROUP != 0 {
            let members = usize::try_from(u64_at(record, at)?).ok()?;
            members.checked_mul(each)?.checked_add(1 + times)?
        } else {
            each + times
        };
        at.checked_add(words.checked_mul(8)?)
    }
}

/// Where the sample id lies at the end of records that are no samples (`sample_id_all`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerLayout {
    /// Distance of the time from the record's end, 0 when it has none.
    time: u16,
    /// Size of the whole trailer.
    size: u16,
}

impl TrailerLayout {
    /// The trailer's layout for an attr with `sample_id_all`.
    pub fn new(sample_type: u64) -> Self {
        let bits = [
            PERF_SAMPLE_TID,
            PERF_SAMPLE_TIME,
            PERF_SAMPLE_ID,
            PERF_SAMPLE_STREAM_ID,
            PERF_SAMPLE_CPU,
            PERF_SAMPLE_IDENTIFIER,
        ];
        let present = |of: &[u64]| 8 * of.iter().filter(|&&bit| sample_type & bit != 0).count() as u16;
        let size = present(&bits);
        let time = if sample_type & PERF_SAMPLE_TIME != 0 { size - present(&bits[..1]) } else { 0 };
        Self { time, size }
    }

    /// When the record was written.
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        if self.time == 0 || record.len() < RECORD_HEADER + self.size as usize {
            return None;
        }
        u64_at(record, record.len() - self.time as usize)
    }
}

#[inline]
fn member(record: &[u8], at: u16) -> Option<u64> {
    if at == ABSENT { None } else { u64_at(record, at as usize) }
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}
