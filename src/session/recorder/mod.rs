//! Records events into a file that perf can read.

mod build_ids;
mod container;
mod control;
mod existing_state;
mod frame_names;
mod lifecycle;
mod machine;
mod off_times;
mod plan;
mod run;
mod summary;
mod tee;
mod times;
mod writer_threads;

pub use plan::{Delay, Level, Output, RecordPlan};
pub use run::{Recorded, end_command, open, run, run_with};

pub use container::Destination;
pub use control::{Command, Control};
pub use frame_names::{FrameNames, told};
pub use lifecycle::{
    MadeEvent, RecordingWriter, Subject, check, existing, with_members_of_recordings, with_members_of_scripts,
};
pub use off_times::OffTimes;
pub use summary::{Summary, bytes};
pub use tee::{AfterFailure, RecordingTee};
pub use times::{Due, Times};
