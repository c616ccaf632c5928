//! Room on the disk that is kept for a recording's end: a full disk must not cost what makes the rest readable.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::sys::file::allocate;

/// A nameless file that takes room for as long as this lives.
#[derive(Debug)]
pub struct Reserve(#[allow(dead_code)] File);

impl Reserve {
    /// Takes `size` bytes on the file system of a folder. `None` where it has no nameless files or no room.
    pub fn take(folder: &Path, size: u64) -> Option<Reserve> {
        let file = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder).ok()?;
        allocate(&file, size).ok()?;
        Some(Reserve(file))
    }
}
