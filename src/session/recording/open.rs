//! Opens a recording by the path that the user typed. Refuses a single file of a recording that is a directory, because
//! most of the events are in other files.

use std::{ffi::OsStr, fs, path::Path, sync::Arc};

use anyhow::{Result, bail};
use perf_prof_recordings::{PerfDataError, ReadLimits, Recording};
use perf_prof_system::{file::open_regular, output_path::folder};

/// Opens a recording to read its samples.
pub fn open(path: &Path, limits: &ReadLimits) -> Result<Recording> {
    let mut recording = open_header(path, limits)?;
    if recording.features.dir_format.is_none() || path.is_dir() {
        return Ok(recording);
    }
    if has_rings(folder(path)) {
        bail!(part_of_directory_message(path));
    }
    // perf also writes directories with all samples in the file `data`. Then this file is complete.
    if recording.index()?.iter().flatten().all(|index| index.sample_count() == 0) {
        let name = &recording.name;
        let warning = format!(
            "{name} was the file `data` of a directory and has no events; the events are in the files `data.0`, \
             `data.1`, ... of this directory"
        );
        recording.warnings.push(warning);
        recording.lacks_records = true;
    }
    Ok(recording)
}

/// Opens a recording to read only its header and feature sections. If the recording is a directory, they are in the
/// file `data`.
pub fn open_header(path: &Path, limits: &ReadLimits) -> Result<Recording> {
    match Recording::open_with(path, limits) {
        Err(PerfDataError::NotPerfData { .. } | PerfDataError::Empty { .. }) if is_ring(path, limits) => {
            bail!(part_of_directory_message(path))
        }
        opened => Ok(opened?),
    }
}

fn part_of_directory_message(path: &Path) -> String {
    let (path, folder) = (path.display(), folder(path).display());
    format!(
        "{path} is only a part of the recording {folder}, which consists of several files; use the directory {folder}"
    )
}

/// Returns whether a file contains the records of a ring, and is in the same directory as a file `data`.
fn is_ring(path: &Path, limits: &ReadLimits) -> bool {
    // The file is checked first, because opening a pipe with this name would block.
    let data = folder(path).join("data");
    let is_recording = || {
        let file = open_regular(&data).ok().filter(|file| limits.check_owner(file, "data").is_ok());
        file.is_some_and(|file| Recording::of_file(Arc::new(file), "data").is_ok())
    };
    path.file_name().is_some_and(is_name_of_ring) && is_recording()
}

fn has_rings(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|files| files.flatten().any(|file| is_name_of_ring(&file.file_name())))
}

fn is_name_of_ring(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("data."));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}
