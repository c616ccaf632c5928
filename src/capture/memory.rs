//! The memory for records until they are consumed. It is bounded, pooled, and freed when it is not needed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use perf_prof_format::record::Recycle;
use perf_prof_system::{budget::Budget, eventfd::EventFd, mutex::Mutex};

/// The size of a pooled buffer in bytes. This is also the maximum size of a chunk.
pub(super) const BLOCK: usize = 256 << 10;
/// A chunk of at most this many bytes gets a buffer of its own size instead of a pooled buffer. Otherwise the few
/// records of a quiet ring would occupy a whole pooled buffer.
const SMALL: usize = 64 << 10;
/// The maximum number of buffers that are kept for reuse.
const POOLED: usize = 16;
/// The value of `awaited` while the reader is not waiting for memory.
const NOT_AWAITED: usize = usize::MAX;

/// Counts the bytes of all chunks that are not recycled yet. If the reader waits for memory, wakes the reader when
/// enough memory is free.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    /// The budget that this memory is a part of. Tables and open spans use the same budget.
    budget: Budget,
    /// The number of bytes that may always be used, even if tables and spans leave less of the budget.
    least: usize,
    used: AtomicUsize,
    /// The reader is woken when `used` is at most this many bytes. [`NOT_AWAITED`] if the reader is not waiting for
    /// memory.
    awaited: AtomicUsize,
    pool: Mutex<Vec<Vec<u8>>>,
    wake: Arc<EventFd>,
}

impl Memory {
    pub fn new(limit: usize, wake: Arc<EventFd>) -> Self {
        Self {
            limit,
            budget: Budget::unlimited(),
            least: 0,
            used: AtomicUsize::new(0),
            awaited: AtomicUsize::new(NOT_AWAITED),
            pool: Mutex::default(),
            wake,
        }
    }

    /// Makes the memory part of a budget. The bytes that tables and spans use are subtracted from the limit, but the
    /// limit never falls below `least`.
    pub fn within(self, budget: Budget, least: usize) -> Self {
        Self { budget, least, ..self }
    }

    fn limit(&self) -> usize {
        self.limit.saturating_sub(self.budget.held()).max(self.least)
    }

    /// Returns the number of bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(SeqCst)
    }

    /// Returns how many bytes of memory a chunk of `len` bytes takes. `len` is at most [`BLOCK`].
    pub fn cost(len: usize) -> usize {
        if len > SMALL { BLOCK } else { len }
    }

    /// Returns the maximum number of bytes of memory for `len` bytes of a ring. Each block of memory contains one
    /// chunk, and a chunk contains only whole records. A record has at most 64 KiB (the size in its header is a u16).
    /// So at the end of each block except the last one, nearly 64 KiB may stay unused.
    pub fn cost_of_ring(len: usize) -> usize {
        if len <= BLOCK { Self::cost(len) } else { len.div_ceil(BLOCK - (64 << 10)) * BLOCK }
    }

    /// Returns whether `cost` more bytes can be used if `reserve` bytes have to stay free. Returns true if no memory is
    /// in use: a limit that is smaller than a chunk must not block the reader forever.
    pub fn has_room(&self, cost: usize, reserve: usize) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(cost).saturating_add(reserve) <= self.limit()
    }

    /// Returns an empty buffer with a capacity of at least `len` bytes. `len` is at most [`BLOCK`].
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        let cost = Self::cost(len);
        self.used.fetch_add(cost, SeqCst);
        let pooled = if cost == BLOCK { self.pool.lock().pop() } else { None };
        pooled.unwrap_or_else(|| Vec::with_capacity(cost))
    }

    /// Requests a wakeup of the reader for when `cost` bytes are free. Returns whether they are free already.
    pub fn await_room(&self, cost: usize) -> bool {
        self.awaited.store(self.limit().saturating_sub(cost), SeqCst);
        // The check comes after the store, because a buffer that was recycled before the store has not woken the
        // reader.
        let has_room = self.has_room(cost, 0);
        if has_room {
            self.awaited.store(NOT_AWAITED, SeqCst);
        }
        has_room
    }
}

impl Recycle for Memory {
    fn recycle(&self, mut memory: Vec<u8>) {
        let cost = memory.capacity();
        if cost == BLOCK {
            let mut pool = self.pool.lock();
            if pool.len() < POOLED {
                memory.clear();
                pool.push(memory);
            }
        }
        let used = self.used.fetch_sub(cost, SeqCst) - cost;
        let awaited = self.awaited.load(SeqCst);
        if awaited != NOT_AWAITED
            && (used <= awaited || used == 0)
            && self.awaited.compare_exchange(awaited, NOT_AWAITED, SeqCst, SeqCst).is_ok()
        {
            self.wake.signal();
        }
    }
}
