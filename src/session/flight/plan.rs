//! The plan of a flight recorder.

use std::time::Duration;

use crate::{plan::Draft, recorder::RecordPlan};

/// All settings of a flight recorder.
#[derive(Clone, Debug)]
pub struct FlightPlan {
    /// The events and where they are recorded, as for an ordinary recording.
    pub record: RecordPlan,
    /// How much of the time before a trigger a dump has. `None` for all that the rings still have.
    pub before: Option<Duration>,
    /// How long a dump goes on after its trigger.
    pub after: Duration,
    /// The events that make dumps; `None` if there are none. If a command is the target, the draft selects no tasks.
    pub triggers: Option<Draft>,
    /// After the end of a dump that was written, events make no other one for this time.
    pub min_gap: Duration,
    /// How many dumps stay in the folder.
    pub max_files: Option<usize>,
    /// When dumps are made without a trigger.
    pub rhythm: Option<Rhythm>,
    /// Whether the end of the recording makes a dump.
    pub dumps_at_end: bool,
    /// What the output is.
    pub into: Into,
}

/// When dumps are made without a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// After each of these times.
    Every(Duration),
    /// When this many bytes of samples were written since the last dump.
    Bytes(u64),
}

/// What the output of a flight recorder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// A folder of dumps, each with a name of its own.
    Folder,
    /// One file.
    File,
}
