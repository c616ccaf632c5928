//! A recording in a directory. The file `data` contains the header, the records about tasks that existed before the
//! recording started, and the feature sections. The records of each ring are in a separate file, in the order of the
//! ring: `data.0`, `data.1` and so on.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{FileWriter, Known, Level, Stream};
use crate::{abi::perf_data::PERF_RECORD_ID_INDEX, record::SampleLayout};

/// Returns id index records that list the rings. For each ring, `rings` gives the id of an event in the ring, and the
/// CPU of the ring. From these records a reader knows which files should exist.
pub fn rings(rings: impl Iterator<Item = (u64, Option<u32>)>) -> Vec<u8> {
    // A number of all ones means: no CPU, or no thread.
    let entry = |(ring, (id, cpu)): (usize, (u64, Option<u32>))| {
        [id, ring as u64, cpu.map_or(u64::MAX, u64::from), u64::MAX].map(u64::to_ne_bytes)
    };
    let entries: Vec<[[u8; 8]; 4]> = rings.enumerate().map(entry).collect();
    // Each record contains as many entries as the maximum size of a record allows.
    let records = entries.chunks((usize::from(u16::MAX) - 16) / 32).map(|entries| {
        let bytes = entries.as_flattened().as_flattened();
        let header = [&PERF_RECORD_ID_INDEX.to_ne_bytes()[..], &[0; 2], &(16 + bytes.len() as u16).to_ne_bytes()];
        [&header.concat(), &(entries.len() as u64).to_ne_bytes()[..], bytes].concat()
    });
    records.collect::<Vec<_>>().concat()
}

/// Creates the directory, unless it exists, and the file `data` in it.
pub fn create(path: &Path, known: &Known<'_>, reserve: usize) -> io::Result<FileWriter> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    FileWriter::create(&path.join("data"), known, None, reserve)
}

/// Creates the file of a ring.
pub fn stream(path: &Path, ring: usize, layout: SampleLayout, level: Option<Level>) -> io::Result<Stream> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path.join(format!("data.{ring}")))?;
    Stream::new(file, 0, layout, level).map(Stream::indexed)
}

/// Removes the directory of a recording. If the directory contains files that are not part of a recording, fails and
/// removes nothing.
pub fn remove(path: &Path) -> io::Result<()> {
    clear(path)?;
    fs::remove_dir(path)
}

/// Removes the files of a recording, but not the directory. Fails like [`remove`].
pub fn clear(path: &Path) -> io::Result<()> {
    let is_ours = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.is_file()
            && (name == "data" || name.strip_prefix("data.").is_some_and(|number| number.parse::<u32>().is_ok()))
    };
    let files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    if let Some(other) = files.iter().find(|file| !is_ours(file)) {
        let what = format!("'{}' is not part of a recording; nothing was removed", other.display());
        return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, what));
    }
    files.iter().try_for_each(fs::remove_file)
}
