//! Rings that the kernel overwrites: the newest samples stay in them, until somebody copies them.
//!
//! Each ring of the capture then has a second one beside it. The dummy writes what happens to tasks into the first, which
//! the reader empties. The events write their samples into the second. Nothing wakes anybody because of these samples.

use std::os::fd::AsFd;

use perf_prof_format::record::Records;
pub use perf_prof_system::backward_ring::Written;
use perf_prof_system::{
    CallError,
    backward_ring::{BackwardRing, Copied},
    perf,
};

use super::{Capture, EventRequest, open::Descriptor};

/// Contexts that can interrupt one another while they write into a ring: task, softirq, hardirq, NMI.
const CONTEXTS: usize = 4;

/// The overwritten rings of a capture.
#[derive(Debug, Default)]
pub(super) struct OverwrittenRings {
    /// For each ring of the capture, the overwritten ring beside it. `None` if no event writes there.
    rings: Vec<Option<OwnedRing>>,
    /// How many bytes the kernel may be writing into a ring at any moment without having moved the head.
    unfinished: usize,
}

/// A ring, and the index of the descriptor through which it was mapped.
#[derive(Debug)]
struct OwnedRing {
    ring: BackwardRing,
    owner: usize,
}

/// The samples that were copied out of one ring.
#[derive(Debug)]
pub struct CopiedRing {
    /// The index of the ring in the capture.
    pub ring: u32,
    /// Where the copy ended. The next copy of this ring can begin here.
    pub until: Written,
    /// How many bytes of samples had been overwritten before they were copied.
    pub overwritten: u64,
    newest_first: Vec<u8>,
}

impl CopiedRing {
    /// Returns the size of the copy in bytes.
    pub fn size(&self) -> usize {
        self.newest_first.len()
    }

    /// Returns what `of` finds in the oldest record in which it finds anything.
    pub fn oldest<T>(&self, of: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        Records::new(&self.newest_first).filter_map(of).last()
    }

    /// Returns the records, the oldest one first.
    pub fn in_order(&self) -> Vec<u8> {
        let records: Vec<&[u8]> = Records::new(&self.newest_first).collect();
        records.into_iter().rev().fold(Vec::with_capacity(self.newest_first.len()), |mut all, record| {
            all.extend(record);
            all
        })
    }
}

impl OverwrittenRings {
    /// Returns the rings for these events, none of which is mapped yet.
    pub fn for_events(events: &[EventRequest]) -> OverwrittenRings {
        let largest = events.iter().map(EventRequest::largest_sample).max().unwrap_or(0);
        OverwrittenRings { rings: Vec::new(), unfinished: CONTEXTS * largest }
    }

    /// Makes a new event write into the overwritten ring beside `ring`. `size` is the size of a ring, in bytes. The first
    /// event maps the ring. `at` is the index that the event will have in `descriptors`.
    pub fn add(
        &mut self,
        fd: &impl AsFd,
        (ring, at): (usize, usize),
        size: usize,
        descriptors: &[Descriptor],
    ) -> Result<(), CallError> {
        if self.rings.len() <= ring {
            self.rings.resize_with(ring + 1, || None);
        }
        match &self.rings[ring] {
            Some(known) => perf::set_output(fd.as_fd(), descriptors[known.owner].fd.as_fd()),
            None => {
                self.rings[ring] = Some(OwnedRing { ring: BackwardRing::map(fd.as_fd(), size)?, owner: at });
                Ok(())
            }
        }
    }
}

impl Capture {
    /// Copies what was written into the overwritten rings since the positions `since`, which is empty for the first copy.
    /// Events go on meanwhile.
    pub fn copy_overwritten(&self, since: &[Written]) -> Vec<CopiedRing> {
        let copy = |(at, owned): (usize, &Option<OwnedRing>)| {
            let ring = &owned.as_ref()?.ring;
            let unfinished = self.overwritten.unfinished.min(ring.size() / 8);
            let Copied { bytes, until, overwritten } =
                ring.copy(since.get(at).copied().unwrap_or_default(), unfinished);
            Some(CopiedRing { ring: at as u32, until, overwritten, newest_first: bytes })
        };
        self.overwritten.rings.iter().enumerate().filter_map(copy).collect()
    }

    /// Returns how many bytes were written into each overwritten ring. A ring without events has 0.
    pub fn written(&self) -> Vec<Written> {
        let written = |owned: &Option<OwnedRing>| owned.as_ref().map(|owned| owned.ring.written()).unwrap_or_default();
        self.overwritten.rings.iter().map(written).collect()
    }

    /// Returns the size of each overwritten ring in bytes. A ring without events has 0.
    pub fn overwritten_sizes(&self) -> Vec<usize> {
        self.overwritten.rings.iter().map(|owned| owned.as_ref().map_or(0, |owned| owned.ring.size())).collect()
    }

    /// Replaces the overwritten ring beside `ring` by an empty one of `size` bytes. If the kernel refuses this size, the
    /// ring keeps its old size, and is empty too. Events during the call are in neither ring.
    pub fn resize_overwritten(&mut self, ring: usize, size: usize) -> Result<(), CallError> {
        let Some(OwnedRing { ring: old, owner }) = self.overwritten.rings.get_mut(ring).and_then(Option::take) else {
            return Ok(());
        };
        let former = old.size();
        // The kernel has one ring for an event, so the old one has to go first. Then it takes the ring away from all events
        // that wrote into it (`perf_mmap_close()` in kernel/events/core.c).
        drop(old);
        let fd = self.descriptors[owner].fd.as_fd();
        let (new, refused) = match BackwardRing::map(fd, size) {
            Ok(new) => (new, None),
            Err(error) => (BackwardRing::map(fd, former)?, Some(error)),
        };
        self.overwritten.rings[ring] = Some(OwnedRing { ring: new, owner });
        let others = self
            .descriptors
            .iter()
            .enumerate()
            .filter(|(at, descriptor)| *at != owner && descriptor.ring == ring && descriptor.event.is_some());
        for (_, descriptor) in others {
            perf::set_output(descriptor.fd.as_fd(), fd)?;
        }
        refused.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: u16) -> Vec<u8> {
        let mut bytes = vec![kind; size.into()];
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_come_in_the_order_of_time_and_a_cut_one_is_left_out() {
        let cut = &record(1, 40)[..16];
        let copied = CopiedRing {
            ring: 0,
            until: Written(0),
            overwritten: 0,
            newest_first: [&record(3, 24)[..], &record(2, 16), cut].concat(),
        };
        assert_eq!(copied.in_order(), [record(2, 16), record(3, 24)].concat());
    }

    #[test]
    fn bytes_never_written_are_no_records() {
        let newest_first = [&record(3, 24)[..], &[0; 64]].concat();
        let copied = CopiedRing { ring: 0, until: Written(0), overwritten: 0, newest_first };
        assert_eq!(copied.in_order(), record(3, 24));
    }
}
