//! Pictures of many events: stacks as a flame graph, values as a histogram. Knows nothing of Python or events.

mod colors;
mod flame_graph;
mod histogram;
mod label;
mod stacks;

pub use colors::{Colors, UnknownColors};
pub use flame_graph::{DrawError, Growth, Look, draw};
pub use histogram::Log2Histogram;
pub use label::{Label, printable};
pub use stacks::{Place, Stacks, TooHeavy};
