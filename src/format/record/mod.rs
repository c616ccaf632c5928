//! Parses bytes to `Record`s. Also contains the layout of samples, batches of records, and the interface that delivers
//! batches (`Source`).

mod batch;
mod branches;
mod encode;
mod event_attr;
mod ids;
mod layout;
mod members;
mod order;
mod other;
mod parse;
mod source;

pub use batch::{Batch, Chunk, Recycle, ReplayMarker, RingRoom, Sorted, SortedRecord};
pub use branches::Branch;
pub use encode::{RecordTooLarge, SampleValues};
pub use event_attr::EventAttr;
pub use ids::EventIds;
pub use layout::{SampleFormat, SampleLayout, TrailerLayout};
pub use members::{AccessCost, Counter, Counters, MemberType, Reading, Registers, SampleMember};
pub use order::{INDEX_PER_RECORD, MARGIN, Sorter};
pub use other::{OtherRecords, SampleId, Switch, SwitchDirection, Throttle};
pub use parse::{
    Ksymbol, KsymbolKind, Mmap2, MmapFile, RECORD_HEADER, Record, Records, is_of_guest, misc, record_size, record_type,
};
pub use source::{Ended, LossCounts, Source, Wait};
