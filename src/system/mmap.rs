//! Memory mappings that are unmapped when they are dropped.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
};

use super::call::CallError;

/// A shared mapping.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the whole process. Code that reads and writes through `base` must prevent data races.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`.
    pub fn map_file(fd: BorrowedFd<'_>, len: usize) -> Result<Self, CallError> {
        Self::map(fd.as_raw_fd(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// Maps the first `len` bytes of `fd` for reading only.
    pub fn map_file_for_reading(fd: BorrowedFd<'_>, len: usize) -> Result<Self, CallError> {
        Self::map(fd.as_raw_fd(), len, libc::PROT_READ, libc::MAP_SHARED)
    }

    /// Maps `len` bytes of zeroed memory without a file.
    pub fn anonymous(len: usize) -> Result<Self, CallError> {
        Self::map(-1, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS)
    }

    fn map(fd: i32, len: usize, protection: i32, flags: i32) -> Result<Self, CallError> {
        // SAFETY: the kernel chooses the address, so it does not replace memory that is in use.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        match NonNull::new(base.cast()) {
            Some(start) if base != libc::MAP_FAILED => Ok(Self { base: start, len }),
            _ => Err(CallError::last("mmap")),
        }
    }

    /// Returns the address of the mapping's first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and nothing can use it after its owner is dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Returns the size of a page in bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}
