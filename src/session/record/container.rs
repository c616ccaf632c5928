//! What a recording is written into: a file or a directory, beside the one that was there before; or a pipe.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    capture::EventAttr,
    perfdata::{
        StoredIndex,
        write::{Dsos, Features, FileWriter, Level, Stream, directory, pipe},
    },
    record::SampleLayout,
    sys::{output, place},
};

/// What a recording is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A file; its records packed so hard.
    File(PathBuf, Option<Level>),
    /// A directory. Its records go into files of their own, packed so hard.
    Directory(PathBuf, Option<Level>),
    /// The standard output.
    Pipe(Option<Level>),
}

/// A file, directory or pipe that is being written.
#[derive(Debug)]
pub struct Container {
    form: Form,
    former: Former,
    writer: Writer,
}

/// What had its name.
#[derive(Debug)]
enum Former {
    /// Nothing that is to be kept.
    Nothing,
    /// A recording, which has this name now.
    Renamed(PathBuf),
    /// A folder without anything in it, which the recording is written into.
    EmptyFolder,
}

#[derive(Debug)]
enum Writer {
    File(FileWriter),
    Pipe(Stream),
}

impl Container {
    /// Begins it. `features` is what is known already.
    pub fn create(form: Form, events: &[EventAttr], layout: SampleLayout, features: &Features) -> Result<Container> {
        let cannot = || format!("cannot write {form}");
        let former = keep_former(&form).with_context(cannot)?;
        // What is learnt during the recording: names and build ids of files, mostly.
        const LEARNT: usize = 1 << 20;
        let reserve = features.size() + LEARNT;
        let writer = match &form {
            Form::File(path, level) => {
                FileWriter::create(path, events, layout, *level, features, reserve).map(Writer::File)
            }
            Form::Directory(path, _) => directory::create(path, events, layout, features, reserve).map(Writer::File),
            Form::Pipe(level) => {
                output::binary().and_then(|file| pipe::begin(file, events, features, layout, *level)).map(Writer::Pipe)
            }
        };
        match writer.with_context(cannot) {
            Ok(writer) => Ok(Container { form, former, writer }),
            Err(error) => {
                put_back(&form, former);
                Err(error)
            }
        }
    }

    /// What it is.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Where records go.
    pub fn stream(&mut self) -> &mut Stream {
        match &mut self.writer {
            Writer::File(file) => &mut file.stream,
            Writer::Pipe(stream) => stream,
        }
    }

    /// Leaves nothing of it: it never began.
    pub fn discard(self) {
        put_back(&self.form, self.former);
    }

    /// Writes what makes it readable; gives its size. `ids` are all of an event, where they have become more.
    pub fn finish(
        self,
        features: &Features,
        dsos: &Dsos,
        blocks: &StoredIndex,
        ids: Option<(usize, &[u64])>,
    ) -> Result<u64> {
        let cannot = || format!("cannot finish {}", self.form);
        match self.writer {
            Writer::File(file) => file.finish(features, blocks, ids).with_context(cannot),
            Writer::Pipe(mut stream) => {
                stream.own(&pipe::build_ids(dsos)).and_then(|()| stream.flush()).with_context(cannot)?;
                Ok(stream.end())
            }
        }
    }
}

impl Form {
    /// Whether it can be written, as far as that can be known before anything is touched.
    pub fn check(&self) -> Result<()> {
        let (Form::File(path, _) | Form::Directory(path, _)) = self else { return Ok(()) };
        place::check(path, place::Former::Renamed)?;
        if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) || is_recording(path) {
            return Ok(());
        }
        let inside = path.join("perf.data");
        match self {
            Form::Directory(..) if is_empty(path)? => Ok(()),
            Form::Directory(..) => bail!(
                "cannot write {self}: it is a folder with other things in it; name a new one, as '{}'",
                inside.display()
            ),
            _ => bail!("cannot write {self}: it is a folder, and no recording; name a file, as '{}'", inside.display()),
        }
    }

    /// How hard records are packed; `None` for not at all.
    pub fn level(&self) -> Option<Level> {
        match self {
            Form::File(_, level) | Form::Directory(_, level) | Form::Pipe(level) => *level,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::File(path, _) | Form::Directory(path, _) => write!(f, "'{}'", path.display()),
            Form::Pipe(_) => f.write_str("the standard output"),
        }
    }
}

/// Whether a directory is one.
fn is_recording(directory: &Path) -> bool {
    let mut magic = [0; 8];
    let read = File::open(directory.join("data")).and_then(|mut data| data.read_exact(&mut magic));
    read.is_ok() && [*b"PERFILE2", *b"2ELIFREP"].contains(&magic)
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

/// Renames a recording of that name to `NAME.old`, as perf does.
fn keep_former(form: &Form) -> io::Result<Former> {
    let (Form::File(path, _) | Form::Directory(path, _)) = form else { return Ok(Former::Nothing) };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Former::Nothing),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() && is_empty(path)? => Ok(Former::EmptyFolder),
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
            Ok(Former::Renamed(old))
        }
        Ok(found) => {
            if matches!(form, Form::Directory(..)) && found.is_file() {
                fs::remove_file(path)?;
            }
            Ok(Former::Nothing)
        }
    }
}

/// Removes what was begun, and gives the former recording its name back.
fn put_back(form: &Form, former: Former) {
    // Who could not be put back stays under the name that it has.
    let (path, _) = match (form, &former) {
        (Form::File(path, _), _) => (path, remove_file(path)),
        (Form::Directory(path, _), Former::EmptyFolder) => (path, directory::clear(path)),
        (Form::Directory(path, _), _) => (path, directory::remove(path)),
        (Form::Pipe(_), _) => return,
    };
    if let Former::Renamed(former) = former {
        let _ = fs::rename(former, path);
    }
}

/// Removes a file; what is a device or the like was there before, and is not ours.
fn remove_file(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_file() || kind.is_symlink() { fs::remove_file(path) } else { Ok(()) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
