//! `perf-prof parallel`: runs several copies of a command that reads a recording. Each copy reads one part of the
//! recording.

mod command;
mod job_plan;
mod jobs;
mod ranges;
mod reader;

pub use command::Command;
pub use job_plan::{Division, JobPlan, PlanError, RecordingExtent, Splits, input, joined_output, plan};
pub use jobs::{Job, JobError, Progress, run};
pub use ranges::{Divide, Divided, RangeError, RangeLength, TimeRange, divide};
pub use reader::{LOADED, MissingValue, NotDivisible, OptionName, ReadingCommand, Tool};
