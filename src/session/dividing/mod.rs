//! Divides the replay of a recording between several readers: the parts, the result of a part, and the sum of all
//! results.
//!
//! A [`Recording`](perf_prof_recordings::Recording) becomes [`Part`]s, each reader returns a [`PartResult`], and
//! [`Results`] adds up the results. The readers are forked processes, processes on other machines, or threads. Other
//! modules start the readers and transport their results.

mod counts;
mod part;
mod result;
mod results;
mod whole;

pub use counts::PartCounts;
pub use part::Part;
pub use result::{PartResult, PartResultError};
pub use results::Results;
pub use whole::{Undividable, Whole, has_readings};
