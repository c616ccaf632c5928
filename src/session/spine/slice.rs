//! The part of a run that a session does, if several sessions together do the whole.

use perf_prof_recordings::Selection;

use crate::{
    dividing::Part,
    engine::{
        run_loop::FinishAs,
        sample_routes::{LossReporting, Span},
    },
    plan::Verbosity,
    recording::{carried::Carried, replay::Warnings},
};

/// The part of a run that a session does. Of live events, it is always the whole.
#[derive(Default)]
pub enum Slice {
    /// Everything.
    #[default]
    Whole,
    /// One of several recordings, for a program that goes on after it.
    OneOfSeveral,
    /// A part of a recording, and what the parts before it carry to it. Other processes replay the other parts.
    Part(Part, Box<Carried>),
    /// Nothing is replayed: this process merges the results of the parts.
    Merge,
}

impl Slice {
    fn part(&self) -> Option<&Part> {
        if let Slice::Part(part, _) = self { Some(part) } else { None }
    }

    /// Limits a selection to the slice. Returns where lost samples without a time are reported.
    pub(super) fn limit(&self, selection: &mut Selection) -> LossReporting {
        let Some(part) = self.part() else { return LossReporting::for_cpus(selection.cpus.as_ref()) };
        let reporting = LossReporting::for_part(selection.cpus.as_ref());
        part.select(selection);
        reporting
    }

    /// Limits `span` to the times of the slice. Each interval ends in exactly one slice.
    pub(super) fn part_of(&self, span: Span) -> Span {
        self.part().map_or(span, |part| part.part_of(span))
    }

    /// Returns which process prints warnings about the recording. If there are several processes, only one of them
    /// prints the warnings.
    pub(super) fn warnings(&self) -> Warnings {
        match self {
            Slice::Whole | Slice::OneOfSeveral => Warnings::Printed,
            Slice::Part(part, _) if part.is_first() => Warnings::Printed,
            Slice::Part(..) | Slice::Merge => Warnings::PrintedElsewhere,
        }
    }

    /// Returns how much the session prints. The first process of several prints for all.
    pub(super) fn verbosity(&self, of_run: Verbosity) -> Verbosity {
        match self.warnings() {
            Warnings::Printed => of_run,
            Warnings::PrintedElsewhere => Verbosity::Quiet,
        }
    }

    /// Returns what happens after the last event.
    pub(super) fn finish_as(&self) -> FinishAs {
        match self {
            Slice::Whole => FinishAs::Program,
            Slice::OneOfSeveral => FinishAs::LastPart,
            Slice::Part(part, _) if part.is_last() => FinishAs::LastPart,
            Slice::Part(..) | Slice::Merge => FinishAs::Part,
        }
    }
}
