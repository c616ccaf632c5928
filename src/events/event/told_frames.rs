//! What the frames of interpreters stand for, as a recording keeps it. Equal texts are stored once, and their number is
//! limited, because programs and recordings choose them.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use perf_prof_format::tracefs::InterpreterFrame;
use perf_prof_symbols::runtime::python::FrameKind;

use super::{Frame, interpreter_frames::frame_of};

/// What stands in place of a file for functions without names.
pub(super) const NO_FILE: &str = "[python]";

/// The size of a frame without its texts, and the size of a text without its characters, in a recording, in bytes.
const FRAME_BYTES: usize = 64;
const TEXT_BYTES: usize = 4;

/// The number of the process's interpreter, and the frame.
type Key = (u32, InterpreterFrame);

/// What frames stand for.
#[derive(Debug, Default)]
pub struct ToldFrames {
    /// Traced processes and recordings determine the keys, and could choose keys that collide. So the hasher is seeded.
    frames: HashMap<Key, ToldFrame>,
    texts: HashSet<Arc<str>>,
    /// The size of the frames and texts in a recording, in bytes.
    bytes: usize,
    is_full: bool,
    incomplete_samples: u64,
}

/// The limits for [`ToldFrames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The maximum number of frames.
    pub frames: usize,
    /// The maximum size of the frames and their texts in a recording, in bytes.
    pub bytes: usize,
}

/// What a frame stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldFrame {
    /// What kind of frame it is. `None` if the functions of the sample are not known, for the reason in `frame`.
    pub kind: Option<FrameKind>,
    /// The frame that call chains show for the interpreter's frame. If it is `None`, call chains leave the frame out.
    pub frame: Option<Arc<Frame>>,
}

/// A file with functions. Their frames share its texts.
#[derive(Clone, Debug)]
pub struct SourceFile {
    path: Arc<str>,
    name: Arc<str>,
}

impl SourceFile {
    /// Creates a value from the path of the file.
    pub fn new(path: &Arc<str>) -> SourceFile {
        let name = Path::new(&**path).file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| name.len() < path.len()).map_or_else(|| Arc::clone(path), Arc::from);
        SourceFile { path: Arc::clone(path), name }
    }
}

impl ToldFrame {
    /// Returns whether the name is that of a function, so that it stays the same.
    fn is_final(&self) -> bool {
        self.kind.is_some() && self.frame.as_ref().is_none_or(|frame| &*frame.dso != NO_FILE)
    }

    /// Returns the frame of a function of a process. Without a file, `name` is the reason why the function has no name.
    pub fn function(pid: u32, instruction: u64, name: &Arc<str>, file: &SourceFile, line: Option<u32>) -> Arc<Frame> {
        let srcline = line.map(|line| (Arc::clone(&file.path), line));
        frame_of(pid as i32, instruction, Arc::clone(name), Arc::clone(&file.name), srcline)
    }
}

impl ToldFrames {
    /// Returns what a frame stands for.
    pub fn get(&self, key: &Key) -> Option<&ToldFrame> {
        self.frames.get(key)
    }

    /// Returns all frames, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &ToldFrame)> {
        self.frames.iter()
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of samples with a frame for which there was no room.
    pub fn incomplete_samples(&self) -> u64 {
        self.incomplete_samples
    }

    /// Returns whether the name of a frame is not known yet, and there is room for it.
    pub(super) fn wants(&self, key: &Key, room: Room) -> bool {
        match self.frames.get(key) {
            Some(known) => !known.is_final(),
            None => !self.is_full && self.frames.len() < room.frames,
        }
    }

