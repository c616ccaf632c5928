//! A command that reads a recording, run several times side by side, each time on a part of it. Knows nothing of what
//! recordings are made of.

mod command;
mod jobs;
mod plan;
mod ranges;
mod reader;

pub use command::{Command, shell_quote};
pub use jobs::{Job, JobError, Progress, run};
pub use plan::{PlanError, Planned, Recorded, Split, Splits, input, joined, plan};
pub use ranges::{Divide, Divided, Lengths, RangeError, TimeRange, divide};
pub use reader::{Named, NoReader, NoValue, Reader, Tool};
