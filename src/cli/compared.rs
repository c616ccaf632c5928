//! What a report or a table is compared with: an earlier recording (`--diff`) or a part of a recording (`--diff-time`).

use std::{path::PathBuf, str::FromStr};

use perf_prof_format::spec::TimeRanges;
use perf_prof_session::plan::Input;

/// A part of a recording.
#[derive(Clone, Debug)]
pub struct Part {
    /// The text that the user typed.
    text: String,
    times: TimeRanges,
}

impl FromStr for Part {
    type Err = <TimeRanges as FromStr>::Err;

    fn from_str(text: &str) -> Result<Part, Self::Err> {
        Ok(Part { text: text.to_owned(), times: text.parse()? })
    }
}

/// Returns the earlier recording and its name for messages. The options for reading the earlier recording are those of
/// `after`. Returns `None` if the user requests no comparison.
pub fn earlier(path: Option<PathBuf>, part: Option<Part>, after: &Input) -> Option<(Input, String)> {
    let path = path.or_else(|| part.as_ref().map(|_| after.path.clone()))?;
    let mut name = path.display().to_string();
    if let Some(part) = &part {
        name += &format!(" at {}", part.text);
    }
    let times = part.map(|part| part.times).or_else(|| after.times.clone());
    Some((Input { path, times, ..after.clone() }, name))
}
