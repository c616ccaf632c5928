//! Where a recording goes: the file of the plan, beside the one that was there before.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    capture::EventAttr,
    perfdata::write::{Features, FileWriter, Level, Stream},
    record::SampleLayout,
};

/// A recording that is being written.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    /// The one that had its name.
    former: Option<PathBuf>,
    writer: FileWriter,
}

impl Recording {
    /// Begins it. `features` is what is known already.
    pub fn create(
        path: &Path,
        events: &[EventAttr],
        layout: SampleLayout,
        level: Option<Level>,
        features: &Features,
    ) -> Result<Recording> {
        let cannot = || format!("cannot write '{}'", path.display());
        let former = keep_former(path).with_context(cannot)?;
        // What is learnt during the recording: names and build ids of files, mostly.
        const LEARNT: usize = 1 << 20;
        let writer = FileWriter::create(path, events, layout, level, features.size() + LEARNT).with_context(cannot)?;
        Ok(Recording { path: path.to_owned(), former, writer })
    }

    /// Where records go.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.writer.stream
    }

    /// Leaves nothing of it: it never began.
    pub fn discard(self) {
        // Who could not be put back stays under the name that it has.
        let _ = fs::remove_file(&self.path);
        if let Some(former) = self.former {
            let _ = fs::rename(former, &self.path);
        }
    }

    /// Writes what makes it readable; gives its size.
    pub fn finish(self, features: &Features) -> Result<u64> {
        self.writer.finish(features).with_context(|| format!("cannot finish '{}'", self.path.display()))
    }
}

/// Renames a recording of that name to `NAME.old`, as perf does; gives that name.
fn keep_former(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        // What holds nothing is no loss, and a device is not ours to rename.
        Ok(found) if found.is_file() && found.len() > 0 => {
            let old = with_suffix(path, ".old");
            fs::rename(path, &old)?;
            Ok(Some(old))
        }
        Ok(_) => Ok(None),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
