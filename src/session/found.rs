//! What was found of a recording's samples, and what is said where a selection takes none of them. Then the recording is
//! looked at anew: who found samples pays nothing for it.

use std::{collections::BTreeSet, ops::ControlFlow};

use super::{
    plan::{Input, Verbosity},
    run_loop::Ending,
};
use crate::{
    abi::PERF_RECORD_SAMPLE,
    perfdata::{Recording, Selection},
    record::{Source as _, Wait, record_type},
    spec::{CpuSet, EventSpec, seconds},
    sys::output,
};

/// How many samples are looked at for their CPUs: of more it is not said which CPUs they are of.
const LOOKED_AT: u64 = 2_000_000;

/// How the text begins that says that nothing was selected.
const NO_SAMPLE: &str = "no sample of ";

/// Whether a line of what a replay said is that nothing was selected of the recording.
pub fn is_no_sample(line: &str) -> bool {
    line.strip_prefix("perf-prof: ").is_some_and(|text| text.starts_with(NO_SAMPLE))
}

/// How far a recording was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the end of what was selected.
    End,
    /// Something ended it before.
    Short,
}

impl Reach {
    /// What this ending says of it.
    pub fn of(ending: Ending) -> Reach {
        if let Ending::Source(_) = ending { Reach::End } else { Reach::Short }
    }
}

/// What became of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// So many were selected.
    pub delivered: u64,
    /// The id of so many is that of no event of the recording.
    pub strangers: u64,
    pub reach: Reach,
}

impl Found {
    /// What became of all samples of a recording, by what did of those of its parts, if that is known of each.
    pub fn of_all(parts: impl Iterator<Item = Option<Found>>) -> Option<Found> {
        let nothing = Found { delivered: 0, strangers: 0, reach: Reach::End };
        parts.into_iter().try_fold(nothing, |all, part| {
            let part = part?;
            Some(Found {
                delivered: all.delivered + part.delivered,
                strangers: all.strangers + part.strangers,
                reach: if part.reach == Reach::End { all.reach } else { Reach::Short },
            })
        })
    }

    /// The status to exit with where nothing else says one: an empty result is none where samples could not be read.
    pub fn status(&self) -> u8 {
        u8::from(self.delivered == 0 && self.strangers != 0 && self.reach == Reach::End)
    }

    /// Says which samples were left out, or that nothing was selected, if something could have been: the recording has samples,
    /// and not all are wanted.
    pub fn say(&self, input: &Input, events: &[EventSpec], whose: Asked) {
        let &Found { delivered, strangers, reach } = self;
        if strangers != 0 {
            output::say(format_args!("{strangers} samples were left out: the recording has no event with their ids"));
        } else if delivered == 0
            && reach == Reach::End
            && whose.is_told(input)
            && let Some(text) = text(input, events)
        {
            output::say(text);
        }
    }
}

/// Who is told that nothing was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Whoever asked for events, CPUs, tasks or times.
    Here(Verbosity),
    /// The first line of a script may ask for its events and for silence: how quiet it is, who asks for more is told.
    ByScript(Verbosity),
}

impl Asked {
    fn is_told(self, input: &Input) -> bool {
        let Input { cpus, pids, tids, times, .. } = input;
        match self {
            Asked::Here(verbosity) => verbosity > Verbosity::Quiet,
            Asked::ByScript(Verbosity::Quiet) => cpus.is_some() || pids.is_some() || tids.is_some() || times.is_some(),
            Asked::ByScript(_) => true,
        }
    }
}

fn text(input: &Input, events: &[EventSpec]) -> Option<String> {
    let asked = asked(input, events)?;
    // What came through a pipe is gone, and whether it had samples with it.
    if !input.path.is_file() && !input.path.is_dir() {
        return Some(format!("no sample matches `{asked}`"));
    }
    let mut recording = Recording::open(&input.path).ok()?;
    let name = recording.name.clone();
    let (first, last) = recording.times().ok()??;
    let mut text = format!("{NO_SAMPLE}{name} matches `{asked}`: its samples are of `--time {},", seconds(first));
    text += &format!("{}`", seconds(last));
    if input.cpus.is_some()
        && let Some(cpus) = cpus(recording)
    {
        let which = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        text += &format!(", and of {which} {cpus}");
    }
    if input.pids.is_some() || input.tids.is_some() {
        text += &format!("; `perf-prof report -i {name} --sort pid,tid,comm` lists their tasks");
    }
    Some(text)
}

/// The options that say what is wanted; `None` without any.
fn asked(input: &Input, events: &[EventSpec]) -> Option<String> {
    let list = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let options = [
        ("-C", input.cpus.as_ref().map(CpuSet::to_string)),
        ("-p", input.pids.as_ref().map(list)),
        ("-t", input.tids.as_ref().map(list)),
        ("--time", input.times.as_ref().map(ToString::to_string)),
    ];
    let events = events.iter().map(|event| ("-e", Some(event.to_string())));
    let words = events.chain(options).filter_map(|(option, value)| Some(format!("{option} {}", value?)));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The CPUs that samples are of; `None` where there are too many samples to look at, or they do not say.
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
    use super::*;
    use crate::spec::parse_events;

    #[test]
    fn what_was_asked_for_is_named_as_it_can_be_typed() {
        let events = parse_events("sched:*/prev_pid == 9/,cpu-clock").unwrap();
        let input = Input {
            cpus: Some("0-3,9".parse().unwrap()),
            pids: Some(vec![1, 2]),
            tids: Some(vec![3]),
            times: Some("1.5,2".parse().unwrap()),
            ..Input::default()
        };
        let all = "-e sched:*/prev_pid == 9/ -e cpu-clock -C 0-3,9 -p 1,2 -t 3 --time 1.500000000,2.000000000";
        assert_eq!(asked(&input, &events).as_deref(), Some(all));
        assert_eq!(asked(&Input::default(), &[]), None);
    }
}
