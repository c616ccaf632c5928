//! Where a recording goes: the file of the plan, beside the one that was there before.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    capture::EventAttr,
    perfdata::write::{Features, FileWriter, Level, Stream, directory},
    record::SampleLayout,
};

/// What a recording is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A file; its records packed so hard.
    File(Option<Level>),
    /// A directory. Its records go into files of their own.
    Directory,
}

/// A recording that is being written.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    form: Form,
    /// The one that had its name.
    former: Option<PathBuf>,
    writer: FileWriter,
}

impl Recording {
    /// Begins it. `features` is what is known already.
    pub fn create(
        path: &Path,
        form: Form,
        events: &[EventAttr],
        layout: SampleLayout,
        features: &Features,
    ) -> Result<Recording> {
        let cannot = || format!("cannot write '{}'", path.display());
        let former = keep_former(path, form).with_context(cannot)?;
        // What is learnt during the recording: names and build ids of files, mostly.
        const LEARNT: usize = 1 << 20;
        let reserve = features.size() + LEARNT;
        let writer = match form {
            Form::File(level) => FileWriter::create(path, events, layout, level, reserve),
            Form::Directory => directory::create(path, events, layout, reserve),
        };
        Ok(Recording { path: path.to_owned(), form, former, writer: writer.with_context(cannot)? })
    }

    /// Where records go.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.writer.stream
    }

    /// Leaves nothing of it: it never began.
    pub fn discard(self) {
        // Who could not be put back stays under the name that it has.
        let _ = match self.form {
            Form::File(_) => fs::remove_file(&self.path),
            Form::Directory => directory::remove(&self.path),
        };
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
fn keep_former(path: &Path, form: Form) -> io::Result<Option<PathBuf>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        // What holds nothing is no loss, and a device is not ours to rename.
        Ok(found) if found.is_dir() || found.is_file() && found.len() > 0 => {
            let old = with_suffix(path, ".old");
            // Of the one before that nothing is kept. A directory cannot take the place of a file, nor a file its.
            match fs::symlink_metadata(&old) {
                Ok(former) if former.is_dir() => directory::remove(&old)?,
                Ok(_) => fs::remove_file(&old)?,
                Err(_) => {}
            }
            fs::rename(path, &old)?;
            Ok(Some(old))
        }
        Ok(found) => {
            if form == Form::Directory && found.is_file() {
                fs::remove_file(path)?;
            }
            Ok(None)
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
