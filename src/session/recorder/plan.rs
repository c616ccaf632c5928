//! The plan of a recording: what to record, and how and where to write it.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use perf_prof_format::spec::{Control, Threads};
pub use perf_prof_recordings::write::Level;

use crate::plan;

/// All settings of a recording. They are complete before the recording starts.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// The events, what they are attached to, and how they are captured.
    pub capture: plan::Capture,
    /// The command line, word by word. It is stored in the recording.
    pub command_line: Vec<String>,
    /// Where the recording is written to.
    pub output: Output,
    /// The threads that write the recording as a directory. `None` means that the recording is one file.
    pub threads: Option<Threads>,
    /// The compression level of the records. `None` means no compression.
    pub compression: Option<Level>,
    /// How many bytes of records are collected before they are written. `None` means the default.
    pub flush_bytes: Option<usize>,
    /// When the events are turned on.
    pub delay: Delay,
    /// The duration of the recording. It starts when the events are turned on. If only a command turns them on, it
    /// starts with the recording.
    pub duration: Option<Duration>,
    /// How often perf-prof's own CPU and memory use is printed.
    pub usage_self: Option<Duration>,
    /// Where commands to the recorder are read from, if anywhere.
    pub control: Option<Control>,
    /// A command that runs during the recording without being recorded. The recording ends when the command exits. A
    /// command that is recorded is in [`plan::Target::Workload`] instead.
    pub untraced_command: Option<Vec<OsString>>,
    /// How much is printed to stderr.
    pub verbosity: plan::Verbosity,
}

/// When events are turned on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// At the start of the recording.
    #[default]
    None,
    /// After this time, counted from the start of the recording.
    For(Duration),
    /// When the command `enable` arrives.
    UntilEnabled,
}

impl Delay {
    /// Returns the time after which the events are turned on. Returns `None` if they are on from the start, or if a
    /// command turns them on.
    pub fn time(self) -> Option<Duration> {
        match self {
            Delay::For(time) => Some(time),
            Delay::None | Delay::UntilEnabled => None,
        }
    }
}

/// Where a recording is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file, or a directory if threads write the recording.
    File(PathBuf),
    /// The standard output.
    Stdout,
}
