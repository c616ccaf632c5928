//! Copies the contents of a ring into memory, in large pieces instead of single records.

use std::sync::Arc;

use perf_prof_format::record::{Chunk, Records, Recycle};
use perf_prof_system::ring::Ring;

use super::{
    limit::Limiter,
    memory::{BLOCK, Memory},
    own::OwnSamples,
    unwritten::SampleCounter,
};

/// How much of a ring was drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// The ring was empty.
    Empty,
    /// Everything up to the head was copied.
    All,
    /// The memory limit was reached before the head.
    Partly,
}

/// What happens to samples after the copy, in this order.
pub(super) struct OnTheWay<'a> {
    /// Counts the samples.
    pub counter: &'a Option<SampleCounter>,
    /// Removes the samples of perf-prof's own threads.
    pub own_samples: &'a mut Option<OwnSamples>,
    /// Removes the samples above a limit.
    pub limiter: &'a mut Option<Limiter>,
}

/// Copies everything up to `head` and passes it to `take`, as long as there is free memory. The caller loads `head`
/// once.
///
/// The tail is committed once, at the end. Each commit changes a cache line that the kernel then has to fetch when it
/// writes.
pub(super) fn drain(
    ring: &mut Ring,
    index: usize,
    head: u64,
    memory: &Arc<Memory>,
    on_the_way: OnTheWay<'_>,
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
        let mut bytes = memory.buffer(span);
        ring.copy_to(at, span, &mut bytes);
        if span < left {
            let mut records = Records::new(&bytes);
            records.by_ref().for_each(drop);
            let whole = span - records.rest().len();
            bytes.truncate(whole);
        }
        at += bytes.len() as u64;
        if bytes.is_empty() {
            // The kernel never writes a record of size 0. If there is one nevertheless, the reader skips everything up
            // to the head. Otherwise it would read the same bytes forever.
            at = head;
        }
        if let Some(counter) = on_the_way.counter {
            counter.count(index, &bytes);
        }
        if let Some(own_samples) = on_the_way.own_samples {
            own_samples.remove(&mut bytes);
        }
        if let Some(limiter) = on_the_way.limiter {
            limiter.apply(index, &mut bytes);
        }
        take(Chunk::new(index as u32, bytes, Some(Arc::clone(memory) as Arc<dyn Recycle>)));
    }
    ring.commit(at);
    if at == head { Drained::All } else { Drained::Partly }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use perf_prof_system::eventfd::EventFd;

    use super::*;

    /// Neither counts nor removes samples.
    macro_rules! nothing {
        () => {
            OnTheWay { counter: &None, own_samples: &mut None, limiter: &mut None }
        };
    }

    /// Returns a record of `size` bytes. Each byte after the header is `number`.
    fn record(number: u8, size: usize) -> Vec<u8> {
        let mut bytes = vec![number; size];
        bytes[..6].fill(0);
        bytes[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
        bytes
    }

    fn memory(limit: usize) -> Arc<Memory> {
        Arc::new(Memory::new(limit, Arc::new(EventFd::new().unwrap())))
    }

    /// Drains the ring and compares the chunks with `expected`. A chunk is printed as `number:size` for each of its
    /// records.
    fn check(ring: &mut Ring, memory: &Arc<Memory>, expected: Expect) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let head = ring.head();
        let drained = drain(ring, 0, head, memory, nothing!(), |chunk| chunks.push(chunk));
        let show = |chunk: &Chunk| {
            let records: Vec<String> =
                chunk.records().map(|record| format!("{}:{}", record[8], record.len())).collect();
            assert_eq!(chunk.records().map(<[u8]>::len).sum::<usize>(), chunk.bytes().len(), "whole records");
            records.join(" ")
        };
        let text: Vec<String> = chunks.iter().map(show).collect();
        expected.assert_eq(&format!("{drained:?} {text:?} left {}", head - ring.tail()));
        chunks
    }

    #[test]
    fn empty_one_and_many() {
        let (mut ring, memory) = (Ring::fake(4096, 0).unwrap(), memory(1 << 20));
        check(&mut ring, &memory, expect!["Empty [] left 0"]);
        assert!(ring.write(&record(1, 16)));
        check(&mut ring, &memory, expect![[r#"All ["1:16"] left 0"#]]);
        (2..5).for_each(|number| assert!(ring.write(&record(number, 24))));
        check(&mut ring, &memory, expect![[r#"All ["2:24 3:24 4:24"] left 0"#]]);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_body_that_wraps_around_the_end() {
        // Positions only grow. This position is near the end of the ring and needs more than 32 bits.
        let (mut ring, memory) = (Ring::fake(4096, (7 << 32) + 4096 - 16).unwrap(), memory(1 << 20));
        assert!(ring.write(&record(1, 40)));
        assert!(ring.write(&record(2, 16)));
        check(&mut ring, &memory, expect![[r#"All ["1:40 2:16"] left 0"#]]);
        // A record's header never wraps around the end, but its body may continue at the start of the ring.
        let mut ring = Ring::fake(4096, 4096 - 8).unwrap();
        assert!(ring.write(&record(3, 16)));
        check(&mut ring, &memory, expect![[r#"All ["3:16"] left 0"#]]);
    }

    #[test]
    fn a_full_ring_takes_no_more_until_it_is_drained() {
        let (mut ring, memory) = (Ring::fake(4096, 4000).unwrap(), memory(1 << 20));
        assert!(ring.write(&record(1, 2048)));
        assert!(ring.write(&record(2, 2048)));
        assert!(!ring.write(&record(3, 8)));
        check(&mut ring, &memory, expect![[r#"All ["1:2048 2:2048"] left 0"#]]);
        assert!(ring.write(&record(3, 16)));
        check(&mut ring, &memory, expect![[r#"All ["3:16"] left 0"#]]);
    }

    #[test]
    fn chunks_end_with_whole_records() {
        let (mut ring, memory) = (Ring::fake(1 << 20, 123 * 8).unwrap(), memory(1 << 30));
        (0..13).for_each(|number| assert!(ring.write(&record(number, 60_000))));
        let big = expect![[
            r#"All ["0:60000 1:60000 2:60000 3:60000", "4:60000 5:60000 6:60000 7:60000", "8:60000 9:60000 10:60000 11:60000", "12:60000"] left 0"#
        ]];
        let chunks = check(&mut ring, &memory, big);
        assert!(memory.used() <= Memory::cost_of_ring(13 * 60_000));
        drop(chunks);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut ring, memory) = (Ring::fake(4096, 0).unwrap(), memory(100));
        (1..4).for_each(|number| assert!(ring.write(&record(number, 40))));
        // The first chunk is taken even if it is larger than the limit.
        let chunks = check(&mut ring, &memory, expect![[r#"All ["1:40 2:40 3:40"] left 0"#]]);
        assert!(ring.write(&record(4, 40)));
        assert_eq!(check(&mut ring, &memory, expect!["Partly [] left 40"]).len(), 0);
        assert!(!memory.await_room(40));
        drop(chunks);
        assert!(memory.await_room(40));
        check(&mut ring, &memory, expect![[r#"All ["4:40"] left 0"#]]);
    }

    #[test]
    fn a_record_without_a_size_does_not_stop_the_reader() {
        let (mut ring, memory) = (Ring::fake(1 << 20, 0).unwrap(), memory(1 << 30));
        (0..5).for_each(|_| assert!(ring.write(&vec![0; 65_536])));
        let mut chunks = 0;
        let head = ring.head();
        assert_eq!(drain(&mut ring, 0, head, &memory, nothing!(), |_| chunks += 1), Drained::All);
        assert_eq!((chunks, ring.tail()), (1, head));
    }
}
