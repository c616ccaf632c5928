//! The window of time that the user selected, and the tasks that are on the CPUs where it begins. The switches to these tasks
//! are earlier events, so the recording is read up to there first.

use std::{collections::BTreeMap, io};

use anyhow::{Result, bail};
use perf_prof_events::{
    event::{Context, Sample},
    picture::perfetto::{KernelEvent, Task},
};
use perf_prof_format::spec::{TimeRanges, parse_events};
use perf_prof_recordings::Selection;
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, RunPlan, TaskSelection, Verbosity},
    spine::ChosenRecording,
};

use super::{Exported, Exporter, Partial, export, known_events::Kind};

/// The event that says which task is on a CPU.
const SWITCH: &str = "sched:sched_switch";

/// The selected range of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its first ns.
    pub first: u64,
    /// Its last ns, if the recording goes on after it.
    pub end: Option<u64>,
    /// The tasks that are on the CPUs when it begins, by CPU.
    pub running: BTreeMap<u32, Task>,
}

/// Returns the selected range of a recording. `None` if all times are selected, or none that the recording has. `Err` is the
/// status of the program if the user ended it. Fails if there are several ranges: threads would keep their states between them.
pub fn find(input: &Input, chosen: &mut ChosenRecording) -> Result<Result<Option<Window>, ExitStatus>> {
    let ranges = Selection::merged(chosen.selected_times()?);
    if ranges.len() > 1 {
        bail!(
            "--time: a trace for Perfetto shows one range of time, and {} are selected; write a file for each",
            ranges.len()
        );
    }
    let Some(&(first, last)) = ranges.first() else { return Ok(Ok(None)) };
    let times = chosen.times()?;
    // The recording does not say which tasks are on the CPUs after its end.
    if times.is_some_and(|(_, end)| first > end) {
        return Ok(Ok(None));
    }
    let end = times.filter(|&(_, end)| last < end).map(|_| last);
    let mut window = Window { first, end, ..Window::default() };
    let has_switches = chosen.selected().types.iter().any(|event| event.real_name() == SWITCH);
    // What a pipe has passed on cannot be read again.
    let is_pipe = input.path.as_os_str() == "-";
    if !has_switches || is_pipe || times.is_none_or(|(begin, _)| first <= begin) {
        return Ok(Ok(Some(window)));
    }
    let input = Input {
        times: Some(TimeRanges::of_clock(0, first - 1)),
        cpus: input.cpus.clone(),
        limits: input.limits,
        path: input.path.clone(),
        guests: input.guests,
        tasks: TaskSelection::OfSpans,
        ..Input::default()
    };
    let plan = RunPlan::of_recording(&input, &parse_events(SWITCH)?, Verbosity::Quiet);
    let mut earlier = ChosenRecording::select(&plan, &input)?;
    earlier.prepare()?;
    let kinds = earlier.selected().types.iter().map(|event| Kind::of(event, &[])).collect();
    let Exported { status, .. } = export(earlier, Running { kinds, tasks: &mut window.running })?;
    Ok(if status == ExitStatus(0) { Ok(Some(window)) } else { Err(status) })
}

/// Follows the switches before the window.
struct Running<'a> {
    kinds: Vec<Kind>,
    /// The task on each CPU, if it is known.
    tasks: &'a mut BTreeMap<u32, Task>,
}

impl Exporter for Running<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, _: &Context) -> io::Result<()> {
        if let Some(KernelEvent::Switch { next, .. }) = self.kinds.get(event).and_then(|kind| kind.event(sample)) {
            self.tasks.insert(sample.cpu(), next);
        }
        Ok(())
    }

    fn lost(&mut self) {
        self.tasks.clear();
    }

    fn finish(self, _: &Context, _: Option<&Partial>) -> io::Result<()> {
        Ok(())
    }
}
