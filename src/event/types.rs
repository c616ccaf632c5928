//! An event type: one selected event with everything that is needed to read its samples.

use std::sync::Arc;

use crate::{
    record::{SampleLayout, SampleMember},
    spec,
    tracefs::EventFormat,
};

/// One selected event. The same event selected twice gives two event types.
#[derive(Clone, Debug)]
pub struct EventType {
    /// The name it was given with `alias=`.
    pub alias: Option<String>,
    /// What its samples hold.
    pub format: Format,
    /// Where its samples' members lie.
    pub layout: SampleLayout,
    /// The most frames that its call chains were asked to have; `None` for as many as the kernel allows.
    pub max_stack: Option<u16>,
}

/// What an event's samples hold.
#[derive(Clone, Debug)]
pub enum Format {
    /// A tracepoint's data, as the kernel describes it. Dynamic probes have such data too.
    Tracepoint(Arc<EventFormat>),
    /// The members that `sample_type` asks for, and nothing else.
    Source(Arc<SourceFormat>),
}

/// An event that is no tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFormat {
    /// Its name: `profile`, `cpu-clock`, `cycles:u`.
    pub name: String,
}

impl EventType {
    /// The event's own name: `sys:name` of a tracepoint.
    pub fn real_name(&self) -> String {
        self.format.name()
    }

    /// Its name with the alias, as typed, in its place: `sys:alias` of a tracepoint.
    pub fn shown_name(&self) -> String {
        match (&self.format, &self.alias) {
            (Format::Tracepoint(format), Some(alias)) => format!("{}:{alias}", format.system),
            (Format::Source(_), Some(alias)) => alias.clone(),
            (_, None) => self.real_name(),
        }
    }

    /// The name of the function that handles it: `sys__name` of a tracepoint.
    pub fn handler_name(&self) -> String {
        match &self.format {
            Format::Tracepoint(format) => {
                spec::handler_name(&format.system, self.alias.as_ref().unwrap_or(&format.name))
            }
            Format::Source(format) => spec::source_handler_name(self.alias.as_ref().unwrap_or(&format.name)),
        }
    }

    /// The name of the function that handles it where there is none of the name above: without what a name as `cycles:u` says
    /// of where it is counted, which recorders add by themselves for who may not see the kernel.
    pub fn plain_handler_name(&self) -> Option<String> {
        match (&self.format, &self.alias) {
            (Format::Source(format), None) => {
                let (name, letters) = format.name.split_once(':')?;
                spec::Modifiers::parse(letters).map(|_| spec::source_handler_name(name))
            }
            _ => None,
        }
    }

    /// The members that its samples have when it is no tracepoint, in the order in which programs see them.
    pub fn members(&self) -> impl Iterator<Item = SampleMember> + use<> {
        let is_source = self.format.tracepoint().is_none();
        self.layout.members().filter(move |_| is_source)
    }
}

impl Format {
    /// The format of an event of that name that is no tracepoint.
    pub fn source(name: impl Into<String>) -> Format {
        Format::Source(Arc::new(SourceFormat { name: name.into() }))
    }

    /// The format of a tracepoint's data.
    pub fn tracepoint(&self) -> Option<&Arc<EventFormat>> {
        match self {
            Format::Tracepoint(format) => Some(format),
            Format::Source(_) => None,
        }
    }

    /// The event's own name: `sys:name` of a tracepoint.
    pub fn name(&self) -> String {
        match self {
            Format::Tracepoint(format) => format!("{}:{}", format.system, format.name),
            Format::Source(format) => format.name.clone(),
        }
    }
}
