//! Converts records of foreign byte order to native byte order when they are read. All other code handles native
//! records only.
//!
//! The layouts are those of `enum perf_event_type` in `include/uapi/linux/perf_event.h`.

use perf_prof_format::{
    abi::*,
    record::{RECORD_HEADER, SampleLayout, record_type},
};

use super::{
    bytes::ByteOrder,
    layouts::{Layouts, RawNumbers},
};

/// Returns the size that a record's header states; 0 if `bytes` are too short for a header.
#[inline]
pub(crate) fn record_size(bytes: &[u8], order: ByteOrder) -> usize {
    bytes.get(6..8).map_or(0, |b| usize::from(order.u16([b[0], b[1]])))
}

/// Converts a whole record to native byte order.
#[inline]
pub(crate) fn record(record: &mut [u8], order: ByteOrder, layouts: &Layouts) {
    if order == ByteOrder::Foreign {
        foreign(record, layouts);
    }
}

/// Converts records that were already indexed to native byte order.
pub(crate) fn records(bytes: &mut [u8], order: ByteOrder, layouts: &Layouts) {
    if order == ByteOrder::Native {
        return;
    }
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= RECORD_HEADER) {
        let size = record_size(rest, order);
        if size < RECORD_HEADER || size > rest.len() {
            break;
        }
        record(&mut rest[..size], order, layouts);
        at += size;
    }
}

/// A position in consecutive numbers. Each call of a method swaps the next number or numbers.
struct SwappingCursor<'a> {
    rest: &'a mut [u8],
}

impl<'a> SwappingCursor<'a> {
    fn next_bytes(&mut self, size: usize) -> Option<&'a mut [u8]> {
        let (taken, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    /// Swaps a number of `width` bytes and returns its value.
    fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.next_bytes(width)?;
        bytes.reverse();
        let mut word = [0; 8];
        match cfg!(target_endian = "little") {
            true => word[..width].copy_from_slice(bytes),
            false => word[8 - width..].copy_from_slice(bytes),
        }
        Some(u64::from_ne_bytes(word))
    }

    /// Swaps consecutive numbers. `widths` are the sizes of the numbers in bytes.
    fn numbers(&mut self, widths: &[usize]) -> Option<()> {
        widths.iter().try_for_each(|&width| self.number(width).map(drop))
    }

    /// Swaps `count` numbers of 8 bytes.
    fn longs(&mut self, count: u64) -> Option<()> {
        (0..count).try_for_each(|_| self.number(8).map(drop))
    }
}

/// Swaps a record of foreign byte order. If the record is cut off, the part that exists is swapped.
fn foreign(record: &mut [u8], layouts: &Layouts) {
    let mut header = SwappingCursor { rest: record };
    if header.numbers(&[4, 2, 2]).is_none() {
        return;
    }
    let kind = record_type(record);
    let misc = u16::from_ne_bytes([record[4], record[5]]);
    if kind == PERF_RECORD_SAMPLE {
        // For a sample with an unknown id, the layout of the first attr is used, because the time is most likely at the
        // same offset in all layouts.
        let attr = layouts.foreign_attr_of(record).unwrap_or(0);
        sample(&mut record[RECORD_HEADER..], layouts.sample(attr), layouts.raw_words(attr));
        return;
    }
    let trailer = if kind < perf_data::FIRST_USER_RECORD_TYPE { layouts.trailer_size() } else { 0 };
    let end = record.len().saturating_sub(trailer).max(RECORD_HEADER);
    let (body, trailer) = record.split_at_mut(end);
    body_of(kind, misc, &mut body[RECORD_HEADER..]);
    self::trailer(trailer, layouts.sample(0).format.sample_type);
}

