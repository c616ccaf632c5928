//! The errors of selectors. The messages show the wrong part of the selector.

use std::fmt;

use super::{cpus::CpuSetError, near::did_you_mean_aside, probe::ProbeSyntaxError, quantity::QuantityError};

/// An opening quote or bracket, for messages that say that it is never closed.
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

/// An error in a list of selectors. The field `selector` is the text of the wrong selector, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The list is empty, or there is no event between two commas.
    #[error("the list of events `{list}` is empty or has an empty element: write system:name[,system:name...]")]
    Missing {
        /// The list.
        list: String,
    },
    /// A section without its closing `/`.
    #[error("{selector}: the section `/{section}` is not closed; end it with `/`{}", path_hint(.selector))]
    UnclosedSection {
        /// The selector.
        selector: String,
        /// The section's text.
        section: String,
    },
    /// A quote, a parenthesis or a brace that is never closed.
    #[error("{text}: the {bracket} is never closed")]
    Unclosed {
        /// The character that is never closed.
        bracket: Bracket,
        /// The text from the start of the selector.
        text: String,
    },
    /// A name that no event can have.
    #[error(
        "{selector}: `{name}` is not a valid event name; write a tracepoint as system:name, for example sched:sched_wakeup"
    )]
    Name {
        /// The selector.
        selector: String,
        /// The name.
        name: String,
    },
    /// A wildcard in a selector of an event other than a tracepoint.
    #[error(
        "{selector}: wildcards match tracepoints only; write system:name, for example sched:* or *:*wakeup*, and \
         syscall/name=open*/ for system calls"
    )]
    Wildcard {
        /// The selector.
        selector: String,
    },
    /// An unknown attribute.
    #[error(
        "{selector}: unknown attribute `{attribute}`{}; the known attributes are {known}",
        filter_or_similar(attribute, near)
    )]
    Attribute {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: String,
        /// Known attributes with a similar name.
        near: Vec<String>,
        /// The known attributes.
        known: &'static str,
    },
    /// An attribute that only the C implementation of perf-prof supports.
    #[error(
        "{selector}: perf-prof does not support the attribute `{attribute}` of the C implementation; remove it; the known attributes are {known}"
    )]
    ForeignAttribute {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: String,
        /// The known attributes.
        known: &'static str,
    },
    /// An attribute that tracepoints cannot have.
    #[error(
        "{selector}: a tracepoint cannot have the attribute {attribute}, because every hit of a tracepoint is an event; remove {attribute}"
    )]
    NotForTracepoints {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
    },
    /// An attribute that only tracepoints have.
    #[error("{selector}: only a tracepoint can have the attribute {attribute}; remove it")]
    OnlyForTracepoints {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
    },
    /// An invalid breakpoint.
    #[error(
        "{selector}: write a breakpoint as mem:ADDR[/LEN][:rwx], with an address such as 0x601040, a length of 1, 2, 4 or 8 \
         and the accesses to watch"
    )]
    Breakpoint {
        /// The selector, as far as it was read.
        selector: String,
    },
    /// An invalid probe.
    #[error("{selector}: {error}")]
    Probe {
        /// The selector, and the text after it in the list.
        selector: String,
        /// The error in the probe.
        error: ProbeSyntaxError,
    },
    /// An invalid span.
    #[error("{selector}: {error}")]
    Span {
        /// The selector, as far as it was read.
        selector: String,
        /// The error in the span.
        error: SpanSyntaxError,
    },
    /// A group inside a group.
    #[error("{group}: a group cannot contain another group; remove the braces at `{inner}`")]
    NestedGroup {
        /// The outer group.
        group: String,
        /// The text from the start of the inner group.
        inner: String,
    },
    /// A group without events.
    #[error("{group}: the group is empty; write {{event,event...}}")]
    EmptyGroup {
        /// The group.
        group: String,
    },
    /// A group is followed by text other than its modifiers.
    #[error(
        "{group}: `{behind}` cannot follow a group; a group can be followed by `:S` (only the leader is sampled, \
         and it reads all counters) and the modifiers ukhGHIpP, for example `{{a,b}}:Su`"
    )]
    AfterGroup {
        /// The group.
        group: String,
        /// The text after the group.
        behind: String,
    },
    /// A group has modifiers, but contains a tracepoint, which cannot have modifiers.
    #[error(
        "{selector}: a tracepoint takes no modifiers, so `:{modifiers}` cannot be used for its group; write `:{modifiers}` after each event that is not a tracepoint, for example `{{cycles:u,sched:sched_switch}}`"
    )]
    GroupModifiers {
        /// The selector of the event.
        selector: String,
        /// The letters of the modifiers.
        modifiers: String,
    },
    /// An event that is not sampled has an attribute for sampling. In a group with `:S`, only the leader is sampled.
    #[error(
        "{selector}: in a group with `:S`, only the first event is sampled; remove {attribute}, which says how an event is sampled, from this event"
    )]
    NotSampled {
        /// The selector of the event.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
    },
    /// A value that the attribute cannot have.
    #[error("{selector}: {attribute}: {reason}")]
    Value {
        /// The selector.
        selector: String,
        /// The attribute's name.
        attribute: &'static str,
        /// The error in the value.
        reason: ValueError,
    },
}

