//! `perf-prof script -g python`: writes a script with a handler for each tracepoint of a recording. Reads no records.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use perf_prof_events::template::{FieldSigns, perf_script_template};
use perf_prof_recordings::ReadLimits;
use perf_prof_session::recording::{open, select};
use perf_prof_system::output;

/// The path of the script if the user gives none, as in perf.
const DEFAULT_FILE: &str = "perf-script.py";

/// Where a script is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptFile {
    /// The default path. Another user may have put a link there, so the script is written only if nothing has this
    /// path.
    Usual,
    /// The path that the user gave. An existing file is overwritten, as by perf.
    Named(PathBuf),
}

impl ScriptFile {
    fn path(&self) -> &Path {
        match self {
            ScriptFile::Usual => Path::new(DEFAULT_FILE),
            ScriptFile::Named(path) => path,
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true);
        match self {
            // `create_new` stands for O_EXCL: if the path exists, even as a link, the open fails.
            ScriptFile::Usual => options.create_new(true),
            ScriptFile::Named(_) => options.create(true).truncate(true),
        };
        options.open(self.path())?.write_all(text.as_bytes())
    }
}

/// Writes a script for the events of a recording.
pub fn write(recording: &Path, limits: &ReadLimits, script: &ScriptFile, signs: FieldSigns) -> Result<()> {
    let recording = open::open_header(recording, limits)?;
    recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
    let selected = select::select(&[], 0, &recording)?;
    let text = perf_script_template(&selected.types, signs);
    let path = script.path().display();
    script.write(&text).map_err(|error| match (script, error.kind()) {
        (ScriptFile::Usual, io::ErrorKind::AlreadyExists) => anyhow!(
            "{path} exists already: remove it, or write -g python:{path} to overwrite it (if it is a link: the file that it \
             leads to)"
        ),
        _ => anyhow!(error).context(format!("cannot write the script '{path}'")),
    })?;
    output::write_line(&format!("generated Python script: {}", output::shown_on_stderr(&path.to_string())));
    Ok(())
}
