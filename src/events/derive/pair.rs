//! Splits records of system calls that a BPF program has paired. Such a record contains the begin and the end of a call. It
//! becomes the two samples that the kernel would have written, so other code need not know who pairs the calls.
//!
//! The record has one call chain, which the kernel takes when the call ends: the frames of the program. They are those of the
//! begin too, because the thread was in the kernel meanwhile. The frames of the kernel are the same for all calls.

use std::{borrow::Cow, env::consts::ARCH};

use perf_prof_format::{
    abi::{
        PERF_CONTEXT_KERNEL, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_ID, PERF_SAMPLE_IDENTIFIER,
        PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_TID,
        PERF_SAMPLE_TIME, system_calls,
    },
    record::{SampleLayout, SampleMember},
    tracefs::{EventFormat, FramesState, INTERPRETER_HEADER_BYTES},
};
use perf_prof_system::fork_lock;

use crate::event::{Context, EventType};

/// The size of the fields of `raw_syscalls:sys_exit`, in bytes: the common fields, `id` and `ret`.
const EXIT: usize = 24;

/// The members that the samples of both tracepoints, and a pair's record, may have.
const MEMBERS: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_STREAM_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_CALLCHAIN
    | PERF_SAMPLE_RAW
    | COPIED;

/// The members with copies of the program's registers and stack. They follow the raw data.
const COPIED: u64 = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
/// These members without registers and without a stack.
const NOT_COPIED: [u8; 16] = [0; 16];

/// How the names of the functions begin that run BPF programs at a tracepoint, and of the programs.
const RUN_PROGRAMS: [&str; 3] = ["bpf_", "__bpf_", "__traceiter_"];

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
    /// The offset of the CPU on which the call began, a number of 4 bytes.
    pub const CPU: usize = EXIT + 8;
    /// The offset of the raw data of the begin. It comes last, because its strings vary in length.
    pub const BEGIN: usize = EXIT + 16;
    /// The size of the raw data without strings, in bytes.
    pub const BYTES: usize = PairLayout::BEGIN + PairLayout::ARGUMENTS + 48;
}

/// Whether a call chain has the frames of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramFrames {
    /// It has these frames.
    Present,
    /// It does not have them.
    #[default]
    LeftOut,
}

/// The call chain of the begin or of the end of a call. By default, it has no frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairChain {
    /// The addresses of the kernel's frames, innermost first.
    pub kernel: Vec<u64>,
    /// Whether it has the frames of the program.
    pub program: ProgramFrames,
}

