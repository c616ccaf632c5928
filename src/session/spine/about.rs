//! The facts about a run that a sink needs before the first event.

use std::{path::PathBuf, sync::Arc};

use perf_prof_events::event::{Context, EventType, Stats};
use perf_prof_format::{record::TrailerLayout, tracefs::EventFormat};
use perf_prof_recordings::Layouts;
use perf_prof_system::{output, tracefs::Tracefs};

use crate::{engine::refresh::Refresh, recording::replay::Warnings};

/// The facts about a run that a sink needs before the first event. They are the same for scripts, programs and
/// commands.
pub struct About {
    /// The event types, in the order of the indices that the sink receives: first the selected events, then the derived
    /// ones.
    pub events: Vec<EventType>,
    /// For each event, whether the sink receives its samples. It does not receive the samples of events that are only
    /// inputs of derived events.
    pub is_delivered: Vec<bool>,
    /// The layouts of the sample ids in records other than samples.
    pub trailers: Trailers,
    /// The attr of each event that is not derived.
    pub attrs: Vec<EventAttr>,
    /// Symbols, task names and clocks.
    pub context: Arc<Context>,
    /// The counts of delivered and lost events.
    pub stats: Arc<Stats>,
    /// The CPU of each ring; `None` for a ring without a CPU.
    pub ring_cpus: Vec<Option<u32>>,
    /// The recording that the events come from; `None` for live events.
    pub recording: Option<RecordingFacts>,
    /// The architecture of the recording, in the form of `uname -m`; `None` if it is this machine's architecture.
    pub machine: Option<String>,
    /// The selector of each event type, as the user wrote it. The list is empty if the events come from a recording.
    pub selectors: Vec<String>,
    /// Lets other threads ask the run to update its tables; `None` if the events come from a recording.
    pub refresh: Option<Refresh>,
    /// All tracepoints that could have been selected.
    pub available: Available,
    /// The script's events that the recording does not contain; `None` for live events.
    pub missing: Option<MissingEvents>,
}

impl About {
    /// Returns the facts about a run that delivers no events itself, for example one that merges results.
    pub fn without_events(context: Arc<Context>, stats: Arc<Stats>) -> About {
        About {
            events: Vec::new(),
            is_delivered: Vec::new(),
            trailers: Trailers::Live(TrailerLayout::new(0)),
            attrs: Vec::new(),
            context,
            stats,
            ring_cpus: vec![None],
            recording: None,
            machine: None,
            selectors: Vec::new(),
            refresh: None,
            available: Available::default(),
            missing: None,
        }
    }
}

/// Facts from the header of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingFacts {
    /// The path, as given by the user.
    pub path: PathBuf,
    /// The name of the recorded machine.
    pub hostname: Option<String>,
    /// The release of the kernel of the recorded machine.
    pub kernel: Option<String>,
    /// Whether the recorded kernel is the same build as the running kernel.
    pub is_of_this_kernel: bool,
    /// The times of the first and the last sample, in ns of the recording's clock.
    pub times: Option<(u64, u64)>,
    /// The selected ranges of time, in ns of the recording's clock. If there is no range, all times are selected.
    pub selected: Vec<(u64, u64)>,
    /// The times in which the events were off.
    pub off: Vec<(u64, u64)>,
}

/// The attr of an event.
#[derive(Clone, Debug, Default)]
pub struct EventAttr {
    /// The index among the attrs of the capture or the recording.
    pub index: usize,
    /// The bytes of the `perf_event_attr`.
    pub bytes: Vec<u8>,
    /// The ids in the samples of a recording; empty for live events.
    pub ids: Vec<u64>,
}

/// The layouts of the sample ids at the end of records other than samples.
pub enum Trailers {
    /// All records of a live run have the same layout.
    Live(TrailerLayout),
    /// The events of a recording may have different layouts.
    Recorded(Arc<Layouts>),
}

impl Trailers {
    /// Returns the layout for a record, or `None` if the record has no sample id.
    pub fn of(&self, record: &[u8]) -> Option<&TrailerLayout> {
        match self {
            Trailers::Live(layout) => Some(layout),
            Trailers::Recorded(layouts) => layouts.trailer_of(record),
        }
    }
}

/// All tracepoints that could have been selected.
pub enum Available {
    /// The tracepoints of the running kernel. They are listed only if they are needed.
    Kernel(Tracefs),
    /// The tracepoints of a recording.
    Recorded(Vec<Arc<EventFormat>>),
}

impl Default for Available {
    fn default() -> Self {
        Available::Recorded(Vec::new())
    }
}

impl Available {
    /// Returns the system and the name of each tracepoint.
    pub fn events(&self) -> Vec<(String, String)> {
        match self {
            Available::Kernel(tracefs) => tracefs.events().unwrap_or_default(),
            Available::Recorded(formats) => {
                formats.iter().map(|format| (format.system.to_string(), format.name.clone())).collect()
            }
        }
    }
}

/// The script's events that the recording does not contain.
pub struct MissingEvents {
    /// The names of the events.
    pub names: Vec<String>,
    /// The name of the recording.
    pub recording: String,
    /// Descriptions of the damage to the recording. The damage may be the reason why events are missing.
    pub damage: Vec<String>,
    /// Says whether this process prints the warnings.
    pub warnings: Warnings,
}

impl MissingEvents {
    /// Prints what is wrong with the recording, before an error about missing events.
    pub fn print_damage(&self) {
        if self.warnings == Warnings::Printed {
            self.damage.iter().for_each(|damage| output::say(format_args!("warning: {damage}")));
        }
    }
}
