//! `profile`: samples what the CPUs execute, by the hardware's cycles or, where there are none, by the clock.

use super::{FREQUENCY, Machine, Source, SourceError, Stacks, Tasks};
use crate::{
    abi::*,
    capture::{Frames, PerfEvent},
    spec::Rate,
};

const NAME: &str = "profile";

const KNOWN: &str = "-F/--freq HZ, --period N, -g/--call-graph, --[no-]user-callchain, --[no-]kernel-callchain, \
                     --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, -t/--tids LIST";

/// The source with these options.
pub(super) fn source(options: &str, machine: &dyn Machine) -> Result<Source, SourceError> {
    let cycles = machine.samples(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
    let (kind, config) = match cycles {
        true => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
        false => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
    };
    let mut source = Source::new(NAME, PerfEvent { kind, config, ..PerfEvent::default() }, FREQUENCY);
    source.note = Some(match cycles {
        true => "profile samples the hardware's cycles".to_owned(),
        false => "profile samples cpu-clock, as this machine has no hardware cycles that can be sampled".to_owned(),
    });
    // An idle CPU has no cycles; the clock has to be told.
    source.request.excluded.idle = !cycles;
    take(&mut source, options)?;
    let excluded = source.request.excluded;
    if excluded.user && excluded.kernel {
        return Err(nothing("with --exclude-user and --exclude-kernel nothing is sampled"));
    }
    if source.stacks.user == Some(Frames::Excluded) && source.stacks.kernel == Some(Frames::Excluded) {
        return Err(nothing("with --no-user-callchain and --no-kernel-callchain call chains are empty"));
    }
    Ok(source)
}

fn nothing(what: &'static str) -> SourceError {
    SourceError::Nothing { source_name: NAME, what }
}

fn take(source: &mut Source, options: &str) -> Result<(), SourceError> {
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let (flag, attached) = split(word);
        let mut value = || attached.or_else(|| words.next()).unwrap_or_default();
        let Source { request, stacks: Stacks { asked, user, kernel }, .. } = source;
        match flag {
            "-F" | "--freq" => {
                let value = value();
                let rate = Rate::frequency(value).ok_or_else(|| wrong("-F", "samples per second or max", value))?;
                source.rate = Some(rate);
            }
            "--period" => {
                let value = value();
                source.rate = Some(Rate::period(value).ok_or_else(|| wrong("--period", "a number above 0", value))?);
            }
            "-C" | "--cpus" => {
                let cpus = value().parse().map_err(|error| SourceError::Cpus { source_name: NAME, error })?;
                request.cpus = Some(cpus);
            }
            "-p" | "--pids" => source.tasks = Tasks::Processes(ids("-p", value())?),
            "-t" | "--tids" => source.tasks = Tasks::Threads(ids("-t", value())?),
            _ if attached.is_some() => return Err(unknown(word)),
            "-g" | "--call-graph" => *asked = true,
            "--user-callchain" => (*asked, *user) = (true, Some(Frames::Sampled)),
            "--no-user-callchain" => *user = Some(Frames::Excluded),
            "--kernel-callchain" => (*asked, *kernel) = (true, Some(Frames::Sampled)),
            "--no-kernel-callchain" => *kernel = Some(Frames::Excluded),
            "--exclude-user" => request.excluded.user = true,
            "--exclude-kernel" => request.excluded.kernel = true,
            _ => return Err(unknown(word)),
        }
    }
    Ok(())
}

/// A word's flag, and the value that is attached to it: `-F997`, `--freq=997`.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
        _ if word.starts_with("--") || word.len() <= 2 || !word.is_char_boundary(2) => (word, None),
        _ => (&word[..2], Some(word[2..].trim_start_matches('='))),
    }
}

fn ids(option: &'static str, list: &str) -> Result<Vec<u32>, SourceError> {
    let id = |text: &str| text.parse().ok().filter(|&id| id > 0);
    list.split(',').map(id).collect::<Option<_>>().ok_or_else(|| wrong(option, "ids of tasks, as 12,34", list))
}

fn wrong(option: &'static str, needs: &'static str, value: &str) -> SourceError {
    SourceError::OptionValue { source_name: NAME, option, needs, value: value.to_owned() }
}

fn unknown(option: &str) -> SourceError {
    SourceError::Option { source_name: NAME, option: option.to_owned(), known: KNOWN }
}
