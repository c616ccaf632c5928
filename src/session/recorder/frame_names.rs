//! What the frames of interpreters in the samples of a recording stand for. The names are in the memory of the processes,
//! so the recorder reads them while it records.

use std::{collections::HashMap, fmt, ops::ControlFlow, sync::Arc};

use perf_prof_capture::Capture;
use perf_prof_events::event::{
    Context, EventType, Frame, InterpreterFrameUse, Origin, Room, RunInterpreters, Sample, SourceFile, ToldFrame,
    ToldFrames,
};
use perf_prof_format::{
    record::{Batch, EventIds, Record, TrailerLayout},
    tracefs::InterpreterFrame,
};
use perf_prof_in_kernel::load::StringWriters;
use perf_prof_recordings::{RecordedFrame, RecordedFrames, RecordedKind};
use perf_prof_symbols::runtime::{Interpreters, python::FrameKind};
use perf_prof_system::{fork_lock, output, procfs};

use crate::live::{kernel_target, select::Selected};

/// How many frames are kept.
const MOST: Room = Room { frames: RecordedFrames::MOST, bytes: RecordedFrames::MOST_BYTES };

/// The names of the frames that were recorded so far.
pub struct FrameNames {
    processes: NamesOf,
    told: ToldFrames,
    ids: EventIds,
    types: Vec<EventType>,
    /// The offset of the time in records other than samples.
    trailer: TrailerLayout,
}

/// From which processes with interpreters the names are read.
enum NamesOf {
    /// From the processes that the recorder follows.
    Recorder(Box<RunInterpreters>),
    /// From the processes that the run follows. The samples of this run are recorded.
    Run(Arc<Context>),
}

impl fmt::Debug for FrameNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameNames").field("frames", &self.told.len()).finish_non_exhaustive()
    }
}

impl FrameNames {
    /// Returns the names of the frames in a run. `None` if no event has such frames.
    pub fn of_run(context: &Arc<Context>, selected: &[Selected], capture: &Capture) -> Option<FrameNames> {
        let has_frames = selected.iter().any(|event| event.format.has_interpreter_frames());
        has_frames.then(|| FrameNames::of(NamesOf::Run(context.clone()), selected, capture))
    }

    /// Looks for interpreters in all processes. `None` if no event has their frames.
    pub fn new(writers: &StringWriters, selected: &[Selected], capture: &Capture) -> Option<FrameNames> {
        let in_kernel = writers.interpreters()?.with_ids(kernel_target::id_offsets());
        let mut interpreters = Interpreters::new(Box::new(in_kernel));
        procfs::processes().into_iter().for_each(|pid| interpreters.find(pid));
        let run = RunInterpreters::new(InterpreterFrameUse::Yes, interpreters);
        Some(FrameNames::of(NamesOf::Recorder(run.into()), selected, capture))
    }

    fn of(processes: NamesOf, selected: &[Selected], capture: &Capture) -> FrameNames {
        let types = selected.iter().enumerate().map(|(at, event)| event.event_type(capture.layout(at))).collect();
        let (ids, trailer) = (EventIds::new(capture.ids()), capture.trailer());
        FrameNames { processes, told: ToldFrames::default(), ids, types, trailer }
    }

    /// Reads the names of frames in the first `count` records of a batch, unless the names are known already.
    pub fn note(&mut self, batch: &Batch, count: usize) {
        let _held = fork_lock::hold();
        let mut left = count;
        let _ = batch.for_each(|_, record| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            self.record(record);
            ControlFlow::Continue(())
        });
    }

    fn record(&mut self, record: &[u8]) {
        let parsed = Record::parse(record);
        if let Record::Sample = parsed {
            let id = self.types.first().and_then(|event| event.layout.id(record));
            let event = id.and_then(|id| self.ids.event(id)).and_then(|at| self.types.get(at));
            if let Some(event) = event {
                let (sample, told) = (Sample { event, record }, &mut self.told);
                match &mut self.processes {
                    NamesOf::Recorder(run) => run.tell(&sample, told, MOST),
                    NamesOf::Run(context) => context.tell_interpreter_frames(&sample, told, MOST),
                }
            }
            return;
        }
        // If the names come from a run, the run follows the processes itself.
        let NamesOf::Recorder(run) = &mut self.processes else { return };
        if let Some(interpreters) = run.running() {
            interpreters.follow(&parsed, self.trailer.time(record).unwrap_or(0));
        }
    }

    /// Returns the names of all frames.
    pub fn frames(&self) -> Vec<RecordedFrame> {
        self.told.iter().map(|(&(interpreter, frame), told)| recorded(interpreter, frame, told)).collect()
    }

    /// Says how many samples of a recording have functions whose names were not kept.
    pub fn report_incomplete_samples(&self, recording: impl fmt::Display) {
        let samples = self.told.incomplete_samples();
        if samples != 0 {
            output::say(format_args!(
                "{recording}: {samples} samples have Python functions without names, because a recording keeps at most {} \
                 places in functions, and {} MiB of them",
                RecordedFrames::MOST,
                RecordedFrames::MOST_BYTES >> 20
            ));
        }
    }
}

