//! Writes recordings as perf does: a file, a directory of them, a pipe. Knows nothing of where events come from, nor how the machine is asked.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt` in the Linux tree.

mod attr;
mod blocks;
mod compress;
pub mod directory;
mod feature;
mod file;
pub mod pipe;
mod reserve;
mod strays;
mod stream;
mod synthesis;
mod tally;
mod tracing_data;

pub use compress::Level;
pub use feature::{ClockData, CpuTopology, Feature, Features, NumaNode};
pub use file::FileWriter;
pub use strays::{Claim, Met, Strays};
pub use stream::{GATHERED, Stream, WriteError};
pub use synthesis::{Mapped, MappedFile, Synthesis};
pub use tally::{BuildId, Dso, DsoOf, Dsos, Tally};
pub use tracing_data::TracingData;

/// The record behind which nothing comes that is older than what the one before it had behind it: perf sorts by that.
pub const FINISHED_ROUND: [u8; 8] = {
    let [a, b, c, d] = crate::abi::perf_data::PERF_RECORD_FINISHED_ROUND.to_ne_bytes();
    let [low, high] = 8u16.to_ne_bytes();
    [a, b, c, d, 0, 0, low, high]
};
