//! The plan of counting: what is counted, for how long, and what a row of the table contains.

use std::{ffi::OsString, time::Duration};

use crate::plan::{self, Verbosity};

/// All settings of counting. They are complete before counting starts.
#[derive(Clone, Debug)]
pub struct StatPlan {
    /// The events, and their target. If there are no events, a default set is counted.
    pub capture: plan::Capture,
    /// A command that runs while events are counted, without being counted itself. Counting ends when the command
    /// exits. A command whose events are counted is in [`plan::Target::Workload`] instead.
    pub untraced_command: Option<Vec<OsString>>,
    /// How often counts are shown. `None` means only once, at the end.
    pub interval: Option<Duration>,
    /// The time after which a run ends.
    pub duration: Option<Duration>,
    /// Says whether the sum of all intervals is shown.
    pub totals: Totals,
    /// How many times the command is run.
    pub runs: u32,
    /// What a row of the table contains.
    pub rows: Rows,
    /// How many messages are printed in addition to the counts.
    pub verbosity: Verbosity,
}

/// Says whether the sum of all intervals is shown at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Totals {
    /// Only the intervals are shown, and no sum.
    #[default]
    Left,
    /// The sum is shown.
    Shown,
}

/// What a row of the table contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// The count of an event, for all CPUs together.
    #[default]
    Events,
    /// The count of an event on one CPU.
    Cpus,
}
