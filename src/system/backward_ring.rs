//! A ring that the kernel overwrites. The kernel writes each record in front of the previous one
//! (`attr.write_backward`). So the newest record is at the head, and older records follow it.
//!
//! The head starts at 0 and decreases (`perf_output_begin_backward()` in `kernel/events/ring_buffer.c`). The mapping is
//! read-only, so the reader cannot move a tail. Therefore the kernel never waits and never drops a record. A reader
//! copies the bytes and then loads the head again. What the kernel wrote between the two loads has replaced the oldest
//! bytes.
//!
//! The kernel moves the head after it has written a record. An interrupt may write further records in between. The head
//! then moves when all of these records are complete (`perf_output_put_handle()`). So a reader does not know how many
//! bytes are being written. But when the head moves again, all bytes that were being written earlier are complete.

use std::{
    os::fd::BorrowedFd,
    sync::atomic::{Ordering, fence},
    thread,
    time::Duration,
};

use rustix::thread::{MembarrierCommand, membarrier, sched_getcpu};

use super::{call::CallError, ring::Ring};

/// A position in a backward ring: the number of bytes that the kernel wrote before it. Positions only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written(pub u64);

/// The reader's end of a ring that the kernel overwrites.
#[derive(Debug)]
pub struct BackwardRing(Ring);

/// The bytes that were copied out of a backward ring. The kernel may have overwritten the oldest bytes during the copy;
/// [`BackwardRing::remove_overwritten`] removes these bytes.
#[derive(Debug)]
pub struct RawCopy {
    /// Whole records. The newest record is the first one. The last record may be cut off.
    pub bytes: Vec<u8>,
    /// The number of bytes that the kernel had written when the copy began. The next copy can begin at this position.
    pub until: Written,
    wanted: u64,
    /// The number of bytes that the kernel had written when the copy was complete.
    after: Written,
}

impl RawCopy {
    /// Returns how many of the requested bytes had been overwritten before the copy.
    pub fn overwritten(&self) -> u64 {
        self.wanted - self.bytes.len() as u64
    }
}

/// An upper bound for the bytes that the kernel is writing into a ring at one moment. A record is smaller than 64 KiB.
/// Four contexts (task, softirq, hardirq, NMI) can interrupt one another, each of them several times.
const UNFINISHED: u64 = 1 << 20;

impl BackwardRing {
    /// Maps the ring of a perf event with `size` bytes of data. The number of pages must be a power of two.
    pub fn map(fd: BorrowedFd<'_>, size: usize) -> Result<Self, CallError> {
        Ring::map_overwritten(fd, size).map(Self)
    }

    /// Returns the size of the ring's data in bytes.
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Returns how many bytes the kernel has written into the ring so far.
    pub fn written(&self) -> Written {
        Written(self.0.head().wrapping_neg())
    }

    /// Copies the bytes that were written after the position `since` and are not overwritten yet. The copy may contain
    /// torn records until all writes that were in progress have ended. [`BackwardRing::is_settled`] and
    /// [`have_writers_ended_on`] return whether they have ended; [`await_writers`] waits until they have.
    pub fn copy(&self, since: Written) -> RawCopy {
        let (mut bytes, until) = (Vec::new(), self.written());
        let wanted = until.0.saturating_sub(since.0);
        self.0.copy_to(until.0.wrapping_neg(), wanted.min(self.size() as u64) as usize, &mut bytes);
        // This fence makes the copy happen before the head is loaded again.
        fence(Ordering::Acquire);
        RawCopy { bytes, wanted, until, after: self.written() }
    }

    /// Returns whether all bytes that were being written during the copy are complete now. They are complete if the
    /// head has moved since the copy, or if the copy is far from the bytes being written.
    pub fn is_settled(&self, raw: &RawCopy) -> bool {
        let unfinished = UNFINISHED.min(self.size() as u64 / 2);
        let during = raw.after.0.saturating_sub(raw.until.0);
        raw.wanted + during + unfinished <= self.size() as u64 || self.written() != raw.after
    }

    /// Removes the bytes that were overwritten since the copy began. These bytes are at the end of the copy, where the
    /// oldest records are.
    pub fn remove_overwritten(&self, copy: &mut RawCopy) {
        let during = self.written().0.saturating_sub(copy.until.0);
        copy.bytes.truncate((self.size() as u64).saturating_sub(during) as usize);
    }
}

/// Returns whether this thread runs on `cpu`. If so, the kernel has completed all records that it was writing into the
/// ring of `cpu`: while the kernel writes a record on a CPU, no thread runs there.
pub fn have_writers_ended_on(cpu: u32) -> bool {
    sched_getcpu() == cpu as usize
}

/// Waits until the kernel has completed all records that it is writing now, in all rings.
pub fn await_writers() {
    /// Much longer than the kernel needs for a record.
    const LONG: Duration = Duration::from_millis(20);
    // The kernel writes a record in an RCU critical section (from `perf_output_begin()` to `perf_output_end()`).
    // membarrier waits for all critical sections that have begun. The call fails if CPUs have no timer tick
    // (nohz_full).
    if membarrier(MembarrierCommand::Global).is_err() {
        thread::sleep(LONG);
    }
}

