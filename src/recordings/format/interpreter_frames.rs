//! The feature section with the names and lines of the interpreter frames in samples, such as frames of Python
//! functions. perf skips this section.
//!
//! The section consists of these parts, in the byte order of the recording:
//!
//! * the version
//! * the number of events that are no tracepoints and whose samples have frames, and one id of each of these events
//! * the number of texts, and each text after its length
//! * the number of frames, and each frame in 64 bytes

use std::{collections::HashMap, sync::Arc};

use perf_prof_format::tracefs::{INSTRUCTION_BITS, InterpreterFrame};

use super::bytes::ByteReader;

/// The version of the section that is written and read.
const VERSION: u32 = 1;

/// The maximum length of a text in bytes. Names and paths have at most 4096 characters.
const LONGEST_TEXT: u32 = 16 << 10;

/// The reasons why the section cannot be read.
const CUT_OFF: &str = "it is cut off";
const OTHER_VERSION: &str = "it has another version";
const TOO_LONG: &str = "a name in it is too long";
const TOO_MANY: &str = "it has too many frames";
const DAMAGED: &str = "it is damaged";

/// The names and lines of interpreter frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedFrames {
    /// An id of each event that is no tracepoint and whose samples have frames. For a tracepoint, its format shows
    /// whether its samples have frames.
    pub events: Vec<u64>,
    /// The frames. Each frame is in the list once.
    pub frames: Vec<RecordedFrame>,
}

/// A frame, with its name and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFrame {
    /// The id of the process; 0 if the frame is not shown.
    pub pid: u32,
    /// The number of the process's interpreter.
    pub interpreter: u32,
    /// The frame as samples contain it.
    pub frame: InterpreterFrame,
    /// The kind of the frame.
    pub kind: RecordedKind,
    /// The name of the function, or the reason why the function has no name.
    pub name: Arc<str>,
    /// The path of the source file.
    pub file: Arc<str>,
    /// The line number; 0 if it is not known.
    pub line: u32,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    /// The functions of the sample are not known. The name of the frame is the reason.
    Unknown = 0,
    /// A function.
    Function = 1,
    /// A function whose frame is the outermost frame of a call of the interpreter's loop.
    Entry = 2,
    /// No function. The frame is the outermost frame of a call of the interpreter's loop.
    Boundary = 3,
}

impl RecordedKind {
    const ALL: [RecordedKind; 4] =
        [RecordedKind::Unknown, RecordedKind::Function, RecordedKind::Entry, RecordedKind::Boundary];
}

impl RecordedFrames {
    /// The maximum number of frames in a recording.
    pub const MOST: usize = 1 << 17;
    /// The maximum size of all frames and their texts in a recording, in bytes.
    pub const MOST_BYTES: usize = 16 << 20;

    /// Writes the section.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut texts: Vec<&str> = Vec::new();
        let mut numbers = HashMap::new();
        for text in self.frames.iter().flat_map(|frame| [&*frame.name, &*frame.file]) {
            numbers.entry(text).or_insert_with(|| {
                texts.push(text);
                texts.len() as u32 - 1
            });
        }
        let word = |out: &mut Vec<u8>, word: u32| out.extend(word.to_ne_bytes());
        let long = |out: &mut Vec<u8>, long: u64| out.extend(long.to_ne_bytes());
        word(out, VERSION);
        word(out, self.events.len() as u32);
        self.events.iter().for_each(|&id| long(out, id));
        word(out, texts.len() as u32);
        for text in texts {
            word(out, text.len() as u32);
            out.extend(text.as_bytes());
        }
        word(out, self.frames.len() as u32);
        for RecordedFrame { pid, interpreter, frame, kind, name, file, line } in &self.frames {
            [*pid, *interpreter, *kind as u32].into_iter().for_each(|value| word(out, value));
            [numbers[&**name], numbers[&**file], *line].into_iter().for_each(|value| word(out, value));
            long(out, frame.code);
            long(out, frame.instruction | u64::from(frame.mark) << INSTRUCTION_BITS);
            frame.identity.into_iter().for_each(|value| long(out, value));
        }
    }

    /// Reads the section. If the section cannot be read, the error is the reason.
    pub(super) fn read(mut read: ByteReader<'_>) -> Result<RecordedFrames, &'static str> {
        if read.u32().ok_or(CUT_OFF)? != VERSION {
            return Err(OTHER_VERSION);
        }
        let count = read.u32().ok_or(CUT_OFF)?;
        let events = (0..count).map(|_| read.u64()).collect::<Option<_>>().ok_or(CUT_OFF)?;
        let texts = texts(&mut read)?;
        let count = read.u32().ok_or(CUT_OFF)?;
        // The number is limited, because a frame takes more memory than its bytes in the section.
        if count as usize > Self::MOST {
            return Err(TOO_MANY);
        }
        let frames = (0..count).map(|_| frame(&mut read, &texts)).collect::<Result<_, _>>()?;
        Ok(RecordedFrames { events, frames })
    }
}

/// Reads the texts of the section.
fn texts(read: &mut ByteReader<'_>) -> Result<Vec<Arc<str>>, &'static str> {
    let count = read.u32().ok_or(CUT_OFF)?;
    if count as usize > 2 * RecordedFrames::MOST {
        return Err(TOO_MANY);
    }
    let text = |_| {
        let length = read.u32().ok_or(CUT_OFF)?;
        if length > LONGEST_TEXT {
            return Err(TOO_LONG);
        }
        Ok(shown(read.read_bytes(length as usize).ok_or(CUT_OFF)?))
    };
    (0..count).map(text).collect()
}

/// Returns a text as it is shown. `?` replaces bytes that are not UTF-8, and control characters, because control
/// characters could forge lines on a terminal. The result takes no more memory than `bytes`.
fn shown(bytes: &[u8]) -> Arc<str> {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.extend(chunk.valid().chars().map(|character| if character.is_control() { '?' } else { character }));
        shown.extend((!chunk.invalid().is_empty()).then_some('?'));
    }
    shown.into()
}

