//! Recordings: reading and writing perf.data.
//!
//! This crate knows neither how events are captured nor what they mean.
//!
//! [`Recording::open`] reads the header and the feature sections of a recording. [`Recording::replay`] turns the
//! recording into a `Source`.
//!
//! # Where a change goes
//!
//! * what a recording says about itself: `format/features.rs` (read), `write/features.rs` (written); what must be there if the
//!   recorder is killed: `format/own_updates.rs`
//! * a type of records of perf's user space: `format/user_records/mod.rs`, `format/swap.rs` (foreign byte order)
//! * which event a record belongs to, and where its time is: `format/layouts.rs`
//! * which records of a recording are selected: `select.rs`
//! * the order of records: `order/merge.rs` (files), `order/sequential/mod.rs` (pipes and zstd); times in which a ring
//!   was losing events: `order/gaps.rs`
//! * the index of blocks: `index/blocks.rs`, `index/compressed.rs`, `index/damage.rs`; the index that `perf-prof record` stores:
//!   `write/block_index.rs` (how it is made), `index/trailer.rs` (its bytes, and the hardware queues of block devices)
//! * where `--jobs` divides a recording: `index/shards.rs`
//! * whose recordings are read, and how much memory this may take: `limits.rs`; the memory is checked in
//!   `order/merge.rs` (records) and `format/` (descriptions)
//! * how a recording is opened, also if it was cut off or not finished: `recording.rs`; where its records are: `parts.rs`
//! * the messages about damaged files: `error.rs`
//! * records about tasks that already ran: `write/synthesis.rs` (their bytes); reading these tasks from the machine:
//!   `recorder/existing_state.rs` in the crate `session`
//! * compression: `write/compress.rs`, `input/decompress.rs`; its checksums: `format/checksums.rs`

mod error;
mod format;
pub mod index;
mod input;
mod limits;
mod order;
mod parts;
mod recording;
mod select;
mod source;
pub mod write;

pub use error::PerfDataError;
pub use format::attr::{Attr, AttrFlag};
pub use format::bytes::{ByteOrder, ByteReader};
pub use format::features::{BuildId, ClockData, Compressed, EventDesc, Features, feature_name};
pub use format::header::{AttrIds, FileHeader, Header, Section};
pub use format::interpreter_frames::{RecordedFrame, RecordedFrames, RecordedKind};
pub use format::kernel_mapping::KernelMapping;
pub use format::layouts::Layouts;
pub use format::own_updates::OwnUpdate;
pub use format::tracing_data::TracingData;
pub use format::user_records::{
    Aggregation, AuxtraceError, CpuMap, EventCpus, RoundKind, Scaling, Stat, StatConfig, StatRound, ThreadMap,
};
pub use index::blocks::{BLOCK, Block, BlockIndex};
pub use index::shards;
pub use index::side_band::SideBand;
pub use index::trailer::{BlockDevice, StoredIndex};
pub use input::random_access::Input;
pub use limits::{Owner, ReadLimits};
pub use recording::{RecordedEvent, Recording};
pub use select::{Gaps, Selection, Wanted};
pub use source::{DamagedSamples, Progress, Replay, ring_of};