/// An error in a span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanSyntaxError {
    /// The text is not a span.
    #[error(
        "write a span as span:NAME=BEGIN..END, for example span:fsync=syscalls:sys_enter_fsync..syscalls:sys_exit_fsync"
    )]
    Form,
    /// The name has characters that the name of an event cannot have.
    #[error("`{0}` is not a name for a span; use letters, digits, `_` and `-`")]
    Name(String),
    /// An event that is neither a tracepoint nor a probe.
    #[error(
        "`{0}` is neither a tracepoint nor a probe; a span begins and ends with tracepoints (system:name) or probes, with `|` between several events"
    )]
    Event(String),
    /// An invalid probe.
    #[error(transparent)]
    Probe(ProbeSyntaxError),
    /// An argument that the probes of the span cannot read.
    #[error("argument: {0}")]
    Argument(ValueError),
    /// `begin.NAME=FETCH`, but the span begins with a tracepoint; or `end.NAME=FETCH`, but it ends with a tracepoint.
    #[error(
        "{0}.NAME=FETCH: only probes have arguments, but the {0} of this span is a tracepoint; remove the argument"
    )]
    NoProbe(&'static str),
    /// The events of the span are not system calls, and there is no key.
    #[error(
        "the span has no key; add key= with the fields that have the same value when it begins and when it ends, for example `//key=pid/`"
    )]
    NoKey,
    /// The user gave a key for a built-in source, which has its own key.
    #[error("the source {0} sets its key itself; remove key=")]
    KeyOfSource(String),
    /// A span in a group.
    #[error("a span cannot be in a group; write it outside of the braces")]
    InGroup,
    /// A text in the value of `key=` that is not the name of a field.
    #[error("key: `{0}` is not a field; write key=FIELD+FIELD, or key=BEGINFIELD:ENDFIELD if the names differ")]
    Key(String),
    /// An invalid time in `min=`.
    #[error("min: {0}")]
    Time(QuantityError),
    /// An invalid number in `max-open=`.
    #[error("max-open: `{0}` is not a number of spans; write a number above 0")]
    MaxOpen(String),
    /// An unknown value of `stack=`.
    #[error("stack: `{0}` is not an event of the span; write `stack`, `stack=end` or `stack=both`")]
    Stack(String),
    /// An attribute without its value.
    #[error("{0} needs a value")]
    NeedsValue(String),
    /// A value for an attribute that takes none.
    #[error("{0} takes no value")]
    TakesNoValue(String),
}

/// An error in an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The attribute needs a value and has none.
    #[error("needs a value; write {0}")]
    Missing(&'static str),
    /// `str` without fields, for a system call.
    #[error("has fields only for tracepoints; for the strings of this system call, write syscall/name={0},str/")]
    OfSystemCall(String),
    /// A value for an attribute that takes none.
    #[error("takes no value, but `{0}` was given")]
    Unwanted(String),
    /// The attribute was given before.
    #[error("was given twice")]
    Twice,
    /// Not a number of frames.
    #[error("`{0}` is not a number of frames between 1 and 65535")]
    Frames(String),
    /// Not a period.
    #[error("`{0}` is not a period; it must be a number of occurrences above 0")]
    Period(String),
    /// Not a frequency.
    #[error("`{0}` is neither a number of samples per second nor `max`")]
    Frequency(String),
    /// Not a fetch argument of a probe.
    #[error(
        "`{0}` is not a fetch argument; write %REGISTER, $argN, $retval, $comm, @ADDRESS, +OFFSET(...) or the name of a parameter, and a type such as :u32 or :ustring after it"
    )]
    Fetch(String),
    /// Not a list of CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuSetError),
}

fn filter_or_similar(attribute: &str, near: &[String]) -> String {
    match near {
        _ if attribute.contains(',') => format!(" (a `/` separates attributes: {}/)", attribute.replace(',', "/")),
        [] => " (a filter that contains a `/` has to be in quotes)".to_owned(),
        near => did_you_mean_aside(near),
    }
}

/// Returns the end of the message about a section that is not closed. If the section may be the rest of a relative
/// path, the end is a hint how to write a relative path. Otherwise, the end is an empty text.
fn path_hint(selector: &str) -> String {
    match selector.rsplit_once('@') {
        Some((_, file)) if !file.is_empty() => format!(", or write a relative path as ./{file}/NAME"),
        _ => String::new(),
    }
}
