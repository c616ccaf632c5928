//! Recordings: reading and writing perf.data.
//!
//! This wing knows neither how events are captured nor what they mean.
//!
//! [`Recording::open`] reads the header and the feature sections of a recording. [`Recording::replay`] turns the
//! recording into a `Source`.

mod error;
mod format;
pub mod index;
mod input;
mod limits;
mod order;
mod recording;
mod select;
mod source;
pub mod write;

pub use error::PerfDataError;
pub use format::attr::{Attr, AttrFlag};
pub use format::bytes::{ByteOrder, ByteReader};
pub use format::features::{BuildId, ClockData, Compressed, EventDesc, Features, feature_name};
pub use format::header::{AttrIds, FileHeader, Header, Section};
pub use format::kernel_mapping::KernelMapping;
pub use format::layouts::Layouts;
pub use format::tracing_data::TracingData;
pub use format::user_records::{
    Aggregation, AuxtraceError, CpuMap, EventCpus, RoundKind, Scaling, Stat, StatConfig, StatRound, ThreadMap,
};
pub use index::blocks::{BLOCK, Block, BlockIndex};
pub use index::shards;
pub use index::side_band::SideBand;
pub use index::trailer::StoredIndex;
pub use input::random_access::Input;
pub use limits::{Owner, ReadLimits};
pub use recording::{RecordedEvent, Recording};
pub use select::{Gaps, Selection, Wanted};
pub use source::{Progress, Replay, ring_of};
