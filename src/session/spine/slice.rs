//! The part of a run that one session carries out. A run may consist of several sessions.

use perf_prof_recordings::Selection;

use crate::{
    dividing::Part,
    engine::{
        run_loop::FinishAs,
        sample_routes::{LossReporting, Span},
    },
    recording::{carried::Carried, replay::Warnings},
};

/// The part of a run that one session carries out. For live events, it is always the whole run.
#[derive(Default)]
pub enum Slice {
    /// The whole run.
    #[default]
    Whole,
    /// One of several recordings. The program continues with the next recording.
    OneOfSeveral,
    /// A part of a recording, and the state of derived events at the end of the part before it. Other processes replay
    /// the other parts.
    Part(Part, Box<Carried>),
    /// This process replays nothing. It merges the results of the parts.
    Merge,
}

impl Slice {
    fn part(&self) -> Option<&Part> {
        if let Slice::Part(part, _) = self { Some(part) } else { None }
    }

    /// Takes the state of derived events at the start of the slice. `None` if the slice has no events.
    pub(super) fn take_carried(&mut self) -> Option<Carried> {
        match self {
            Slice::Whole | Slice::OneOfSeveral => Some(Carried::default()),
            Slice::Part(_, carried) => Some(std::mem::take(&mut **carried)),
            Slice::Merge => None,
        }
    }

    /// Limits a selection to the slice. Returns which process reports lost samples without a time.
    pub(super) fn limit(&self, selection: &mut Selection) -> LossReporting {
        let Some(part) = self.part() else { return LossReporting::for_cpus(selection.cpus.as_ref()) };
        let reporting = LossReporting::for_part(selection.cpus.as_ref());
        part.select(selection);
        reporting
    }

    /// Limits `span` to the times of the slice. Each interval is reported in exactly one slice: the slice in which it
    /// ends.
    pub(super) fn part_of(&self, span: Span) -> Span {
        self.part().map_or(span, |part| part.part_of(span))
    }

    /// Returns which process prints warnings about the recording. Only one of several processes prints them.
    pub(super) fn warnings(&self) -> Warnings {
        match self {
            Slice::Whole | Slice::OneOfSeveral => Warnings::Printed,
            Slice::Part(part, _) if part.is_first() => Warnings::Printed,
            Slice::Part(..) | Slice::Merge => Warnings::PrintedElsewhere,
        }
    }

    /// Returns what the run loop has to do after the last event.
    pub(super) fn finish_as(&self) -> FinishAs {
        match self {
            Slice::Whole => FinishAs::Program,
            Slice::OneOfSeveral => FinishAs::LastPart,
            Slice::Part(part, _) if part.is_last() => FinishAs::LastPart,
            Slice::Part(..) | Slice::Merge => FinishAs::Part,
        }
    }
}
