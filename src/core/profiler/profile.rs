//! `profile`: samples what the CPUs execute. Uses hardware cycles, or the CPU clock if the machine cannot sample
//! cycles.

use super::{BuiltIn, FREQUENCY, Machine, Source, SourceError, Stacks, Tasks};
use crate::{
    abi::*,
    capture::{Frames, PerfEvent},
    spec::{NamedEvent, Rate},
};

const NAME: &str = "profile";

/// The entry of this source in the list of built-in sources.
pub(super) const BUILT_IN: BuiltIn = BuiltIn { name: NAME, recorded_as: &[CYCLES, CLOCK], source };

/// The event that `profile` samples. If the machine cannot sample it, `profile` samples `CLOCK` instead.
const CYCLES: NamedEvent = NamedEvent { kind: PERF_TYPE_HARDWARE, config: PERF_COUNT_HW_CPU_CYCLES };
const CLOCK: NamedEvent = NamedEvent { kind: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_CPU_CLOCK };

const KNOWN: &str = "-F/--freq HZ, --period N, -g/--call-graph, --[no-]user-callchain, --[no-]kernel-callchain, \
                     --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, -t/--tids LIST";

/// Returns the source with these options.
fn source(options: &str, machine: &dyn Machine) -> Result<Source, SourceError> {
    let cycles = machine.can_sample(CYCLES.kind, CYCLES.config);
    let NamedEvent { kind, config } = if cycles { CYCLES } else { CLOCK };
    let mut source = Source::new(NAME, PerfEvent { kind, config, ..PerfEvent::default() }, FREQUENCY);
    source.note = Some(match cycles {
        true => "profile samples the hardware's cycles".to_owned(),
        false => "profile samples cpu-clock, because this machine cannot sample hardware cycles".to_owned(),
    });
    // An idle CPU does not count cycles, but the clock also counts there. So idle tasks are excluded from the clock.
    source.request.excluded.idle = !cycles;
    apply_options(&mut source, options)?;
    let excluded = source.request.excluded;
    if excluded.user && excluded.kernel {
        return Err(nothing("with both --exclude-user and --exclude-kernel, nothing is sampled"));
    }
    if source.stacks.user == Some(Frames::Excluded) && source.stacks.kernel == Some(Frames::Excluded) {
        return Err(nothing("with both --no-user-callchain and --no-kernel-callchain, callchains are empty"));
    }
    Ok(source)
}

fn nothing(what: &'static str) -> SourceError {
    SourceError::Nothing { source_name: NAME, what }
}

fn apply_options(source: &mut Source, options: &str) -> Result<(), SourceError> {
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let (flag, attached) = split(word);
        let mut value = || attached.or_else(|| words.next()).unwrap_or_default();
        let Source { request, stacks: Stacks { asked, user, kernel }, .. } = source;
        match flag {
            "-F" | "--freq" => {
                let value = value();
                let rate = Rate::frequency(value).ok_or_else(|| wrong("-F", "a number above 0 or `max`", value))?;
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

/// Splits a word into the flag and the value attached to it, as in `-F997` or `--freq=997`.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
        _ if word.starts_with("--") || word.len() <= 2 || !word.is_char_boundary(2) => (word, None),
        _ => (&word[..2], Some(word[2..].trim_start_matches('='))),
    }
}

fn ids(option: &'static str, list: &str) -> Result<Vec<u32>, SourceError> {
    let id = |text: &str| text.parse().ok().filter(|&id| id > 0);
    list.split(',').map(id).collect::<Option<_>>().ok_or_else(|| wrong(option, "task ids such as `12,34`", list))
}

fn wrong(option: &'static str, needs: &'static str, value: &str) -> SourceError {
    SourceError::OptionValue { source_name: NAME, option, needs, value: value.to_owned() }
}

fn unknown(option: &str) -> SourceError {
    SourceError::Option { source_name: NAME, option: option.to_owned(), known: KNOWN }
}
