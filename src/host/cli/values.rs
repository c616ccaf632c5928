//! Option values that several commands share: task ids, sample rates and verbosity.

use std::{path::Path, time::Duration};

use perf_prof_core::{
    plan::{Owner, Verbosity},
    spec::{Rate, parse_interval},
    sys::shell::shell_quote,
};

use super::option_error::OptionError;

/// A list of process ids or thread ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<u32>);

pub fn parse_count(text: &str) -> Result<Rate, String> {
    Rate::period(text).ok_or_else(|| format!("`{text}` is not a number above 0, such as 1000"))
}

pub fn parse_freq(text: &str) -> Result<Rate, String> {
    Rate::frequency(text).ok_or_else(|| format!("`{text}` is neither a frequency in Hz, such as 997, nor `max`"))
}

/// Parses ids of tasks that events can be attached to: 1 and above.
pub fn parse_ids(list: &str) -> Result<Ids, String> {
    ids(list, 1)
}

/// Parses ids of tasks that samples can have: 0 and above, since all idle tasks of the kernel have id 0.
pub fn parse_recorded_ids(list: &str) -> Result<Ids, String> {
    ids(list, 0)
}

fn ids(list: &str, least: u32) -> Result<Ids, String> {
    let id = |text: &str| text.trim().parse().ok().filter(|id| (least..=i32::MAX as u32).contains(id));
    let ids: Result<Vec<u32>, String> =
        list.split(',').map(|text| id(text).ok_or_else(|| no_id(text.trim()))).collect();
    ids.map(Ids)
}

/// Returns why a text is no id. If it may be the name of a task, it says how tasks are selected by their names.
fn no_id(text: &str) -> String {
    let by_name = match text.chars().next() {
        Some(first) if first.is_alphabetic() => format!(
            "; to select tasks by their name, write it with the event: `EVENT/comm==\"{text}\"/`, or with a source: \
             `offcpu/comm={text}/`"
        ),
        _ => String::new(),
    };
    format!("`{text}` is not a process or thread id{by_name}")
}

/// Reads the interval of `-i`. Other commands name a recording with `-i`, so an error mentions --input.
pub fn parse_interval_not_file(text: &str) -> Result<Duration, String> {
    parse_interval(text).map_err(|error| match Path::new(text).exists() {
        true => format!("{error}; --input {} reads the recording", shell_quote(text)),
        false => error.to_string(),
    })
}

pub fn rate(period: Option<Rate>, frequency: Option<Rate>) -> Result<Option<Rate>, OptionError> {
    match (period, frequency) {
        (Some(_), Some(_)) => Err(OptionError::PeriodAndFrequency),
        (period, frequency) => Ok(period.or(frequency)),
    }
}

/// Returns whose recordings are read. `force` is the option -f.
pub fn owner(force: bool) -> Owner {
    if force { Owner::Anybody } else { Owner::UserOrRoot }
}

pub fn verbosity(verbose: u8, quiet: bool) -> Verbosity {
    match (verbose, quiet) {
        (0, true) => Verbosity::Quiet,
        (0, false) => Verbosity::Normal,
        (1, _) => Verbosity::Verbose,
        (2.., _) => Verbosity::Debug,
    }
}
