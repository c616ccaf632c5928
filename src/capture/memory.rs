//! The memory that recorded bytes wait in: bounded, pooled, and given back when it is not needed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::{record::Recycle, sys::eventfd::EventFd};

/// The size of a pooled buffer, and the most that a chunk holds.
pub(super) const BLOCK: usize = 256 << 10;
/// Less than this gets memory of its own size: a quiet ring's few records must not hold a block each.
const SMALL: usize = 64 << 10;
/// How many blocks are kept for reuse.
const POOLED: usize = 16;
/// Nobody waits for memory.
const NOBODY: usize = usize::MAX;

/// Counts the bytes of all chunks that were not recycled yet, and wakes the reader when it waits for some.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// The reader waits for `used` to fall to this.
    awaited: AtomicUsize,
    pool: Mutex<Vec<Vec<u8>>>,
    wake: Arc<EventFd>,
}

impl Memory {
    pub fn new(limit: usize, wake: Arc<EventFd>) -> Self {
        Self { limit, used: AtomicUsize::new(0), awaited: AtomicUsize::new(NOBODY), pool: Mutex::default(), wake }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(SeqCst)
    }

    /// How much a chunk of `len` bytes takes, at most a block.
    pub fn cost(len: usize) -> usize {
        if len > SMALL { BLOCK } else { len }
    }

    /// How much `len` bytes of a ring take at most. A chunk ends with a whole record, so that up to a record's size
    /// (64 KiB, the header's size is a u16) of each block but the last may be unused.
    pub fn cost_of_ring(len: usize) -> usize {
        if len <= BLOCK { Self::cost(len) } else { len.div_ceil(BLOCK - (64 << 10)) * BLOCK }
    }

    /// Whether `cost` more fits while `reserve` stays free. When nothing is in use anything fits: a bound below one
    /// chunk must not stop everything for ever.
    pub fn has_room(&self, cost: usize, reserve: usize) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(cost).saturating_add(reserve) <= self.limit
    }

    /// An empty buffer for `len` bytes, at most a block.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let cost = Self::cost(len);
        self.used.fetch_add(cost, SeqCst);
        let pooled = if cost == BLOCK { self.lock().pop() } else { None };
        pooled.unwrap_or_else(|| Vec::with_capacity(cost))
    }

    /// Has the reader woken when `cost` more has room. Returns whether it has by now.
    pub fn await_room(&self, cost: usize) -> bool {
        self.awaited.store(self.limit.saturating_sub(cost), SeqCst);
        // Looked at after storing: a buffer recycled before has not woken anybody.
        let has_room = self.has_room(cost, 0);
        if has_room {
            self.awaited.store(NOBODY, SeqCst);
        }
        has_room
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recycle for Memory {
    fn recycle(&self, mut memory: Vec<u8>) {
        let cost = memory.capacity();
        if cost == BLOCK {
            let mut pool = self.lock();
            if pool.len() < POOLED {
                memory.clear();
                pool.push(memory);
            }
        }
        let used = self.used.fetch_sub(cost, SeqCst) - cost;
        let awaited = self.awaited.load(SeqCst);
        if awaited != NOBODY
            && (used <= awaited || used == 0)
            && self.awaited.compare_exchange(awaited, NOBODY, SeqCst, SeqCst).is_ok()
        {
            self.wake.signal();
        }
    }
}
