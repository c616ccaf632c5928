//! The samples of a recording that are read for columns, and their division into parts.

use std::{ops::ControlFlow, sync::Arc};

use perf_prof_events::event::{Context, Discard, EventType, Stats};
use perf_prof_format::record::{Source as _, Wait};
use perf_prof_recordings::{BLOCK, BlockIndex, Layouts, PerfDataError, Recording, Replay, Selection, shards};
use perf_prof_system::{budget::Budget, mutex::Mutex};

use crate::{
    dividing::has_readings,
    engine::{
        pump::Pump,
        sample_routes::{LossReporting, ReplayState, Route, SampleLimits},
    },
    plan::Input,
    recording::select::{self, Selected},
};

/// The minimum size of a part, in bytes.
const PART: u64 = 16 << 20;
/// The minimum number of blocks of a part for each CPU. A block at the border of two parts is read for both parts, so
/// parts must not be too small.
const BLOCKS_OF_CPU: u64 = 8;
/// Each part also replays the side-band records before it, so each additional part costs work. All parts together replay at
/// most about one side-band record for this many samples.
const SIDE_BAND_SHARE: u64 = 4;

/// A recording that can be read in parts, because no part needs the samples of earlier parts.
pub struct ColumnParts {
    /// The open recording. Each replay uses a copy of it.
    recording: Mutex<Recording>,
    pub(super) name: String,
    pub(super) layouts: Arc<Layouts>,
    pub(super) types: Vec<EventType>,
    pub(super) routes: Vec<Vec<Route>>,
    /// What samples have to fulfill.
    pub(super) limits: SampleLimits,
    selection: Selection,
    pub(super) input: Input,
    /// The minimum size of a part, in bytes.
    pub(super) of_part: u64,
    /// The warnings about the whole recording.
    pub(super) warnings: Vec<String>,
}

/// A range of time, by its first and its last nanosecond.
pub(super) type Range = (u64, u64);

impl ColumnParts {
    /// Prepares to read the selected samples in parts. Returns `None` if samples depend on earlier samples, or if the
    /// recording can be read only once.
    pub fn new(
        recording: &mut Recording,
        selected: &Selected,
        selection: &Selection,
        input: &Input,
    ) -> Result<Option<ColumnParts>, PerfDataError> {
        let has_readings = has_readings(recording, &selected.routes);
        if has_readings || !selected.derived.is_empty() || !selection.others.is_empty() {
            return Ok(None);
        }
        let rings = u64::from(recording.features.cpus.map_or(1, |(available, _)| available)).max(1);
        // Find the blocks once, before the recording is copied. Otherwise each copy would search for them again.
        recording.find_blocks()?;
        let Some(copy) = recording.copied() else { return Ok(None) };
        Ok(Some(ColumnParts {
            recording: Mutex::new(copy),
            name: recording.name.clone(),
            layouts: recording.layouts().clone(),
            types: selected.types.clone(),
            routes: selected.routes.clone(),
            limits: select::sample_limits(recording),
            selection: selection.clone(),
            input: input.clone(),
            of_part: PART.max(rings * BLOCKS_OF_CPU * BLOCK as u64),
            warnings: recording.warnings.clone(),
        }))
    }

    /// Returns the memory of the run.
    pub(super) fn budget(&self) -> Budget {
        self.recording.lock().budget().clone()
    }

    /// Returns a replay of the selected samples; `None` if the recording can be read only once.
    pub(super) fn replay(&self, selection: Selection) -> Result<Option<Replay>, PerfDataError> {
        let copy = self.recording.lock().copied();
        copy.map(|copy| copy.replay(selection)).transpose()
    }

    /// Divides the recording into parts with about the same number of samples.
    pub(super) fn divide(&self) -> Result<Vec<Range>, PerfDataError> {
        let whole = vec![(0, u64::MAX)];
        let mut recording = self.recording.lock();
        let Some(blocks) = recording.known_blocks() else { return Ok(whole) };
        let sum = |of: fn(&BlockIndex) -> u64| blocks.iter().map(|index| of(index)).sum::<u64>();
        let (bytes, samples) = (sum(BlockIndex::bytes), sum(BlockIndex::sample_count));
        let with_side_band = sum(|index| {
            let blocks = index.blocks.iter().filter(|block| block.side_band != 0);
            blocks.map(|block| u64::from(block.size)).sum()
        });
        let side_band = sum(|index| index.blocks.iter().map(|block| u64::from(block.side_band)).sum());
        let most = 1 + 2 * samples / SIDE_BAND_SHARE / side_band.max(1);
        let count = (bytes / self.of_part).min(most);
        // The side-band records are read first and kept in memory. With many blocks of side-band records, this costs
        // too much.
        if count < 2 || with_side_band > bytes / 4 {
            return Ok(whole);
        }
        let is_kept = |index: &Arc<BlockIndex>| {
            index.blocks.iter().all(|block| block.side_band == 0 || index.side_band.has(block))
        };
        if !recording.index()?.iter().flatten().all(is_kept) {
            return Ok(whole);
        }
        let borders = shards::at_blocks(&blocks, samples.div_ceil(count));
        let of_parts = shards::between(&borders).into_iter();
        Ok(of_parts.filter(|&(first, last)| self.selection.some_time(first, last)).collect())
    }

    /// Returns the selection of samples in a part.
    pub(super) fn selection(&self, (first, last): Range) -> Selection {
        let mut selection = self.selection.clone();
        selection.limit_times(first, last);
        selection
    }

    /// Returns which process reports the counts of losses that are stored at the end of the recording.
    pub(super) fn loss_reporting(&self) -> LossReporting {
        LossReporting::for_part(self.selection.cpus.as_ref())
    }

    /// Passes the recording's tasks, mappings and symbols to `context`.
    pub fn tell_names(&self, context: &Arc<Context>) -> Result<(), PerfDataError> {
        let no_time = Selection { times: vec![(u64::MAX, u64::MAX)], ..self.selection.clone() };
        let Some(mut replay) = self.replay(no_time)? else { return Ok(()) };
        let rings = replay.ring_cpus().len();
        let stats = Arc::new(Stats::new(self.types.len(), rings));
        let routes = vec![Vec::new(); self.routes.len()];
        let state = ReplayState::new(self.layouts.clone(), routes, None, LossReporting::Never);
        let mut pump = Pump::for_recording(state, context.clone(), stats, rings, None);
        loop {
            match replay.wait(None) {
                Wait::Batch(batch) => drop(pump.deliver(&batch, &mut Discard, |_| ControlFlow::Continue(()))),
                Wait::Ended(_) => return replay.take_failure().map_or(Ok(()), Err),
                Wait::Woken | Wait::Timeout | Wait::Flushed => {}
            }
        }
    }
}
