//! Decodes a part of a recording in the thread that reads it, so that the records are still in the CPU's cache.

use std::{ops::ControlFlow, sync::Arc};

use perf_prof_events::{
    column::{BatchLimit, Columns, Plan, Row},
    event::{Context, Deliver, Flow, Processes, Stats, Stop},
};
use perf_prof_format::{
    record::{Source as _, Wait},
    tracefs::NoKernel,
};

use super::{
    hand_over::{ColumnBatch, HandOver, PartEnd, PartError},
    parts::{ColumnParts, Range},
};
use crate::{
    dividing::PartCounts,
    engine::{pump::Pump, sample_routes::ReplayState},
};

/// The settings that all parts share.
pub(super) struct Decoder {
    pub parts: ColumnParts,
    pub ranges: Vec<Range>,
    pub plan: Plan,
    /// The limit for the size of a batch.
    pub limit: BatchLimit,
    /// The number to add to times to get nanoseconds since the Unix epoch.
    pub realtime_offset: i64,
    pub to: HandOver,
}

/// Turns the samples of a part into rows.
struct Rows<'a> {
    decoder: &'a Decoder,
    part: usize,
    columns: Columns,
    context: Arc<Context>,
    lost: Vec<(u64, u64)>,
    failure: Option<PartError>,
}

impl Decoder {
    /// Decodes a part. Returns `None` if the program wants no more batches.
    pub fn decode(&self, part: usize) -> Result<Option<PartEnd>, PartError> {
        let parts = &self.parts;
        let Some(&range) = self.ranges.get(part) else { return Ok(None) };
        let Some(mut replay) = parts.replay(parts.selection(range))? else { return Ok(None) };
        let rings = replay.ring_cpus().len();
        let stats = Arc::new(Stats::new(parts.types.len(), rings));
        let context = Context::new(Box::new(NoKernel), self.realtime_offset);
        let context =
            Arc::new(context.with_symbol_options(Default::default(), Processes::Recorded(Default::default())));
        let state = ReplayState::new(parts.layouts.clone(), parts.routes.clone(), None, parts.loss_reporting())
            .with_limits(parts.limits.clone(), stats.clone())
            .selecting(&parts.input);
        let mut pump = Pump::for_recording(state, context.clone(), stats.clone(), rings, None);
        let columns = Columns::new(self.plan.clone(), self.limit);
        let mut rows = Rows { decoder: self, part, columns, context, lost: Vec::new(), failure: None };
        loop {
            let flow = match replay.wait(None) {
                Wait::Batch(batch) => pump.deliver(&batch, &mut rows, |_| ControlFlow::Continue(())),
                Wait::Ended(_) => break,
                Wait::Woken | Wait::Timeout | Wait::Flushed => ControlFlow::Continue(()),
            };
            if flow.is_break() {
                return rows.failure.map_or(Ok(None), Err);
            }
        }
        if replay.lacks_records() {
            stats.note_damage();
        }
        let failure = replay.take_failure();
        let last = pump.replay_state().map_or(0, ReplayState::last);
        if failure.is_none() {
            let _ = pump.report_remaining(&mut rows, None, last);
        }
        // The rows from before a failure are still delivered.
        if !rows.columns.is_empty() && rows.pass_on().is_break() {
            return rows.failure.map_or(Ok(None), Err);
        }
        failure.map_or(Ok(()), Err)?;
        let lost = pump.replay_state().map_or_else(Vec::new, ReplayState::lost_per_event);
        replay.found_damage(pump.replay_state().map(ReplayState::damaged_samples).unwrap_or_default());
        let warnings = if part == 0 { replay.take_warnings() } else { replay.take_own_warnings() };
        let counts = PartCounts { stats: stats.counts(), lost, last, ..PartCounts::default() };
        Ok(Some(PartEnd { counts, warnings, losses: rows.lost }))
    }
}

impl Rows<'_> {
    /// Passes on all rows as a batch.
    fn pass_on(&mut self) -> Flow {
        match self.columns.take() {
            Ok(rows) => self.decoder.to.push(self.part, ColumnBatch { rows, lost: std::mem::take(&mut self.lost) }),
            Err(error) => self.fail(error.into()),
        }
    }

    fn fail(&mut self, error: PartError) -> Flow {
        self.failure = Some(error);
        Flow::Break(Stop::Failed)
    }
}

impl Deliver for Rows<'_> {
    #[inline]
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        if let Err(error) = self.columns.push(Row { event, record }, &self.context) {
            return self.fail(error.into());
        }
        if self.columns.room() == 0 { self.pass_on() } else { Flow::Continue(()) }
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.lost.push((start, end));
        Flow::Continue(())
    }
}
