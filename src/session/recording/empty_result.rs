//! Reports how many samples of a recording were left out, or that no sample was selected. Only the report of an empty
//! selection reads the recording a second time, so a replay with samples has no extra cost.

use std::{collections::BTreeSet, ops::ControlFlow};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Source as _, Wait, record_type},
    spec::{CpuSet, EventKind, EventSpec, TimeRanges, format_seconds},
};
use perf_prof_recordings::{Recording, Selection};
use perf_prof_system::output;

use super::clock;
use crate::{
    engine::span_report::BEGAN_BEFORE,
    plan::{Input, Verbosity},
};

pub use crate::engine::sample_counts::{ReadExtent, SampleCounts};

/// The maximum number of samples that are read to list their CPUs. With more samples, the message does not list CPUs.
const LOOKED_AT: u64 = 2_000_000;

/// The start of the message that is printed if no sample was selected.
const NO_SAMPLE: &str = "no sample in ";

/// Returns whether `line`, which a replay printed, is the message that no sample was selected.
pub fn is_no_sample(line: &str) -> bool {
    line.strip_prefix("perf-prof: ").is_some_and(|text| text.starts_with(NO_SAMPLE))
}

impl SampleCounts {
    /// Reports how many samples were left out. If none was left out, reports that no sample was selected, but only if
    /// the user limited the selection, and if the recording contains samples or the user selected spans.
    pub fn report(&self, input: &Input, events: &[EventSpec], whose: SelectionSource) {
        let &SampleCounts { delivered, unknown_ids, guests, reach } = self;
        if guests != 0 && whose.verbosity() > Verbosity::Quiet {
            output::say(format_args!("{guests} samples of virtual machines were left out; --guest includes them"));
        }
        if unknown_ids != 0 {
            output::say(format_args!(
                "{unknown_ids} samples were left out, because the recording has no event with their ids"
            ));
        } else if delivered == 0
            && guests == 0
            && reach == ReadExtent::End
            && whose.reports_empty_result(input)
            && let Some(text) = empty_result_message(input, events)
        {
            output::say(text);
        }
    }
}

/// Where the selection comes from. This decides whether an empty selection is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionSource {
    /// The command line contains the whole selection (events, CPUs, tasks and times) and the verbosity.
    User(Verbosity),
    /// The first line of the script may also select events and contain `-q`. Even with `-q`, an empty selection is
    /// reported if CPUs, tasks or times are selected, because the user typed these options.
    UserAndScript(Verbosity),
}

impl SelectionSource {
    fn verbosity(self) -> Verbosity {
        match self {
            SelectionSource::User(verbosity) | SelectionSource::UserAndScript(verbosity) => verbosity,
        }
    }

    fn reports_empty_result(self, input: &Input) -> bool {
        let Input { cpus, pids, tids, cgroups, times, .. } = input;
        match self {
            SelectionSource::User(verbosity) => verbosity > Verbosity::Quiet,
            SelectionSource::UserAndScript(Verbosity::Quiet) => {
                cpus.is_some() || pids.is_some() || tids.is_some() || !cgroups.is_empty() || times.is_some()
            }
            SelectionSource::UserAndScript(_) => true,
        }
    }
}