/// Splits records of pairs. The splitter owns both samples, so they are valid until the next split.
#[derive(Clone, Debug)]
pub struct PairSplitter {
    /// The layout of the samples, and of the records of pairs.
    layout: SampleLayout,
    /// The call chains of the begin and of the end.
    chains: [PairChain; 2],
    /// Whether `chains` may have frames of BPF programs.
    has_programs: bool,
    /// The maximum number of frames in a call chain; `None` if it is not known yet.
    most_frames: Option<usize>,
    /// The offsets of the frames of an interpreter in the begin and in the end; `None` if there are none.
    frames: [Option<usize>; 2],
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
        let members = layout.format.sample_type;
        let frames = [of_begin, of_end].map(|format| format.interpreter_frames_offset());
        let is_suited = has_fields
            && members & !MEMBERS == 0
            && members & PERF_SAMPLE_RAW != 0
            && begin.layout == layout
            // Programs write these frames into the begin.
            && (frames[0].is_some() || frames[1].is_none());
        is_suited.then(|| PairSplitter {
            layout,
            chains: Default::default(),
            has_programs: false,
            most_frames: begin.max_stack.map(usize::from),
            frames,
            no_strings: no_strings(of_end),
            begin: Vec::new(),
            end: Vec::new(),
        })
    }

    /// Sets the call chains of the begin and of the end. BPF programs have noted the kernel's frames, so the first ones may be
    /// their own.
    pub fn with_chains(self, chains: [PairChain; 2]) -> PairSplitter {
        let has_programs = chains.iter().any(|chain| !chain.kernel.is_empty());
        PairSplitter { chains, has_programs, ..self }
    }

    /// Leaves out the frames of BPF programs. Only the first call has to look for names.
    pub fn leave_out_programs(&mut self, context: &Context) {
        if !std::mem::take(&mut self.has_programs) {
            return;
        }
        // This may be a thread without the GIL.
        let _held = fork_lock::hold();
        self.most_frames.get_or_insert(context.max_stack());
        for PairChain { kernel, .. } in &mut self.chains {
            let is_of_kernel = |&addr: &u64| {
                let symbol = context.kernel.symbol(addr.wrapping_sub(1));
                symbol.is_some_and(|symbol| !RUN_PROGRAMS.iter().any(|start| symbol.name.starts_with(start)))
            };
            // If no frame has a name, for example because of kptr_restrict, the frames of programs are not known.
            let first = kernel.iter().position(is_of_kernel).unwrap_or(0);
            kernel.drain(..first);
        }
    }

    /// Splits a record into the sample of the begin and the sample of the end. Returns `None` if the record is too short.
    pub fn split(&mut self, record: &[u8]) -> Option<[&[u8]; 2]> {
        let parts = Parts::of(&self.layout, record)?;
        let raw = parts.raw[0];
        let begin = raw.get(PairLayout::BEGIN..).filter(|_| raw.len() >= PairLayout::BYTES)?;
        let (call, result) = (word(begin, PairLayout::ID) as i64, word(raw, PairLayout::RET) as i64);
        let has_left = has_left(call, result);
        // 32-bit programs enter the kernel elsewhere.
        let is_compat = system_calls::is_compat(ARCH, call);
        let [of_begin, of_end] = [0, 1].map(|part| {
            let PairChain { kernel, program } = &self.chains[part];
            let kernel = if is_compat { &[] } else { &kernel[..] };
            match (part, program, has_left) {
                (_, ProgramFrames::LeftOut, _) | (0, _, true) => parts.without_program(&self.layout, kernel),
                _ => parts.with_kernel(kernel),
            }
        });
        let behind = behind_end(self.frames, &self.no_strings, begin);
        let most = self.most_frames.unwrap_or(usize::MAX);
        write(&mut self.end, Parts { raw: [&raw[..EXIT], &behind], ..of_end }, most);
        let at = write(&mut self.begin, Parts { raw: [begin, &[]], ..of_begin }, most);
        if let (Some(frames), true) = (self.frames[0], has_left) {
            forget_frames(&mut self.begin[at..], frames);
        }
        // The time of the record is the time of the end, on the perf clock. The BPF program measures with another clock, so
        // only the duration is taken from its data.
        let began = self.layout.time(record).unwrap_or(0).saturating_sub(word(raw, PairLayout::DURATION));
        let cpu = number(raw, PairLayout::CPU).into();
        for (member, word) in [(SampleMember::Time, began), (SampleMember::Cpu, cpu)] {
            if let Some(at) = self.layout.fixed_offset(member) {
                self.begin[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
            }
        }
        Some([&self.begin, &self.end])
    }
}

/// Returns the bytes after the fields in the sample of an end: no strings, and the frames that the interpreter had at the
/// begin. `frames` are the offsets of the places of these frames.
fn behind_end<'a>(frames: [Option<usize>; 2], no_strings: &'a [u8], begin: &[u8]) -> Cow<'a, [u8]> {
    let [Some(from), Some(to)] = frames else { return no_strings.into() };
    let mut behind = no_strings.to_vec();
    if let Some(frames) = placed(begin, from) {
        let location = (EXIT + behind.len()) as u32 | (frames.len() as u32) << 16;
        behind[to - EXIT..][..4].copy_from_slice(&location.to_ne_bytes());
        behind.extend_from_slice(frames);
    }
    behind.into()
}

/// The call chain of a sample: the kernel's frames, and the words of the program's frames.
#[derive(Clone, Copy)]
struct Frames<'a> {
    kernel: &'a [u64],
    program: &'a [u8],
}

