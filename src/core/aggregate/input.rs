//! An event as an aggregator sees it: its sample, and what the sample does not say itself.

use std::sync::Arc;

use crate::event::{Context, Frame, Sample, frames};

/// An event that is added.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Its sample.
    pub sample: Sample<'a>,
    /// What the sample does not say itself.
    pub facts: Facts<'a>,
}

/// The facts about an event that are not in its record.
#[derive(Clone, Copy)]
pub enum Facts<'a> {
    /// They are looked up in the event's run.
    Run(&'a Context),
    /// They were looked up when the event was copied.
    Kept {
        /// The name of the task.
        comm: Option<&'a [u8]>,
        /// The time in nanoseconds since the Unix epoch.
        realtime: Option<i64>,
        /// The frames of the call chain, innermost first.
        frames: &'a [Arc<Frame>],
    },
}

impl Facts<'_> {
    /// Returns the facts about a part of a span. Of a copied span, only the call chain is known that belongs to the part.
    pub(super) fn of_part(self, has_chain: bool) -> Self {
        match self {
            Facts::Run(_) => self,
            Facts::Kept { frames, .. } => {
                Facts::Kept { comm: None, realtime: None, frames: if has_chain { frames } else { &[] } }
            }
        }
    }
}

impl Input<'_> {
    /// Returns the name of the task at the event's time.
    pub fn comm(&self) -> Option<Vec<u8>> {
        match self.facts {
            Facts::Run(context) => context.comm(self.sample.task(), self.sample.time()),
            Facts::Kept { comm, .. } => comm.map(<[u8]>::to_vec),
        }
    }

    /// Returns the event's time in nanoseconds since the Unix epoch.
    pub fn realtime(&self) -> Option<i64> {
        match self.facts {
            Facts::Run(context) => context.realtime(self.sample.time()),
            Facts::Kept { realtime, .. } => realtime,
        }
    }

    /// Returns the frames of the call chain, innermost first.
    pub fn frames(&self) -> Vec<Arc<Frame>> {
        match self.facts {
            Facts::Run(context) => frames(&self.sample, context),
            Facts::Kept { frames, .. } => frames.to_vec(),
        }
    }
}
