//! Lists of process and thread ids, `1,2,3`.

use thiserror::Error;

/// A list of process ids or thread ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<u32>);

impl From<Ids> for Vec<u32> {
    fn from(Ids(ids): Ids) -> Self {
        ids
    }
}

/// A text that is no id. If it may be the name of a task, the message says how tasks are selected by their names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a process or thread id{by_name}", by_name = by_name(.0))]
pub struct IdError(String);

fn by_name(text: &str) -> String {
    match text.chars().next() {
        Some(first) if first.is_alphabetic() => format!(
            "; to select tasks by their name, write it with the event: `EVENT/comm==\"{text}\"/`, or with a source: \
             `offcpu/comm={text}/`"
        ),
        _ => String::new(),
    }
}

/// Parses ids of tasks that events can be attached to: 1 and above.
pub fn parse_ids(list: &str) -> Result<Ids, IdError> {
    ids(list, 1)
}

/// Parses ids of tasks that samples can have: 0 and above, because all idle tasks of the kernel have the id 0.
pub fn parse_recorded_ids(list: &str) -> Result<Ids, IdError> {
    ids(list, 0)
}

fn ids(list: &str, least: u32) -> Result<Ids, IdError> {
    let id = |text: &str| text.parse().ok().filter(|id| (least..=i32::MAX as u32).contains(id));
    let ids = list.split(',').map(str::trim).map(|text| id(text).ok_or_else(|| IdError(text.to_owned())));
    ids.collect::<Result<_, _>>().map(Ids)
}
