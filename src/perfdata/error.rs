//! Why a recording cannot be read: each message names the file, what is wrong with it and the way out.

use std::io;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PerfDataError {
    /// It could not be opened or read.
    #[error("cannot read {name}: {error}")]
    Io {
        /// Which file.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// There is nothing in it.
    #[error("{name} is empty: nothing was recorded, or the disk was full")]
    Empty {
        /// Which file.
        name: String,
    },
    /// It is something else.
    #[error("{name} is no perf.data file: it does not begin with PERFILE2")]
    NotPerfData {
        /// Which file.
        name: String,
    },
    /// It was written by a perf of before 2010.
    #[error("{name} was written by a perf older than 2.6.36, whose format is not read")]
    TooOld {
        /// Which file.
        name: String,
    },
    /// A file where a stream is needed.
    #[error(
        "{name} is a file that was made to be read at any place, and comes through a pipe: give its path to --input"
    )]
    FileInPipe {
        /// Which file.
        name: String,
    },
    /// It ends before its header does.
    #[error("{name} is cut off in its {part}")]
    CutOff {
        /// Which file.
        name: String,
        /// Where.
        part: &'static str,
    },
    /// A part says something that cannot be.
    #[error("{name} is damaged: {what}")]
    Damaged {
        /// Which file.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Somebody wants attention while records are waited for, or may want it; reading goes on when asked again.
    #[error("interrupted")]
    Interrupted,
    /// It has no events.
    #[error("{name} describes no events")]
    NoEvents {
        /// Which file.
        name: String,
    },
    /// A directory that `perf record --threads` did not make.
    #[error("{name} is a directory without a file `data`: no recording of `perf record --threads`")]
    NoDataInDirectory {
        /// Which directory.
        name: String,
    },
}

impl PerfDataError {
    /// A failed read of `name`.
    pub(super) fn io(name: &str, error: io::Error) -> Self {
        Self::Io { name: name.to_owned(), error }
    }

    /// Something in `name` cannot be.
    pub(super) fn damaged(name: &str, what: impl Into<String>) -> Self {
        Self::Damaged { name: name.to_owned(), what: what.into() }
    }
}
