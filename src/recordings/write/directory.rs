//! A recording in a directory. The file `data` contains the header, the records about tasks that existed before the
//! recording started, and the feature sections. The records of each ring are in a separate file, in the order of the
//! ring: `data.0`, `data.1` and so on.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use perf_prof_format::{abi::perf_data::PERF_RECORD_ID_INDEX, record::SampleLayout};
use perf_prof_system::folder::Folder;

use super::{FileWriter, Known, Level, Stream};

/// Returns id index records that list the rings, so that a reader knows which files should exist. For each ring,
/// `rings` gives the id of an event in the ring, and the ring's CPU.
pub fn rings(rings: impl Iterator<Item = (u64, Option<u32>)>) -> Vec<u8> {
    // A number of all ones stands for no CPU, or for no thread.
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

/// Creates the directory if it does not exist, and the file `data` in the directory. Returns the folder in which all
/// files of the recording are created, and the writer of the file `data`.
pub fn create(path: &Path, known: &Known<'_>, reserve: usize) -> io::Result<(Folder, FileWriter)> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let folder = Folder::open(path).map_err(|error| error.source)?;
    let file = folder.create("data").map_err(|error| error.source)?;
    Ok((folder, FileWriter::start(file, path, known, None, reserve)?))
}

/// Creates the file of a ring.
pub fn stream(folder: &Folder, ring: usize, layout: SampleLayout, level: Option<Level>) -> io::Result<Stream> {
    let file = folder.create(&format!("data.{ring}")).map_err(|error| error.source)?;
    Stream::new(file, 0, layout, level).map(Stream::indexed)
}

/// Removes the directory of a recording. If the directory contains files that are not part of a recording, this
/// function fails and removes nothing.
pub fn remove(path: &Path) -> io::Result<()> {
    clear(path)?;
    fs::remove_dir(path)
}

/// Removes the files of a recording, but not the directory. Fails in the same case as [`remove`].
pub fn clear(path: &Path) -> io::Result<()> {
    let is_part =
        |name: &str| name == "data" || name.strip_prefix("data.").is_some_and(|number| number.parse::<u32>().is_ok());
    let folder = Folder::open(path).map_err(|error| error.source)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_name().into_string() {
            Ok(name) if is_part(&name) && !entry.file_type()?.is_dir() => names.push(name),
            _ => {
                let what = format!("'{}' is not part of a recording; nothing was removed", entry.path().display());
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, what));
            }
        }
    }
    names.iter().try_for_each(|name| folder.remove(name).map_err(|error| error.source))
}
