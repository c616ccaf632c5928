//! A profile for pprof (github.com/google/pprof). Pyroscope and Parca also read such profiles.

use std::io;

use perf_prof_events::{
    event::{Context, Provenance, Sample, frames, ip_function},
    picture::pprof::Packing,
};
use perf_prof_session::spine::ChosenRecording;
use perf_prof_system::budget::Budget;

use super::{
    super::pprof::{SampledEvents, SampledProfile},
    Destination, Exporter,
};

/// The profile. It contains only sums, so single samples are not kept in memory.
pub struct PprofFile<'a> {
    profile: SampledProfile,
    happened: Provenance,
    to: &'a mut Destination,
}

impl<'a> PprofFile<'a> {
    pub fn new(chosen: &ChosenRecording, budget: &Budget, to: &'a mut Destination) -> PprofFile<'a> {
        PprofFile {
            profile: SampledProfile::new(&SampledEvents::of(chosen), budget),
            happened: Provenance::default(),
            to,
        }
    }
}

impl Exporter for PprofFile<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        let chain = frames(sample, context);
        let place = if chain.is_empty() { ip_function(sample, context) } else { None };
        let whole: Vec<_> = chain.into_iter().chain(place).collect();
        self.profile.add(event, sample, &whole, context);
        Ok(())
    }

    fn happened(&mut self, provenance: Provenance) {
        self.happened = provenance;
    }

    fn finish(self, context: &Context, partial: Option<&super::Partial>) -> io::Result<()> {
        // The bytes are not compressed here, because the destination compresses them if the file's name asks for it.
        let partial = partial.map(super::Partial::text);
        self.profile.write(&self.happened, partial.as_deref(), context, Packing::Plain, self.to)
    }
}
