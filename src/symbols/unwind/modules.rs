//! What unwinding needs of a process: its mappings, and the contents of the mapped files. This module does not know
//! where the mappings and the files come from.

use std::io;

use crate::symbol::CodeImage;

/// Identifies a file. Mappings with equal keys have the same unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(pub [u64; 4]);

/// A mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after the last address of the mapping.
    pub end: u64,
    /// The offset of `start` in the file, in bytes.
    pub offset: u64,
    /// The file; `None` for code that was generated at run time.
    pub file: Option<FileKey>,
}

impl Mapping {
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The mappings of one process.
pub trait Modules {
    /// Returns the mapping that contains `address`. If there is no mapping, the address cannot be code.
    fn mapping(&self, address: u64) -> Option<Mapping>;

    /// Opens the file that is mapped at an address. Called once for each [`FileKey`] that is not in the cache.
    fn open(&self, address: u64) -> io::Result<CodeImage>;

    /// Opens the separate debug file of the file that is mapped at an address. Called once for each [`FileKey`], if the
    /// unwind information of the file itself does not cover an address.
    fn open_debug(&self, _address: u64) -> Option<CodeImage> {
        None
    }
}
