//! A definition compiled for one event type.

use perf_prof_format::{
    spec::{did_you_mean_quoted, similar_names},
    tracefs::FilterError,
};
use thiserror::Error;

use super::{definition::Definition, key::Words, memo::Memo, plan_filter::PlanFilter, texts::Texts};
use crate::event::{
    EventType,
    reader::{Input, Read, ReadError, ReadKind, names, resolve},
};

/// How to read the keys and the value of a definition from the samples of one event type.
#[derive(Clone, Debug)]
pub struct Plan {
    keys: Vec<Read>,
    value: Option<Read>,
    filter: Option<PlanFilter>,
}

/// Why a definition does not fit an event type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The event has no field or member with this name.
    #[error("{event} has no field or member `{name}`{}", near_or_all(.similar, .fields))]
    Unknown {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
        /// Names that the user may have meant.
        similar: Vec<String>,
        /// The names of all fields.
        fields: Vec<String>,
    },
    /// The event has the field only with the option `str`.
    #[error(
        "{event} has `{name}` only with the option `str`: write syscall/str/, or syscall/name=fsync,str/ for some calls; \
             a recording contains it only if it was recorded with `str`"
    )]
    NeedsStrings {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
    },
    /// The samples have no call chain.
    #[error(
        "{event} has no call chains for `{name}`: use -g, or write {event}//stack/; a recording must be \
             made with one of them"
    )]
    NoCallchain {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
    },
    /// The samples have no cgroup id.
    #[error("the samples of {event} have no cgroup, which `{name}` needs: use --all-cgroups, also with `record`")]
    NoCgroup {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
    },
    /// The member has several values.
    #[error("`{name}` of {event} has several values, so it cannot be a key or be added up")]
    Several {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
    },
    /// The value is not a number.
    #[error("`{name}` of {event} cannot be added up: it is {kind}, not a number")]
    NoNumber {
        /// The name.
        name: String,
        /// The event's name.
        event: String,
        /// What the value is instead, for example "text".
        kind: &'static str,
    },
    /// The filter does not fit the event.
    #[error("where={text:?}: {error}{}", did_you_mean_quoted(.similar))]
    Filter {
        /// The text of the filter.
        text: String,
        /// The error.
        error: FilterError,
        /// Names that the user may have meant.
        similar: Vec<String>,
    },
    /// The event has no fields to filter by.
    #[error("where={text:?}: {event} has no fields, and a filter needs fields")]
    NoFields {
        /// The text of the filter.
        text: String,
        /// The event's name.
        event: String,
    },
}

impl Plan {
    /// Compiles a definition for an event type.
    pub fn new(definition: &Definition, event: &EventType) -> Result<Plan, PlanError> {
        let keys = definition.keys.iter().map(|name| read(name, event)).collect::<Result<_, _>>()?;
        let value = definition.value.as_ref().map(|name| number(name, event)).transpose()?;
        let filter = definition.filter.as_ref().map(|text| PlanFilter::new(text, event)).transpose()?;
        Ok(Plan { keys, value, filter })
    }

    /// Returns how the parts of the key are read.
    pub fn keys(&self) -> &[Read] {
        &self.keys
    }

    /// Returns how the added value is read; `None` if events are counted.
    pub fn added(&self) -> Option<&Read> {
        self.value.as_ref()
    }

    /// Returns the filter.
    pub fn filter(&self) -> Option<&PlanFilter> {
        self.filter.as_ref()
    }

    #[inline]
    pub(super) fn passes(&self, input: &Input<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.passes(&input.sample))
    }

    /// Returns the value to add: 1 if events are counted. Returns `None` if the record ends before the value.
    #[inline]
    pub(super) fn value(&self, input: &Input<'_>) -> Option<i128> {
        self.value.as_ref().map_or(Some(1), |value| value.number(input))
    }

    #[inline]
    pub(super) fn words(&self, input: &Input<'_>, texts: &mut Texts, memo: &mut Memo) -> Words {
        let mut words = Words::new();
        for key in &self.keys {
            words.push(memo.word(key, input, texts));
        }
        words
    }
}

/// Returns the end of a message about an unknown name: similar names, or all fields if no name is similar.
fn near_or_all(similar: &[String], fields: &[String]) -> String {
    match (similar, fields) {
        ([], []) => String::new(),
        ([], fields) => format!("; its fields are {}", fields.join(", ")),
        (similar, _) => did_you_mean_quoted(similar),
    }
}

/// Returns the names of an event's fields, without the members of all events. For the fields of a span's two events,
/// the list contains only `begin.NAME` and `end.NAME`.
fn fields(event: &EventType) -> Vec<String> {
    let all = names(event);
    let of_parts = ["begin.", "end."].into_iter().filter(|part| all.iter().any(|name| name.starts_with(part)));
    let of_parts: Vec<String> = of_parts.map(|part| format!("{part}NAME")).collect();
    let is_own = |name: &String| !name.starts_with('_') && !name.starts_with("common_") && !name.contains('.');
    all.into_iter().filter(is_own).chain(of_parts).collect()
}

/// Returns the names that the user may have meant. What other tools call lines and functions are members of call chains.
pub(super) fn similar(name: &str, event: &EventType) -> Vec<String> {
    match name.trim_start_matches('_') {
        "line" | "lines" | "srcline" => vec!["stack_lines".to_owned()],
        "func" | "function" | "sym" | "symbol" => vec!["stack".to_owned(), "stack_lines".to_owned()],
        _ => similar_names(name, names(event)),
    }
}

fn read(name: &str, event: &EventType) -> Result<Read, PlanError> {
    let (named, shown) = (name.to_owned(), event.shown_name());
    resolve(name, event).map_err(|error| match error {
        ReadError::Unknown if event.has_with_strings(name) => PlanError::NeedsStrings { name: named, event: shown },
        ReadError::Unknown => {
            PlanError::Unknown { name: named, event: shown, similar: similar(name, event), fields: fields(event) }
        }
        ReadError::NoCallchain => PlanError::NoCallchain { name: named, event: shown },
        ReadError::NoCgroup => PlanError::NoCgroup { name: named, event: shown },
        ReadError::Several => PlanError::Several { name: named, event: shown },
    })
}

fn number(name: &str, event: &EventType) -> Result<Read, PlanError> {
    let found = read(name, event)?;
    let no_number = |kind| PlanError::NoNumber { name: name.to_owned(), event: event.shown_name(), kind };
    match found.kind() {
        ReadKind::Number => Ok(found),
        ReadKind::Text => Err(no_number("text")),
        ReadKind::Bytes => Err(no_number("an array")),
    }
}
