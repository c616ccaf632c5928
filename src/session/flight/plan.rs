//! The plan of a flight recorder.

use std::time::Duration;

use crate::{plan::Draft, recorder::RecordPlan};

/// How often the keeper counts the bytes in the rings for `--switch-output=SIZE`.
const COUNTED_EVERY: Duration = Duration::from_millis(100);

/// All settings of a flight recorder.
#[derive(Clone, Debug)]
pub struct FlightPlan {
    /// The events, and the output file or folder, as for an ordinary recording.
    pub record: RecordPlan,
    /// How much of the time before a trigger a dump contains. `None` for everything that is still in the rings.
    pub before: Option<Duration>,
    /// How long a dump continues after its trigger.
    pub after: Duration,
    /// The events that cause dumps; `None` if there are none. If the target is a command, this draft selects no tasks.
    pub triggers: Option<Draft>,
    /// The time after a written dump in which events cause no new dump.
    pub min_gap: Duration,
    /// How many dumps stay in the folder.
    pub max_files: Option<usize>,
    /// When dumps are made without a trigger.
    pub rhythm: Option<Rhythm>,
    /// Whether the recorder makes a dump when it ends.
    pub dumps_at_end: bool,
    /// Whether the output is a folder or a file.
    pub into: Into,
}

impl FlightPlan {
    /// Returns the plan of a recorder that makes dumps only when a program asks for them.
    pub fn on_request(record: RecordPlan, before: Duration, after: Duration, max_files: Option<usize>) -> FlightPlan {
        FlightPlan {
            record,
            before: Some(before),
            after,
            triggers: None,
            min_gap: Duration::ZERO,
            max_files,
            rhythm: None,
            dumps_at_end: false,
            into: Into::Folder,
        }
    }

    /// Returns whether only requests cause dumps. Then the recorder continues after the recorded tasks have exited,
    /// because a request may still ask for their last events.
    pub fn is_on_request(&self) -> bool {
        self.triggers.is_none() && self.rhythm.is_none() && !self.dumps_at_end
    }
}

/// When dumps are made without a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// Each time this much time has passed.
    Every(Duration),
    /// Each time this many bytes of samples were written.
    Bytes(u64),
}

impl Rhythm {
    /// Returns the time between two checks of the rhythm.
    pub(super) fn turn(self) -> Duration {
        match self {
            Rhythm::Every(time) => time,
            Rhythm::Bytes(_) => COUNTED_EVERY,
        }
    }
}

/// Whether the output of a flight recorder is a folder or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// A folder of dumps, each with a name of its own.
    Folder,
    /// One file.
    File,
}