    /// Keeps what a frame stands for, if there is room.
    pub(super) fn keep(&mut self, key: Key, told: &ToldFrame, room: Room) {
        let frame = told.frame.as_deref();
        let texts = frame.into_iter().flat_map(|Frame { symbol, dso, srcline, .. }| {
            [symbol, dso].into_iter().chain(srcline.as_ref().map(|(file, _)| file))
        });
        let unknown = texts.filter(|&text| !self.texts.contains(text));
        let of_texts: usize = unknown.map(|text| TEXT_BYTES + text.len()).sum();
        let of_frame = if self.frames.contains_key(&key) { 0 } else { FRAME_BYTES };
        if self.bytes + of_texts + of_frame > room.bytes {
            self.is_full = true;
            return;
        }
        self.bytes += of_texts + of_frame;
        let frame = frame.map(|frame| {
            let srcline = frame.srcline.as_ref().map(|(file, line)| (self.shared(file), *line));
            let (symbol, dso) = (self.shared(&frame.symbol), self.shared(&frame.dso));
            Arc::new(Frame { symbol, dso, srcline, ..frame.clone() })
        });
        self.frames.insert(key, ToldFrame { frame, ..*told });
    }

    /// Counts a delivered sample as incomplete if one of its frames, `frames`, was not kept.
    pub(super) fn count_sample(&mut self, mut frames: impl Iterator<Item = Key>) {
        let is_incomplete = frames.any(|key| !self.frames.contains_key(&key));
        self.incomplete_samples += u64::from(is_incomplete);
    }

    fn shared(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.texts.insert(Arc::clone(text));
        Arc::clone(text)
    }
}

impl FromIterator<(Key, ToldFrame)> for ToldFrames {
    fn from_iter<I: IntoIterator<Item = (Key, ToldFrame)>>(frames: I) -> ToldFrames {
        ToldFrames { frames: frames.into_iter().collect(), ..ToldFrames::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: u64) -> Key {
        (1, InterpreterFrame { code, instruction: 1, mark: 0, identity: [0; 3] })
    }

    fn function(name: &str, path: &str) -> ToldFrame {
        let frame = ToldFrame::function(7, 1, &name.into(), &SourceFile::new(&path.into()), Some(3));
        ToldFrame { kind: Some(FrameKind::Function), frame: Some(frame) }
    }

    #[test]
    fn a_file_has_the_last_part_of_its_path_as_its_name() {
        let name = |path: &str| SourceFile::new(&path.into()).name.to_string();
        assert_eq!(
            ["/srv/app.py", "app.py", "<frozen x>", "", "/", "a/"].map(name),
            ["app.py", "app.py", "<frozen x>", "", "/", "a"]
        );
        let path = "app.py".into();
        assert!(Arc::ptr_eq(&SourceFile::new(&path).name, &path));
    }

    #[test]
    fn frames_share_texts_and_take_no_more_than_the_room() {
        let room = Room { frames: 100, bytes: 2000 };
        let mut told = ToldFrames::default();
        for code in 0..200 {
            if told.wants(&key(code), room) {
                told.keep(key(code), &function("load", "/srv/app.py"), room);
            }
        }
        let texts = 3 * TEXT_BYTES + "load/srv/app.pyapp.py".len();
        assert_eq!((told.len(), told.bytes), ((room.bytes - texts) / FRAME_BYTES, told.len() * FRAME_BYTES + texts));
        let symbol = |code: u64| told.get(&key(code)).and_then(|told| told.frame.clone()).unwrap().symbol.clone();
        assert!(Arc::ptr_eq(&symbol(0), &symbol(1)));
        // A short name would fit. It is not kept either, because otherwise the length of a name would decide whether it is
        // kept.
        assert!(!told.wants(&key(300), room));
        told.count_sample([key(0), key(1)].into_iter());
        told.count_sample([key(0), key(300)].into_iter());
        assert_eq!(told.incomplete_samples(), 1);
    }

    #[test]
    fn a_name_takes_the_place_of_a_reason() {
        let room = Room { frames: 1, bytes: 1000 };
        let reason = ToldFrame::function(7, 0, &"[python: gone]".into(), &SourceFile::new(&NO_FILE.into()), None);
        let mut told = ToldFrames::default();
        told.keep(key(1), &ToldFrame { kind: Some(FrameKind::Function), frame: Some(reason) }, room);
        assert!(told.wants(&key(1), room) && !told.wants(&key(2), room));
        told.keep(key(1), &function("load", "/srv/app.py"), room);
        assert_eq!(told.get(&key(1)), Some(&function("load", "/srv/app.py")));
        assert!(!told.wants(&key(1), room));
    }
}
