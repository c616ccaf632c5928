//! Bytes that can be read at any place: a file, or memory. Files are read, not mapped: one that is truncated meanwhile
//! gives fewer bytes, not a SIGBUS.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Bytes that can be read at any place.
pub trait Input: Send + Sync {
    /// Reads some bytes at `offset`; 0 at the end.
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// How many bytes there are.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` as far as there are bytes; gives how many.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_some_at(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// The bytes at `offset`, at most `size` and fewer at the end. What a damaged file says of sizes is believed only as
    /// far as there are bytes.
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
