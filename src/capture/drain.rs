//! Takes what is in a ring: whole spans, never one record at a time.

use std::sync::Arc;

use super::{
    limit::Limiter,
    memory::{BLOCK, Memory},
};
use crate::{
    record::{Chunk, Records, Recycle},
    sys::ring::Ring,
};

/// How far a drain came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// There was nothing.
    Empty,
    /// Everything up to the head was taken.
    All,
    /// The memory's bound was reached before that.
    Partly,
}

/// Takes everything up to `head`, which was read once, as long as there is memory for it.
///
/// The tail is committed once, at the end: each commit is a cache line that the kernel's writers have to fetch.
pub(super) fn drain(
    ring: &mut Ring,
    index: usize,
    head: u64,
    memory: &Arc<Memory>,
    limiter: &mut Option<Limiter>,
    mut take: impl FnMut(Chunk),
) -> Drained {
    let mut at = ring.tail();
    if at == head {
        return Drained::Empty;
    }
    while at != head {
        let left = (head - at) as usize;
        let span = left.min(BLOCK);
        if !memory.has_room(Memory::cost(span), 0) {
            break;
        }
        let mut bytes = memory.take(span);
        ring.copy_to(at, span, &mut bytes);
        if span < left {
            let mut records = Records::new(&bytes);
            records.by_ref().for_each(drop);
            let whole = span - records.rest().len();
            bytes.truncate(whole);
        }
        at += bytes.len() as u64;
        if bytes.is_empty() {
            // The kernel never writes a record that states no size. Should it be so, going on behind what cannot be
            // read beats reading it for ever.
            at = head;
        }
        if let Some(limiter) = limiter {
            limiter.apply(index, &mut bytes);
        }
        take(Chunk::new(index as u32, bytes, Some(Arc::clone(memory) as Arc<dyn Recycle>)));
    }
    ring.commit(at);
    if at == head { Drained::All } else { Drained::Partly }
}
