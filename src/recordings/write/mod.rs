//! Writes recordings in perf's format: a file, a directory, or a pipe.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt` in the Linux tree.

mod attr;
mod block_index;
mod compress;
pub mod directory;
mod features;
mod file;
mod foreign_ids;
mod grown;
pub mod pipe;
mod reserve;
mod stream;
mod synthesis;
mod tally;
mod tracing_data;

use perf_prof_format::record::{EventAttr, SampleLayout};

pub use compress::Level;
pub use features::{ClockData, CpuTopology, Feature, Features, NumaNode};
pub use file::FileWriter;
pub use foreign_ids::{ForeignIdCounts, ForeignIdRule, ForeignIds};
pub use stream::{DEFAULT_BUFFER, Stream, WriteError};
pub use synthesis::{KernelCode, MappedFile, MappedRange, Synthesis, TaskIds};
pub use tally::{BuildId, Dso, DsoOwner, Dsos, Tally};
pub use tracing_data::TracingData;

/// The facts that are known when a recording starts.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The events.
    pub events: &'a [EventAttr],
    /// The layout of the samples of all events.
    pub layout: SampleLayout,
    /// The features that are known already. These features are written before the records, so that they are in the
    /// recording even if the recorder is killed.
    pub features: &'a Features,
}

/// The record that marks the end of a round. Records after this record are never older than the newest record before
/// the previous end of a round. perf needs this guarantee to sort records.
pub const FINISHED_ROUND: [u8; 8] = {
    let [a, b, c, d] = perf_prof_format::abi::perf_data::PERF_RECORD_FINISHED_ROUND.to_ne_bytes();
    let [low, high] = 8u16.to_ne_bytes();
    [a, b, c, d, 0, 0, low, high]
};
