//! The state of derived events, such as spans, at the end of a part of a recording. The next part continues with this
//! state. Another process replays each part, so the parts before it have to be read in advance. What comes before the
//! time that the user selected (`--time`) is such a part too.
//!
//! The processes of the parts are forked one after another. Before the parent forks the next process, it reads the previous
//! part in advance. The parent uses no interpreter, and reads only the samples that derived events are made of. Apart from
//! this, the parent selects the same records as the process of this part, so that losses come at the same place between the
//! samples.
//!
//! The forked process is a copy of the parent, so it has the open spans and continues with them. The open spans take no
//! extra memory until they change. The counts of each process start at 0, and the counts of all parts are added up. Only
//! the last part delivers the spans that are open at the end.

use std::{ops::ControlFlow, sync::Arc};

use perf_prof_events::{
    derive::{Derivations, DerivingSink, Losses},
    event::{Context, Discard, Memberships, Sink, Stats},
};
use perf_prof_format::{
    record::{Source as _, Wait},
    tracefs::NoKernel,
};
use perf_prof_recordings::{PerfDataError, Recording, Selection};
use perf_prof_system::budget::Budget;

use super::select::{self, Selected};
use crate::{
    engine::{
        pump::Pump,
        sample_routes::{LossReporting, ReplayState},
    },
    plan::Input,
};

/// The state after the parts that were read, for the next part.
#[derive(Default)]
pub struct Carried {
    /// The state of the derived events; `None` at the start of the recording.
    derivations: Option<Derivations>,
    /// Whether only what comes before the selected time was read.
    is_before: bool,
    /// The cgroups of tasks at the time `last`.
    cgroups: Memberships,
    last: u64,
    /// The number of lost samples in the parts that were read, according to PERF_RECORD_LOST.
    lost_by_records: u64,
    /// The number of lost samples according to perf's counts of each event, which are at the end of the recording.
    lost_by_count: u64,
}

impl Carried {
    /// Reads a part as the process that replays it does, so that losses come at the same place between the samples.
    /// `check` is called after each batch and can end the reading.
    pub fn read(
        &mut self,
        recording: &Recording,
        selected: &Selected,
        selection: Selection,
        input: &Input,
        budget: &Budget,
        check: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PerfDataError> {
        let loss_reporting = LossReporting::for_part(selection.cpus.as_ref());
        let selection = Selection { attrs: selected.attrs_of_inputs(recording), ..selection };
        let Some(mut replay) = recording.replay_copy(selection)? else { return Ok(ControlFlow::Continue(())) };
        let Selected { types, derived, routes, .. } = selected;
        let rings = replay.ring_cpus().len();
        let stats = Arc::new(Stats::new(types.len(), rings).with_spans(derived.len()));
        // Nothing is delivered, so no names are needed.
        let context = Context::new(Box::new(NoKernel), 0).with_budget(budget.clone());
        context.note_recorded_since(u64::MAX);
        let context = Arc::new(context.with_recorded_queues(recording.hardware_queues()));
        let state = ReplayState::new(recording.layouts().clone(), routes.clone(), None, loss_reporting)
            .with_limits(select::sample_limits(recording), stats.clone());
        let mut pump = Pump::for_recording(state.selecting(input), context.clone(), stats.clone(), rings, None)
            .with_cgroups(selected.task_cgroups(recording));
        let mut discard = Discard;
        let sink = DerivingSink::start(&mut discard, types, derived, &stats, &context);
        let mut sink = self.continue_in(sink, &stats, &context).muted();
        loop {
            let batch = match replay.wait(None) {
                Wait::Batch(batch) => batch,
                Wait::Ended(_) => break,
                Wait::Woken | Wait::Timeout | Wait::Flushed => continue,
            };
            // Nothing ends the delivery: `Discard` never does, and the closure always continues.
            sink.enter(&mut |program| {
                let _ = pump.deliver(&batch, program, |_| ControlFlow::Continue(()));
            });
            if check().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Some(failure) = replay.take_failure() {
            return Err(failure);
        }
        let last = pump.replay_state().map_or(0, ReplayState::last);
        sink.enter(&mut |program| {
            let _ = pump.report_remaining(program, None, last);
        });
        self.derivations = Some(sink.into_derivations());
        self.is_before = false;
        self.last = last;
        context.with_memberships(|tasks| self.cgroups.take(tasks, last));
        self.add_losses(&stats, pump.replay_state());
        Ok(ControlFlow::Continue(()))
    }

    /// Returns whether nothing was read yet.
    pub fn is_empty(&self) -> bool {
        self.derivations.is_none()
    }

    /// Reads what comes before the selected time, because spans that end in this time may begin before it. If it cannot be
    /// read, spans of before this time count as those of before the recording. `check` is called after each batch and can
    /// end the reading.
    pub fn read_before(
        &mut self,
        recording: &Recording,
        selected: &Selected,
        selection: &Selection,
        input: &Input,
        context: &Context,
        check: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let first = selection.times.iter().map(|&(first, _)| first).min().unwrap_or(0);
        if first == 0 || first > selection.last_time() || selected.derived.is_empty() {
            return ControlFlow::Continue(());
        }
        let before = Selection { times: vec![(0, first - 1)], ..selection.clone() };
        let flow = self.read(recording, selected, before, input, context.budget(), check);
        self.is_before = self.derivations.is_some();
        if !self.is_before {
            // Reading failed, or was interrupted, or the recording is a pipe, which can be read only once.
            context.note_recorded_since(first);
        }
        flow.unwrap_or(ControlFlow::Continue(()))
    }

    /// Makes a sink continue with the state after the parts that were read.
    pub(super) fn continue_in<'a>(
        &mut self,
        sink: DerivingSink<'a>,
        stats: &Stats,
        context: &Arc<Context>,
    ) -> DerivingSink<'a> {
        context.with_memberships(|tasks| tasks.take(&mut self.cgroups, self.last));
        match self.derivations.take() {
            Some(derivations) => {
                let sink = sink.continued(derivations, stats, context);
                if self.is_before {
                    stats.spans().iter().for_each(|span| span.count_open_before());
                }
                sink
            }
            None => sink,
        }
    }

    /// Returns whether samples were lost without a PERF_RECORD_LOST, in the parts that were read or in the last part.
    pub(super) fn unreported_losses(mut self, stats: &Stats, state: Option<&ReplayState>) -> Losses {
        self.add_losses(stats, state);
        if self.lost_by_count > self.lost_by_records { Losses::Unreported } else { Losses::Reported }
    }

    fn add_losses(&mut self, stats: &Stats, state: Option<&ReplayState>) {
        self.lost_by_records += stats.total_lost();
        self.lost_by_count += state.map_or(0, |state| state.lost_per_event().iter().sum());
    }
}
