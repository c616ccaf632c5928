//! A command that reads a recording, run several times side by side, each time on a part of it. Knows nothing of what
//! recordings are made of.

mod command;
mod jobs;
mod plan;
mod ranges;

pub use command::{Command, Named, NoValue, Tool, shell_quote};
pub use jobs::{Job, JobError, Progress, run};
pub use plan::{PlanError, Recorded, Split, Splits, input, jobs, joined};
pub use ranges::{Divide, RangeError, TimeRange, divide};
