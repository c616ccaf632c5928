//! Formats with a hidden field for the frames of an interpreter, such as those of Python functions, and the content of
//! this field.
//!
//! A BPF program writes the event's records. When the event happens, the program reads the frames from the memory of
//! the process, and stores them in the hidden field. The hidden field is the last field of the record. It consists of a
//! header of 8 bytes and five words for each frame, the innermost frame first.
//!
//! The samples of events without fields, such as timers, contain only a word with the place of the frames, and the
//! frames.

use super::{EventFormat, FieldKind, FormatError, format::PRINT_FMT};

/// The name of the hidden field. This field does not count as one of the event's own fields.
pub(super) const FIELD: &str = "__perf_prof_interpreter_frames";
/// The maximum number of frames in a record. This many frames take 10 KiB. A record can have 64 KiB.
pub const MOST_INTERPRETER_FRAMES: usize = 256;
/// The size of a frame, in bytes.
pub const INTERPRETER_FRAME_BYTES: usize = 40;
/// The size of the hidden field's header, in bytes. The lower half of the header is the state. The upper half is the
/// number of the process's interpreter.
pub const INTERPRETER_HEADER_BYTES: usize = 8;
/// The offset of the frames in the samples of events without fields, in bytes. The word with the place of the frames is
/// at offset 0.
pub const FRAMES_WITHOUT_FIELDS: usize = 8;
/// The number of bits of an instruction's address in a frame. The higher bits of the word contain
/// [`InterpreterFrame::mark`].
pub const INSTRUCTION_BITS: u32 = 56;

/// Whether the BPF program could read all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramesState {
    /// The record contains all frames.
    Complete = 1,
    /// The thread has more frames than [`MOST_INTERPRETER_FRAMES`].
    Cut = 2,
    /// The program could not read a part of the memory.
    Unreadable = 3,
    /// The program did not find the thread in the interpreter's list of threads, or the list was too long.
    NoThread = 4,
}

/// A frame as the BPF program read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterpreterFrame {
    /// The address of the code object.
    pub code: u64,
    /// The address of the instruction.
    pub instruction: u64,
    /// The byte with which the interpreter marks the kind of the frame: `is_entry` or `owner` in CPython.
    pub mark: u8,
    /// Words that identify the code object: two pointers in it, and a word with its version. If the memory contains
    /// other words later, another object is there.
    pub identity: [u64; 3],
}

/// The interpreter frames in a record.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterFrames<'a> {
    /// Whether the BPF program could read all frames. `None` if the record contains an unknown state.
    pub state: Option<FramesState>,
    /// The number of the process's interpreter.
    pub interpreter: u32,
    frames: &'a [u8],
}

