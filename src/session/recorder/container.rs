//! The output of a recording: a file, a directory or a pipe. An older recording with the same name is renamed first. So
//! the recorder always creates its files. It never writes into an existing file or through a symbolic link, because
//! another user may have put it there.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use perf_prof_recordings::{
    StoredIndex,
    write::{Dsos, Features, FileWriter, Known, Level, Stream, directory, pipe},
};
use perf_prof_system::{
    file,
    folder::{self, Folder},
    output,
    output_path::{self, LinkTarget},
};

/// The output of a recording, and its compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file, and the compression level of the records.
    File(PathBuf, Option<Level>),
    /// A directory that contains a file of records for each ring, and the compression level of the records.
    Directory(PathBuf, Option<Level>),
    /// The standard output, and the compression level of the records.
    Pipe(Option<Level>),
}

/// A file, directory or pipe that is being written.
#[derive(Debug)]
pub struct Container {
    destination: Destination,
    former: PreviousRecording,
    writer: Writer,
    /// The open folder of a recording that is a directory.
    folder: Option<Folder>,
}

/// What existed at the path of the recording before.
#[derive(Debug)]
enum PreviousRecording {
    /// Nothing, or a file that could be removed.
    Nothing,
    /// An older recording, or a symbolic link. It was renamed to this path.
    Renamed(PathBuf),
    /// A device or another special file, into which the recording is written.
    Special,
    /// An empty folder, into which the recording is written.
    EmptyFolder,
}

#[derive(Debug)]
enum Writer {
    File(FileWriter),
    /// A pipe, and the id of one of its events.
    Pipe(Stream, u64),
}

impl Container {
    /// Creates the file, directory or pipe and writes its header. `known` contains everything that the header needs:
    /// the events, their layout, and the feature sections that do not depend on the records.
    pub fn create(destination: Destination, known: &Known<'_>) -> Result<Container> {
        let cannot = || format!("cannot write {destination}");
        let former = keep_previous(&destination).with_context(cannot)?;
        // The space, in bytes, that is reserved for feature sections that are written at the end. Most of it is for the
        // names and build ids of files.
        const LEARNT: usize = 1 << 20;
        let reserve = known.features.size() + LEARNT;
        let writer = match &destination {
            Destination::File(path, level) => {
                let file = match former {
                    PreviousRecording::Special => folder::open_special(path),
                    _ => folder::create_private(path),
                };
                let file = file.map_err(|error| error.source);
                let folder = output_path::folder(path);
                let writer = file.and_then(|file| FileWriter::start(file, folder, known, *level, reserve));
                writer.map(|writer| (None, Writer::File(writer)))
            }
            Destination::Directory(path, _) => {
                let made = directory::create(path, known, reserve);
                made.map(|(folder, writer)| (Some(folder), Writer::File(writer)))
            }
            Destination::Pipe(level) => output::binary()
                .and_then(|file| pipe::begin(file, known, *level))
                .map(|stream| (None, Writer::Pipe(stream, pipe::some_id(known.events)))),
        };
        match writer.with_context(cannot) {
            Ok((folder, writer)) => Ok(Container { destination, former, writer, folder }),
            Err(error) => {
                restore_previous(&destination, former);
                Err(error)
            }
        }
    }

    /// Returns the destination of the output.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Returns the folder of a recording that is a directory.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Returns the stream that the records are written to.
    pub fn stream(&mut self) -> &mut Stream {
        match &mut self.writer {
            Writer::File(file) => &mut file.stream,
            Writer::Pipe(stream, _) => stream,
        }
    }

    /// Removes the new output and restores the older recording, because the new recording could not be started.
    pub fn discard(self) {
        restore_previous(&self.destination, self.former);
    }

    /// Writes the feature sections, without which the recording is not readable. Returns the size of the recording in
    /// bytes. `lost` contains records about losses that the stream could not write after an error. `ids` contains the
    /// index and all ids of an event that got more ids during the recording.
    pub fn finish(
        self,
        lost: &[u8],
        features: &Features,
        dsos: &Dsos,
        blocks: &StoredIndex,
        ids: Option<(usize, &[u64])>,
    ) -> Result<u64> {
        let cannot = || format!("cannot finish {}", self.destination);
        match self.writer {
            Writer::File(file) => file.finish(lost, features, blocks, ids).with_context(cannot),
            Writer::Pipe(mut stream, id) => {
                // An error does not matter: the standard output may be a file on a full disk, or a pipe whose reader
                // has gone.
                let _ = stream.own_after_failure(lost);
                stream.own(&pipe::end(dsos, id)).and_then(|()| stream.flush()).with_context(cannot)?;
                Ok(stream.end())
            }
        }
    }
}

