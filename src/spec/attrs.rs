//! The attributes of an event: `stack`, `max-stack=`, `alias=`, `cpus=`, `period=`, `freq=`, `sample=`. Knows nothing of the
//! machine.

use std::fmt;

use super::{
    cpus::CpuSet,
    error::{SpecError, ValueError},
    near::near,
    parse::{quoted, unquote},
    terms::Rate,
};

/// What the known attributes are, for error messages.
const KNOWN: &str = "stack, max-stack=N, alias=NAME, cpus=LIST, and for what is no tracepoint period=N, freq=HZ, sample=MEMBER+MEMBER...";

/// Their names.
const NAMES: [&str; 9] = ["stack", "max-stack", "alias", "cpus", "period", "c", "freq", "F", "sample"];

/// Attributes which the C implementation's other profilers have. Accepted silently they would do nothing here.
const FOREIGN: [&str; 15] = [
    "key", "top-by", "top-add", "comm", "exec", "ptr", "size", "num", "role", "untraced", "trigger", "push", "pull",
    "vm", "printkey",
];

/// Whether an event's samples carry a call chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// As the options for all events say.
    #[default]
    Inherit,
    /// They do, whatever the options say.
    On,
}

/// An event's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// `stack`, or implied by `max-stack=`.
    pub stack: Stack,
    /// `max-stack=N`: how many frames at most.
    pub max_stack: Option<u16>,
    /// `alias=NAME`: stands for the event's name in handler names and in `_event`.
    pub alias: Option<String>,
    /// `cpus=LIST`: where this event is opened.
    pub cpus: Option<CpuSet>,
    /// `period=N`, `c=N`, `freq=HZ`, `F=HZ`: how often what is no tracepoint is sampled.
    pub rate: Option<Rate>,
    /// `sample=MEMBER+MEMBER...`: what its samples hold beside the usual.
    pub sample: Vec<String>,
}

impl Attrs {
    /// Takes one attribute's text, `name` or `name=value`; an empty one is none.
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
            ("sample", None) => return failed("sample", ValueError::Missing("sample=MEMBER+MEMBER...")),
            ("sample", Some(value)) => self.sample.extend(value.split('+').map(|name| name.trim().to_owned())),
            (name, _) => return Err(unknown(selector, name)),
        }
        Ok(())
    }
}

impl Attrs {
    /// An attribute that a tracepoint cannot have.
    pub(super) fn of_sources(&self) -> Option<&'static str> {
        match (self.rate, self.sample.is_empty()) {
            (Some(Rate::Period(_)), _) => Some("period"),
            (Some(_), _) => Some("freq"),
            (None, false) => Some("sample"),
            (None, true) => None,
        }
    }
}

impl fmt::Display for Attrs {
    /// As sections of a selector, each with its closing `/`.
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
        match self.rate {
            Some(Rate::Period(period)) => write!(f, "period={period}/")?,
            Some(Rate::Frequency(frequency)) => write!(f, "freq={frequency}/")?,
            Some(Rate::MaxFrequency) => f.write_str("freq=max/")?,
            None => {}
        }
        if !self.sample.is_empty() {
            write!(f, "sample={}/", quoted(&self.sample.join("+")))?;
        }
        Ok(())
    }
}

fn unknown(selector: &str, name: &str) -> SpecError {
    let (selector, attribute) = (selector.to_owned(), name.to_owned());
    if FOREIGN.contains(&name) {
        return SpecError::ForeignAttribute { selector, attribute, known: KNOWN };
    }
    let near = near(name, NAMES.into_iter().filter(|name| name.len() > 1));
    SpecError::Attribute { selector, attribute, near, known: KNOWN }
}
