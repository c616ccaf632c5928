//! Errors of reading a recording. Each message names the file and the problem, and what the user can do about it, if
//! anything.

use std::io;

use super::index::blocks::Block;

/// What helps if the end of a file is missing.
pub(crate) const RENEW: &str = "copy it again, or record again";

/// The reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PerfDataError {
    /// The file could not be opened or read.
    #[error("cannot read {name}: {error}")]
    Io {
        /// The name of the file.
        name: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// The file is empty.
    #[error("{name} is empty: nothing was recorded, or the disk was full")]
    Empty {
        /// The name of the file.
        name: String,
    },
    /// The file does not have the perf.data format.
    #[error("{name} is not a perf.data file: it does not start with PERFILE2")]
    NotPerfData {
        /// The name of the file.
        name: String,
    },
    /// The recording comes through a pipe, but has the file format. Only the pipe format can be read from a pipe.
    #[error(
        "{name} is a recording in file format, which cannot be read from a pipe: give the path of the file to --input"
    )]
    FileInPipe {
        /// The name of the input.
        name: String,
    },
    /// The file ends in the middle of its header, or in the middle of one of the header's lists.
    #[error("{name} is cut off: its {part} is incomplete; {RENEW}")]
    CutOff {
        /// The name of the file.
        name: String,
        /// The part that is incomplete.
        part: &'static str,
    },
    /// A part of the file contains an impossible value.
    #[error("{name} is damaged: {what}")]
    Damaged {
        /// The name of the file.
        name: String,
        /// A description of the impossible value.
        what: String,
    },
    /// Reading was interrupted so that the caller can do other work, for example handle a signal. The next call
    /// continues reading.
    #[error("interrupted")]
    Interrupted,
    /// The recording has no events.
    #[error("{name} does not describe any event, so its records cannot be read")]
    NoEvents {
        /// The name of the file.
        name: String,
    },
    /// Reading the recording would take more memory than the user allows. A small file can cause this: compressed
    /// records can be a thousand times larger after decompression.
    #[error(
        "{name} needs more than {limit} MiB of memory to be read: it is damaged or malicious, or very many of its \
         records have overlapping times. `--buffer SIZE` allows more, for example `--buffer 4G`"
    )]
    TooMuchMemory {
        /// The name of the recording.
        name: String,
        /// The limit in MiB.
        limit: u64,
    },
    /// The recording belongs to another user.
    #[error("{name} belongs to another user (uid {uid}), who may have changed it; if you trust it, use -f")]
    OtherOwner {
        /// The name of the file.
        name: String,
        /// The user id of the file's owner.
        uid: u32,
    },
    /// The directory was not made by `perf record --threads`.
    #[error("{name} is a directory without a file `data`: it is not a recording made with `perf record --threads`")]
    NoDataInDirectory {
        /// The name of the directory.
        name: String,
    },
}

impl PerfDataError {
    /// Returns the error for a failed read of `name`.
    pub fn io(name: &str, error: io::Error) -> Self {
        Self::Io { name: name.to_owned(), error }
    }

    /// Returns the error for an impossible value in `name`.
    pub(crate) fn damaged(name: &str, what: impl Into<String>) -> Self {
        Self::Damaged { name: name.to_owned(), what: what.into() }
    }
}

/// Returns the warning about a file whose records should be `size` bytes long.
pub(crate) fn cut_off(name: &str, size: u64) -> String {
    format!("{name} is cut off: its records should be {size} bytes long; {RENEW}")
}

/// Returns the warning about a pipe that ends in the payload of a record, or without the mark that `perf-prof record` writes.
pub(crate) fn unfinished_pipe(name: &str) -> String {
    format!("{name} was not finished: its recorder did not exit normally, or its last records are missing; {RENEW}")
}

/// Returns the warning about a file with another recording behind the first one, which begins at the byte `at`.
pub(crate) fn another_behind(name: &str, at: u64) -> String {
    format!(
        "{name} has another recording at byte {at}, which is not read: split the file there, and give --input for each"
    )
}

/// Returns the warning about a recording without the list of features that follows the records.
pub(crate) fn missing_end(name: &str) -> String {
    format!("{name} is cut off: what follows its records is missing, such as build ids; {RENEW}")
}

/// Returns the warning about a recording whose list of features is not where the header says, so that of its start is read.
pub(crate) fn moved_end(name: &str) -> String {
    format!("{name} is damaged: bytes are missing before what follows its records, such as build ids; {RENEW}")
}

/// Returns the warning about a block of which only `count` records can be read; `None` if these are all.
pub(crate) fn unread_records(name: &str, block: &Block, count: u32) -> Option<String> {
    let &Block { offset, size, records, .. } = block;
    let end = offset + u64::from(size);
    let what = match size {
        0 => format!("the {records} records that were at byte {offset} are missing"),
        _ => format!("{count} of the {records} records from byte {offset} to {end} can be read"),
    };
    (count != records).then(|| format!("{name} is damaged: {what}"))
}

/// Returns the warning about a recording that names an architecture that does not exist.
pub(crate) fn unknown_machine(name: &str, arch: &str) -> String {
    format!(
        "{name} is damaged: its architecture '{}' is not known, so its system calls and registers are taken for those of {}",
        arch.escape_default(),
        std::env::consts::ARCH
    )
}

/// Returns the warning about records whose headers contain another type than the recorder wrote. `count` is the number
/// of these records.
pub(crate) fn wrong_types(name: &str, count: u64) -> String {
    format!("{name} is damaged: {} left out, because the type in the header is wrong", counted(count, "record"))
}

/// Returns the warning about samples of tracepoints that end before their last field. `count` is the number of these
/// samples.
pub(crate) fn short_samples(name: &str, count: u64) -> String {
    format!("{name} is damaged: {} shorter than the format of the event says", counted(count, "sample"))
}

/// Returns the warning about samples whose time is wrong, because the events were off by then. `count` is the number of
/// these samples.
pub(crate) fn late_samples(name: &str, count: u64) -> String {
    format!(
        "{name} is damaged: {} left out, because the time in it is after the end of the recording",
        counted(count, "sample")
    )
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}
