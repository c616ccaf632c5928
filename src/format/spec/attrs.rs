//! The attributes of an event: `stack`, `max-stack=`, `alias=`, `cpus=`, `str=`, `period=`, `freq=`, `sample=`, and the
//! arguments of a probe.

use std::fmt;

use super::{
    cpus::CpuSet,
    error::{SpecError, ValueError},
    near::similar_names,
    parse::{quoted, unquote},
    probe_args::ProbeArgument,
    terms::Rate,
};
use crate::abi::system_calls;

/// The known attributes, as error messages list them.
const KNOWN: &str = "stack, max-stack=N, alias=NAME, cpus=LIST, for tracepoints also str=FIELD+FIELD..., for events other than tracepoints also period=N, freq=HZ, sample=MEMBER+MEMBER..., for probes also NAME=FETCH";

const NAMES: [&str; 10] = ["stack", "max-stack", "alias", "cpus", "str", "period", "c", "freq", "F", "sample"];

/// Attributes that only the C implementation of perf-prof supports. They are refused, because it would be misleading to
/// accept an attribute that has no effect here.
const FOREIGN: [&str; 15] = [
    "key", "top-by", "top-add", "comm", "exec", "ptr", "size", "num", "role", "untraced", "trigger", "push", "pull",
    "vm", "printkey",
];

/// The setting of one event that decides if its samples have a call chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// The options that apply to all events decide.
    #[default]
    Inherit,
    /// The samples have a call chain, even if the options that apply to all events do not request one.
    On,
}

/// An event's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Set by `stack`, and implied by `max-stack=`.
    pub stack: Stack,
    /// `max-stack=N`: the maximum number of frames.
    pub max_stack: Option<u16>,
    /// `alias=NAME`: replaces the event's name in handler names and in `_event`.
    pub alias: Option<String>,
    /// `cpus=LIST`: the CPUs on which this event is opened.
    pub cpus: Option<CpuSet>,
    /// `str=FIELD+FIELD...`: the fields of a tracepoint that point to strings. These strings are read.
    pub strings: Vec<String>,
    /// `period=N`, `c=N`, `freq=HZ`, `F=HZ`: how often an event other than a tracepoint is sampled.
    pub rate: Option<Rate>,
    /// `sample=MEMBER+MEMBER...`: members that the event's samples hold in addition to the usual ones.
    pub sample: Vec<String>,
    /// `NAME=FETCH`: the arguments of a probe.
    pub arguments: Vec<ProbeArgument>,
}

impl Attrs {
    /// Parses one attribute, which is written as `name` or `name=value`, and stores it in `self`. Empty text is
    /// ignored.
    pub(super) fn add(&mut self, selector: &str, text: &str) -> Result<(), SpecError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquote(value.trim()))),
            None => (text.trim(), None),
        };
        let failed =
            |attribute, reason: ValueError| Err(SpecError::Value { selector: selector.to_owned(), attribute, reason });
        match (name, value.filter(|value| !value.is_empty())) {
            ("", None) if value.is_none() => {}
            ("stack", Some(value)) => return failed("stack", ValueError::Unwanted(value.to_owned())),
            ("stack", None) => self.stack = Stack::On,
            ("max-stack", None) => return failed("max-stack", ValueError::Missing("max-stack=N")),
            ("max-stack", Some(value)) => match value.parse() {
                Ok(1..) if self.max_stack.is_some() => return failed("max-stack", ValueError::Twice),
                Ok(frames @ 1u16..) => {
                    self.stack = Stack::On;
                    self.max_stack = Some(frames);
                }
                _ => return failed("max-stack", ValueError::Frames(value.to_owned())),
            },
            ("alias", None) => return failed("alias", ValueError::Missing("alias=NAME")),
            ("alias", Some(_)) if self.alias.is_some() => return failed("alias", ValueError::Twice),
            ("alias", Some(value)) => self.alias = Some(value.to_owned()),
            ("cpus", None) => return failed("cpus", ValueError::Missing("cpus=LIST")),
            ("cpus", Some(_)) if self.cpus.is_some() => return failed("cpus", ValueError::Twice),
            ("cpus", Some(value)) => match value.parse() {
                Ok(cpus) => self.cpus = Some(cpus),
                Err(error) => return failed("cpus", ValueError::Cpus(error)),
            },
            ("period" | "c" | "freq" | "F", Some(_)) if self.rate.is_some() => {
                return failed("period or freq", ValueError::Twice);
            }
            ("period" | "c", value) => match Rate::period(value.unwrap_or_default()) {
                Some(rate) => self.rate = Some(rate),
                None => return failed("period", ValueError::Period(value.unwrap_or_default().to_owned())),
            },
            ("freq" | "F", value) => match Rate::frequency(value.unwrap_or_default()) {
                Some(rate) => self.rate = Some(rate),
                None => return failed("freq", ValueError::Frequency(value.unwrap_or_default().to_owned())),
            },
            ("str", None) => return failed("str", missing_strings(selector)),
            ("str", Some(_)) if !self.strings.is_empty() => return failed("str", ValueError::Twice),
            ("str", Some(value)) => self.strings.extend(value.split('+').map(|name| name.trim().to_owned())),
            ("sample", None) => return failed("sample", ValueError::Missing("sample=MEMBER+MEMBER...")),
            ("sample", Some(value)) => self.sample.extend(value.split('+').map(|name| name.trim().to_owned())),
            (name, _) => return Err(unknown(selector, name)),
        }
        Ok(())
    }
}

