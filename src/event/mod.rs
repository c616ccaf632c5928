//! Meaning: event types, samples with their lazy members, call chains, the text line, task names, and the port that
//! events go out through (`Sink`). Knows nothing of Python.

mod callchain;
mod columns;
mod context;
mod endings;
mod line;
mod perf_line;
mod sample;
mod shares;
mod sink;
mod stats;
mod tasks;
mod types;
mod unwound;

pub use callchain::{Frame, Origin, Sides, UNKNOWN, frames, ip_frame, ip_function};
pub use columns::{Column, Columns, Fields, FieldsError};
pub use context::{Context, Processes};
pub use endings::Endings;
pub use line::{LineContext, LineParts, write_line};
pub use perf_line::{Chains, Digits, PerfEvent, PerfLines};
pub use sample::Sample;
pub use shares::{Added, By, Caller, Callers, Line, Shares, UnknownKey};
pub use sink::{Deliver, Flow, Sink, Stop};
pub use stats::{EventCounts, Stats};
pub use tasks::Tasks;
pub use types::{EventType, Format, SourceFormat};
