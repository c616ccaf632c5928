//! A recording in a directory: `data`, a file of its own with the header, what ran before and the features; and a file of
//! records for each ring, `data.0` and so on, in the ring's order.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Features, FileWriter, Level, Stream};
use crate::{abi::perf_data::PERF_RECORD_ID_INDEX, capture::EventAttr, record::SampleLayout};

/// The record that tells which rings there were, each by an id and its CPU: who reads it knows which files there have to be.
pub fn rings(rings: impl Iterator<Item = (u64, Option<u32>)>) -> Vec<u8> {
    // No thread, and no CPU, are all ones.
    let entry = |(ring, (id, cpu)): (usize, (u64, Option<u32>))| {
        [id, ring as u64, cpu.map_or(u64::MAX, u64::from), u64::MAX].map(u64::to_ne_bytes)
    };
    let entries: Vec<[[u8; 8]; 4]> = rings.enumerate().map(entry).collect();
    // As many as a record's size can tell of.
    let records = entries.chunks((usize::from(u16::MAX) - 16) / 32).map(|entries| {
        let bytes = entries.as_flattened().as_flattened();
        let header = [&PERF_RECORD_ID_INDEX.to_ne_bytes()[..], &[0; 2], &(16 + bytes.len() as u16).to_ne_bytes()];
        [&header.concat(), &(entries.len() as u64).to_ne_bytes()[..], bytes].concat()
    });
    records.collect::<Vec<_>>().concat()
}

/// Makes the directory, unless it is there, and its `data`.
pub fn create(
    path: &Path,
    events: &[EventAttr],
    layout: SampleLayout,
    known: &Features,
    reserve: usize,
) -> io::Result<FileWriter> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    FileWriter::create(&path.join("data"), events, layout, None, known, reserve)
}

/// The file of a ring, by its number.
pub fn stream(path: &Path, ring: usize, layout: SampleLayout, level: Option<Level>) -> io::Result<Stream> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path.join(format!("data.{ring}")))?;
    Stream::new(file, 0, layout, level).map(Stream::indexed)
}

/// Removes a recording. A directory that holds anything else is an error, and is left as it is.
pub fn remove(path: &Path) -> io::Result<()> {
    clear(path)?;
    fs::remove_dir(path)
}

/// The same, but that the directory stays.
pub fn clear(path: &Path) -> io::Result<()> {
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
    files.iter().try_for_each(fs::remove_file)
}
