//! perf.data: header, features, records in the order of time. Knows nothing of Python, and nothing of what events mean.
//!
//! [`Recording::open`] reads what a recording says of itself; [`Recording::replay`] makes a `Source` of it.

mod ahead;
mod attr;
mod bytes;
mod directory;
mod error;
mod features;
mod feed;
mod header;
mod index;
mod input;
mod kernel_mapping;
mod layouts;
mod merge;
mod pipe;
mod pool;
mod recording;
mod replay;
mod select;
mod sequential;
pub mod shards;
mod side_band;
mod stored;
mod stream;
mod swap;
mod tracing_data;
mod unpack;
mod unpacked;
pub mod write;

pub use attr::{Attr, AttrFlag};
pub use bytes::{ByteOrder, Bytes};
pub use error::PerfDataError;
pub use features::{BuildId, ClockData, Compressed, EventDesc, Features, feature_name};
pub use header::{AttrIds, FileHeader, Header, Section};
pub use index::{BLOCK, Block, BlockIndex};
pub use input::Input;
pub use kernel_mapping::KernelMapping;
pub use layouts::Layouts;
pub use recording::{RecordedEvent, Recording};
pub use replay::{Progress, Replay, ring_of};
pub use select::{Selection, Wanted};
pub use side_band::SideBand;
pub use stored::StoredIndex;
pub use tracing_data::TracingData;
