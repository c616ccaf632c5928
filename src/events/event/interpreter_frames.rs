//! Puts the functions of an interpreter, such as Python's, into a call chain. A native frame of the interpreter's main loop
//! runs one or more functions, which replace this frame.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use perf_prof_format::{
    record::Record,
    tracefs::{FramesState, InterpreterFrame, InterpreterFrames},
};
use perf_prof_symbols::{
    runtime::{
        Interpreters, Unnamed,
        python::{self, FrameKind},
    },
    symbol::Slot,
};
use perf_prof_system::procfs;

use super::{
    Context, Frame, Origin, Sample,
    told_frames::{NO_FILE, Room, SourceFile, ToldFrame, ToldFrames},
};
use crate::picture::PYTHON_REASON;

/// The C function that runs Python functions. Compilers may split off parts of this function. The names of these parts
/// start with the function's name.
const LOOP: &str = "_PyEval_EvalFrameDefault";
/// The most memory for frames, and what a frame takes without its texts, in bytes.
const MOST_FRAME_BYTES: usize = 16 << 20;
const FRAME_BYTES: usize = size_of::<Frame>() + size_of::<(u32, InterpreterFrame)>();

/// Which frames the call chains of processes with an interpreter contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterpreterFrameUse {
    /// Only native frames.
    #[default]
    No,
    /// Native frames, in which the functions that the interpreter runs replace the frames of its main loop.
    Yes,
    /// Only the functions that the interpreter runs.
    Only,
}

impl InterpreterFrameUse {
    /// The values as users write them.
    pub const NAMES: [&str; 3] = ["yes", "only", "no"];
}

impl std::str::FromStr for InterpreterFrameUse {
    type Err = String;

    fn from_str(name: &str) -> Result<InterpreterFrameUse, String> {
        match name {
            "no" => Ok(InterpreterFrameUse::No),
            "yes" => Ok(InterpreterFrameUse::Yes),
            "only" => Ok(InterpreterFrameUse::Only),
            _ => Err(format!("`{name}` is not one of {}", InterpreterFrameUse::NAMES.join(", "))),
        }
    }
}

/// The interpreters of a run, and the cached frames of their functions.
#[derive(Debug)]
pub struct RunInterpreters {
    how: InterpreterFrameUse,
    names: FrameNames,
    /// Traced processes determine the keys, and could choose keys that collide. So the hasher is seeded.
    frames: HashMap<(u32, InterpreterFrame), Arc<Frame>>,
    frame_bytes: usize,
    functions_read: FunctionsRead,
}

/// Some of the functions that were read before their samples were delivered: at most one for each remainder of their
/// addresses. [`RunInterpreters::read_ahead`] skips them.
#[derive(Debug, Default)]
struct FunctionsRead(Vec<Option<InterpreterFunction>>);

/// The number of the interpreter, the address of the code object, and what identifies it.
type InterpreterFunction = (u32, u64, [u64; 3]);

impl FunctionsRead {
    const PLACES: usize = 1 << 12;
    /// Code objects are at addresses that are multiples of this number.
    const ALIGNMENT: u64 = 16;

    /// Adds a function. Returns whether it is new.
    fn add(&mut self, number: u32, frame: &InterpreterFrame) -> bool {
        self.0.resize(FunctionsRead::PLACES, None);
        let function = (number, frame.code, frame.identity);
        let at = (frame.code / FunctionsRead::ALIGNMENT) as usize % FunctionsRead::PLACES;
        self.0[at].replace(function) != Some(function)
    }
}

/// Where the names of functions are.
#[derive(Debug)]
enum FrameNames {
    /// In the processes.
    Running(Box<Interpreters>),
    /// In a recording.
    Recorded(ToldFrames),
}

/// The functions that an interpreter ran when a sample was taken, and how they are placed in the call chain.
pub(super) struct Functions {
    sections: VecDeque<Section>,
    how: InterpreterFrameUse,
    rest: Rest,
}

/// The functions that one call of the interpreter's main loop runs, innermost first.
type Section = Vec<Arc<Frame>>;

impl RunInterpreters {
    /// Creates a value without cached frames.
    pub fn new(how: InterpreterFrameUse, interpreters: Interpreters) -> RunInterpreters {
        RunInterpreters {
            how,
            names: FrameNames::Running(Box::new(interpreters)),
            frames: HashMap::new(),
            frame_bytes: 0,
            functions_read: FunctionsRead::default(),
        }
    }

