//! What a recording is to be, whoever asked for it. Knows nothing of argv.

use std::{ffi::OsString, path::PathBuf, time::Duration};

pub use crate::perfdata::write::Level;
use crate::{
    session::plan,
    spec::{Control, Threads},
};

/// Everything that a recording is told before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which events, of what, and how they are captured.
    pub capture: plan::Capture,
    /// The command line, word by word; the recording keeps it.
    pub command_line: Vec<String>,
    /// Where it is written to.
    pub output: Output,
    /// The threads that write a directory; `None` for one file.
    pub threads: Option<Threads>,
    /// How hard records are packed; `None` for not at all.
    pub compression: Option<Level>,
    /// How much of what was read is gathered before it is written, in bytes; `None` leaves it to the session.
    pub gathered: Option<usize>,
    /// When the events begin.
    pub delay: Delay,
    /// Where commands come from.
    pub control: Option<Control>,
    /// A command that is run meanwhile: the recording ends with it. Where the target is that command, it is the target's.
    pub meanwhile: Option<Vec<OsString>>,
    /// How much is said on stderr.
    pub verbosity: plan::Verbosity,
}

/// When events begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// With the recording.
    #[default]
    None,
    /// So long after it.
    For(Duration),
    /// When a command says so.
    UntilEnabled,
}

/// Where a recording is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file, or a directory where threads write it.
    File(PathBuf),
    /// The standard output.
    Stdout,
}
