//! Interprets records: event types, samples, call chains, lines of text, and names of tasks. Defines the interface that
//! delivers events (`Sink`).

mod address_chain;
mod callchain;
mod cgroups;
mod columns;
mod context;
mod data_source;
mod endings;
mod existing_tasks;
mod interpreter_frames;
mod json;
mod line;
mod name_filter;
mod perf_frame;
mod perf_line;
mod provenance;
pub mod reader;
mod sample;
mod shares;
mod shortfall;
mod sink;
mod span;
mod stack_text;
mod stats;
mod targets;
mod tasks;
mod told_frames;
mod types;
mod unwound;

pub use address_chain::AddressChain;
pub use callchain::{
    Frame, Origin, Sides, Symbolizer, UNKNOWN, frames, frames_without_inlined, has_callchain, ip_frame, ip_function,
    sampled_function,
};
pub use cgroups::{Cgroups, Memberships, SelectedCgroups, cgroup_text, shown_cgroup};
pub use columns::{Column, Columns, FieldList, FieldsError};
pub use context::{Context, FoundOffset, Processes};
pub use data_source::{NO_DATA_SOURCE, data_source_text};
pub use endings::StackEndings;
pub use interpreter_frames::{InterpreterFrameUse, RunInterpreters};
pub use json::write_json;
pub use line::{LineContext, LineParts, UNKNOWN_COMM, write_date, write_frames, write_line, write_text};
pub use name_filter::{NamedSamples, Names};
pub use perf_frame::{PerfFrame, PerfFrameSymbol, PerfMap, perf_address, perf_chain, perf_ip};
pub use perf_line::{Chains, Digits, PerfEvent, PerfLines};
pub use provenance::Provenance;
pub use sample::Sample;
pub use shares::{AddedSample, Caller, CallerSums, GroupKey, Line, OTHERS, Shares, UnknownKey};
pub use shortfall::{IncompleteTask, Shortfall};
pub use sink::{AlwaysEntered, Deliver, Discard, Flow, Sink, Stop};
pub use span::{
    ComputeField, DURATION_FIELD, IdleEvents, Incomplete, Origin as SpanOrigin, PartView, Ran, SPAN_SYSTEM, SpanCounts,
    SpanField, SpanFieldAt, SpanFieldKind, SpanFieldSource, SpanFormat, SpanNote, SpanPart, SpanSamples, SpanTask,
    SpanView, TaskGaps, notes,
};
pub use stack_text::{StackDetail, folded, frame_label};
pub use stats::{EventCounts, Stats};
pub use targets::{SpansOf, Targets};
pub use tasks::Tasks;
pub use told_frames::{Room, SourceFile, ToldFrame, ToldFrames};
pub use types::{EventType, Format, OtherFormat, RawData};