    /// Creates a value with the frames of a recording.
    pub fn recorded(how: InterpreterFrameUse, frames: ToldFrames) -> RunInterpreters {
        let (names, functions_read) = (FrameNames::Recorded(frames), FunctionsRead::default());
        RunInterpreters { how, names, frames: HashMap::new(), frame_bytes: 0, functions_read }
    }

    /// Returns the processes that have an interpreter. `None` in a replay.
    pub fn running(&mut self) -> Option<&mut Interpreters> {
        match &mut self.names {
            FrameNames::Running(interpreters) => Some(interpreters),
            FrameNames::Recorded(_) => None,
        }
    }

    /// Reads the functions of a sample that were not read yet, before the sample is delivered. The process may have ended
    /// by then.
    fn read_ahead(&mut self, sample: &Sample<'_>) {
        let (Some(Some(found)), FrameNames::Running(interpreters)) = (found(sample), &mut self.names) else { return };
        let number = found.interpreter;
        let mut new = found.iter().filter(|frame| self.functions_read.add(number, frame)).peekable();
        if new.peek().is_some() {
            interpreters.read(sample.pid_tid().0 as u32, number, new, sample.time());
        }
    }

    /// Adds to `told` what the interpreter's frames in a sample stand for, as far as there is room.
    pub fn tell(&mut self, sample: &Sample<'_>, told: &mut ToldFrames, room: Room) {
        let Some(Some(found)) = found(sample) else { return };
        let (pid, number, time) = (sample.pid_tid().0, found.interpreter, sample.time());
        if found.iter().any(|frame| told.wants(&(number, frame), room)) {
            self.read(pid, &found, time);
            for key in found.iter().map(|frame| (number, frame)) {
                if told.wants(&key, room) {
                    told.keep(key, &self.told((pid, number), &key.1, time), room);
                }
            }
        }
        told.count_sample(found.iter().map(|frame| (number, frame)));
    }

    /// Reads the functions of frames, unless they are known.
    fn read(&mut self, pid: i32, found: &InterpreterFrames<'_>, time: u64) {
        let number = found.interpreter;
        if let FrameNames::Running(interpreters) = &mut self.names {
            let unknown = found.iter().filter(|frame| !self.frames.contains_key(&(number, *frame)));
            interpreters.read(pid as u32, number, unknown, time);
        }
    }

