//! Replays one part of a recording for another process, which chooses the part and merges the results. The other
//! process may run on another machine, so this process divides the recording itself.

use std::{fs::File, ops::ControlFlow};

use anyhow::{Context as _, Result};
use perf_prof_session::{
    engine::ExitStatus,
    plan::Jobs,
    recording::carried::Carried,
    spine::{Armed, ChosenRecording, Slice},
};
use perf_prof_system::{blocked_signals::BlockedSignals, process};

use super::{
    plan::OnePart,
    script_run::{ScriptRun, Task},
    shard::Shard,
};

/// Replays the part, and writes its result to the file that the part names. Creates no file if the recording has too
/// few parts.
pub(super) fn run(
    run: &ScriptRun<'_>,
    jobs: &Jobs,
    part: &OnePart,
    mut recording: ChosenRecording,
) -> Result<ExitStatus> {
    if !process::die_with(part.parent, libc::SIGKILL) {
        return Ok(ExitStatus(1));
    }
    let mut parts = recording.divide(jobs)?;
    if part.number >= parts.len() {
        return Ok(ExitStatus(0));
    }
    if part.number > 0 {
        recording.time_of_day_is_told()?;
    }
    let result = File::create(&part.result).with_context(|| format!("cannot create '{}'", part.result.display()))?;
    // Spans may begin in an earlier part and end in this part. So the earlier parts are read first.
    let mut carried = Carried::default();
    for before in &parts[..part.number] {
        if recording.read_in_advance(before, &mut carried, &mut || ControlFlow::Continue(()))?.is_break() {
            break;
        }
    }
    let shard = Shard::for_other_program(parts.swap_remove(part.number), result);
    let slice = Slice::Part(shard.part.clone(), Box::new(carried));
    run.run(Armed::Recorded(Box::new(recording)), slice, Task::Part(&shard), BlockedSignals::new()?)
}
