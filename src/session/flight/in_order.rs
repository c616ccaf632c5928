//! The copies of several rings, in time order. A dump is written in this order: if the disk becomes full, it has all
//! samples up to one time, and spans that ended before are all there.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use perf_prof_capture::CopiedRing;

/// The maximum size of one write, in bytes. If the disk becomes full, the earlier writes remain.
const CHUNK: usize = 256 << 10;

/// The records of copies that are not written yet.
pub struct InOrder {
    rings: Vec<Unwritten>,
    /// The rings with records, each with the time of its next record. The ring with the earliest time is on top.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

/// The records of one copy that are not written yet.
struct Unwritten {
    copied: CopiedRing,
    /// The offsets of the records, the newest one first.
    starts: Vec<u32>,
    /// The time of the last record; 0 if there is none. A record that contains no time gets the time of the record before.
    last: u64,
}

impl Unwritten {
    /// Takes the records in a window of time. The records of a ring are nearly sorted, so all records between the first
    /// and the last record in the window are taken.
    fn new(copied: CopiedRing, window: &Range<u64>, time: impl Fn(&[u8]) -> Option<u64>) -> Unwritten {
        let mut starts = copied.starts();
        let is_inside = |&start: &u32| {
            let time = copied.record(start).and_then(&time);
            time.is_none_or(|time| (window.start..=window.end).contains(&time))
        };
        let oldest = starts.iter().rposition(is_inside).map_or(0, |oldest| oldest + 1);
        starts.truncate(oldest);
        let newest = starts.iter().position(is_inside).unwrap_or(0);
        starts.drain(..newest);
        starts.shrink_to_fit();
        Unwritten { copied, starts, last: 0 }
    }

    /// Returns the oldest record and its time.
    fn oldest(&self, time: impl Fn(&[u8]) -> Option<u64>) -> Option<(&[u8], u64)> {
        let record = self.copied.record(*self.starts.last()?)?;
        Some((record, time(record).map_or(self.last, |time| time.max(self.last))))
    }
}

impl InOrder {
    /// Takes the records in a window of time.
    pub fn new(copies: Vec<CopiedRing>, window: &Range<u64>, time: impl Fn(&[u8]) -> Option<u64>) -> InOrder {
        let rings: Vec<_> = copies.into_iter().map(|copied| Unwritten::new(copied, window, &time)).collect();
        let first = |(ring, unwritten): (usize, &Unwritten)| Some(Reverse((unwritten.oldest(&time)?.1, ring)));
        let next = rings.iter().enumerate().filter_map(first).collect();
        InOrder { rings, next }
    }

    /// Returns the next whole records. Returns `None` at the end.
    pub fn next_chunk(&mut self, time: impl Fn(&[u8]) -> Option<u64>) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        while let Some(Reverse((_, ring))) = self.next.pop() {
            let until = self.next.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            let unwritten = &mut self.rings[ring];
            let mut is_full = false;
            while let Some((record, at)) = unwritten.oldest(&time) {
                is_full = !chunk.is_empty() && chunk.len() + record.len() > CHUNK;
                if is_full || at > until {
                    self.next.push(Reverse((at, ring)));
                    break;
                }
                chunk.extend(record);
                unwritten.last = at;
                unwritten.starts.pop();
            }
            if is_full {
                break;
            }
        }
        for Unwritten { copied, starts, .. } in &mut self.rings {
            let written =
                starts.last().map_or(0, |&oldest| oldest as usize + copied.record(oldest).map_or(0, <[u8]>::len));
            copied.drop_from(written as u32);
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Returns how much memory the records take that are not written yet, in bytes.
    pub fn memory(&self) -> usize {
        let starts = |unwritten: &Unwritten| unwritten.starts.capacity() * size_of::<u32>();
        self.rings.iter().map(|unwritten| unwritten.copied.memory() + starts(unwritten)).sum()
    }
}