/// Returns the error for `str` without fields. For a system call, `str` is an option of the source of system calls.
fn missing_strings(selector: &str) -> ValueError {
    let name = selector.split('/').next().unwrap_or_default().trim();
    match system_calls::names().binary_search(&name) {
        Ok(_) => ValueError::OfSystemCall(name.to_owned()),
        Err(_) => ValueError::Missing("str=FIELD+FIELD..."),
    }
}

impl Attrs {
    pub(super) fn has(name: &str) -> bool {
        NAMES.contains(&name)
    }

    /// If an attribute is set that a tracepoint cannot have, returns the name of this attribute.
    pub(super) fn non_tracepoint_attribute(&self) -> Option<&'static str> {
        match (self.rate, self.sample.is_empty()) {
            (Some(Rate::Period(_)), _) => Some("period"),
            (Some(_), _) => Some("freq"),
            (None, false) => Some("sample"),
            (None, true) => None,
        }
    }
}

impl fmt::Display for Attrs {
    /// Writes the attributes as sections of a selector, each with its closing `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stack, self.max_stack) {
            (_, Some(frames)) => write!(f, "max-stack={frames}/")?,
            (Stack::On, None) => f.write_str("stack/")?,
            (Stack::Inherit, None) => {}
        }
        if let Some(alias) = &self.alias {
            write!(f, "alias={}/", quoted(alias))?;
        }
        if let Some(cpus) = &self.cpus {
            write!(f, "cpus={cpus}/")?;
        }
        if !self.strings.is_empty() {
            write!(f, "str={}/", quoted(&self.strings.join("+")))?;
        }
        match self.rate {
            Some(Rate::Period(period)) => write!(f, "period={period}/")?,
            Some(Rate::Frequency(frequency)) => write!(f, "freq={frequency}/")?,
            Some(Rate::MaxFrequency) => f.write_str("freq=max/")?,
            None => {}
        }
        if !self.sample.is_empty() {
            write!(f, "sample={}/", quoted(&self.sample.join("+")))?;
        }
        self.arguments.iter().try_for_each(|argument| write!(f, "{}/", quoted(&argument.to_string())))
    }
}

/// Returns the attribute that the user may have meant by a filter such as `alia=x`: the name before the `=` is the
/// beginning of the attribute's name, or is similar to it.
pub fn attribute_meant_by(filter: &str) -> Option<&'static str> {
    // The minimum length in bytes of a beginning that is taken for an attribute's name. Shorter beginnings fit too many
    // words.
    const SHORTEST: usize = 3;
    let (name, value) = filter.split_once('=').unwrap_or((filter, ""));
    if value.starts_with('=') {
        // `name==value` compares a field with a value, so no attribute is meant.
        return None;
    }
    let name = name.trim();
    let long = || NAMES.into_iter().filter(|name| name.len() > 1);
    let begun = long().find(|attribute| name.len() >= SHORTEST && attribute.starts_with(name));
    begun.or_else(|| similar_names(name, long()).first().and_then(|near| long().find(|name| name == near)))
}

fn unknown(selector: &str, name: &str) -> SpecError {
    let (selector, attribute) = (selector.to_owned(), name.to_owned());
    if FOREIGN.contains(&name) {
        return SpecError::ForeignAttribute { selector, attribute, known: KNOWN };
    }
    let near = similar_names(name, NAMES.into_iter().filter(|name| name.len() > 1));
    SpecError::Attribute { selector, attribute, near, known: KNOWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_attribute_in_a_filter_is_found() {
        let rows = [
            ("stak", Some("stack")),
            ("stack", Some("stack")),
            ("ali=x", Some("alias")),
            ("max-stack=5", Some("max-stack")),
            ("cpus = 0-3", Some("cpus")),
            ("pdi==5", None),
            ("cpu==5", None),
            ("st", None),
            ("comm == \"stack\"", None),
            ("", None),
        ];
        for (filter, attribute) in rows {
            assert_eq!(attribute_meant_by(filter), attribute, "{filter}");
        }
    }
}