/// The parts of a sample.
#[derive(Clone, Copy)]
struct Parts<'a> {
    /// The header and the members of fixed size.
    members: &'a [u8],
    /// The call chain, if samples have one.
    chain: Option<Frames<'a>>,
    /// The raw data.
    raw: [&'a [u8]; 2],
    /// The copies of the program's registers and stack.
    copied: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Returns the parts of a pair's record. Its call chain has only frames of the program.
    fn of(layout: &SampleLayout, record: &'a [u8]) -> Option<Parts<'a>> {
        let (chain, raw) = (layout.callchain(record), layout.raw(record)?);
        // The raw data and the chain have their sizes before them.
        let members = layout.fixed_end();
        let copied = members + chain.map_or(0, |chain| 8 + chain.len()) + 4 + raw.len();
        let chain = chain.map(|program| Frames { kernel: &[], program });
        Some(Parts { members: record.get(..members)?, chain, raw: [raw, &[]], copied: record.get(copied..)? })
    }

    fn with_kernel(self, kernel: &'a [u64]) -> Parts<'a> {
        Parts { chain: self.chain.map(|chain| Frames { kernel, ..chain }), ..self }
    }

    /// Returns a sample that has no frames of the program.
    fn without_program(self, layout: &SampleLayout, kernel: &'a [u64]) -> Parts<'a> {
        let copied = (layout.format.sample_type & COPIED).count_ones() as usize;
        let chain = self.chain.map(|_| Frames { kernel, program: &[] });
        Parts { chain, copied: &NOT_COPIED[..8 * copied], ..self }
    }
}

/// Returns whether a thread goes on elsewhere after a call: it runs another program, or goes on where a signal interrupted it.
fn has_left(call: i64, result: i64) -> bool {
    match system_calls::name(ARCH, call) {
        Some("execve" | "execveat") => result == 0,
        Some("rt_sigreturn" | "sigreturn") => true,
        _ => false,
    }
}

/// Returns the bytes to which a location in the raw data refers.
fn placed(raw: &[u8], location: usize) -> Option<&[u8]> {
    let location = number(raw, location);
    raw.get((location & 0xffff) as usize..)?.get(..(location >> 16) as usize)
}

/// Replaces the frames of an interpreter by a state that says that they are not known.
fn forget_frames(raw: &mut [u8], location: usize) {
    let place = number(raw, location);
    if (place >> 16) as usize >= INTERPRETER_HEADER_BYTES
        && let Some(state) = raw.get_mut((place & 0xffff) as usize)
    {
        *state = FramesState::Unreadable as u8;
        let place = place & 0xffff | (INTERPRETER_HEADER_BYTES as u32) << 16;
        raw[location..location + 4].copy_from_slice(&place.to_ne_bytes());
    }
}

/// Returns 8 bytes of the raw data as a number; 0 if they are not there.
fn word(raw: &[u8], at: usize) -> u64 {
    raw.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Returns 4 bytes of the raw data as a number; 0 if they are not there.
fn number(raw: &[u8], at: usize) -> u32 {
    raw.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u32::from_ne_bytes(*number))
}

/// Returns what follows the fields of an event whose strings are all missing, with a place for the frames of an interpreter.
fn no_strings(format: &EventFormat) -> Vec<u8> {
    let strings = format.strings();
    if strings.is_empty() && format.interpreter_frames_offset().is_none() {
        return Vec::new();
    }
    let first = format.first_string();
    let mut behind = vec![0; first + 1 - EXIT];
    for string in strings {
        behind[string.location - EXIT..][..4].copy_from_slice(&(first as u32).to_ne_bytes());
    }
    behind
}

/// Writes a sample. As in the kernel, padding makes the raw data and its size a multiple of 8 bytes, and a call chain has at
/// most `most_frames` frames. Returns the offset of the raw data.
fn write(sample: &mut Vec<u8>, Parts { members, chain, raw, copied }: Parts<'_>, most_frames: usize) -> usize {
    sample.clear();
    sample.extend_from_slice(members);
    if let Some(Frames { kernel, program }) = chain {
        // A marker comes before the frames.
        let most = most_frames.saturating_sub(kernel.len()).saturating_add(1).saturating_mul(8);
        let program = &program[..program.len().min(most)];
        let marker = (!kernel.is_empty()).then_some(PERF_CONTEXT_KERNEL);
        let words = marker.iter().count() + kernel.len() + program.len() / 8;
        for word in [words as u64].iter().chain(&marker).chain(kernel) {
            sample.extend_from_slice(&word.to_ne_bytes());
        }
        sample.extend_from_slice(program);
    }
    let size = (raw[0].len() + raw[1].len() + 4).next_multiple_of(8) - 4;
    sample.extend_from_slice(&(size as u32).to_ne_bytes());
    let at = sample.len();
    raw.iter().for_each(|part| sample.extend_from_slice(part));
    sample.resize(at + size, 0);
    sample.extend_from_slice(copied);
    // As the record is hardly longer than a sample, the size fits in all records but the largest, where nobody reads it.
    let whole = u16::try_from(sample.len()).unwrap_or(u16::MAX);
    sample[6..8].copy_from_slice(&whole.to_ne_bytes());
    at
}
