//! Parses selectors to `EventSpec`s: the grammar, attributes, perf's event names, CPU lists, times and sizes.

mod attrs;
mod breakpoint;
mod call_graph;
mod control;
mod cpus;
mod day_time;
mod error;
mod event;
mod glob;
mod grouping;
mod ids;
mod modifiers;
mod near;
mod parse;
mod perf_names;
mod probe;
mod probe_args;
mod quantity;
mod span;
mod span_events;
mod terms;
mod threads;
mod time_ranges;
mod usdt;

pub use attrs::{Attrs, Stack, attribute_meant_by};
pub use breakpoint::{Access, Breakpoint, breakpoint_at};
pub use call_graph::{CallGraph, CallGraphError, StackSize};
pub use control::{Control, ControlError};
pub use cpus::{CpuSet, CpuSetError};
pub use day_time::{Date, DayTime};
pub use error::{Bracket, SpanSyntaxError, SpecError};
pub use event::{EventKind, EventSpec, handler_name, source_handler_name};
pub use glob::{glob_matches, is_glob};
pub use grouping::{Grouping, Sampled};
pub use ids::{IdError, Ids, parse_ids, parse_recorded_ids};
pub use modifiers::{Modifiers, Precise};
pub use near::{did_you_mean, did_you_mean_aside, did_you_mean_quoted, similar_names};
pub use parse::parse_events;
pub use perf_names::{EventGroup, NamedEvent, named_event, perf_event_name, perf_event_names};
pub use probe::{Probe, ProbeKind, ProbeLocation, ProbeSyntaxError};
pub use probe_args::{FetchBase, ProbeArgument};
pub use quantity::{QuantityError, RingSize, parse_frequency, parse_interval, parse_pages, parse_period, parse_size};
pub use span::{
    KeyField, Nesting, OpenAtEnd, SPAN_SOURCES, SpanArguments, SpanEvents, SpanOption, SpanSpec, SpanStack,
};
pub use terms::{Rate, Term, number, terms};
pub use threads::{ThreadSpec, Threads, ThreadsError};
pub use time_ranges::{TimeRangeError, TimeRanges, format_seconds, parse_fixed_point};
