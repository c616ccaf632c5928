//! Replays one part of a recording for another process, which gives the part and merges the results. The other process may
//! run on another machine, so this process divides the recording itself.

use std::{fs::File, ops::ControlFlow};

use anyhow::{Context as _, Result};
use perf_prof_core::{
    engine::ExitStatus,
    perfdata::Recording,
    plan::Jobs,
    recording::{carried::Carried, select::Selected},
    sys::{blocked_signals::BlockedSignals, process},
};

use super::{
    plan::OnePart,
    replay::{Part, ReplayWork},
    shard::{self, Shard},
    spans,
};

/// Replays the part, and writes its result to the file of the part. Makes no file if the recording has fewer parts.
pub(super) fn run(
    work: &ReplayWork<'_>,
    jobs: &Jobs,
    part: &OnePart,
    mut recording: Recording,
    selected: Selected,
) -> Result<ExitStatus> {
    if !process::die_with(part.parent, libc::SIGKILL) {
        return Ok(ExitStatus(1));
    }
    let mut parts = shard::divide(work, jobs, (&mut recording, &selected))?;
    if part.number >= parts.len() {
        return Ok(ExitStatus(0));
    }
    let result = File::create(&part.result).with_context(|| format!("cannot create '{}'", part.result.display()))?;
    // Spans may begin in an earlier part and end in this one.
    let mut carried = Carried::default();
    for before in &parts[..part.number] {
        let go_on = &mut || ControlFlow::Continue(());
        let read = spans::read(work, (&mut recording, &selected), before, &mut carried, go_on)?;
        if read.is_break() {
            break;
        }
    }
    let shard = Shard::for_other_program(parts.swap_remove(part.number), result);
    work.run_part(recording, selected, BlockedSignals::new()?, Part::Shard(&shard, carried))
}
