//! The options in the first section of `profile`, `page-faults` and `breakpoint`, for example `-F 997 -g`, as in the C
//! implementation.

use perf_prof_capture::Frames;
use perf_prof_format::spec::Rate;

use super::{Source, SourceError, Stacks, Tasks};

const KNOWN: &str = "-F/--freq HZ, --period N, -N/--exit-N N, -g/--call-graph, --[no-]user-callchain, \
                     --[no-]kernel-callchain, --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, \
                     -t/--tids LIST";

/// Applies the options in `text` to a source. Returns the first word that is no option, if there is one.
pub(super) fn apply<'a>(source: &mut Source, name: &str, text: &'a str) -> Result<Option<&'a str>, SourceError> {
    let mut words = text.split_whitespace();
    let mut other = None;
    while let Some(word) = words.next() {
        let (flag, attached) = split(word);
        let mut value = || attached.or_else(|| words.next()).unwrap_or_default();
        let Source { request, stacks: Stacks { asked, user, kernel }, .. } = source;
        match flag {
            _ if !word.starts_with('-') && other.is_none() => other = Some(word),
            "-F" | "--freq" => {
                let value = value();
                let rate =
                    Rate::frequency(value).ok_or_else(|| wrong(name, "-F", "a number above 0 or `max`", value))?;
                source.rate = Some(rate);
            }
            "--period" => {
                let value = value();
                source.rate =
                    Some(Rate::period(value).ok_or_else(|| wrong(name, "--period", "a number above 0", value))?);
            }
            "-N" | "--exit-N" => {
                let value = value();
                let limit = value.parse().ok().filter(|&limit| limit > 0);
                source.limit = Some(limit.ok_or_else(|| wrong(name, "-N", "a number above 0", value))?);
            }
            "-C" | "--cpus" => {
                let cpus =
                    value().parse().map_err(|error| SourceError::Cpus { source_name: name.to_owned(), error })?;
                request.cpus = Some(cpus);
            }
            "-p" | "--pids" => source.tasks = Tasks::Processes(ids(name, "-p", value())?),
            "-t" | "--tids" => source.tasks = Tasks::Threads(ids(name, "-t", value())?),
            _ if attached.is_some() => return Err(unknown(name, word)),
            "-g" | "--call-graph" => *asked = true,
            "--user-callchain" => (*asked, *user) = (true, Some(Frames::Sampled)),
            "--no-user-callchain" => *user = Some(Frames::Excluded),
            "--kernel-callchain" => (*asked, *kernel) = (true, Some(Frames::Sampled)),
            "--no-kernel-callchain" => *kernel = Some(Frames::Excluded),
            "--exclude-user" => request.excluded.user = true,
            "--exclude-kernel" => request.excluded.kernel = true,
            _ => return Err(unknown(name, word)),
        }
    }
    Ok(other)
}

/// Returns whether the text of a first section contains options. Otherwise it contains perf's terms.
pub(super) fn are_in(text: &str) -> bool {
    text.trim_start().starts_with('-')
}

/// Splits a word into the flag and the value attached to it, as in `-F997` or `--freq=997`.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
        _ if word.starts_with("--") || word.len() <= 2 || !word.is_char_boundary(2) => (word, None),
        _ => (&word[..2], Some(word[2..].trim_start_matches('='))),
    }
}

fn ids(name: &str, option: &'static str, list: &str) -> Result<Vec<u32>, SourceError> {
    let id = |text: &str| text.parse().ok().filter(|&id| id > 0);
    list.split(',').map(id).collect::<Option<_>>().ok_or_else(|| wrong(name, option, "task ids such as `12,34`", list))
}

fn wrong(name: &str, option: &'static str, needs: &'static str, value: &str) -> SourceError {
    SourceError::OptionValue { source_name: name.to_owned(), option, needs, value: value.to_owned() }
}

pub(super) fn unknown(name: &str, option: &str) -> SourceError {
    SourceError::Option { source_name: name.to_owned(), option: option.to_owned(), known: KNOWN }
}
