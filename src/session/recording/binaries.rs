//! Finds the binaries that were mapped when a recording was made: by the build ids in the recording, and in the folder
//! in which perf keeps copies of binaries.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Result;
use perf_prof_recordings::Recording;
use perf_prof_symbols::symbol::RecordedBinaries;

use super::{clock::start_time, kernel};

/// Returns the file that contains the header of a recording: the recording itself, or the file `data` of a directory.
pub fn data_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("data") } else { path.to_owned() }
}

/// Returns what is needed to find the binaries of a recording: its build ids, the time at which it was started, the
/// folder in which perf keeps copies of binaries, and whether its kernel is the running kernel.
pub fn binaries(recording: &mut Recording, path: &Path) -> Result<RecordedBinaries> {
    let begin = start_time(recording, path)?;
    let ids = recording.features.build_ids.iter();
    let build_ids = ids.map(|id| (PathBuf::from(&id.path), Arc::from(&*id.id))).collect();
    let cache = env::var_os("PERF_BUILDID_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".debug")));
    let is_running_kernel = kernel::is_running(recording);
    Ok(RecordedBinaries { build_ids, cache, begin, is_running_kernel })
}