impl Destination {
    /// Checks whether the recording can be written, without changing anything on disk.
    pub fn check(&self) -> Result<()> {
        let (Destination::File(path, _) | Destination::Directory(path, _)) = self else { return Ok(()) };
        output_path::check(path, output_path::ExistingFile::Renamed)?;
        if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) || is_recording(path) {
            return Ok(());
        }
        let inside = path.join("perf.data");
        match self {
            Destination::Directory(..) if is_empty(path)? => Ok(()),
            Destination::Directory(..) => bail!(
                "cannot write {self}: this folder already contains other files; give a folder that does not exist yet, \
                 for example '{}'",
                inside.display()
            ),
            _ => bail!(
                "cannot write {self}: it is a folder, not a recording; give a file, for example '{}'",
                inside.display()
            ),
        }
    }

    /// Returns the compression level of the records; `None` if the records are not compressed.
    pub fn level(&self) -> Option<Level> {
        match self {
            Destination::File(_, level) | Destination::Directory(_, level) | Destination::Pipe(level) => *level,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::File(path, _) | Destination::Directory(path, _) => write!(f, "'{}'", path.display()),
            Destination::Pipe(_) => f.write_str("the standard output"),
        }
    }
}

/// Returns whether a directory is a recording: its file `data` starts with the magic of perf.data.
fn is_recording(directory: &Path) -> bool {
    let mut magic = [0; 8];
    let data = file::open_regular(&directory.join("data"));
    data.is_ok_and(|mut data| data.read_exact(&mut magic).is_ok()) && [*b"PERFILE2", *b"2ELIFREP"].contains(&magic)
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

/// If there is already a recording with the same name, renames it to `NAME.old`, as perf does.
fn keep_previous(destination: &Destination) -> io::Result<PreviousRecording> {
    let (Destination::File(path, _) | Destination::Directory(path, _)) = destination else {
        return Ok(PreviousRecording::Nothing);
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PreviousRecording::Nothing),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() && is_empty(path)? => Ok(PreviousRecording::EmptyFolder),
        // An empty file contains no data, so it is removed. It is not reused: with its owner and mode, other users
        // might read the recording.
        Ok(found) if found.is_file() && found.len() == 0 => {
            fs::remove_file(path)?;
            Ok(PreviousRecording::Nothing)
        }
        Ok(found) if found.is_symlink() && output_path::link_target(path) != LinkTarget::File => {
            Err(io::Error::other("it is a symbolic link to something that is not a regular file"))
        }
        Ok(found) if found.is_dir() || found.is_file() || found.is_symlink() => {
            let old = with_suffix(path, ".old");
            // An existing `NAME.old` is removed first. A rename fails if one of the two paths is a file and the other
            // path is a directory.
            match fs::symlink_metadata(&old) {
                Ok(former) if former.is_dir() => directory::remove(&old)?,
                Ok(_) => fs::remove_file(&old)?,
                Err(_) => {}
            }
            fs::rename(path, &old)?;
            Ok(PreviousRecording::Renamed(old))
        }
        Ok(_) => Ok(PreviousRecording::Special),
    }
}

/// Removes the new output, and renames the older recording back to its former name.
fn restore_previous(destination: &Destination, former: PreviousRecording) {
    // Errors are ignored. In the worst case, the older recording keeps the name `NAME.old`.
    let (path, _) = match (destination, &former) {
        (Destination::File(path, _), _) => (path, remove_file(path)),
        (Destination::Directory(path, _), PreviousRecording::EmptyFolder) => (path, directory::clear(path)),
        (Destination::Directory(path, _), _) => (path, directory::remove(path)),
        (Destination::Pipe(_), _) => return,
    };
    if let PreviousRecording::Renamed(former) = former {
        let _ = fs::rename(former, path);
    }
}

/// Removes a file or a symbolic link. Devices and other special files stay, because the recorder has not created them.
fn remove_file(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_file() || kind.is_symlink() { fs::remove_file(path) } else { Ok(()) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
