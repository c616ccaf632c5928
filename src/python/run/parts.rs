//! A recording that a program replays in parts, in its own processes. Opens and divides the recording, replays one
//! part, and merges the results of all parts.

use std::{mem, ops::ControlFlow, sync::Arc};

use anyhow::{Context as _, Result, bail};
use perf_prof_events::event::{EventType, Stop};
use perf_prof_session::{
    engine::{exit_status::Callbacks, run_loop::Ending},
    plan::RunPlan,
    recording::carried::Carried,
    spine::{About, ChosenRecording, Slice},
};
use perf_prof_system::signals::Signals;

use super::shard::{Merging, Shard};
use crate::script::{Program, set_part_of_process};

/// A recording that is divided into parts. A forked copy of this process replays each part.
pub struct DividedRecording {
    /// `None` in a process that has replayed its part, and after the results were merged.
    recorded: Option<ChosenRecording>,
    shards: Vec<Shard>,
    /// The state of derived events at the end of the parts that were read in advance.
    carried: Carried,
}

/// The merged result of all parts.
pub struct Merged {
    /// The number of events that were delivered.
    pub delivered: u64,
    /// The number of events that were lost.
    pub lost: u64,
    /// Says whether a callback raised an exception, in a part or during the merge.
    pub callbacks: Callbacks,
    /// How a callback ended the run; `None` if no callback did.
    pub stop: Option<Stop>,
}

impl DividedRecording {
    /// Opens and divides the recording of the plan. Returns `None` if the plan has only one process.
    pub fn open(plan: &RunPlan) -> Result<Option<DividedRecording>> {
        let Some(input) = plan.input() else { return Ok(None) };
        let Some(jobs) = input.jobs else { return Ok(None) };
        let mut recording = ChosenRecording::select(plan, input)?;
        recording.warn();
        let shards = recording.divide(&jobs)?.into_iter().map(Shard::new).collect::<Result<_>>()?;
        Ok(Some(DividedRecording { recorded: Some(recording), shards, carried: Carried::default() }))
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Returns the selected events.
    pub fn events(&self) -> &[EventType] {
        self.recorded.as_ref().map_or(&[], |recording| &recording.selected().types)
    }

    /// Reads the previous part if spans may continue from it. Must be called for each part in the order of the parts,
    /// before the part's process is forked. Calls `check` from time to time; `check` can stop the reading.
    pub fn read_before(
        &mut self,
        number: usize,
        check: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let before = number.checked_sub(1).and_then(|before| self.shards.get(before));
        let (Some(before), Some(recording)) = (before, &mut self.recorded) else {
            return Ok(ControlFlow::Continue(()));
        };
        recording.read_in_advance(&before.part, &mut self.carried, check)
    }

    /// Turns this forked process into the worker of a part.
    pub fn enter(&self, number: usize) {
        self.shards.get(number).into_iter().for_each(|shard| set_part_of_process(&shard.part));
    }

    /// Replays a part in this process, a forked copy of the process that divided the recording. This process does
    /// nothing else. `load` returns the program that gets the events. The result is stored in a file that
    /// [`DividedRecording::merge`] reads in the other process. Returns how a callback ended the run; `None` if no
    /// callback did.
    pub fn replay_part(
        &mut self,
        number: usize,
        signals: &Signals,
        load: impl FnOnce(Arc<About>) -> Result<Program>,
    ) -> Result<Option<Stop>> {
        let (Some(recording), Some(shard)) = (self.recorded.take(), self.shards.get(number)) else {
            bail!("there is no part {number} to replay");
        };
        set_part_of_process(&shard.part);
        let slice = Slice::Part(shard.part.clone(), Box::new(mem::take(&mut self.carried)));
        let session = recording.open(slice, signals)?;
        let about = session.about().clone();
        let mut program = load(about.clone())?;
        let mut outcome = session.run(&mut program, signals);
        if let Some(raised) = program.take_raised() {
            program.clear();
            return Err(raised.into());
        }
        let stopped = if let Ending::Program(stop) = outcome.ending { Some(stop) } else { outcome.at_exit };
        if stopped.is_some() {
            program.clear();
            return Ok(stopped);
        }
        let callbacks = program.callbacks();
        let partial = program.pickled_partial();
        program.clear();
        outcome.check()?;
        let written = shard.write_result(&about, &outcome, callbacks, partial?);
        written.with_context(|| format!("cannot store the result of a part in {}", std::env::temp_dir().display()))?;
        Ok(None)
    }

    /// Merges the results of all parts. Must be called after their processes have ended. `load` returns the program
    /// that merges the results.
    pub fn merge(&mut self, signals: &Signals, load: impl FnOnce(Arc<About>) -> Result<Program>) -> Result<Merged> {
        let Some(recording) = self.recorded.take() else { bail!("the results were merged already") };
        let about = recording.open(Slice::Merge, signals)?.about().clone();
        let mut program = load(about.clone())?;
        let mut merging = Merging::new(mem::take(&mut self.shards));
        let merged = program.merge_pickled(merging.read(&about)?);
        let stop = if merged.is_ok() { merging.end(&mut program) } else { None };
        let raised = program.take_raised();
        let callbacks = merging.callbacks(&program);
        program.clear();
        merged?;
        match raised {
            Some(raised) => Err(raised.into()),
            None => {
                let stats = &about.stats;
                Ok(Merged { delivered: stats.total_delivered(), lost: stats.total_lost(), callbacks, stop })
            }
        }
    }
}
