//! The feature section that says what the frames of interpreters in samples stand for, such as functions of Python. perf skips it.
//!
//! Its parts, in the byte order of the recording: the version; the number of events that are no tracepoints and have frames, and
//! an id of each; the number of texts, and each with its length; the number of frames, and each in 64 bytes.

use std::{collections::HashMap, sync::Arc};

use perf_prof_format::tracefs::{INSTRUCTION_BITS, InterpreterFrame};

use super::bytes::ByteReader;

/// The version that is written and read.
const VERSION: u32 = 1;

/// What the frames of interpreters stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedFrames {
    /// An id of each event that is no tracepoint and whose samples have frames. Tracepoints say it in their formats.
    pub events: Vec<u64>,
    /// The frames, each once.
    pub frames: Vec<RecordedFrame>,
}

/// What a frame stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFrame {
    /// The process.
    pub pid: u32,
    /// The number of the process's interpreter.
    pub interpreter: u32,
    /// The frame in samples.
    pub frame: InterpreterFrame,
    /// What kind of frame it is.
    pub kind: RecordedKind,
    /// The name of the function, or the reason why it has none. Empty if the frame is not shown.
    pub name: Arc<str>,
    /// The path of the source file.
    pub file: Arc<str>,
    /// The line; 0 if it is not known.
    pub line: u32,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    /// The functions of the sample are not known, for the reason that is the name.
    Unknown = 0,
    /// A function.
    Function = 1,
    /// A function with which the interpreter's C function was entered.
    Entry = 2,
    /// The entry of the interpreter's C function.
    Boundary = 3,
}

impl RecordedKind {
    const ALL: [RecordedKind; 4] =
        [RecordedKind::Unknown, RecordedKind::Function, RecordedKind::Entry, RecordedKind::Boundary];
}

impl RecordedFrames {
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

    /// Reads the section. `None` if it is cut off, or of another version.
    pub(super) fn read(mut read: ByteReader<'_>) -> Option<RecordedFrames> {
        if read.u32()? != VERSION {
            return None;
        }
        let count = read.u32()?;
        let events = (0..count).map(|_| read.u64()).collect::<Option<_>>()?;
        let mut texts: Vec<Arc<str>> = Vec::new();
        for _ in 0..read.u32()? {
            let length = read.u32()?;
            texts.push(String::from_utf8_lossy(read.read_bytes(length as usize)?).into());
        }
        let text = |number: u32| texts.get(number as usize).cloned();
        let mut frames = Vec::new();
        for _ in 0..read.u32()? {
            let (pid, interpreter, kind) = (read.u32()?, read.u32()?, read.u32()?);
            let kind = *RecordedKind::ALL.get(kind as usize)?;
            let (name, file, line) = (text(read.u32()?)?, text(read.u32()?)?, read.u32()?);
            let (code, instruction) = (read.u64()?, read.u64()?);
            let identity = [read.u64()?, read.u64()?, read.u64()?];
            let mark = (instruction >> INSTRUCTION_BITS) as u8;
            let instruction = instruction & ((1 << INSTRUCTION_BITS) - 1);
            let frame = InterpreterFrame { code, instruction, mark, identity };
            frames.push(RecordedFrame { pid, interpreter, frame, kind, name, file, line });
        }
        Some(RecordedFrames { events, frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;

    #[test]
    fn what_is_written_is_read() {
        let frame = |kind, name: &str, line| RecordedFrame {
            pid: 7,
            interpreter: 2,
            frame: InterpreterFrame { code: 0x1000, instruction: 0x2000, mark: 3, identity: [1, 2, u64::MAX] },
            kind,
            name: name.into(),
            file: "/srv/app.py".into(),
            line,
        };
        let kinds = RecordedKind::ALL.map(|kind| frame(kind, "Pool.get", 42));
        let frames =
            RecordedFrames { events: vec![5, 6], frames: [&kinds[..], &[frame(kinds[0].kind, "", 0)]].concat() };
        let mut bytes = Vec::new();
        frames.write(&mut bytes);
        let read = |bytes: &[u8]| RecordedFrames::read(ByteReader::new(bytes, ByteOrder::Native));
        assert_eq!(read(&bytes), Some(frames));
        assert!((0..bytes.len()).all(|end| read(&bytes[..end]).is_none()));
        bytes[0] = 2;
        assert_eq!(read(&bytes), None, "another version");
    }
}