    /// Reads the functions that the interpreter ran in a sample. Returns `None` if the event records none.
    pub(super) fn functions(&mut self, sample: &Sample<'_>) -> Option<Functions> {
        let pid = sample.pid_tid().0;
        let found = found(sample)?;
        // After an exec, BPF programs look for the threads of the process in its former interpreter for a moment.
        let mut is_present = |found: &InterpreterFrames<'_>| match &mut self.names {
            FrameNames::Running(interpreters) if found.state == Some(FramesState::NoThread) => {
                interpreters.ran_at(pid as u32, found.interpreter, sample.time())
            }
            FrameNames::Running(_) | FrameNames::Recorded(_) => true,
        };
        Some(match found.filter(&mut is_present) {
            Some(found) => {
                let sections = self.sections(pid, &found, sample.time());
                Functions { sections, how: self.how, rest: Rest::Appended }
            }
            None => Functions {
                sections: [vec![mark(pid, self.unknown(pid))]].into(),
                how: InterpreterFrameUse::Yes,
                rest: Rest::LeftOut,
            },
        })
    }

    /// Returns why a process has no interpreter.
    fn unknown(&self, pid: i32) -> Unnamed {
        match &self.names {
            FrameNames::Running(interpreters) => interpreters.unknown(pid as u32),
            FrameNames::Recorded(_) => Unnamed::NotKnown,
        }
    }

    fn sections(&mut self, pid: i32, found: &InterpreterFrames<'_>, time: u64) -> VecDeque<Section> {
        let number = found.interpreter;
        self.read(pid, found, time);
        let mut sections = VecDeque::from([Section::new()]);
        for frame in found.iter() {
            let ToldFrame { kind, frame } = self.told((pid, number), &frame, time);
            let Some(kind) = kind else { return [frame.into_iter().collect()].into() };
            if let Some(section) = sections.back_mut() {
                section.extend(frame);
            }
            if kind != FrameKind::Function {
                sections.push_back(Section::new());
            }
        }
        let missing = match found.state {
            Some(FramesState::Complete) => None,
            Some(FramesState::Cut) => Some(Unnamed::Cut),
            Some(FramesState::NoThread) => Some(Unnamed::NoThread),
            Some(FramesState::Unreadable) | None => Some(Unnamed::NotInMemory),
        };
        if let (Some(reason), Some(section)) = (missing, sections.back_mut()) {
            section.push(mark(pid, reason));
        }
        // Nothing follows the last boundary between sections.
        if sections.back().is_some_and(Vec::is_empty) {
            sections.pop_back();
        }
        sections
    }

    /// Returns what a frame stands for.
    fn told(&mut self, (pid, number): (i32, u32), frame: &InterpreterFrame, time: u64) -> ToldFrame {
        let unknown = |reason| ToldFrame { kind: None, frame: Some(mark(pid, reason)) };
        let kind = match &mut self.names {
            FrameNames::Running(interpreters) => interpreters.kind(pid as u32, number, frame.mark),
            FrameNames::Recorded(frames) => {
                return frames.get(&(number, *frame)).cloned().unwrap_or_else(|| unknown(Unnamed::NotRecorded));
            }
        };
        match kind {
            Ok(FrameKind::Boundary) => ToldFrame { kind: Some(FrameKind::Boundary), frame: None },
            Ok(kind) => ToldFrame { kind: Some(kind), frame: self.frame((pid, number), frame, time) },
            Err(reason) => unknown(reason),
        }
    }

    /// Returns the frame of a function. Returns `None` for functions that belong to the interpreter itself.
    fn frame(&mut self, (pid, number): (i32, u32), frame: &InterpreterFrame, time: u64) -> Option<Arc<Frame>> {
        let key = (number, *frame);
        if let Some(known) = self.frames.get(&key) {
            return Some(Arc::clone(known));
        }
        let made = match self.running()?.function(pid as u32, number, frame, time) {
            Ok((function, _)) if python::is_internal(&function) => return None,
            Ok((function, line)) => ToldFrame::function(
                pid as u32,
                frame.instruction,
                &function.name,
                &SourceFile::new(&function.file),
                line,
            ),
            Err(reason) => return Some(mark(pid, reason)),
        };
        let bytes =
            FRAME_BYTES + made.symbol.len() + made.dso.len() + made.srcline.as_ref().map_or(0, |line| line.0.len());
        if self.frame_bytes + bytes > MOST_FRAME_BYTES {
            self.frames.clear();
            self.frame_bytes = 0;
        }
        self.frame_bytes += bytes;
        self.frames.insert(key, Arc::clone(&made));
        Some(made)
    }
}

pub(super) fn frame_of(
    pid: i32,
    addr: u64,
    symbol: Arc<str>,
    dso: Arc<str>,
    srcline: Option<(Arc<str>, u32)>,
) -> Arc<Frame> {
    let (origin, slot) = (Origin::Python { pid }, Slot::default());
    Arc::new(Frame { addr, symbol, offset: 0, origin, dso, dso_offset: 0, srcline, slot })
}

/// Returns the interpreter's frames in a sample. `None` if its event does not record such frames; `Some(None)` if the BPF
/// program has read none.
fn found<'a>(sample: &Sample<'a>) -> Option<Option<InterpreterFrames<'a>>> {
    let format = &sample.event.format;
    format.has_interpreter_frames().then(|| match format.tracepoint() {
        Some(format) => format.interpreter_frames(sample.raw()),
        None => InterpreterFrames::without_fields(sample.raw()),
    })
}

/// Returns a frame that says why functions are missing: `[python: REASON]`.
fn mark(pid: i32, reason: Unnamed) -> Arc<Frame> {
    frame_of(pid, 0, format!("{PYTHON_REASON}{reason}]").into(), NO_FILE.into(), None)
}

impl Context {
    /// Adds the frames of these interpreters to call chains from now on. Looks for interpreters in all processes that run.
    pub fn follow_interpreters(&self, mut run: RunInterpreters) {
        if let Some(interpreters) = run.running() {
            procfs::processes().into_iter().for_each(|pid| interpreters.find(pid));
        }
        *self.interpreters.lock() = Some(run);
    }

    /// Notes what a record other than a sample says about the interpreters of processes. Records may come in any order.
    pub fn follow_interpreter(&self, record: &Record<'_>, time: u64) {
        if let Some(interpreters) = self.interpreters.lock().as_mut().and_then(RunInterpreters::running) {
            interpreters.follow(record, time);
        }
    }

    /// Reads the functions that the interpreter ran in a sample, before the sample is delivered.
    pub fn read_functions_ahead(&self, sample: &Sample<'_>) {
        if let Some(run) = self.interpreters.lock().as_mut() {
            run.read_ahead(sample);
        }
    }