impl<'a> InterpreterFrames<'a> {
    /// Returns the frames in the raw data of an event without fields. Returns `None` in the same case as
    /// [`EventFormat::interpreter_frames`].
    pub fn without_fields(raw: &'a [u8]) -> Option<InterpreterFrames<'a>> {
        InterpreterFrames::placed(raw, 0)
    }

    /// Returns the frames. The word with their place is at `offset`.
    fn placed(raw: &'a [u8], offset: usize) -> Option<InterpreterFrames<'a>> {
        let location = u32::from_ne_bytes(*raw.get(offset..)?.first_chunk()?);
        let (start, size) = ((location & 0xffff) as usize, (location >> 16) as usize);
        InterpreterFrames::parse(raw.get(start..start + size)?)
    }

    fn parse(bytes: &'a [u8]) -> Option<InterpreterFrames<'a>> {
        let (header, frames) = bytes.split_first_chunk::<INTERPRETER_HEADER_BYTES>()?;
        let header = u64::from_ne_bytes(*header);
        let states = [FramesState::Complete, FramesState::Cut, FramesState::Unreadable, FramesState::NoThread];
        let state = states.into_iter().find(|state| *state as u64 == header & 0xff);
        Some(InterpreterFrames { state, interpreter: (header >> 32) as u32, frames })
    }

    /// Returns the frames, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = InterpreterFrame> + 'a {
        self.frames.chunks_exact(INTERPRETER_FRAME_BYTES).map(|frame| {
            let mut words = frame.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            let mut next = || words.next().unwrap_or(0);
            let (code, instruction) = (next(), next());
            InterpreterFrame {
                code,
                instruction: instruction & ((1 << INSTRUCTION_BITS) - 1),
                mark: (instruction >> INSTRUCTION_BITS) as u8,
                identity: [next(), next(), next()],
            }
        })
    }
}

impl EventFormat {
    /// Returns the format with the hidden field. Returns `None` if the event has fields of variable size.
    pub fn with_interpreter_frames(&self) -> Result<Option<EventFormat>, FormatError> {
        let is_flexible = |field: &&super::Field| {
            let differs = matches!(field.kind, FieldKind::DataLoc(_) | FieldKind::RelLoc(_)) || field.size == 0;
            differs && !field.may_be_absent()
        };
        if self.fields().iter().any(|field| is_flexible(&field)) {
            return Ok(None);
        }
        let (head, print_fmt) = self.text().split_once(PRINT_FMT).unwrap_or((self.text(), ""));
        let offset = self.first_string();
        let line = format!("\tfield:__data_loc u64[] {FIELD};\toffset:{offset};\tsize:4;\tsigned:0;");
        let text = format!("{}\n{line}\n\n{PRINT_FMT}{print_fmt}", head.trim_end());
        EventFormat::parse_of(&self.system, &text).map(Some)
    }

    /// Returns the offset of the hidden field, if there is one.
    pub fn interpreter_frames_offset(&self) -> Option<usize> {
        self.field(FIELD).map(|field| field.offset)
    }

    /// Returns the frames in a record. Returns `None` if the BPF program has not read frames, because it did not know
    /// the process.
    pub fn interpreter_frames<'a>(&self, raw: &'a [u8]) -> Option<InterpreterFrames<'a>> {
        InterpreterFrames::placed(raw, self.interpreter_frames_offset()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int next_pid;\toffset:8;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"%d\", REC->next_pid\n";

    #[test]
    fn the_field_is_hidden_and_is_still_there_when_the_text_is_parsed_again() {
        let format = EventFormat::parse("sched", SWITCH).unwrap().with_interpreter_frames().unwrap().unwrap();
        let again = EventFormat::parse("sched", format.text()).unwrap();
        for format in [&format, &again] {
            assert_eq!(format.fields().iter().map(|field| &*field.name).collect::<Vec<_>>(), ["next_pid"]);
            assert_eq!((format.interpreter_frames_offset(), format.first_string()), (Some(16), 24));
            assert!(format.print_fmt().is_ok());
        }
    }

    #[test]
    fn frames_are_read_from_behind_the_fields() {
        let format = EventFormat::parse("sched", SWITCH).unwrap().with_interpreter_frames().unwrap().unwrap();
        let words = [1 | 5 << 32, 0x1000, 0x2000 | 3 << 56, 0x3000, 0x4000, 0x5000];
        let body: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let location = 24 | (body.len() as u32) << 16;
        let raw = [&[0; 16][..], &location.to_ne_bytes(), &[0; 4], &body].concat();
        let frames = format.interpreter_frames(&raw).unwrap();
        assert_eq!((frames.state, frames.interpreter), (Some(FramesState::Complete), 5));
        let frame = InterpreterFrame { code: 0x1000, instruction: 0x2000, mark: 3, identity: [0x3000, 0x4000, 0x5000] };
        assert_eq!(frames.iter().collect::<Vec<_>>(), [frame]);
        assert!(format.interpreter_frames(&raw[..30]).is_none());
        assert!(format.interpreter_frames(&[0; 24]).is_none());
        let location = FRAMES_WITHOUT_FIELDS as u32 | (body.len() as u32) << 16;
        let raw = [&location.to_ne_bytes()[..], &[0; 4], &body, &[0; 4]].concat();
        let frames = InterpreterFrames::without_fields(&raw).unwrap();
        assert_eq!(frames.iter().collect::<Vec<_>>(), [frame]);
        assert!(InterpreterFrames::without_fields(&[0; 12]).is_none());
    }
}
