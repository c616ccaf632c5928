//! Pictures of many events: flame graphs of stacks, histograms of values, heat maps of values over time, and timelines of
//! slices.

mod caption;
mod colors;
mod difference;
mod flame_difference;
mod flame_events;
mod flame_graph;
pub mod heat_map;
mod heat_map_svg;
mod histogram;
mod label;
mod long_chains;
pub mod perfetto;
pub mod pprof;
mod quantity;
mod stacks;
pub mod timeline;

pub use colors::{Colors, UnknownColors};
pub use difference::{Roots, StackDifference};
pub use flame_difference::draw_difference;
pub use flame_events::{EventWeights, draw_events};
pub use flame_graph::{DrawError, FlameGraphStyle, StackDirection, draw};
pub use heat_map_svg::{HeatMapStyle, draw_heat_map};
pub use histogram::Log2Histogram;
pub(crate) use histogram::escaped;
pub use label::{KERNEL_SUFFIX, Label, PYTHON_REASON, PYTHON_SUFFIX, printable};
pub use long_chains::LongChains;
pub use quantity::{grouped, weight_text};
pub use stacks::{StackNode, Stacks, WeightOverflow, note_of_cut_chains};
