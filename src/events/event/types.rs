//! Event types. An event type is one selected event, with everything that is needed to read its samples.

use std::sync::Arc;

use perf_prof_format::{
    record::{SampleLayout, SampleMember},
    spec,
    tracefs::EventFormat,
};

use super::SpanFormat;

/// One selected event. If the same event is selected twice, there are two event types.
#[derive(Clone, Debug)]
pub struct EventType {
    /// The name that was given with `alias=`.
    pub alias: Option<String>,
    /// The kind of data in its samples.
    pub format: Format,
    /// The positions of the members in its samples.
    pub layout: SampleLayout,
    /// The requested maximum number of frames in its call chains. `None` if the kernel's limit applies.
    pub max_stack: Option<u16>,
}

/// The kind of data in an event's samples.
#[derive(Clone, Debug)]
pub enum Format {
    /// The data of a tracepoint or of a dynamic probe, in the format that the kernel describes.
    Tracepoint(Arc<EventFormat>),
    /// The data of any other event, such as `cycles` or `profile`: only the members that `sample_type` selects. (A
    /// *source* is something else: a built-in event such as `offcpu`, see [`SpanFormat::is_source`].)
    Other(Arc<OtherFormat>),
    /// A span, which is made of two samples. Its raw data has the form of a tracepoint's data.
    Span(Arc<SpanFormat>),
}

/// The format of an event that is neither a tracepoint nor a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherFormat {
    /// Its name, for example `profile`, `cpu-clock` or `cycles:u`.
    pub name: String,
}

impl EventType {
    /// Returns the event's own name; for a tracepoint, `sys:name`.
    pub fn real_name(&self) -> String {
        self.format.name()
    }

    /// Returns the name that is shown: the alias as the user typed it (for a tracepoint, `sys:alias`), or the event's
    /// own name if there is no alias.
    pub fn shown_name(&self) -> String {
        match (self.format.tracepoint(), &self.alias) {
            (Some(format), Some(alias)) if !format.system.is_empty() => format!("{}:{alias}", format.system),
            (_, Some(alias)) => alias.clone(),
            (_, None) => self.real_name(),
        }
    }

    /// Returns whether the event would have a field of this name with the option `str`.
    pub(crate) fn has_with_strings(&self, name: &str) -> bool {
        matches!(&self.format, Format::Span(span) if span.with_strings.iter().any(|field| field == name))
    }

    /// Returns the name of the script's function that handles the event; for a tracepoint, `sys__name`.
    pub fn handler_name(&self) -> String {
        match &self.format {
            Format::Tracepoint(format) => {
                spec::handler_name(&format.system, self.alias.as_ref().unwrap_or(&format.name))
            }
            Format::Span(span) => {
                let format = &span.format;
                let name = self.alias.as_ref().unwrap_or(&format.name);
                match &*format.system {
                    "" => spec::source_handler_name(name),
                    system => spec::handler_name(system, name),
                }
            }
            Format::Other(format) => spec::source_handler_name(self.alias.as_ref().unwrap_or(&format.name)),
        }
    }

    /// Returns a second name for the function that handles the event, used if the script has no function with the name
    /// from [`EventType::handler_name`]. It is made from the event's name without modifiers: from `cycles` for
    /// `cycles:u`. Recorders add modifiers automatically for users who may not trace the kernel. `None` if the event
    /// has no modifiers.
    pub fn plain_handler_name(&self) -> Option<String> {
        match (&self.format, &self.alias) {
            (Format::Other(format), None) => {
                let (name, letters) = format.name.split_once(':')?;
                spec::Modifiers::parse(letters).map(|_| spec::source_handler_name(name))
            }
            _ => None,
        }
    }

    /// Returns the members of the event's samples, in the order in which programs see them. Tracepoints have no
    /// members.
    pub fn members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        let has_members = self.format.tracepoint().is_none();
        self.layout.members().filter(move |_| has_members)
    }

    /// Returns [`EventType::members`] without those that every event has or that are shown elsewhere: the ids, the
    /// task, the time, the CPU and the call chain.
    pub fn own_members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        use SampleMember::*;
        let is_own = |of: &SampleMember| !matches!(of, Identifier | Id | StreamId | Pid | Tid | Time | Cpu | Callchain);
        self.members().filter(is_own)
    }
}

impl Format {
    /// Creates the format of an event that has this name and is neither a tracepoint nor a span.
    pub fn other(name: impl Into<String>) -> Format {
        Format::Other(Arc::new(OtherFormat { name: name.into() }))
    }

    /// Returns the format of the raw data of a tracepoint or of a span; `None` for other events.
    #[inline]
    pub fn tracepoint(&self) -> Option<&Arc<EventFormat>> {
        match self {
            Format::Tracepoint(format) => Some(format),
            Format::Span(span) => Some(&span.format),
            Format::Other(_) => None,
        }
    }

    /// Returns the event's own name; for a tracepoint, `sys:name`.
    pub fn name(&self) -> String {
        match self {
            Format::Tracepoint(format) => format!("{}:{}", format.system, format.name),
            Format::Span(span) => span.name(),
            Format::Other(format) => format.name.clone(),
        }
    }
}