/// Returns the section of a recording for the frames of interpreters, still without names. `None` if no event has frames of
/// interpreters. `ids` returns an id of an event.
pub fn without_names(selected: &[Selected], ids: impl Fn(usize) -> Option<u64>) -> Option<RecordedFrames> {
    let has_frames = |event: &Selected| event.format.has_interpreter_frames();
    let other = |(at, event): (usize, &Selected)| {
        (has_frames(event) && event.format.tracepoint().is_none()).then(|| ids(at)).flatten()
    };
    let events = selected.iter().enumerate().filter_map(other).collect();
    selected.iter().any(has_frames).then(|| RecordedFrames { events, frames: Vec::new() })
}

fn recorded(interpreter: u32, frame: InterpreterFrame, told: &ToldFrame) -> RecordedFrame {
    let kind = match told.kind {
        None => RecordedKind::Unknown,
        Some(FrameKind::Function) => RecordedKind::Function,
        Some(FrameKind::Entry) => RecordedKind::Entry,
        Some(FrameKind::Boundary) => RecordedKind::Boundary,
    };
    let (pid, name, file, line) = match told.frame.as_deref() {
        Some(Frame { origin, symbol, dso, srcline, .. }) => {
            let (file, line) = srcline.as_ref().map_or((dso, 0), |(file, line)| (file, *line));
            (if let Origin::Python { pid } = origin { *pid as u32 } else { 0 }, symbol.clone(), file.clone(), line)
        }
        None => (0, "".into(), "".into(), 0),
    };
    RecordedFrame { pid, interpreter, frame, kind, name, file, line }
}

/// Returns what the frames of a recording stand for.
pub fn told(frames: &RecordedFrames) -> ToldFrames {
    // Frames share the paths of their files. So each path is looked at once, and the address of its text in memory stands
    // for the path.
    let mut files = HashMap::new();
    let told = |recorded: &RecordedFrame| {
        let RecordedFrame { pid, interpreter, frame, kind, name, file, line } = recorded;
        let kind = match kind {
            RecordedKind::Unknown => None,
            RecordedKind::Function => Some(FrameKind::Function),
            RecordedKind::Entry => Some(FrameKind::Entry),
            RecordedKind::Boundary => Some(FrameKind::Boundary),
        };
        let line = (*line != 0).then_some(*line);
        let shown = (*pid != 0).then(|| {
            let file: &SourceFile = files.entry(Arc::as_ptr(file)).or_insert_with(|| SourceFile::new(file));
            ToldFrame::function(*pid, frame.instruction, name, file, line)
        });
        ((*interpreter, *frame), ToldFrame { kind, frame: shown })
    };
    frames.frames.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_function(code: u64, name: &str, file: &Arc<str>) -> RecordedFrame {
        let frame = InterpreterFrame { code, instruction: 0x2000, mark: 3, identity: [1, 2, 3] };
        let (name, file) = (name.into(), Arc::clone(file));
        RecordedFrame { pid: 7, interpreter: 2, frame, kind: RecordedKind::Function, name, file, line: 42 }
    }

    fn again(frames: Vec<RecordedFrame>) -> Vec<RecordedFrame> {
        let told = told(&RecordedFrames { events: Vec::new(), frames });
        let mut again: Vec<_> = told.iter().map(|(&(number, frame), told)| recorded(number, frame, told)).collect();
        again.sort_by_key(|frame| frame.frame.code);
        again
    }

    #[test]
    fn what_a_replay_shows_is_what_was_recorded() {
        let file = "/srv/app.py".into();
        // The name of a function may be empty. Such a function is shown, as in a run.
        let hidden =
            RecordedFrame { pid: 0, kind: RecordedKind::Boundary, line: 0, ..recorded_function(3, "", &"".into()) };
        let frames = vec![recorded_function(1, "Pool.get", &file), recorded_function(2, "", &file), hidden];
        assert_eq!(again(frames.clone()), frames);
    }

    #[test]
    fn functions_of_a_file_share_its_name() {
        let file: Arc<str> = "app.py".repeat(2000).into();
        let frames = (0..3).map(|code| recorded_function(code, "f", &file)).collect();
        let told = told(&RecordedFrames { events: Vec::new(), frames });
        assert!(told.iter().all(|(_, told)| told.frame.as_ref().is_some_and(|frame| Arc::ptr_eq(&frame.dso, &file))));
    }
}
