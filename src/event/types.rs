//! An event type: one selected event with everything that is needed to read its samples.

use std::sync::Arc;

use crate::{record::SampleLayout, spec, tracefs::EventFormat};

/// One selected event. The same tracepoint selected twice gives two event types.
#[derive(Clone, Debug)]
pub struct EventType {
    /// The name it was given with `alias=`.
    pub alias: Option<String>,
    /// Its format, as the kernel describes it.
    pub format: Arc<EventFormat>,
    /// Where its samples' members lie.
    pub layout: SampleLayout,
}

impl EventType {
    /// `sys:name`, the kernel's own name.
    pub fn real_name(&self) -> String {
        format!("{}:{}", self.format.system, self.format.name)
    }

    /// `sys:alias` with the alias as typed, `sys:name` without one.
    pub fn shown_name(&self) -> String {
        format!("{}:{}", self.format.system, self.alias.as_ref().unwrap_or(&self.format.name))
    }

    /// The name of the function that handles it, `sys__name`.
    pub fn handler_name(&self) -> String {
        spec::handler_name(&self.format.system, self.alias.as_ref().unwrap_or(&self.format.name))
    }
}
