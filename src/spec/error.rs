//! What can be wrong with a selector, named so that the user finds it. Knows nothing of the machine.

use std::fmt;

use super::{cpus::CpuSetError, probe::ProbeSyntaxError};

/// What opens a run of text in which `,` and `/` do not separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bracket {
    /// `'`
    Single,
    /// `"`
    Double,
    /// `(`
    Parenthesis,
    /// `{`
    Brace,
}

impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bracket::Single => "'",
            Bracket::Double => "\"",
            Bracket::Parenthesis => "(",
            Bracket::Brace => "{",
        })
    }
}

/// What is wrong with a list of selectors. `selector` is the one that it is wrong with, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing between two commas, or nothing at all.
    #[error("an event is missing in `{list}`: write system:name[,system:name...]")]
    Missing {
        /// The list.
        list: String,
    },
    /// A section without its `/`.
    #[error("{selector}: the section `/{section}` is not closed, end it with `/`")]
    UnclosedSection {
        /// The selector.
        selector: String,
        /// The section's text.
        section: String,
    },
    /// A quote or a parenthesis without its counterpart.
    #[error("{text}: the {bracket} is never closed")]
    Unclosed {
        /// What is never closed.
        bracket: Bracket,
        /// The text from the selector's beginning.
        text: String,
    },
    /// Not a name that an event can have.
    #[error(
        "{selector}: `{name}` cannot be an event's name; a tracepoint is written system:name, as sched:sched_wakeup"
    )]
    Name {
        /// The selector.
        selector: String,
        /// The name.
        name: String,
    },
    /// A wildcard in something else than a tracepoint.
    #[error("{selector}: wildcards expand over tracepoints only, written system:name, as sched:* or *:*wakeup*")]
    Wildcard {
        /// The selector.
        selector: String,
    },
    /// An attribute that nobody knows.
    #[error("{selector}: unknown attribute `{attribute}`{}; known are {known}", did_you_mean(near))]
    Attribute {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: String,
        /// Known ones that it may have been meant to be.
        near: Vec<&'static str>,
        /// The known ones.
        known: &'static str,
    },
    /// An attribute of another profiler of the C implementation.
    #[error("{selector}: the attribute `{attribute}` belongs to other profilers than python; known are {known}")]
    ForeignAttribute {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: String,
        /// The known ones.
        known: &'static str,
    },
    /// An attribute that only other events have.
    #[error(
        "{selector}: {attribute} is for events that are no tracepoints: each time that a tracepoint is passed is an event"
    )]
    NotOfTracepoints {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
    },
    /// Not a place in memory.
    #[error(
        "{selector}: a breakpoint is written mem:ADDR[/LEN][:rwx], with an address as 0x601040, a length of 1, 2, 4 or 8 \
         and the accesses that it stops at"
    )]
    Breakpoint {
        /// The selector, as far as it was read.
        selector: String,
    },
    /// Not a place of a probe.
    #[error("{selector}: {error}")]
    Probe {
        /// The selector, and what follows it in the list.
        selector: String,
        /// What is wrong.
        error: ProbeSyntaxError,
    },
    /// A group in a group.
    #[error("{group}: a group cannot hold another one, beginning at `{inner}`")]
    NestedGroup {
        /// The outer one.
        group: String,
        /// The text from the inner one's beginning.
        inner: String,
    },
    /// A group without events.
    #[error("{group}: the group is empty; write {{event,event...}}")]
    EmptyGroup {
        /// The group.
        group: String,
    },
    /// Something behind a group that is no modifier.
    #[error(
        "{group}: `{behind}` cannot follow a group; known are `:S` (the leader is sampled and reads all) and \
         the letters ukhGHIpP, as in {{a,b}}:Su"
    )]
    BehindGroup {
        /// The group.
        group: String,
        /// What follows.
        behind: String,
    },
    /// Modifiers of a group for events that have none.
    #[error(
        "{selector}: a tracepoint takes no modifiers, and its group has `:{modifiers}`; give them to the other events"
    )]
    GroupModifiers {
        /// The event.
        selector: String,
        /// The letters.
        modifiers: String,
    },
    /// How a member is to be sampled in a group whose leader alone is.
    #[error("{selector}: {attribute} says how an event is sampled, and of a group with `:S` only the first one is")]
    NotSampled {
        /// The event.
        selector: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// A value that the attribute cannot have.
    #[error("{selector}: {attribute}: {reason}")]
    Value {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
        /// Why not.
        reason: ValueError,
    },
}

/// What is wrong with an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It has none and needs one.
    #[error("needs a value, {0}")]
    Missing(&'static str),
    /// It has one and takes none.
    #[error("takes no value, but `{0}` was given")]
    Unwanted(String),
    /// It was given before.
    #[error("was given twice")]
    Twice,
    /// Not a depth of stacks.
    #[error("`{0}` is not a number of frames between 1 and 65535")]
    Frames(String),
    /// Not a period.
    #[error("`{0}` is not a number of occurrences above 0")]
    Period(String),
    /// Not a frequency.
    #[error("`{0}` is neither a number of samples per second nor `max`")]
    Frequency(String),
    /// Not a list of CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuSetError),
}

fn did_you_mean(near: &[&str]) -> String {
    match near {
        [] => " (a filter that holds a `/` has to be quoted)".to_owned(),
        near => format!(" (did you mean {}?)", near.join(" or ")),
    }
}
