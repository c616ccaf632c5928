//! Selector text to `EventSpec`: grammar, attributes, CPU lists, times and sizes. Knows nothing of the machine.

mod attrs;
mod call_graph;
mod cpus;
mod error;
mod event;
mod glob;
mod near;
mod parse;
mod quantity;

pub use attrs::{Attrs, Stack};
pub use call_graph::{CallGraph, CallGraphError, StackSize};
pub use cpus::{CpuSet, CpuSetError};
pub use error::{Bracket, SpecError};
pub use event::{EventKind, EventSpec, ProbeKind, handler_name};
pub use glob::{glob_matches, is_glob};
pub use near::near;
pub use parse::parse_events;
pub use quantity::{QuantityError, RingSize, parse_interval, parse_pages, parse_size};
