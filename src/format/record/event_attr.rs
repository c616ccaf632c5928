//! The attr and the ids of an opened event. Does not open events.

use crate::{abi::perf_event_attr, spec::Grouping};

/// An opened event, with the facts that a recording stores about it.
#[derive(Clone, Debug, Default)]
pub struct EventAttr {
    /// The name under which the event was requested.
    pub name: String,
    /// The `perf_event_attr`. Its `size` is not set.
    pub attr: perf_event_attr,
    /// The ids that the event's records carry, one for each descriptor. Empty if the kernel does not allow the event to
    /// be sampled.
    pub ids: Vec<u64>,
    /// The event's role in a group.
    pub grouping: Grouping,
}

impl EventAttr {
    /// Adds a descriptor of the event. `attr` is the attr with which the descriptor was opened, and `id` is the
    /// descriptor's id.
    pub fn add_descriptor(&mut self, attr: perf_event_attr, id: u64) {
        self.attr = attr;
        self.ids.push(id);
    }
}
