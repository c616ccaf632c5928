//! The Python classes of aggregators: `Count`, `Sum`, `Hist`, `Stacks` and `Top`. The wing `events` does the work; here are
//! the objects that scripts see, and what gives them a run's events.

mod base;
mod distribution;
mod feed;
mod keys;
mod kinds;
mod top;

pub use base::Aggregator;
pub use distribution::PyDistribution;
pub use feed::{Feed, is_aggregator, module_aggregators};
pub use kinds::{Count, Hist, Stacks, Sum};
pub use top::Top;
