//! An event as an aggregator sees it: the sample, and facts that the sample does not contain.

use std::sync::Arc;

use crate::event::{Context, Format, Frame, Sample, SpanPart, frames, shown_cgroup};

/// An event from which values are read.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Its sample.
    pub sample: Sample<'a>,
    /// The facts that the sample does not contain.
    pub facts: Facts<'a>,
}

/// Where the facts about an event come from. The record of the event does not contain these facts.
#[derive(Clone, Copy)]
pub enum Facts<'a> {
    /// They are looked up in the context of the run.
    Run(&'a Context),
    /// They were stored when the event was copied.
    Kept(&'a KeptFacts),
}

/// The facts about an event that are stored with a copy of the event.
#[derive(Clone, Debug, Default)]
pub struct KeptFacts {
    /// The name of the task.
    pub comm: Option<Vec<u8>>,
    /// The time in nanoseconds since the Unix epoch.
    pub realtime: Option<i64>,
    /// The path of the task's cgroup.
    pub cgroup: Option<Vec<u8>>,
    /// The frames of the call chain, innermost first.
    pub frames: Vec<Arc<Frame>>,
    /// The facts about the parts of a span: its begin, its end, and the events between them. For an open span, the facts
    /// about the end are empty. For an event that is not a span, the list is empty.
    pub parts: Vec<KeptFacts>,
}

/// No facts.
static NOTHING: KeptFacts =
    KeptFacts { comm: None, realtime: None, cgroup: None, frames: Vec::new(), parts: Vec::new() };

impl Facts<'_> {
    /// Returns the facts about the event that begins or ends a span.
    #[inline]
    pub(super) fn of_part(self, part: SpanPart) -> Self {
        match self {
            Facts::Run(_) => self,
            Facts::Kept(kept) => Facts::Kept(kept.parts.get(part as usize).unwrap_or(&NOTHING)),
        }
    }
}

impl KeptFacts {
    /// Returns the heap memory of the facts, in bytes. Does not count the frames themselves, which all events of a run
    /// share.
    pub fn heap_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| size_of::<KeptFacts>() + part.heap_bytes()).sum();
        self.comm.as_ref().map_or(0, Vec::len) + size_of::<Arc<Frame>>() * self.frames.len() + parts
    }
}

impl Input<'_> {
    /// Returns the name that the task had at the time of the event.
    #[inline]
    pub fn comm(&self) -> Option<Vec<u8>> {
        match self.facts {
            Facts::Run(context) => context.comm(self.sample.task(), self.sample.time()),
            Facts::Kept(kept) => kept.comm.clone(),
        }
    }

    /// Returns the event's time in nanoseconds since the Unix epoch.
    #[inline]
    pub fn realtime(&self) -> Option<i64> {
        match self.facts {
            Facts::Run(context) => context.realtime(self.sample.time()),
            Facts::Kept(kept) => kept.realtime,
        }
    }

    /// Returns the path of the task's cgroup, or the text for a cgroup whose path is unknown.
    pub fn cgroup(&self) -> Vec<u8> {
        let id = self.sample.cgroup().unwrap_or(0);
        shown_cgroup(id, self.cgroup_path(id).as_deref()).into_owned()
    }

    fn cgroup_path(&self, id: u64) -> Option<Arc<[u8]>> {
        match self.facts {
            Facts::Run(context) => context.cgroup_path(id),
            Facts::Kept(kept) => kept.cgroup.as_deref().map(Arc::from),
        }
    }

    /// Returns the frames of the call chain, innermost first.
    #[inline]
    pub fn frames(&self) -> Vec<Arc<Frame>> {
        match self.facts {
            Facts::Run(context) => frames(&self.sample, context),
            Facts::Kept(kept) => kept.frames.clone(),
        }
    }

    /// Returns the facts that have to be stored with a copy of the event.
    pub fn kept(&self) -> KeptFacts {
        let facts = match self.facts {
            Facts::Run(_) => self.facts,
            Facts::Kept(kept) => return kept.clone(),
        };
        let mut parts = Vec::new();
        if let Format::Span(span) = &self.sample.event.format {
            let raw = self.sample.raw();
            let of = |sample: Sample<'_>| Input { sample, facts }.kept();
            let ends = [SpanPart::Begin, SpanPart::End].map(|part| span.sample(part, raw));
            parts.extend(ends.map(|sample| sample.map_or_else(KeptFacts::default, of)));
            let between = span.between(raw);
            parts.extend(
                between.filter_map(|(of, record)| Some(Sample { event: span.inputs.get(of)?, record })).map(of),
            );
        }
        let cgroup = self.sample.cgroup().and_then(|id| self.cgroup_path(id)).map(|path| path.to_vec());
        let realtime = match self.facts {
            Facts::Run(context) => context.realtime_unseen(self.sample.time()),
            Facts::Kept(kept) => kept.realtime,
        };
        KeptFacts { comm: self.comm(), realtime, cgroup, frames: self.frames(), parts }
    }
}
