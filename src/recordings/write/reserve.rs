//! Reserves disk space for the end of a recording, so that a full disk does not make the whole recording unreadable.
//!
//! Readers need the features, and the features come after the records. So at the start, a file without a name reserves
//! disk space for the features. If the disk becomes full, only the unwritten records are lost.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use perf_prof_system::file::allocate;

/// An unnamed file that occupies disk space until [`Reserve::free`] is called.
#[derive(Debug)]
pub struct Reserve(File);

impl Reserve {
    /// Reserves `size` bytes on the file system of a folder. Returns `None` if the file system does not support unnamed
    /// files or does not have enough free space.
    pub fn allocate(folder: &Path, size: u64) -> Option<Reserve> {
        let file = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder).ok()?;
        allocate(&file, size).ok()?;
        Some(Reserve(file))
    }

    /// Frees the disk space. Closing the file is not enough, because a forked process (such as one that reads symbols)
    /// may still have the file open.
    pub fn free(self) {
        // If this fails, the kernel frees the space when the last process closes the file.
        let _ = self.0.set_len(0);
    }
}