// Used by tests, including tests of other crates.
impl BackwardRing {
    /// Makes a ring in anonymous memory that contains no records yet. [`BackwardRing::write`] writes as the kernel would.
    pub fn fake(size: usize) -> Result<Self, CallError> {
        Ring::fake(size, 0).map(Self)
    }

    /// Writes a record as the kernel does, into a ring of [`BackwardRing::fake`].
    pub fn write(&self, record: &[u8]) {
        let head = self.write_before_head(record);
        self.0.head_word().store(head, Ordering::Release);
    }

    /// Writes the bytes of a record without moving the head. Returns the new head.
    fn write_before_head(&self, record: &[u8]) -> u64 {
        let head = self.0.head_word().load(Ordering::Relaxed).wrapping_sub(record.len() as u64);
        for (i, &byte) in record.iter().enumerate() {
            let at = (head.wrapping_add(i as u64) & (self.size() as u64 - 1)) as usize;
            // SAFETY: `at` is masked, so it is inside the data.
            unsafe { self.0.data().add(at).write(byte) };
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 4096;

    /// Returns a record of `size` bytes. The header contains the size, and the other bytes repeat the number.
    fn record(number: u32, size: usize) -> Vec<u8> {
        let mut bytes = number.to_ne_bytes().repeat(size / 4);
        bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes
    }

    /// Returns the numbers of the whole records in `bytes`. Panics if a record is torn.
    fn numbers(mut bytes: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        while let Some(size) = bytes.first_chunk().map(|size| u32::from_ne_bytes(*size) as usize) {
            let Some(whole) = bytes.get(..size) else { break };
            let number = u32::from_ne_bytes(whole[4..8].try_into().unwrap());
            assert_eq!(whole, record(number, size));
            found.push(number);
            bytes = &bytes[size..];
        }
        found
    }

    fn intact(ring: &BackwardRing, mut copy: RawCopy) -> RawCopy {
        ring.remove_overwritten(&mut copy);
        copy
    }

    fn sizes() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec((1usize..60).prop_map(|words| 8 * words), 0..120)
    }

    proptest! {
        /// Writes any number of records before and during the copy.
        #[test]
        fn a_copy_has_the_newest_records_without_a_gap(before in sizes(), since in 0usize..120, during in sizes()) {
            let ring = BackwardRing::fake(SIZE).unwrap();
            let mut from = Written::default();
            for (number, &size) in before.iter().enumerate() {
                if number == since {
                    from = ring.written();
                }
                ring.write(&record(number as u32, size));
            }
            let since = if since < before.len() { since } else { 0 };
            let wanted = ring.written().0 - from.0;
            let raw = ring.copy(from);
            during.iter().enumerate().for_each(|(number, &size)| ring.write(&record(1000 + number as u32, size)));
            let copied = intact(&ring, raw);
            prop_assert_eq!(copied.bytes.len() as u64 + copied.overwritten(), wanted);
            let found = numbers(&copied.bytes);
            let expected: Vec<u32> = (since as u32..before.len() as u32).rev().collect();
            prop_assert_eq!(&found[..], &expected[..found.len()]);
            // The copy contains all records that were not overwritten during the copy, except the record that was cut
            // off.
            let room = SIZE.saturating_sub(during.iter().sum());
            let fits = |&number: &usize| before[number..].iter().sum::<usize>() <= room;
            let first = (since..before.len()).find(fits).unwrap_or(before.len());
            prop_assert_eq!(found.len(), before.len() - first);
        }

        /// If each copy begins where the previous one ended, each record is in exactly one copy.
        #[test]
        fn copies_join_at_the_head(first in sizes(), second in sizes()) {
            let ring = BackwardRing::fake(1 << 16).unwrap();
            first.iter().enumerate().for_each(|(number, &size)| ring.write(&record(number as u32, size)));
            let older = intact(&ring, ring.copy(Written::default()));
            second.iter().enumerate().for_each(|(number, &size)| ring.write(&record((first.len() + number) as u32, size)));
            let newer = intact(&ring, ring.copy(older.until));
            prop_assert_eq!((older.overwritten(), newer.overwritten()), (0, 0));
            let joined: Vec<u32> = [numbers(&newer.bytes), numbers(&older.bytes)].concat();
            prop_assert_eq!(joined, (0..(first.len() + second.len()) as u32).rev().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_record_that_is_being_written_during_the_copy_is_not_taken_for_the_oldest_ones() {
        let ring = BackwardRing::fake(SIZE).unwrap();
        (0..9).for_each(|number| ring.write(&record(number, 1024)));
        let head = ring.write_before_head(&record(9, 2048));
        let raw = ring.copy(Written::default());
        assert!(!ring.is_settled(&raw), "the head has not moved since");
        ring.0.head_word().store(head, Ordering::Release);
        assert!(ring.is_settled(&raw));
        let copied = intact(&ring, raw);
        assert_eq!((numbers(&copied.bytes), copied.overwritten()), (vec![8, 7], 7 * 1024));
        assert!(ring.is_settled(&ring.copy(copied.until)), "this copy is far from what is being written");
    }
}