fn body_of(kind: u32, misc: u16, body: &mut [u8]) -> Option<()> {
    use perf_prof_format::abi::perf_data::*;
    let mut words = SwappingCursor { rest: body };
    match kind {
        PERF_RECORD_MMAP => words.numbers(&[4, 4, 8, 8, 8]),
        PERF_RECORD_MMAP2 => {
            words.numbers(&[4, 4, 8, 8, 8])?;
            match misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
                true => words.next_bytes(24).map(drop)?,
                false => words.numbers(&[4, 4, 8, 8])?,
            }
            words.numbers(&[4, 4])
        }
        PERF_RECORD_COMM => words.numbers(&[4, 4]),
        PERF_RECORD_FORK | PERF_RECORD_EXIT => words.numbers(&[4, 4, 4, 4, 8]),
        PERF_RECORD_KSYMBOL => words.numbers(&[8, 4, 2, 2]),
        PERF_RECORD_CGROUP => words.number(8).map(drop),
        PERF_RECORD_AUXTRACE => words.numbers(&[8, 8, 8, 4, 4, 4, 4]),
        PERF_RECORD_HEADER_TRACING_DATA => words.number(4).map(drop),
        PERF_RECORD_SWITCH_CPU_WIDE => words.numbers(&[4, 4]),
        PERF_RECORD_STAT => words.numbers(&[8, 4, 4, 8, 8, 8]),
        PERF_RECORD_THREAD_MAP => {
            for _ in 0..words.number(8)? {
                words.number(8)?;
                words.next_bytes(16)?;
            }
            Some(())
        }
        PERF_RECORD_CPU_MAP => cpu_map(&mut words),
        PERF_RECORD_EVENT_UPDATE => {
            let update = words.number(8)?;
            words.number(8)?;
            match update {
                EVENT_UPDATE_CPUS => cpu_map(&mut words),
                EVENT_UPDATE_CHECKSUM => words.number(4).map(drop),
                _ => None,
            }
        }
        PERF_RECORD_AUXTRACE_ERROR => {
            words.numbers(&[4; 5])?;
            let format = words.number(4)?;
            words.longs(if format == 0 { 1 } else { 2 })?;
            words.next_bytes(64)?;
            words.numbers(&[4, 4])
        }
        PERF_RECORD_COMPRESSED => None,
        PERF_RECORD_COMPRESSED2 => words.number(8).map(drop),
        // Lost-event and throttle records consist of 8-byte numbers. The bodies of all other records are not used, so
        // it does not matter that their bytes are swapped too.
        _ => {
            let count = words.rest.len() as u64 / 8;
            words.longs(count)
        }
    }
}

/// Swaps a list, a mask or a range of CPUs (`struct perf_record_cpu_map_data` in
/// `tools/lib/perf/include/perf/event.h`).
fn cpu_map(words: &mut SwappingCursor<'_>) -> Option<()> {
    match words.number(2)? {
        0 => (0..words.number(2)?).try_for_each(|_| words.number(2).map(drop)),
        1 => {
            let (count, size) = (words.number(2)?, words.number(2)?);
            let width = if size == 8 { 8 } else { 4 };
            if width == 8 {
                words.next_bytes(4)?;
            }
            (0..count).try_for_each(|_| words.number(width).map(drop))
        }
        2 => {
            words.next_bytes(2)?;
            words.numbers(&[2, 2])
        }
        _ => None,
    }
}

/// Swaps the sample id at the end of a record.
fn trailer(bytes: &mut [u8], sample_type: u64) -> Option<()> {
    let mut words = SwappingCursor { rest: bytes };
    let has = |bit: u64| sample_type & bit != 0;
    if has(PERF_SAMPLE_TID) {
        words.numbers(&[4, 4])?;
    }
    let longs = [PERF_SAMPLE_TIME, PERF_SAMPLE_ID, PERF_SAMPLE_STREAM_ID].into_iter().filter(|&bit| has(bit)).count();
    words.longs(longs as u64)?;
    if has(PERF_SAMPLE_CPU) {
        words.numbers(&[4, 4])?;
    }
    if has(PERF_SAMPLE_IDENTIFIER) { words.longs(1) } else { Some(()) }
}

