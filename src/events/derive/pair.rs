//! Splits the records of system calls that BPF programs have paired. Such a record has the begin and the end of a call. It is
//! split into the two samples that the kernel itself would have written, so no other code has to know where calls are paired.

use perf_prof_format::{
    abi::{
        PERF_SAMPLE_CPU, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_RAW, PERF_SAMPLE_STREAM_ID,
        PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::{SampleLayout, SampleMember},
    tracefs::EventFormat,
};

use crate::event::EventType;

/// The size of the fields of `raw_syscalls:sys_exit`: the common fields, `id` and `ret`.
const EXIT: usize = 24;

/// The members of the samples of the begin and of the end, and the members of a pair's record. The raw data is the last
/// member.
const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_STREAM_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_RAW;

/// The layout of the raw data of a pair. It starts with the fields of the end. All numbers have 8 bytes.
pub struct PairLayout;

impl PairLayout {
    /// The field `id` of both tracepoints, in their data.
    pub const ID: usize = 8;
    /// The field `ret` of the end.
    pub const RET: usize = 16;
    /// The field `args` of the begin, in its data.
    pub const ARGUMENTS: usize = 16;
    /// The time from the begin to the end in ns.
    pub const DURATION: usize = EXIT;
    /// The CPU of the begin.
    pub const CPU: usize = EXIT + 8;
    /// The raw data of the begin. It is the last part, because strings differ in length.
    pub const BEGIN: usize = EXIT + 16;
    /// The size of the raw data without strings.
    pub const BYTES: usize = PairLayout::BEGIN + PairLayout::ARGUMENTS + 48;
}

/// Splits the records of pairs. The samples are valid until the next one is split.
#[derive(Clone, Debug)]
pub struct PairSplitter {
    /// The layout of all samples.
    layout: SampleLayout,
    /// The offset of the raw data in samples.
    raw: usize,
    /// The bytes after the fields of an end. They say that there are no strings, because all strings are in the begin.
    no_strings: Vec<u8>,
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl PairSplitter {
    /// Creates a splitter for calls whose begins and ends have these types. Returns `None` if their samples cannot be made of
    /// a pair, because their members differ or because programs do not write some of these members.
    pub fn new(begin: &EventType, end: &EventType) -> Option<PairSplitter> {
        let (of_begin, of_end) = (begin.format.tracepoint()?, end.format.tracepoint()?);
        let is_at = |format: &EventFormat, name: &str, offset: usize, size: usize| {
            format.field(name).is_some_and(|field| (field.offset, field.size) == (offset, size))
        };
        let has_fields = is_at(of_begin, "id", PairLayout::ID, 8)
            && is_at(of_begin, "args", PairLayout::ARGUMENTS, 48)
            && is_at(of_end, "id", PairLayout::ID, 8)
            && is_at(of_end, "ret", PairLayout::RET, 8);
        let layout = end.layout;
        let raw = layout.raw_offset()?;
        let has_more = layout.format.sample_type & !MEMBERS != 0;
        let no_strings = no_strings(of_end);
        let is_suited = has_fields && !has_more && begin.layout == layout;
        is_suited.then(|| PairSplitter { layout, raw, no_strings, begin: Vec::new(), end: Vec::new() })
    }

    /// Splits a record into the sample of the begin and the one of the end. Returns `None` if the record is too short.
    pub fn split(&mut self, record: &[u8]) -> Option<[&[u8]; 2]> {
        let members = record.get(..self.raw - 4)?;
        let raw = self.layout.raw(record).filter(|raw| raw.len() >= PairLayout::BYTES)?;
        let word =
            |at: usize| raw.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
        write(&mut self.begin, members, [&raw[PairLayout::BEGIN..], &[]]);
        write(&mut self.end, members, [&raw[..EXIT], &self.no_strings]);
        // The times of samples come from the clock of the events, and programs use another clock. So only the difference of
        // the program's times is used.
        let began = self.layout.time(record).unwrap_or(0).saturating_sub(word(PairLayout::DURATION));
        for (member, word) in [(SampleMember::Time, began), (SampleMember::Cpu, word(PairLayout::CPU))] {
            if let Some(at) = self.layout.fixed_offset(member) {
                self.begin[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        Some([&self.begin, &self.end])
    }
}

/// Returns the bytes after the fields of an event with strings, for the case that all of its strings are absent.
fn no_strings(format: &EventFormat) -> Vec<u8> {
    let strings = format.strings();
    if strings.is_empty() {
        return Vec::new();
    }
    let first = format.first_string();
    let mut behind = vec![0; first + 1 - EXIT];
    for string in strings {
        behind[string.location - EXIT..][..4].copy_from_slice(&(first as u32).to_ne_bytes());
    }
    behind
}

/// Writes a sample with these members and this raw data, as the kernel does: the raw data and its size fill words of 8 bytes.
fn write(sample: &mut Vec<u8>, members: &[u8], raw: [&[u8]; 2]) {
    let size = (raw[0].len() + raw[1].len() + 4).next_multiple_of(8) - 4;
    sample.clear();
    sample.extend_from_slice(members);
    sample.extend_from_slice(&(size as u32).to_ne_bytes());
    raw.iter().for_each(|part| sample.extend_from_slice(part));
    sample.resize(members.len() + 4 + size, 0);
    let whole = sample.len() as u16;
    sample[6..8].copy_from_slice(&whole.to_ne_bytes());
}
