//! What the periods of samples count. Reports, flame graphs and profiles take the unit from here.

use perf_prof_events::picture::grouped;
use perf_prof_format::{
    abi::PERF_TYPE_RAW,
    spec::{NamedEvent, perf_event_name},
};
use perf_prof_recordings::Attr;
use perf_prof_session::spine::ChosenRecording;

/// What the periods of an event's samples count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeriodUnit {
    /// Nanoseconds of a clock.
    Nanoseconds,
    /// Occurrences of this name, for example `cycles`.
    Occurrences(String),
}

/// What occurrences of tracepoints are called.
const TRACEPOINTS: &str = "events";

impl PeriodUnit {
    /// Returns whether these are occurrences of tracepoints.
    pub fn is_of_tracepoints(&self) -> bool {
        matches!(self, PeriodUnit::Occurrences(name) if name == TRACEPOINTS)
    }

    /// Returns the units of the selected events. `names` has the names of all events of the recording.
    pub fn of_events(chosen: &ChosenRecording, names: &[String]) -> Vec<PeriodUnit> {
        let of = |at: usize| {
            let event = &chosen.recording().events[at];
            match event.format {
                Some(_) => PeriodUnit::Occurrences(TRACEPOINTS.to_owned()),
                None => PeriodUnit::of(&event.attr, &names[at]),
            }
        };
        chosen.selected().attr_of_each_type().into_iter().map(of).collect()
    }

    /// Returns the unit of an event that has no format. The attr says which event it is; the name may be one that the user
    /// gave, or that of a source: `profile` samples cycles or a clock.
    fn of(attr: &Attr, name: &str) -> PeriodUnit {
        let event = NamedEvent { kind: attr.kind, config: attr.config };
        if event.is_clock() {
            return PeriodUnit::Nanoseconds;
        }
        // The code of a raw event says less than the name that the user gave.
        let known = perf_event_name(event).filter(|_| attr.kind != PERF_TYPE_RAW);
        let without_modifiers = || name.split(':').next().unwrap_or_default().to_owned();
        PeriodUnit::Occurrences(known.unwrap_or_else(without_modifiers))
    }

    /// Returns the unit's name in pprof.
    pub fn in_pprof(&self) -> &'static str {
        match self {
            PeriodUnit::Nanoseconds => "nanoseconds",
            PeriodUnit::Occurrences(_) => "count",
        }
    }

    /// Returns the unit's short name.
    pub fn name(&self) -> &str {
        match self {
            PeriodUnit::Nanoseconds => "ns",
            PeriodUnit::Occurrences(name) => name,
        }
    }

    /// Returns a sum of periods as text, for example `1042.084 ms of CPU time`.
    pub fn sum(&self, of: u64) -> String {
        match self {
            PeriodUnit::Nanoseconds => format!("{:.3} ms of CPU time", of as f64 / 1e6),
            PeriodUnit::Occurrences(name) => format!("{} {name}", grouped(of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE};

    use super::*;

    #[test]
    fn the_attr_says_what_periods_count_and_not_the_name() {
        let shown = |kind, config, name: &str| {
            let unit = PeriodUnit::of(&Attr { kind, config, ..Attr::default() }, name);
            format!("{} {} {}", unit.name(), unit.in_pprof(), unit.sum(1_234_567))
        };
        let clock = "ns nanoseconds 1.235 ms of CPU time";
        assert_eq!(shown(PERF_TYPE_SOFTWARE, 0, "profile"), clock);
        assert_eq!(shown(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, "mine"), clock);
        assert_eq!(shown(PERF_TYPE_HARDWARE, 0, "profile"), "cycles count 1,234,567 cycles");
        assert_eq!(shown(PERF_TYPE_HARDWARE, 0, "cpu-clock"), "cycles count 1,234,567 cycles");
        assert_eq!(shown(PERF_TYPE_RAW, 0xc0, "mine:u"), "mine count 1,234,567 mine");
    }
}
