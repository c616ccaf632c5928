//! `perf-prof script -g python`: writes a script with a handler for each tracepoint of a recording. Reads no records.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use perf_prof_events::template::{FieldSigns, perf_script_template};
use perf_prof_recordings::ReadLimits;
use perf_prof_session::recording::{open, select};
use perf_prof_system::output;

/// The file that is written if the user gives no other one.
pub const DEFAULT_FILE: &str = "perf-script.py";

/// Writes a script for the events of a recording to the file `script`. An existing file is overwritten, as perf does.
pub fn write(recording: &Path, limits: &ReadLimits, script: &Path, signs: FieldSigns) -> Result<()> {
    let recording = open::open_header(recording, limits)?;
    recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
    let selected = select::select(&[], 0, &recording)?;
    let text = perf_script_template(&selected.types, signs);
    fs::write(script, text).with_context(|| format!("cannot write the script '{}'", script.display()))?;
    output::write_line(&format!("generated Python script: {}", output::shown_on_stderr(&script.to_string_lossy())));
    Ok(())
}
