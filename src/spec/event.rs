//! What one selector asks for. Knows nothing of the machine: a pattern stays a pattern here.

use std::fmt;

use super::{
    attrs::Attrs,
    breakpoint::Breakpoint,
    glob::{glob_matches, is_glob},
    grouping::Grouping,
    modifiers::Modifiers,
    parse::quoted,
    perf_names::named_event,
    probe::Probe,
};

/// One event of the list, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The selector as typed, for messages.
    pub selector: String,
    /// What is asked for.
    pub kind: EventKind,
    /// The kernel's trace filter; `None` when empty.
    pub filter: Option<String>,
    /// The attributes.
    pub attrs: Attrs,
    /// Its part in a group.
    pub grouping: Grouping,
}

/// Which event it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A tracepoint; both names may hold wildcards.
    Tracepoint {
        /// The part before the colon.
        system: String,
        /// The part after it.
        name: String,
    },
    /// What has a name but no system: a built-in event source, an event by its perf name, a PMU.
    Source {
        /// Its name.
        name: String,
        /// The text of its first section: options of a built-in source, terms of others.
        option: Option<String>,
        /// The letters behind the colon.
        modifiers: Modifiers,
    },
    /// A place in memory that is watched.
    Breakpoint {
        /// Which place.
        breakpoint: Breakpoint,
        /// The terms of its first section.
        option: Option<String>,
        /// The letters behind the last colon.
        modifiers: Modifiers,
    },
    /// A dynamic probe.
    Probe(Probe),
}

impl EventSpec {
    /// Whether it has wildcards, so that it may stand for several tracepoints or for none.
    pub fn is_pattern(&self) -> bool {
        matches!(&self.kind, EventKind::Tracepoint { system, name } if is_glob(system) || is_glob(name))
    }

    /// Whether it asks for the tracepoint `system:name`, or for the probe that is recorded as that.
    pub fn matches(&self, system: &str, name: &str) -> bool {
        match &self.kind {
            EventKind::Tracepoint { system: s, name: n } => glob_matches(s, system) && glob_matches(n, name),
            EventKind::Probe(probe) => probe.kind.name() == system && probe.recorded_name() == name,
            EventKind::Source { .. } | EventKind::Breakpoint { .. } => false,
        }
    }

    /// Whether its name and letters alone would be read as a tracepoint: `uncore:u` is one, `uncore//:u` is not.
    fn would_be_tracepoint(&self) -> bool {
        match &self.kind {
            EventKind::Source { name, modifiers, .. } => !modifiers.is_empty() && named_event(name).is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for EventSpec {
    /// A selector that asks for the same, in its simplest form, whatever group it is in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, modifiers) = match &self.kind {
            EventKind::Tracepoint { system, name } => {
                write!(f, "{system}:{name}")?;
                (&self.filter, None)
            }
            EventKind::Probe(probe) => {
                write!(f, "{probe}")?;
                (&self.filter, None)
            }
            EventKind::Source { name, option, modifiers } => {
                f.write_str(name)?;
                (option, Some(modifiers))
            }
            EventKind::Breakpoint { breakpoint, option, modifiers } => {
                write!(f, "{breakpoint}")?;
                (option, Some(modifiers))
            }
        };
        let attrs = self.attrs.to_string();
        match first {
            Some(first) => write!(f, "/{}/{attrs}", quoted(first))?,
            None if !attrs.is_empty() || self.would_be_tracepoint() => write!(f, "//{attrs}")?,
            None => {}
        }
        match modifiers {
            Some(modifiers) if !modifiers.is_empty() => write!(f, ":{modifiers}"),
            _ => Ok(()),
        }
    }
}

/// The name of the handler of `system:name`: `system__name`, with what no Python name can hold turned to `_`.
pub fn handler_name(system: &str, name: &str) -> String {
    source_handler_name(&format!("{system}__{name}"))
}

/// The name of the handler of an event that is no tracepoint: its name, with what no Python name can hold turned to `_`.
pub fn source_handler_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect()
}
