//! Records events into a file that perf reads. Knows nothing of argv and of Python.

mod build_ids;
mod container;
mod control;
mod machine;
mod plan;
mod recorded;
mod recording;
mod run;
mod running;
mod threads;

pub use plan::{Delay, Level, Output, Plan};
pub use run::run;

pub(super) use container::Form;
pub(super) use recorded::{AfterFailure, Recorded};
pub(super) use recording::{Recording, Summary, check, recordable, with_members_of_scripts};
