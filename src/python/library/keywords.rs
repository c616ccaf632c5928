//! The values of keyword arguments: their types and their parsers. The options of the command line use the same
//! parsers, so their messages are the same.

use std::{ffi::OsString, fmt::Display, ops::RangeInclusive};

use perf_prof_session::{plan::RunOption, recorder::Level};
use pyo3::{
    prelude::*,
    types::{PyBool, PyFloat, PyInt, PyString},
};

/// Why a value is refused.
pub enum Wrong {
    /// The value has none of the types that this text names.
    Type(&'static str),
    /// The value has the right type, but cannot be parsed. The text says why.
    Value(String),
}

/// Returns the name of the keyword that sets an option, for messages.
pub fn keyword_of(option: RunOption) -> &'static str {
    match option {
        RunOption::AllCpus => "all_cpus",
        RunOption::Cpus => "cpus",
        RunOption::Pids => "pid",
        RunOption::Tids => "tid",
        RunOption::Cgroups => "cgroup",
        RunOption::AllCgroups => "all_cgroups",
        RunOption::Exec => "exec",
        RunOption::Period => "count",
        RunOption::Frequency => "freq",
        RunOption::RingSize => "mmap_pages",
        RunOption::Watermark => "watermark",
        RunOption::SamplingLimit => "sampling_limit",
        RunOption::Monotonic => "monotonic",
        RunOption::Duration => "duration",
        RunOption::Recording => "output",
        RunOption::Input => "input",
        RunOption::Times => "time",
        RunOption::Jobs => "jobs",
        RunOption::Split => "split",
        RunOption::Limit => "limit",
        RunOption::InKernel => "in_kernel",
    }
}

/// Returns the value of a keyword that must be True or False.
pub fn switch(value: &Bound<'_, PyAny>) -> Result<bool, Wrong> {
    value.cast::<PyBool>().map(|value| value.is_true()).map_err(|_| Wrong::Type("True or False"))
}

/// Returns the value of a keyword that is True, False or a text: `default` for True, `None` for False, otherwise the
/// parsed text. `expected` describes the possible values, for messages.
pub fn switch_or<T, E: Display>(
    value: &Bound<'_, PyAny>,
    default: T,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Wrong> {
    match value.cast::<PyBool>() {
        Ok(is_on) => Ok(is_on.is_true().then_some(default)),
        Err(_) => parsed(one(value).ok_or(Wrong::Type(expected))?, parse),
    }
}

/// Parses a text. An error becomes [`Wrong::Value`].
pub fn parsed<T, E: Display>(text: String, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, Wrong> {
    parse(&text).map(Some).map_err(|error| Wrong::Value(error.to_string()))
}

/// Returns a str or a number as text.
pub fn text(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    one(value).ok_or(Wrong::Type("a number or a str"))
}

/// Returns a str or a number as text. Several values are joined with commas: `a,b`.
pub fn list(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    let all = || value.try_iter().ok()?.map(|element| one(&element.ok()?)).collect::<Option<Vec<String>>>();
    let joined = || all().filter(|all| !all.is_empty()).map(|all| all.join(","));
    one(value).or_else(joined).ok_or(Wrong::Type("a number, a str or a list of them"))
}

/// Returns a time as text. A number of seconds gets the unit `s`; a str is returned unchanged.
pub fn time(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    let text = one(value).ok_or(Wrong::Type("a number of seconds, or a str such as '50ms'"))?;
    Ok(value.extract::<f64>().map_or(text, |seconds| format!("{seconds:.9}s")))
}

/// Returns a time range as text. The value is a pair of times in seconds, or a str, which is returned unchanged.
pub fn time_range(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    match value.extract::<(f64, f64)>() {
        Ok((start, end)) => Ok(format!("{start:.9},{end:.9}")),
        Err(_) => one(value).ok_or(Wrong::Type("a str such as '10%/2', or a pair of times in seconds")),
    }
}

/// Returns the words of a command: the program and its arguments.
pub fn command(value: &Bound<'_, PyAny>) -> Result<Vec<OsString>, Wrong> {
    let words = || value.try_iter().ok()?.map(|word| word.ok()?.extract().ok()).collect::<Option<Vec<OsString>>>();
    let words = if value.is_instance_of::<PyString>() { None } else { words() };
    words.filter(|words| !words.is_empty()).ok_or(Wrong::Type("a list of words, such as ['make', '-j4']"))
}

/// Returns a parser of integers that must be in `range`.
pub fn number<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl FnOnce(&str) -> Result<T, String> {
    move |text| {
        let number =
            text.parse().ok().filter(|number| range.contains(number)).and_then(|number| number.try_into().ok());
        number.ok_or_else(|| match (range.start(), range.end()) {
            (least, &u64::MAX) => format!("`{text}` is not a number of {least} or more"),
            (least, most) => format!("`{text}` is not a number from {least} to {most}"),
        })
    }
}

/// Parses a compression level.
pub fn level(text: &str) -> Result<Level, String> {
    let level = text.parse().ok().and_then(Level::new);
    level.ok_or_else(|| format!("`{text}` is not a level from 1 to 22"))
}

/// Returns a str or a number as text; `None` for all other values. `True` and `False` are not numbers here.
fn one(value: &Bound<'_, PyAny>) -> Option<String> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let is_one =
        value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    is_one.then(|| value.str().ok()?.extract().ok()).flatten()
}
