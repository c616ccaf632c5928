//! A recording is opened by the path that somebody gave. One that leads to a part of a recording is refused: its events are
//! in other files.

use std::{ffi::OsStr, fs, path::Path};

use anyhow::{Result, bail};

use crate::{
    perfdata::{PerfDataError, Recording},
    sys::place::folder,
};

/// Opens a recording whose samples are wanted.
pub fn open(path: &Path) -> Result<Recording> {
    let mut recording = header(path)?;
    if recording.features.dir_format.is_none() || path.is_dir() {
        return Ok(recording);
    }
    if has_rings(folder(path)) {
        bail!(part(path));
    }
    // Others that perf makes directories for have all samples in this file.
    if recording.index()?.iter().flatten().all(|index| index.sample_count() == 0) {
        let name = &recording.name;
        let warning = format!(
            "{name} was `data` in a directory, and has no events: they are in the files data.0 and so on, which were beside it"
        );
        recording.warnings.push(warning);
    }
    Ok(recording)
}

/// Opens a recording of which nothing but what it says of itself is wanted: `data` of a directory has it.
pub fn header(path: &Path) -> Result<Recording> {
    match Recording::open(path) {
        Err(PerfDataError::NotPerfData { .. } | PerfDataError::Empty { .. }) if is_ring(path) => bail!(part(path)),
        opened => Ok(opened?),
    }
}

fn part(path: &Path) -> String {
    let (path, folder) = (path.display(), folder(path).display());
    format!(
        "{path} is a part of the recording {folder}, whose events are in several files: name the directory, {folder}"
    )
}

/// Whether a file has the records of a ring.
fn is_ring(path: &Path) -> bool {
    path.file_name().is_some_and(is_name_of_ring) && Recording::open(&folder(path).join("data")).is_ok()
}

fn has_rings(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|files| files.flatten().any(|file| is_name_of_ring(&file.file_name())))
}

fn is_name_of_ring(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("data."));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}
