//! Splits records of system calls that a BPF program has paired. Such a record contains the begin and the end of a call. It
//! becomes the two samples that the kernel would have written, so other code need not know who pairs the calls.

use perf_prof_format::{
    abi::{
        PERF_SAMPLE_CPU, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_RAW, PERF_SAMPLE_STREAM_ID,
        PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::{SampleLayout, SampleMember},
    tracefs::EventFormat,
};

use crate::event::EventType;

/// The size of the fields of `raw_syscalls:sys_exit`, in bytes: the common fields, `id` and `ret`.
const EXIT: usize = 24;

/// The members of the samples of both tracepoints, and of a pair's record. The raw data comes last.
const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_STREAM_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_RAW;

/// Offsets in the raw data of a pair, which starts with the fields of the end. All numbers have 8 bytes.
pub struct PairLayout;

impl PairLayout {
    /// The offset of `id` in the data of both tracepoints.
    pub const ID: usize = 8;
    /// The offset of `ret`, a field of the end.
    pub const RET: usize = 16;
    /// The offset of `args` in the data of the begin.
    pub const ARGUMENTS: usize = 16;
    /// The offset of the time from the begin to the end, in ns.
    pub const DURATION: usize = EXIT;
    /// The offset of the CPU on which the call began.
    pub const CPU: usize = EXIT + 8;
    /// The offset of the raw data of the begin. It comes last, because its strings vary in length.
    pub const BEGIN: usize = EXIT + 16;
    /// The size of the raw data without strings, in bytes.
    pub const BYTES: usize = PairLayout::BEGIN + PairLayout::ARGUMENTS + 48;
}

/// Splits records of pairs. The splitter owns both samples, so they are valid until the next split.
#[derive(Clone, Debug)]
pub struct PairSplitter {
    /// The layout of the samples, and of the records of pairs.
    layout: SampleLayout,
    /// The offset of the raw data in the records of pairs.
    raw: usize,
    /// What follows the fields in the sample of an end: an encoding of "no strings", because all strings are in the begin.
    no_strings: Vec<u8>,
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl PairSplitter {
    /// Creates a splitter for calls whose begins and ends have these event types. Returns `None` if a pair cannot contain
    /// their samples: their members differ, or BPF programs cannot write some of the members.
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

    /// Splits a record into the sample of the begin and the sample of the end. Returns `None` if the record is too short.
    pub fn split(&mut self, record: &[u8]) -> Option<[&[u8]; 2]> {
        let members = record.get(..self.raw - 4)?;
        let raw = self.layout.raw(record).filter(|raw| raw.len() >= PairLayout::BYTES)?;
        let word =
            |at: usize| raw.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
        write(&mut self.begin, members, [&raw[PairLayout::BEGIN..], &[]]);
        write(&mut self.end, members, [&raw[..EXIT], &self.no_strings]);
        // The time of the record is the time of the end, on the perf clock. The BPF program measures with another clock, so
        // only the duration is taken from its data.
        let began = self.layout.time(record).unwrap_or(0).saturating_sub(word(PairLayout::DURATION));
        for (member, word) in [(SampleMember::Time, began), (SampleMember::Cpu, word(PairLayout::CPU))] {
            if let Some(at) = self.layout.fixed_offset(member) {
                self.begin[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        Some([&self.begin, &self.end])
    }
}

/// Returns what follows the fields of an event whose strings are all missing.
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

/// Writes a sample with these members and this raw data. A size field of 4 bytes comes before the raw data, and padding
/// follows it: as in the kernel, all three together are a multiple of 8 bytes long. The size field counts the padding too.
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