fn empty_result_message(input: &Input, events: &[EventSpec]) -> Option<String> {
    let selecting_options = selecting_options(input, events)?;
    let has_spans = events.iter().any(|event| matches!(event.kind, EventKind::Span(_)));
    // A pipe cannot be read again, so nobody knows whether it contained samples.
    if !input.path.is_file() && !input.path.is_dir() {
        return Some(format!("no sample matches `{selecting_options}`"));
    }
    let mut recording = Recording::open_with(&input.path, &input.limits).ok()?;
    let name = recording.name.clone();
    let Some((first, last)) = recording.times().ok()? else {
        return has_spans.then(|| without_samples(&recording));
    };
    let mut text = format!(
        "{NO_SAMPLE}{name} matches `{selecting_options}`: its samples are in `--time {},",
        format_seconds(first)
    );
    text += &format!("{}`", format_seconds(last));
    if input.times.as_ref().is_some_and(TimeRanges::has_times_of_day)
        && let Some([first, last]) = clock::days([first, last], input, &mut recording)
    {
        text += &format!(", which is `--time {first},{last}`");
    }
    if input.cpus.is_some()
        && let Some(cpus) = cpus(recording)
    {
        let which = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        text += &format!(", and on {which} {cpus}");
    }
    if input.pids.is_some() || input.tids.is_some() {
        text += &format!("; `perf-prof report -i {name} --sort pid,tid,comm` lists their tasks");
    }
    if !input.cgroups.is_empty() {
        text += &format!("; `perf-prof report -i {name} --sort cgroup` lists their cgroups");
    }
    Some(text)
}

/// Returns the message for a recording without samples, of which the user selected spans.
fn without_samples(recording: &Recording) -> String {
    let length = recording.features.clock.zip(recording.end()).map(|(clock, end)| end.saturating_sub(clock.time));
    let length = length.map_or_else(String::new, |ns| format!(", although it was made for {:.3} s", ns as f64 / 1e9));
    format!("{NO_SAMPLE}{}{length}: {BEGAN_BEFORE}", recording.name)
}

/// Returns the options that select samples, as the user can type them. Returns `None` if there are no such options.
fn selecting_options(input: &Input, events: &[EventSpec]) -> Option<String> {
    let list = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let options = [
        ("-C", input.cpus.as_ref().map(CpuSet::to_string)),
        ("-p", input.pids.as_ref().map(list)),
        ("-t", input.tids.as_ref().map(list)),
        ("--cgroups", (!input.cgroups.is_empty()).then(|| input.cgroups.join(","))),
        ("--time", input.times.as_ref().map(ToString::to_string)),
    ];
    let events = events.iter().map(|event| ("-e", Some(event.to_string())));
    let words = events.chain(options).filter_map(|(option, value)| Some(format!("{option} {}", value?)));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns the CPUs on which the samples were taken. Returns `None` if there are more than [`LOOKED_AT`] samples, or if
/// the samples do not contain a CPU.
fn cpus(recording: Recording) -> Option<CpuSet> {
    let layouts = recording.layouts().clone();
    let mut replay = recording.replay(Selection::default()).ok()?;
    let (mut cpus, mut samples) = (BTreeSet::new(), 0);
    loop {
        match replay.wait(None) {
            Wait::Batch(batch) => {
                let _ = batch.for_each(|_, record| -> ControlFlow<()> {
                    if record_type(record) == PERF_RECORD_SAMPLE {
                        samples += 1;
                        cpus.extend(layouts.attr_of(record).and_then(|attr| layouts.sample(attr).cpu(record)));
                    }
                    ControlFlow::Continue(())
                });
            }
            Wait::Ended(_) => break,
            Wait::Flushed | Wait::Woken | Wait::Timeout => {}
        }
        if samples > LOOKED_AT {
            return None;
        }
    }
    (!cpus.is_empty()).then(|| cpus.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::parse_events;

    use super::*;

    #[test]
    fn the_selection_is_shown_as_options() {
        let events = parse_events("sched:*/prev_pid == 9/,cpu-clock").unwrap();
        let input = Input {
            cpus: Some("0-3,9".parse().unwrap()),
            pids: Some(vec![1, 2]),
            tids: Some(vec![3]),
            times: Some("1.5,2".parse().unwrap()),
            ..Input::default()
        };
        let all = "-e sched:*/prev_pid == 9/ -e cpu-clock -C 0-3,9 -p 1,2 -t 3 --time 1.500000000,2.000000000";
        assert_eq!(selecting_options(&input, &events).as_deref(), Some(all));
        assert_eq!(selecting_options(&Input::default(), &[]), None);
    }
}
