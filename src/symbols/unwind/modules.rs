//! What unwinding needs of a process: its mappings, and the contents of the mapped files. This module does not know
//! where they come from.

use std::io;

use crate::symbol::CodeImage;

/// Identifies a file. Mappings with equal keys have the same unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(pub [u64; 4]);

/// A mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
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
    /// Returns the mapping that contains `address`. Without a mapping, the address cannot be code.
    fn mapping(&self, address: u64) -> Option<Mapping>;

    /// Opens the file that is mapped at an address. Called once for each key that is not in the cache.
    fn open(&self, address: u64) -> io::Result<CodeImage>;

    /// Opens the separate debug file of the file that is mapped at an address. Called once for each key, if the unwind
    /// information of the file itself does not cover an address.
    fn open_debug(&self, _address: u64) -> Option<CodeImage> {
        None
    }
}