/// Swaps an entry of a branch stack.
fn branch(words: &mut SwappingCursor<'_>) -> Option<()> {
    words.longs(2)?;
    // The flags of a branch are bit fields. In the opposite byte order, bit fields fill each byte from the other end,
    // so all bits are reversed.
    words.next_bytes(8)?.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
    Some(())
}

/// Swaps the members of a sample, in the order of `perf_output_sample()`.
fn sample(body: &mut [u8], layout: &SampleLayout, raw: &RawNumbers) -> Option<()> {
    let format = layout.format;
    let has = |bit: u64| format.sample_type & bit != 0;
    let mut words = SwappingCursor { rest: body };
    let longs = [PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP];
    words.longs(longs.into_iter().filter(|&bit| has(bit)).count() as u64)?;
    if has(PERF_SAMPLE_TID) {
        words.numbers(&[4, 4])?;
    }
    let longs = [PERF_SAMPLE_TIME, PERF_SAMPLE_ADDR, PERF_SAMPLE_ID, PERF_SAMPLE_STREAM_ID];
    words.longs(longs.into_iter().filter(|&bit| has(bit)).count() as u64)?;
    if has(PERF_SAMPLE_CPU) {
        words.numbers(&[4, 4])?;
    }
    if has(PERF_SAMPLE_PERIOD) {
        words.longs(1)?;
    }
    if has(PERF_SAMPLE_READ) {
        let reads = |bit: u64| u64::from(format.read_format & bit != 0);
        let times = reads(PERF_FORMAT_TOTAL_TIME_ENABLED) + reads(PERF_FORMAT_TOTAL_TIME_RUNNING);
        let each = 1 + reads(PERF_FORMAT_ID) + reads(PERF_FORMAT_LOST);
        match format.read_format & PERF_FORMAT_GROUP != 0 {
            true => {
                let count = words.number(8)?;
                words.longs(count.checked_mul(each)?.checked_add(times)?)?;
            }
            false => words.longs(each + times)?,
        }
    }
    if has(PERF_SAMPLE_CALLCHAIN) {
        let count = words.number(8)?;
        words.longs(count)?;
    }
    if has(PERF_SAMPLE_RAW) {
        let size = words.number(4)?;
        raw.swap_bytes(words.next_bytes(usize::try_from(size).ok()?)?);
    }
    if has(PERF_SAMPLE_BRANCH_STACK) {
        let count = words.number(8)?;
        if format.branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
            words.longs(1)?;
        }
        (0..count).try_for_each(|_| branch(&mut words))?;
        if format.branch_sample_type & PERF_SAMPLE_BRANCH_COUNTERS != 0 {
            words.longs(count)?;
        }
    }
    if has(PERF_SAMPLE_REGS_USER) && words.number(8)? != 0 {
        words.longs(format.regs_user.count_ones().into())?;
    }
    if has(PERF_SAMPLE_STACK_USER) {
        let size = words.number(8)?;
        if size != 0 {
            words.next_bytes(usize::try_from(size).ok()?)?;
            words.longs(1)?;
        }
    }
    let longs = [PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT, PERF_SAMPLE_DATA_SRC, PERF_SAMPLE_TRANSACTION];
    words.longs(longs.into_iter().filter(|&bits| has(bits)).count() as u64)?;
    if has(PERF_SAMPLE_REGS_INTR) && words.number(8)? != 0 {
        words.longs(format.regs_intr.count_ones().into())?;
    }
    let longs = [PERF_SAMPLE_PHYS_ADDR, PERF_SAMPLE_CGROUP, PERF_SAMPLE_DATA_PAGE_SIZE, PERF_SAMPLE_CODE_PAGE_SIZE];
    words.longs(longs.into_iter().filter(|&bit| has(bit)).count() as u64)?;
    if has(PERF_SAMPLE_AUX) { words.longs(1) } else { Some(()) }
}
