//! System calls that programs in the kernel have paired: one record has the begin and the end of a call. It is split into the
//! two samples that the kernel's own records would be, so that nobody else has to know where calls are paired.

use perf_prof_format::{
    abi::{
        PERF_SAMPLE_CPU, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_RAW, PERF_SAMPLE_STREAM_ID,
        PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::{SampleLayout, SampleMember},
    tracefs::EventFormat,
};

use crate::event::EventType;

/// The raw data of `raw_syscalls:sys_enter`: the common fields, `id` and `args`.
const ENTER: usize = 64;
/// The raw data of `raw_syscalls:sys_exit`: the common fields, `id` and `ret`. That of a pair starts with it.
const EXIT: usize = 24;

/// The members that the begin and the end have in common, and those that a pair has for both. The raw data is the last one.
const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_STREAM_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_RAW;

/// Where the raw data of a pair has what it has besides the data of the end. All numbers have 8 bytes.
pub struct PairLayout;

impl PairLayout {
    /// The field `id` of both tracepoints.
    pub const ID: usize = 8;
    /// The field `ret` of the end.
    pub const RET: usize = 16;
    /// The time from the begin to the end in ns.
    pub const DURATION: usize = EXIT;
    /// The CPU of the begin.
    pub const CPU: usize = EXIT + 8;
    /// The number of the call that began. The end of rt_sigreturn() has another one.
    pub const BEGIN_ID: usize = EXIT + 16;
    /// The six arguments of the call.
    pub const ARGUMENTS: usize = EXIT + 24;
    /// The size of the raw data.
    pub const BYTES: usize = PairLayout::ARGUMENTS + 48;
}

/// Splits the records of pairs. The samples are valid until the next one is split.
#[derive(Clone, Debug)]
pub struct PairSplitter {
    /// The layout of all samples.
    layout: SampleLayout,
    /// The offset of the raw data in samples.
    raw: usize,
    /// The number of the tracepoint that begins calls.
    begin_type: u16,
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl PairSplitter {
    /// Creates a splitter for calls whose begins and ends have these types. Returns `None` if their samples cannot be made of
    /// a pair: they have different members, or some that programs do not write.
    pub fn new(begin: &EventType, end: &EventType) -> Option<PairSplitter> {
        let (of_begin, of_end) = (begin.format.tracepoint()?, end.format.tracepoint()?);
        let is_at = |format: &EventFormat, name: &str, offset: usize, size: usize| {
            format.field(name).is_some_and(|field| (field.offset, field.size) == (offset, size))
        };
        let has_fields = is_at(of_begin, "id", PairLayout::ID, 8)
            && is_at(of_begin, "args", 16, 48)
            && is_at(of_end, "id", PairLayout::ID, 8)
            && is_at(of_end, "ret", PairLayout::RET, 8);
        let has_strings = !of_begin.strings().is_empty() || !of_end.strings().is_empty();
        let layout = end.layout;
        let raw = layout.raw_offset()?;
        let has_more = layout.format.sample_type & !MEMBERS != 0;
        let is_suited = has_fields && !has_strings && !has_more && begin.layout == layout;
        let begin_type = u16::try_from(of_begin.id).ok()?;
        is_suited.then(|| PairSplitter { layout, raw, begin_type, begin: Vec::new(), end: Vec::new() })
    }

    /// Splits a record into the sample of the begin and the one of the end. Returns `None` if the record is too short.
    pub fn split(&mut self, record: &[u8]) -> Option<[&[u8]; 2]> {
        let members = record.get(..self.raw - 4)?;
        let raw = record.get(self.raw..self.raw + PairLayout::BYTES)?;
        let word =
            |at: usize| raw.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
        let mut of_begin = [0; ENTER];
        of_begin[..2].copy_from_slice(&self.begin_type.to_ne_bytes());
        of_begin[2..PairLayout::ID].copy_from_slice(&raw[2..PairLayout::ID]);
        of_begin[PairLayout::ID..16].copy_from_slice(&word(PairLayout::BEGIN_ID).to_ne_bytes());
        of_begin[16..].copy_from_slice(&raw[PairLayout::ARGUMENTS..]);
        write(&mut self.begin, members, &of_begin);
        write(&mut self.end, members, &raw[..EXIT]);
        // The kernel takes the times of samples from the clock of the events, and a program has another one. So only its
        // difference is used.
        let began = self.layout.time(record).unwrap_or(0).saturating_sub(word(PairLayout::DURATION));
        let patches = [
            (SampleMember::Time, began.to_ne_bytes()),
            (SampleMember::Cpu, u64::from(word(PairLayout::CPU) as u32).to_ne_bytes()),
        ];
        for (member, bytes) in patches {
            if let Some(at) = self.layout.fixed_offset(member) {
                self.begin[at..at + 8].copy_from_slice(&bytes);
            }
        }
        Some([&self.begin, &self.end])
    }
}

/// Writes a sample with these members and this raw data, as the kernel does: the raw data and its size fill words of 8 bytes.
fn write(sample: &mut Vec<u8>, members: &[u8], raw: &[u8]) {
    let size = (raw.len() + 4).next_multiple_of(8) - 4;
    sample.clear();
    sample.extend_from_slice(members);
    sample.extend_from_slice(&(size as u32).to_ne_bytes());
    sample.extend_from_slice(raw);
    sample.resize(members.len() + 4 + size, 0);
    let whole = sample.len() as u16;
    sample[6..8].copy_from_slice(&whole.to_ne_bytes());
}