fn frame(read: &mut ByteReader<'_>, texts: &[Arc<str>]) -> Result<RecordedFrame, &'static str> {
    let mut word = || read.u32().ok_or(CUT_OFF);
    let (pid, interpreter, kind, name, file, line) = (word()?, word()?, word()?, word()?, word()?, word()?);
    let kind = *RecordedKind::ALL.get(kind as usize).ok_or(DAMAGED)?;
    let text = |number: u32| texts.get(number as usize).cloned().ok_or(DAMAGED);
    let (name, file) = (text(name)?, text(file)?);
    let mut long = || read.u64().ok_or(CUT_OFF);
    let (code, instruction) = (long()?, long()?);
    let identity = [long()?, long()?, long()?];
    let mark = (instruction >> INSTRUCTION_BITS) as u8;
    let instruction = instruction & ((1 << INSTRUCTION_BITS) - 1);
    let frame = InterpreterFrame { code, instruction, mark, identity };
    Ok(RecordedFrame { pid, interpreter, frame, kind, name, file, line })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ByteOrder;

    fn recorded(kind: RecordedKind, name: &str, line: u32) -> RecordedFrame {
        RecordedFrame {
            pid: 7,
            interpreter: 2,
            frame: InterpreterFrame { code: 0x1000, instruction: 0x2000, mark: 3, identity: [1, 2, u64::MAX] },
            kind,
            name: name.into(),
            file: "/srv/app.py".into(),
            line,
        }
    }

    fn read(bytes: &[u8]) -> Result<RecordedFrames, &'static str> {
        RecordedFrames::read(ByteReader::new(bytes, ByteOrder::Native))
    }

    fn written(frames: &RecordedFrames) -> Vec<u8> {
        let mut bytes = Vec::new();
        frames.write(&mut bytes);
        bytes
    }

    fn one(name: &str) -> RecordedFrames {
        RecordedFrames { events: Vec::new(), frames: vec![recorded(RecordedKind::Function, name, 1)] }
    }

    /// Returns a section that contains the texts `content`. `texts` and `frames` are the numbers of texts and frames
    /// that the section states.
    fn made(texts: u32, content: &[&[u8]], frames: u32) -> Vec<u8> {
        let text = |text: &&[u8]| [&(text.len() as u32).to_ne_bytes()[..], text].concat();
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let content = content.iter().flat_map(text).collect();
        [words(&[VERSION, 0, texts]), content, words(&[frames])].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let kinds = RecordedKind::ALL.map(|kind| recorded(kind, "Pool.get", 42));
        let frames =
            RecordedFrames { events: vec![5, 6], frames: [&kinds[..], &[recorded(kinds[0].kind, "", 0)]].concat() };
        let mut bytes = written(&frames);
        assert_eq!(read(&bytes), Ok(frames));
        assert!((0..bytes.len()).all(|end| read(&bytes[..end]) == Err(CUT_OFF)));
        bytes[0] = 2;
        assert_eq!(read(&bytes), Err(OTHER_VERSION));
    }

    #[test]
    fn a_section_that_would_take_much_memory_is_refused() {
        let longest = "\u{10348}".repeat(4096);
        assert_eq!(read(&written(&one(&longest))), Ok(one(&longest)));
        assert_eq!(read(&written(&one(&format!("{longest}x")))), Err(TOO_LONG));
        let most = RecordedFrames::MOST as u32;
        assert_eq!(read(&made(2 * most + 1, &[], 0)), Err(TOO_MANY));
        assert_eq!(read(&made(0, &[], most + 1)), Err(TOO_MANY));
        assert_eq!(read(&made(0, &[], most)), Err(CUT_OFF));
        assert_eq!(read(&made(u32::MAX, &[&[0; 100]], 0)), Err(TOO_MANY));
    }

    #[test]
    fn a_frame_of_unknown_kind_or_without_its_texts_is_damage() {
        let bytes = written(&one("f"));
        let start = bytes.len() - 64;
        for word in 2..5 {
            let mut damaged = bytes.clone();
            damaged[start + 4 * word] = 9;
            assert_eq!(read(&damaged), Err(DAMAGED), "word {word}");
        }
    }

    #[test]
    fn names_cannot_forge_lines_on_a_terminal() {
        let names: Vec<_> = [&b"a\x1b[2K\nb\xc2\x9b\t"[..], b"\xff\xfe", "gr\u{fc}n".as_bytes()].map(shown).into();
        assert_eq!(names, ["a?[2K?b??".into(), "??".into(), Arc::<str>::from("gr\u{fc}n")]);
    }

    proptest! {
        /// A damaged section gives other frames, or an error. Names have no control characters, and are not longer than
        /// their bytes in the section.
        #[test]
        fn any_bytes_are_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            end in any::<prop::sample::Index>(),
        ) {
            let kinds = RecordedKind::ALL.map(|kind| recorded(kind, "Pool.get", 42));
            let mut bytes = written(&RecordedFrames { events: vec![5, 6], frames: kinds.to_vec() });
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(end.index(bytes.len()) + 1);
            if let Ok(frames) = read(&bytes) {
                let texts = || frames.frames.iter().flat_map(|frame| [&frame.name, &frame.file]);
                prop_assert!(texts().all(|text| text.len() <= bytes.len() && !text.contains(char::is_control)));
                prop_assert_eq!(read(&written(&frames)), Ok(frames.clone()));
            }
        }
    }
}