    /// Returns whether call chains contain only the functions of interpreters.
    pub(super) fn has_only_interpreters(&self) -> bool {
        self.interpreters.lock().as_ref().is_some_and(|run| run.how == InterpreterFrameUse::Only)
    }

    /// Adds to `told` what the interpreter's frames in a sample stand for, as far as there is room. The caller must meet
    /// the conditions of [`Context::with_symbols`].
    pub fn tell_interpreter_frames(&self, sample: &Sample<'_>, told: &mut ToldFrames, room: Room) {
        let mut run = self.interpreters.lock();
        run.iter_mut().for_each(|run| run.tell(sample, told, room));
    }

    /// Reads the functions that the interpreter ran in a sample. The caller must meet the conditions of
    /// [`Context::with_symbols`].
    pub(super) fn functions_of_interpreter(&self, sample: &Sample<'_>) -> Option<Functions> {
        self.interpreters.lock().as_mut()?.functions(sample)
    }
}

/// What happens to functions for which no native frame of the main loop is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The functions follow the native frames. The native call chain has then ended too early, for example because the
    /// interpreter is built without frame pointers.
    Appended,
    /// The functions are left out.
    LeftOut,
}

/// A frame of a call chain into which functions are placed.
pub(super) trait Place {
    /// Returns whether the frame belongs to the interpreter's main loop.
    fn is_loop(&self) -> bool;

    /// Makes a frame of a function.
    fn of(function: Arc<Frame>) -> Self;
}

impl Place for Arc<Frame> {
    fn is_loop(&self) -> bool {
        matches!(self.origin, Origin::User { .. }) && is_loop(&self.symbol)
    }

    fn of(function: Arc<Frame>) -> Self {
        function
    }
}

/// Returns whether a function of the interpreter is its main loop.
pub(super) fn is_loop(symbol: &str) -> bool {
    symbol.split('.').next() == Some(LOOP)
}

impl Functions {
    /// Replaces each native frame of the main loop by a section.
    pub(super) fn place<F: Place>(self, native: Vec<F>) -> Vec<F> {
        let Functions { mut sections, how, rest } = self;
        if sections.is_empty() {
            return native;
        }
        let mut placed = Vec::with_capacity(native.len() + sections.len());
        for frame in native {
            let section = if frame.is_loop() { sections.pop_front() } else { None };
            match section.filter(|section| !section.is_empty()) {
                Some(section) => placed.extend(section.into_iter().map(F::of)),
                None if how == InterpreterFrameUse::Only => {}
                None => placed.push(frame),
            }
        }
        if rest == Rest::Appended {
            placed.extend(sections.into_iter().flatten().map(F::of));
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(names: &[&str]) -> Vec<Arc<Frame>> {
        let frame = |name: &&str| {
            let made = frame_of(7, 0, (*name).into(), "python3".into(), None);
            Arc::new(Frame { origin: Origin::User { pid: 7 }, ..Frame::clone(&made) })
        };
        names.iter().map(frame).collect()
    }

    fn sections(names: &[&[&str]]) -> VecDeque<Section> {
        let section =
            |names: &&[&str]| names.iter().map(|name| frame_of(7, 0, (*name).into(), "a.py".into(), None)).collect();
        names.iter().map(section).collect()
    }

    fn placed(names: &[&str], of: &[&[&str]], how: InterpreterFrameUse, rest: Rest) -> String {
        let placed = Functions { sections: sections(of), how, rest }.place(native(names));
        placed.iter().map(|frame| &*frame.symbol).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn functions_take_the_place_of_the_loop_that_runs_them() {
        let chain = ["read", "_PyEval_EvalFrameDefault", "call", "_PyEval_EvalFrameDefault.cold", "main"];
        let both: [&[&str]; 2] = [&["inner", "middle"], &["outer"]];
        use InterpreterFrameUse::{Only, Yes};
        assert_eq!(placed(&chain, &both, Yes, Rest::Appended), "read inner middle call outer main");
        assert_eq!(placed(&chain, &both, Only, Rest::Appended), "inner middle outer");
        assert_eq!(placed(&["read"], &both, Yes, Rest::Appended), "read inner middle outer");
        assert_eq!(placed(&["read"], &both, Yes, Rest::LeftOut), "read");
        let one = &both[..1];
        assert_eq!(
            placed(&chain, one, Yes, Rest::Appended),
            "read inner middle call _PyEval_EvalFrameDefault.cold main"
        );
        assert_eq!(placed(&["read", "main"], &[], Only, Rest::Appended), "read main");
    }
}
