//! The event that one selector requests. Does not know the machine, so wildcards are not expanded here.

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
    span::SpanSpec,
};

/// One event of a list of selectors, as the user requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The selector as typed, for messages.
    pub selector: String,
    /// The requested event.
    pub kind: EventKind,
    /// The trace filter that the kernel applies, or `None` if the selector has no filter.
    pub filter: Option<String>,
    /// The attributes.
    pub attrs: Attrs,
    /// The role of the event in a group.
    pub grouping: Grouping,
}

/// The kind of an event, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A tracepoint. Both names may contain wildcards.
    Tracepoint {
        /// The part before the colon.
        system: String,
        /// The part after the colon.
        name: String,
    },
    /// An event without a system: a built-in event source, an event that has a name in perf, or an event of a PMU.
    Source {
        /// The name of the source, event or PMU.
        name: String,
        /// The text of the first section. A built-in source has its options there; other events have their terms there.
        option: Option<String>,
        /// The modifiers after the colon.
        modifiers: Modifiers,
    },
    /// A breakpoint: an address in memory that is watched.
    Breakpoint {
        /// The address, the length and the accesses to watch.
        breakpoint: Breakpoint,
        /// The terms in the first section.
        option: Option<String>,
        /// The modifiers after the last colon.
        modifiers: Modifiers,
    },
    /// A dynamic probe.
    Probe(Probe),
    /// The time between two tracepoints.
    Span(Box<SpanSpec>),
}

impl EventSpec {
    /// Returns whether the selector has wildcards. A selector with wildcards can stand for several tracepoints, or for
    /// none.
    pub fn is_pattern(&self) -> bool {
        matches!(&self.kind, EventKind::Tracepoint { system, name } if is_glob(system) || is_glob(name))
    }

    /// Returns whether the selector requests the tracepoint `system:name`, or the probe that is recorded as
    /// `system:name`.
    pub fn matches(&self, system: &str, name: &str) -> bool {
        match &self.kind {
            EventKind::Tracepoint { system: s, name: n } => glob_matches(s, system) && glob_matches(n, name),
            EventKind::Probe(probe) => probe.matches(system, name),
            EventKind::Source { .. } | EventKind::Breakpoint { .. } | EventKind::Span(_) => false,
        }
    }

    /// Returns whether the name and its modifiers, without any section, would be parsed as a tracepoint. For example,
    /// `uncore:u` is a tracepoint, but `uncore//:u` is not.
    fn would_be_tracepoint(&self) -> bool {
        match &self.kind {
            EventKind::Source { name, modifiers, .. } => !modifiers.is_empty() && named_event(name).is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for EventSpec {
    /// Writes the simplest selector that requests the same event. It does not include the event's group.
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
            EventKind::Span(span) => {
                write!(f, "{span}")?;
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
        let attrs = match &self.kind {
            EventKind::Span(span) => format!("{}{}", SpanAttrs(span), self.attrs),
            _ => self.attrs.to_string(),
        };
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

struct SpanAttrs<'a>(&'a SpanSpec);

impl fmt::Display for SpanAttrs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_attrs(f)
    }
}

/// Returns the handler name of `system:name`: `system__name`, with `_` in place of each character that a Python name
/// cannot contain.
pub fn handler_name(system: &str, name: &str) -> String {
    source_handler_name(&format!("{system}__{name}"))
}

/// Returns the handler name of an event other than a tracepoint: its name, with `_` in place of each character that a
/// Python name cannot contain. If the name starts with a digit, an `_` precedes it.
pub fn source_handler_name(name: &str) -> String {
    let first = name.starts_with(|c: char| c.is_ascii_digit()).then_some('_');
    // Some numeric characters cannot be in a Python name, for example `²`.
    let is_allowed = |c: &char| c.is_alphabetic() || c.is_ascii_digit();
    first.into_iter().chain(name.chars().map(|c| if is_allowed(&c) { c } else { '_' })).collect()
}
