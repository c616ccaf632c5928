//! Events that are computed from other events. A derivation keeps state from one sample to the next; for example, it
//! could make a span event from a start event and an end event. It stands between the run loop and the sink: it takes
//! samples and delivers samples. It does not depend on Python or on the origin of the samples.
//!
//! To add a derived source, implement [`Derivation`] in a new file in this folder and add an entry to [`DEFINITIONS`].
//! When a user selects the source for live events, its input events are selected too (`live/select.rs`), and
//! [`DerivingSink`] runs the source. Replays, and the lists of sources that users see, do not know derived sources yet.

mod sink;

pub use sink::DerivingSink;

use crate::event::{Flow, Format};

/// A derived source, as users select it.
#[derive(Debug)]
pub struct Definition {
    /// The name of the source, as it is written in selectors.
    pub name: &'static str,
    /// A short description of the source's events.
    pub about: &'static str,
    /// The selectors of the input events. The position of a selector in this list is the index of the input.
    pub inputs: &'static [&'static str],
    /// Returns the format of the source's events.
    pub format: fn() -> Format,
    /// Creates a derivation that has not received any samples yet.
    pub start: fn() -> Box<dyn Derivation>,
}

/// All derived sources.
pub const DEFINITIONS: &[Definition] = &[];

/// Returns the derived source with this name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// The state of a derived source during a run.
pub trait Derivation {
    /// Processes a sample of the input with the index `input`. To deliver a derived sample, it calls `emit` with a
    /// whole record in the layout of the derived event.
    fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow;

    /// Reports that input samples were lost between the times `start` and `end` (in ns; both are 0 if the times are not
    /// known). The derivation must discard all state that depends on a lost sample.
    fn lost(&mut self, start: u64, end: u64);
}
