//! The end of a replay, as a program sees it.

use std::sync::PoisonError;

use perf_prof_events::event::{Deliver, Flow, Sink};
use perf_prof_session::{
    plan::{Input, RunPlan, Verbosity},
    spine::{ChosenRecording, Slice},
};
use perf_prof_system::signals::Signals;

use super::{made::NATIVE, perf_frames::RUNS};
use crate::harness::recording::Folder;

/// What a replay does with its program.
#[derive(Debug, PartialEq)]
enum Call {
    Enter,
    Sample,
    Exit,
}

/// A program that notes the calls.
#[derive(Default)]
struct Calls(Vec<Call>);

impl Sink for Calls {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        self.0.push(Call::Enter);
        body(self);
    }
}

impl Deliver for Calls {
    fn sample(&mut self, _: usize, _: &[u8]) -> Flow {
        self.0.push(Call::Sample);
        Flow::Continue(())
    }

    fn exit(&mut self) -> Flow {
        self.0.push(Call::Exit);
        Flow::Continue(())
    }
}

/// To enter a program is to take its GIL.
#[test]
fn a_program_is_entered_once_at_the_end_of_a_replay() {
    let _alone = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let path = folder.write("x.data", &NATIVE.file(&NATIVE.records()));
    let input = Input { path, ..Input::default() };
    let plan = RunPlan::of_recording(&input, &[], Verbosity::Quiet);
    let signals = Signals::install().unwrap();
    let session = ChosenRecording::select(&plan, &input).unwrap().open(Slice::Whole, &signals).unwrap();
    let mut calls = Calls::default();
    session.run(&mut calls, &signals).report(&plan).unwrap();
    let last = calls.0.iter().rposition(|call| *call == Call::Sample).unwrap();
    assert_eq!(calls.0[last + 1..], [Call::Enter, Call::Exit]);
}
