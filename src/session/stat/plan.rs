//! What is to be counted, whoever asked for it. Knows nothing of argv.

use std::{ffi::OsString, time::Duration};

use crate::session::plan::{self, Verbosity};

/// Everything that counting is told before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which events, of what; without any, those that say most of a program.
    pub capture: plan::Capture,
    /// A command that is run meanwhile: the counting ends with it. Where the target is that command, it is the target's.
    pub meanwhile: Option<Vec<OsString>>,
    /// How often what was counted is shown; `None` for once, at the end.
    pub interval: Option<Duration>,
    /// Whether the sum of all intervals is shown.
    pub totals: Totals,
    /// How often the command is run.
    pub runs: u32,
    /// What a row is.
    pub rows: Rows,
    /// How much is said beside the counts.
    pub verbosity: Verbosity,
}

/// Whether the sum of all intervals is shown at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Totals {
    /// It is not: the intervals are all there is.
    #[default]
    Left,
    /// It is.
    Shown,
}

/// What a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// An event.
    #[default]
    Events,
    /// An event on a CPU.
    Cpus,
}
