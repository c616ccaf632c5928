//! The ring that the kernel writes records into: a control page and a power of two pages of data.
//!
//! The protocol is that of `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h` and of
//! `kernel/events/ring_buffer.c`: the kernel advances `data_head` after it wrote (read it with acquire), and does not
//! write what lies between `data_tail` and `data_head` (store the tail with release, after the bytes were read).
//! Both count up for ever; their place in the data is found by masking.

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

/// The reading side of one ring. There must be no other reader.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    size: usize,
    tail: u64,
}

impl Ring {
    /// Maps the ring of a perf event; `size` bytes of data, a power of two pages.
    pub fn of(fd: BorrowedFd<'_>, size: usize) -> Result<Self, CallError> {
        Ok(Self::new(Mapping::of(fd, page_size() + size)?, size))
    }

    /// A ring in memory that holds one: a control page, then `size` bytes of data.
    pub fn new(mapping: Mapping, size: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        let mut ring = Self { mapping, size, tail: 0 };
        ring.tail = ring.tail_word().load(Ordering::Relaxed);
        ring
    }

    /// How many bytes of data it has room for.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How far the kernel wrote. Reading it again during a drain would chase a busy kernel for ever.
    pub fn head(&self) -> u64 {
        // Pairs with the kernel's barrier in perf_output_put_handle(): the bytes before the head are visible.
        self.head_word().load(Ordering::Acquire)
    }

    /// How far it was read.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Appends the `len` bytes from position `from` on to `out`: one span, or two where they wrap around the end.
    /// They must lie between the tail and a head that was read.
    pub fn copy_to(&self, from: u64, len: usize, out: &mut Vec<u8>) {
        assert!(len <= self.size, "more than the ring holds");
        let at = (from & (self.size as u64 - 1)) as usize;
        let first = len.min(self.size - at);
        out.reserve(len);
        for (at, len) in [(at, first), (0, len - first)] {
            // SAFETY: `at + len` is at most the data's size. The kernel does not write between tail and head, which is
            // where the caller reads; a misbehaving caller could read a torn record, which parsing tolerates. `out` has
            // room for both spans, and does not overlap the mapping.
            unsafe {
                let end = out.as_mut_ptr().add(out.len());
                std::ptr::copy_nonoverlapping(self.data().add(at).as_ptr(), end, len);
                out.set_len(out.len() + len);
            }
        }
    }

    /// Gives everything before `tail` back to the kernel. Once per drain: the store is a cache line that the kernel's
    /// writers read.
    pub fn commit(&mut self, tail: u64) {
        self.tail = tail;
        // Pairs with the control dependency on data_tail in __perf_output_begin(): our reads come before its writes.
        self.tail_word().store(tail, Ordering::Release);
    }

    /// The data's first byte.
    fn data(&self) -> NonNull<u8> {
        // SAFETY: the mapping is a control page and the data behind it.
        unsafe { self.mapping.base().add(page_size()) }
    }

    fn head_word(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail_word(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_tail))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both words are aligned members of the control page, which lives as long as the mapping, and everybody
        // who shares them, the kernel included, accesses them atomically.
        unsafe { self.mapping.base().add(offset).cast::<AtomicU64>().as_ref() }
    }
}

#[cfg(test)]
impl Ring {
    /// A ring in our own memory, whose kernel is [`Ring::write`].
    pub fn fake(size: usize, start: u64) -> Self {
        let ring = Self::new(Mapping::anonymous(page_size() + size).unwrap(), size);
        ring.head_word().store(start, Ordering::Relaxed);
        ring.tail_word().store(start, Ordering::Relaxed);
        Self { tail: start, ..ring }
    }

    /// Writes a record as the kernel does; says whether there was room.
    pub fn write(&self, record: &[u8]) -> bool {
        let head = self.head_word().load(Ordering::Relaxed);
        if head + record.len() as u64 > self.tail_word().load(Ordering::Acquire) + self.size as u64 {
            return false;
        }
        for (i, &byte) in record.iter().enumerate() {
            let at = ((head + i as u64) & (self.size as u64 - 1)) as usize;
            // SAFETY: masked, so inside the data.
            unsafe { self.data().add(at).write(byte) };
        }
        self.head_word().store(head + record.len() as u64, Ordering::Release);
        true
    }
}
