//! Event types: selected events, with everything that is needed to read their samples.

use std::sync::Arc;

use perf_prof_format::{
    record::{SampleLayout, SampleMember},
    spec,
    tracefs::EventFormat,
};

use super::{DURATION_FIELD, SpanFieldKind, SpanFormat};

/// One selected event. If the same event is selected twice, there are two event types.
#[derive(Clone, Debug)]
pub struct EventType {
    /// The name that the user gave with `alias=`.
    pub alias: Option<String>,
    /// The kind of data in the samples.
    pub format: Format,
    /// The positions of the members in the samples.
    pub layout: SampleLayout,
    /// The maximum number of frames in the call chains, if the user set one. `None` if the kernel's limit applies.
    pub max_stack: Option<u16>,
}

/// The kind of data in the samples of an event.
#[derive(Clone, Debug)]
pub enum Format {
    /// The data of a tracepoint or of a dynamic probe, in the format that the kernel describes.
    Tracepoint(Arc<EventFormat>),
    /// Only the members that `sample_type` selects, for events such as `cycles` or `profile`. (Built-in sources such as
    /// `offcpu` are spans, see [`SpanFormat::is_source`].)
    Other(Arc<OtherFormat>),
    /// A span: the time from one event to another. Its raw data looks like that of a tracepoint.
    Span(Arc<SpanFormat>),
}

/// The format of an event that is neither a tracepoint nor a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherFormat {
    /// Its name, for example `profile`, `cpu-clock` or `cycles:u`.
    pub name: String,
    /// What the raw data of its samples is.
    pub raw: RawData,
}

/// What the raw data is in the samples of an event that is neither a tracepoint nor a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawData {
    /// The event's own raw data, if it has any.
    OfEvent,
    /// The frames of an interpreter, which a program in the kernel has read.
    InterpreterFrames,
}

impl EventType {
    /// Returns whether the values of a field are times in ns: those of spans are.
    pub fn is_time(&self, field: &str) -> bool {
        let Format::Span(span) = &self.format else { return false };
        let is_time = |kind| matches!(kind, SpanFieldKind::Time | SpanFieldKind::TimeIfKnown);
        field == DURATION_FIELD || span.fields.iter().any(|known| known.name == field && is_time(known.kind))
    }

    /// Returns the event's own name, for example `sched:sched_switch`.
    pub fn real_name(&self) -> String {
        self.format.name()
    }

    /// Returns the name to show. With an alias, this is the alias, after the system of a tracepoint: `sched:ALIAS`. Without
    /// an alias, it is the event's own name.
    pub fn shown_name(&self) -> String {
        match (self.format.tracepoint(), &self.alias) {
            (Some(format), Some(alias)) if !format.system.is_empty() => format!("{}:{alias}", format.system),
            (_, Some(alias)) => alias.clone(),
            (_, None) => self.real_name(),
        }
    }

    /// Returns whether the event lacks this field, but would have it with the option `str`.
    pub(crate) fn has_with_strings(&self, name: &str) -> bool {
        matches!(&self.format, Format::Span(span) if span.with_strings.iter().any(|field| field == name))
    }

    /// Returns the name of the function that handles the event in a script, for example `sched__sched_switch`.
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

    /// Returns another name for the function that handles the event: the event's name without modifiers, such as `cycles`
    /// for `cycles:u`. The other name is used if the script has no function named [`EventType::handler_name`]. Recorders
    /// add modifiers by themselves for users who may not trace the kernel. Returns `None` if the event has no modifiers.
    pub fn plain_handler_name(&self) -> Option<String> {
        match (&self.format, &self.alias) {
            (Format::Other(format), None) => {
                let (name, letters) = format.name.split_once(':')?;
                spec::Modifiers::parse(letters).map(|_| spec::source_handler_name(name))
            }
            _ => None,
        }
    }

    /// Returns the members of the samples, in the order in which programs see them. Samples of tracepoints have none.
    pub fn members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        let has_members = self.format.tracepoint().is_none();
        let is_hidden = self.format.has_interpreter_frames();
        self.layout.members().filter(move |of| has_members && !(is_hidden && *of == SampleMember::Raw))
    }

    /// Returns the members without those that all events have or that are shown elsewhere: ids, task, time, CPU and call
    /// chain.
    pub fn own_members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        use SampleMember::*;
        let is_own = |of: &SampleMember| !matches!(of, Identifier | Id | StreamId | Pid | Tid | Time | Cpu | Callchain);
        self.members().filter(is_own)
    }
}

impl Format {
    /// Creates the format of an event that is neither a tracepoint nor a span.
    pub fn other(name: impl Into<String>) -> Format {
        Format::Other(Arc::new(OtherFormat { name: name.into(), raw: RawData::OfEvent }))
    }

    /// Returns whether samples have the frames of an interpreter.
    pub fn has_interpreter_frames(&self) -> bool {
        match self {
            Format::Other(format) => format.raw == RawData::InterpreterFrames,
            format => format.tracepoint().is_some_and(|format| format.interpreter_frames_offset().is_some()),
        }
    }

    /// Returns whether the event is a span that may belong to no known task.
    #[inline]
    pub(crate) fn is_task_computed(&self) -> bool {
        matches!(self, Format::Span(span) if span.is_task_computed())
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

    /// Returns the event's own name, for example `sched:sched_switch`.
    pub fn name(&self) -> String {
        match self {
            Format::Tracepoint(format) => format!("{}:{}", format.system, format.name),
            Format::Span(span) => span.name(),
            Format::Other(format) => format.name.clone(),
        }
    }
}
