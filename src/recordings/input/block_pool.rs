//! A pool of buffers for blocks. Buffers are reused, which saves allocations.

use std::sync::Arc;

use perf_prof_format::record::Recycle;
use perf_prof_system::mutex::Mutex;

use crate::index::blocks::BLOCK;

/// The maximum number of free buffers in the pool.
const KEPT: usize = 32;

/// The free buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// Returns a buffer of `size` bytes. Its content is arbitrary: a reused buffer is not cleared.
    pub fn buffer(self: &Arc<Self>, size: usize) -> Vec<u8> {
        let mut buffer = self.free.lock().pop().unwrap_or_else(|| Vec::with_capacity(size.max(BLOCK)));
        buffer.resize(size, 0);
        buffer
    }
}

impl Recycle for Pool {
    fn recycle(&self, memory: Vec<u8>) {
        let mut free = self.free.lock();
        if free.len() < KEPT && memory.capacity() <= 2 * BLOCK {
            free.push(memory);
        }
    }
}
