//! A recording in a directory: `data`, a file of its own with the header, what ran before and the features; and a file of
//! records for each ring, `data.0` and so on, in the ring's order.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{FileWriter, Level, Stream};
use crate::{capture::EventAttr, record::SampleLayout};

/// Makes the directory, and its `data`.
pub fn create(path: &Path, events: &[EventAttr], layout: SampleLayout, reserve: usize) -> io::Result<FileWriter> {
    DirBuilder::new().mode(0o700).create(path)?;
    FileWriter::create(&path.join("data"), events, layout, None, reserve)
}

/// The file of a ring, by its number.
pub fn stream(path: &Path, ring: usize, layout: SampleLayout, level: Option<Level>) -> io::Result<Stream> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path.join(format!("data.{ring}")))?;
    Stream::new(file, 0, layout, level)
}

/// Removes a recording. A directory that holds anything else is an error, and is left as it is.
pub fn remove(path: &Path) -> io::Result<()> {
    let is_ours = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.is_file()
            && (name == "data" || name.strip_prefix("data.").is_some_and(|number| number.parse::<u32>().is_ok()))
    };
    let files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    if let Some(other) = files.iter().find(|file| !is_ours(file)) {
        let what = format!("'{}' is no part of a recording; it is not removed", other.display());
        return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, what));
    }
    files.iter().try_for_each(fs::remove_file)?;
    fs::remove_dir(path)
}
