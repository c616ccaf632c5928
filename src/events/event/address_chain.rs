//! Call chains that do not come with a sample: tables in the kernel store each call chain once.

use perf_prof_format::{
    abi::{
        PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_TID,
        PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
};

use super::{Context, EventType, Format, Sample, StackDetail, folded, frames};

/// The addresses of a call chain, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressChain {
    /// The process id. It has no meaning if `user` is empty.
    pub pid: u32,
    /// The addresses in the kernel.
    pub kernel: Vec<u64>,
    /// The addresses in the process.
    pub user: Vec<u64>,
}

impl AddressChain {
    /// Returns the names of the frames, outermost first, separated by `;`. A sample with this chain has the same text. At
    /// `time`, the process must have had the mappings that the addresses belong to. The caller must meet the conditions of
    /// [`Context::with_symbols`].
    pub fn folded(&self, time: u64, context: &Context) -> String {
        let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN, 0);
        let event = EventType { alias: None, format: Format::other("chain"), layout, max_stack: None };
        let frames = frames(&Sample { event: &event, record: &self.record(time) }, context);
        folded(&frames, StackDetail::Functions)
    }

    /// Makes the record of a sample with this chain.
    fn record(&self, time: u64) -> Vec<u8> {
        let part = |marker: u64, frames: &[u64]| match frames {
            [] => Vec::new(),
            frames => [&[marker], frames].concat(),
        };
        let chain = [part(PERF_CONTEXT_KERNEL, &self.kernel), part(PERF_CONTEXT_USER, &self.user)].concat();
        let ids = u64::from(self.pid) | u64::from(self.pid) << 32;
        let body = [ids, time, chain.len() as u64].into_iter().chain(chain);
        let words: Vec<u8> = body.flat_map(u64::to_ne_bytes).collect();
        let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        record.extend([0; 2]);
        record.extend(((8 + words.len()) as u16).to_ne_bytes());
        record.extend(words);
        record
    }
}
