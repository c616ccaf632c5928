//! A part of a recording, and the file that passes its result to the process that merges all results.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    mem,
};

use anyhow::{Context as _, Result};
use perf_prof_events::event::{Sink as _, Stop};
use perf_prof_session::{
    dividing::{Part, PartResult, Results},
    engine::exit_status::Callbacks,
    spine::{About, Outcome},
};
use perf_prof_system::worker::nameless_file;

use crate::script::Program;

/// The part of a recording that one process replays.
pub(super) struct Shard {
    pub part: Part,
    result: File,
    merged_by: MergedBy,
}

/// The process that merges the results of the parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergedBy {
    /// The process that divided the recording, and therefore knows its times.
    ParentProcess,
    /// A process that has not opened the recording.
    OtherProgram,
}

/// Creates a file without a name.
pub(super) fn file() -> Result<File> {
    nameless_file().with_context(|| format!("cannot create files in {}", std::env::temp_dir().display()))
}

impl Shard {
    /// Creates the shard of a forked process.
    pub fn new(part: Part) -> Result<Shard> {
        Ok(Shard { part, result: file()?, merged_by: MergedBy::ParentProcess })
    }

    /// Creates the shard of a process that writes its result to the file `result` for another program.
    pub fn for_other_program(part: Part, result: File) -> Shard {
        Shard { part, result, merged_by: MergedBy::OtherProgram }
    }

    /// Writes the result of the part.
    pub fn write_result(
        &self,
        about: &About,
        outcome: &Outcome,
        callbacks: Callbacks,
        partial: Vec<u8>,
    ) -> io::Result<()> {
        let Some(replayed) = &outcome.replayed else { return Ok(()) };
        let counts = self.part.counts(&about.stats, &about.context, &replayed.lost, replayed.last);
        // Computing the time of day may take a while. The parent process knows the time of day already.
        let reached = match self.merged_by {
            MergedBy::ParentProcess => 0,
            MergedBy::OtherProgram => about.context.reached_unseen().unwrap_or(0),
        };
        let result = PartResult {
            lost: about.stats.total_lost().max(counts.stored_losses()),
            counts,
            sample_counts: replayed.counts,
            reached: reached as u64,
            callbacks,
            unnamed_frames: replayed.unnamed_frames.clone(),
            damage: replayed.damage.clone(),
            partial,
        };
        result.write(&mut &self.result)
    }

    fn read_result(&mut self) -> Result<PartResult> {
        let mut bytes = Vec::new();
        self.result.rewind()?;
        self.result.read_to_end(&mut bytes)?;
        Ok(PartResult::decode(bytes)?)
    }
}

/// The merge of the results of all parts.
#[derive(Default)]
pub(super) struct Merging {
    shards: Vec<Shard>,
    /// `None` until the results were read.
    pub results: Option<Results>,
    /// The number of lost samples that no PERF_RECORD_LOST reports. So no part has passed them to `__lost__`.
    unreported: u64,
}

impl Merging {
    /// Prepares the merge of these shards. Their processes must have ended.
    pub fn new(shards: Vec<Shard>) -> Merging {
        Merging { shards, ..Merging::default() }
    }

    /// Reads the results of all parts, and adds their counts to the counts of the run. Returns the partial results of
    /// the script, in the order of the parts.
    pub fn read(&mut self, about: &About) -> Result<Vec<Vec<u8>>> {
        let split = self.shards.first().map(|shard| shard.part.split);
        let mut results = Results::new(split.unwrap_or_default());
        for shard in &mut self.shards {
            results.add(shard.read_result().context("cannot read the result of a part")?);
        }
        about.stats.add(&results.counts.stats);
        about.stats.add_incomplete(&results.counts.incomplete);
        self.unreported = results.counts.count_losses(&about.stats);
        about.context.note_reached(results.counts.last);
        let partials = mem::take(&mut results.partials);
        self.results = Some(results);
        Ok(partials)
    }

    /// Calls `__lost__` and `__exit__` of the script, after the script has merged the results. Returns how the script
    /// ended the run; `None` if the script did not end the run.
    pub fn end(&self, program: &mut Program) -> Option<Stop> {
        let last = self.results.as_ref().map_or(0, |results| results.counts.last);
        let mut stop = None;
        program.enter(&mut |program| {
            let told = if self.unreported == 0 { None } else { program.lost(0, last).break_value() };
            stop = told.or(program.exit().break_value());
        });
        stop
    }

    /// Returns whether a callback raised an exception, in a part or in this process.
    pub fn callbacks(&self, program: &Program) -> Callbacks {
        let of_parts = self.results.as_ref().map(|results| results.callbacks).unwrap_or_default();
        of_parts.and(program.callbacks())
    }
}
