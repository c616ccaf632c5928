//! The ring to which the kernel writes records. It is a control page, followed by data pages. The number of data pages
//! is a power of two.
//!
//! The protocol is described at `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h` and in
//! `kernel/events/ring_buffer.c`. The kernel advances `data_head` after it has written a record. So the reader loads
//! `data_head` with acquire ordering. The kernel does not write between `data_tail` and `data_head`. So the reader
//! stores `data_tail` with release ordering, after it has read the bytes. Both positions only grow; a mask gives their
//! offset in the data.

use std::{
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::{
    call::CallError,
    mmap::{Mapping, page_size},
};

/// The reader's end of one ring. A ring must not have more than one reader.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    size: usize,
    tail: u64,
}

impl Ring {
    /// Maps the ring of a perf event with `size` bytes of data. The number of pages must be a power of two.
    pub fn map(fd: BorrowedFd<'_>, size: usize) -> Result<Self, CallError> {
        Ok(Self::new(Mapping::map_file(fd, page_size() + size)?, size))
    }

    /// Maps a ring for reading only. The kernel then overwrites the oldest records instead of waiting for the reader.
    pub(super) fn map_overwritten(fd: BorrowedFd<'_>, size: usize) -> Result<Self, CallError> {
        Ok(Self::new(Mapping::map_file_for_reading(fd, page_size() + size)?, size))
    }

    /// Creates a reader for a mapping that contains a ring: a control page, then `size` bytes of data.
    pub fn new(mapping: Mapping, size: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        let mut ring = Self { mapping, size, tail: 0 };
        ring.tail = ring.tail_word().load(Ordering::Relaxed);
        ring
    }

    /// Returns the size of the ring's data in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the position up to which the kernel has written. A drain should load the head only once. If the kernel
    /// writes all the time, a drain that loads the head again and again might never end.
    pub fn head(&self) -> u64 {
        // Pairs with the kernel's barrier in perf_output_put_handle(). After this load, all bytes before the head are
        // visible.
        self.head_word().load(Ordering::Acquire)
    }

    /// Returns the position up to which the ring was read.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Copies `len` bytes that start at the position `from`, and appends them to `out`. If the bytes wrap around the
    /// end of the data, they are copied in two pieces. The bytes must be between the tail and a head that was loaded
    /// before.
    pub fn copy_to(&self, from: u64, len: usize, out: &mut Vec<u8>) {
        assert!(len <= self.size, "more than the ring holds");
        let at = (from & (self.size as u64 - 1)) as usize;
        let first = len.min(self.size - at);
        out.reserve(len);
        for (at, len) in [(at, first), (0, len - first)] {
            // SAFETY: `at + len` is at most the data's size. The caller reads between tail and head, and the kernel
            // does not write there. A caller that reads elsewhere may get torn records: the reader of a ring that is
            // overwritten finds out which of the bytes were overwritten, and parsing tolerates torn records. `out` has
            // room for both spans and does not overlap the mapping.
            unsafe {
                let end = out.as_mut_ptr().add(out.len());
                std::ptr::copy_nonoverlapping(self.data().add(at).as_ptr(), end, len);
                out.set_len(out.len() + len);
            }
        }
    }

    /// Gives the space before `tail` back to the kernel. Should be called only once per drain, because it stores to a
    /// cache line that the kernel reads when it writes records.
    pub fn commit(&mut self, tail: u64) {
        self.tail = tail;
        // Pairs with the control dependency on data_tail in __perf_output_begin(): this thread's reads happen before
        // the kernel's next writes.
        self.tail_word().store(tail, Ordering::Release);
    }

    /// Returns the address of the first byte of the data.
    pub(super) fn data(&self) -> NonNull<u8> {
        // SAFETY: the mapping contains a control page and the data after it.
        unsafe { self.mapping.base().add(page_size()) }
    }

    pub(super) fn head_word(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail_word(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_tail))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both words are aligned members of the control page, which exists as long as the mapping. All code
        // that shares them, including the kernel, accesses them atomically.
        unsafe { self.mapping.base().add(offset).cast::<AtomicU64>().as_ref() }
    }
}

// Used by tests, including tests of other crates.
impl Ring {
    /// Creates a ring in anonymous memory. Head and tail are both at the position `start`. [`Ring::write`] writes
    /// records as the kernel would.
    pub fn fake(size: usize, start: u64) -> Result<Self, CallError> {
        let ring = Self::new(Mapping::anonymous(page_size() + size)?, size);
        ring.head_word().store(start, Ordering::Relaxed);
        ring.tail_word().store(start, Ordering::Relaxed);
        Ok(Self { tail: start, ..ring })
    }

    /// Writes a record as the kernel does, into a ring of [`Ring::fake`]. Returns whether there was room.
    pub fn write(&self, record: &[u8]) -> bool {
        let head = self.head_word().load(Ordering::Relaxed);
        if head + record.len() as u64 > self.tail_word().load(Ordering::Acquire) + self.size as u64 {
            return false;
        }
        for (i, &byte) in record.iter().enumerate() {
            let at = ((head + i as u64) & (self.size as u64 - 1)) as usize;
            // SAFETY: `at` is masked, so it is inside the data.
            unsafe { self.data().add(at).write(byte) };
        }
        self.head_word().store(head + record.len() as u64, Ordering::Release);
        true
    }
}
