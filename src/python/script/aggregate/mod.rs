//! The Python classes of aggregators: `Count`, `Sum`, `Hist`, `Stacks` and `Top`. This module defines the objects that
//! scripts see, and passes the events of a run to them. `perf_prof_events::aggregate` does the work.

mod base;
mod distribution;
mod fed_by;
mod feed;
mod keys;
mod kinds;
mod metrics;
mod stacks_profile;
mod top;

pub use base::Aggregator;
pub use distribution::PyDistribution;
pub use feed::{Feed, is_aggregator, module_aggregators};
pub use kinds::{Count, Hist, Stacks, Sum};
pub use metrics::add_to as add_metrics_to;
pub use top::Top;
