//! The memory of blocks, used again and again.

use std::sync::{Arc, Mutex, PoisonError};

use super::index::BLOCK;
use crate::record::Recycle;

/// How many buffers are kept for reuse.
const KEPT: usize = 32;

/// Buffers that are free.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer of so many bytes, of any content: one that is used again is not cleared first.
    pub fn take(self: &Arc<Self>, size: usize) -> Vec<u8> {
        let mut buffer = self.lock().pop().unwrap_or_else(|| Vec::with_capacity(size.max(BLOCK)));
        buffer.resize(size, 0);
        buffer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recycle for Pool {
    fn recycle(&self, memory: Vec<u8>) {
        let mut free = self.lock();
        if free.len() < KEPT && memory.capacity() <= 2 * BLOCK {
            free.push(memory);
        }
    }
}
