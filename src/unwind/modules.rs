//! What unwinding asks of a process: what is mapped where, and the files behind it. Knows no way to find them.

use std::{fs::File, io, sync::Arc};

/// What tells files apart: of two mappings with equal keys one file's unwind information holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(pub [u64; 4]);

/// A mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
    /// The file; none for code that was made at run time.
    pub file: Option<FileKey>,
}

impl Mapping {
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// An ELF file's bytes.
#[derive(Debug)]
pub enum Image {
    /// An open file; only what is needed of it is read.
    File(File),
    /// A file that is in memory, as the vdso.
    Bytes(Arc<[u8]>),
}

/// What is mapped into one process.
pub trait Modules {
    /// The mapping that an address is in. Anything that is not mapped cannot be code.
    fn mapping(&self, address: u64) -> Option<Mapping>;

    /// Opens the file that is mapped at an address. Asked once for each key that is not in the cache.
    fn open(&self, address: u64) -> io::Result<Image>;

    /// Opens the separate debug file of the file that is mapped at an address. Asked once for each key, and only when the
    /// file itself does not know how to unwind an address.
    fn open_debug(&self, _address: u64) -> Option<Image> {
        None
    }
}
