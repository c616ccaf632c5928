//! The windows of time that the user selected, and the tasks that are on the CPUs where they begin. The switches to these
//! tasks are earlier events, so the recording is read up to there first.

use std::{
    collections::{BTreeMap, HashMap},
    io, mem,
};

use anyhow::Result;
use perf_prof_events::{
    event::{Context, Sample},
    picture::perfetto::{KernelEvent, Task},
};
use perf_prof_format::spec::{TimeRanges, parse_events};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, RunPlan, TaskSelection, Verbosity},
    spine::ChosenRecording,
};

use super::{Exported, Exporter, Partial, export, known_events::Kind};

/// The event that says which task is on a CPU.
const SWITCH: &str = "sched:sched_switch";

/// A selected range of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its first ns.
    pub first: u64,
    /// Its last ns, if the recording goes on after it.
    pub end: Option<u64>,
    /// The tasks that are on the CPUs when it begins, by CPU.
    pub running: BTreeMap<u32, Task>,
}

/// Returns the windows of a recording, in the order of time. Windows without a gap between them are one window. `Err` is the
/// status of the program if the user ended it.
pub fn find(input: &Input, chosen: &mut ChosenRecording) -> Result<Result<Vec<Window>, ExitStatus>> {
    let mut windows = windows(chosen.selected_times()?.to_vec());
    if windows.is_empty() {
        return Ok(Ok(windows));
    }
    let times = chosen.times()?;
    // Nobody knows who is on a CPU after the recording has ended.
    windows.retain(|window| times.is_none_or(|(_, last)| window.first <= last));
    let Some(begin) = windows.last().map(|window| window.first) else { return Ok(Ok(windows)) };
    for window in &mut windows {
        window.end = window.end.filter(|&end| times.is_some_and(|(_, last)| end < last));
    }
    let has_switches = chosen.selected().types.iter().any(|event| event.real_name() == SWITCH);
    // What a pipe has passed on cannot be read again.
    let is_pipe = input.path.as_os_str() == "-";
    if !has_switches || is_pipe || times.is_none_or(|(first, _)| begin <= first) {
        return Ok(Ok(windows));
    }
    let input = Input {
        times: Some(TimeRanges::of_clock(0, begin - 1)),
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
    let running = Running { windows: &mut windows, begun: 0, kinds, tasks: HashMap::new() };
    let Exported { status, .. } = export(earlier, running)?;
    Ok(if status == ExitStatus(0) { Ok(windows) } else { Err(status) })
}

fn windows(mut times: Vec<(u64, u64)>) -> Vec<Window> {
    times.sort_unstable();
    let mut windows: Vec<Window> = Vec::new();
    for (first, last) in times {
        match windows.last_mut() {
            Some(Window { end: Some(end), .. }) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => windows.push(Window { first, end: Some(last), ..Window::default() }),
        }
    }
    windows
}

/// Follows the switches before the windows.
struct Running<'a> {
    windows: &'a mut [Window],
    /// The number of windows that have begun.
    begun: usize,
    kinds: Vec<Kind>,
    /// The task on each CPU, if it is known.
    tasks: HashMap<u32, Task>,
}

impl Running<'_> {
    /// Notes the running tasks in the windows that have begun before `time`.
    fn begin(&mut self, time: u64) {
        while let Some(window) = self.windows.get_mut(self.begun).filter(|window| window.first <= time) {
            window.running = self.tasks.iter().map(|(cpu, task)| (*cpu, task.clone())).collect();
            self.begun += 1;
        }
    }
}

impl Exporter for Running<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, _: &Context) -> io::Result<()> {
        self.begin(sample.time());
        if let Some(KernelEvent::Switch { next, .. }) = self.kinds.get(event).and_then(|kind| kind.event(sample)) {
            self.tasks.insert(sample.cpu(), next);
        }
        Ok(())
    }

    fn lost(&mut self) {
        mem::take(&mut self.tasks);
    }

    fn finish(mut self, _: &Context, _: Option<&Partial>) -> io::Result<()> {
        self.begin(u64::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_sorted_and_join_where_no_time_is_between_them() {
        let joined = |times: &[(u64, u64)]| -> Vec<(u64, Option<u64>)> {
            windows(times.to_vec()).iter().map(|window| (window.first, window.end)).collect()
        };
        assert_eq!(joined(&[(30, 40), (10, 20), (21, 25)]), [(10, Some(25)), (30, Some(40))]);
        assert_eq!(joined(&[(10, 50), (20, 30), (7, u64::MAX), (8, 9)]), [(7, Some(u64::MAX))]);
        assert_eq!(joined(&[]), []);
    }
}
