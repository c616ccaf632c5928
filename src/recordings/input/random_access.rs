//! Bytes with random access: a file or memory. Files are read and not mapped into memory. If a file is truncated while
//! it is read, a read returns fewer bytes. An access to a mapping would raise SIGBUS.

use std::{fs::File, io, os::unix::fs::FileExt};

use perf_prof_system::file::fill;

/// Bytes with random access.
pub trait Input: Send + Sync {
    /// Reads some bytes at `offset` and returns their number; 0 means the end.
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes at `offset`. Returns their number, which is less than the size of `buffer` only if
    /// the input ends.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        fill(buffer, offset, |buffer, offset| self.read_some_at(buffer, offset))
    }

    /// Returns the bytes at `offset`: `size` bytes, or fewer at the end. A damaged file may state an impossible size.
    /// So the size of the allocated memory is limited to the number of bytes that exist.
    fn bytes(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let there = self.size()?.saturating_sub(offset).min(size);
        let mut bytes = vec![0; usize::try_from(there).map_err(io::Error::other)?];
        let filled = self.read_at(&mut bytes, offset)?;
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl Input for File {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Input for Vec<u8> {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or(&[]);
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}
