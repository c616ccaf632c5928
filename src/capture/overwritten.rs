//! Rings that the kernel overwrites. The newest samples stay in them until somebody copies them.
//!
//! Each ring of the capture has an overwritten ring beside it. The dummy event writes side-band records into the ring of
//! the capture, and the reader thread empties this ring. The other events write their samples into the overwritten ring.
//! These samples wake nobody.

use std::{
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_format::record::Records;
pub use perf_prof_system::backward_ring::Written;
use perf_prof_system::{
    CallError,
    backward_ring::{BackwardRing, RawCopy},
    mmap::page_size,
    perf,
};

use super::{
    Capture,
    open::Descriptor,
    ring_writers::{RingWriters, await_all},
};

/// After the copy of a ring, perf-prof waits up to this long for the kernel's next write. This write shows which bytes
/// were overwritten during the copy.
const NEXT_WRITE: Duration = Duration::from_micros(100);

/// The overwritten rings of a capture.
#[derive(Debug, Default)]
pub(super) struct OverwrittenRings {
    /// For each ring of the capture: the overwritten ring beside it; `None` if no event writes into one.
    rings: Vec<Option<OwnedRing>>,
}

/// A ring, and the index of the descriptor that was mapped.
#[derive(Debug)]
struct OwnedRing {
    ring: BackwardRing,
    owner: usize,
}

/// The samples that were copied from one overwritten ring.
#[derive(Debug)]
pub struct CopiedRing {
    /// The index of the capture's ring that the overwritten ring is beside.
    pub ring: u32,
    /// The position where the copy ended. The next copy of this ring can begin there.
    pub until: Written,
    /// The number of bytes of samples that were overwritten before they could be copied.
    pub overwritten: u64,
    newest_first: Vec<u8>,
}

impl CopiedRing {
    /// Returns the size of the copy in bytes.
    pub fn size(&self) -> usize {
        self.newest_first.len()
    }

    /// Returns the number of records.
    pub fn count(&self) -> usize {
        Records::new(&self.newest_first).count()
    }

    /// Returns the result of `of` for the oldest record for which `of` returns a value other than `None`.
    pub fn oldest<T>(&self, of: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        Records::new(&self.newest_first).filter_map(of).last()
    }

    /// Returns the offsets of the records, the newest one first. A u32 is enough, because the kernel has no rings of 4 GiB.
    pub fn starts(&self) -> Vec<u32> {
        let mut at = 0;
        let starts = Records::new(&self.newest_first).map(|record| {
            let start = at;
            at += record.len() as u32;
            start
        });
        starts.collect()
    }

    /// Returns the record at an offset from [`CopiedRing::starts`].
    pub fn record(&self, start: u32) -> Option<&[u8]> {
        Records::new(self.newest_first.get(start as usize..)?).next()
    }

    /// Drops the record at the offset `start` and all older records.
    pub fn drop_from(&mut self, start: u32) {
        self.newest_first.truncate(start as usize);
        // The memory is given back in few large steps, because each step may move the rest.
        if self.newest_first.len() < self.newest_first.capacity() / 8 * 7 {
            self.newest_first.shrink_to_fit();
        }
    }

    /// Returns how much memory the copy takes, in bytes. It may take more than its records have.
    pub fn memory(&self) -> usize {
        self.newest_first.capacity()
    }
}

impl OverwrittenRings {
    /// Makes a new event write into the overwritten ring beside `ring`. `size` is the size of a ring, in bytes. The
    /// first such event maps the ring. `at` is the index that the event will have in `descriptors`.
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

/// The copy of one ring, before it is known which of its bytes are intact.
struct CopyInProgress<'a> {
    ring: &'a BackwardRing,
    at: usize,
    writers: Arc<RingWriters>,
    copy: RawCopy,
    state: CopyState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyState {
    /// The kernel may have overwritten bytes at the end of the copy.
    Unsettled,
    Intact,
}

impl<'a> CopyInProgress<'a> {
    /// Copies the bytes that were written after the position `since`.
    fn begin(ring: &'a BackwardRing, at: usize, cpu: Option<u32>, since: Written) -> Self {
        let writers = Arc::new(RingWriters::new(cpu));
        let mut copying = CopyInProgress { ring, at, writers, copy: ring.copy(since), state: CopyState::Unsettled };
        // In a ring with many events, the next record soon shows which bytes are intact.
        let copied = Instant::now();
        while copying.settle() == CopyState::Unsettled && copied.elapsed() < NEXT_WRITE {
            std::hint::spin_loop();
        }
        copying
    }

    /// Removes the overwritten bytes, if it is known which bytes these are.
    fn settle(&mut self) -> CopyState {
        if self.state == CopyState::Unsettled && (self.ring.is_settled(&self.copy) || self.writers.have_ended()) {
            self.ring.remove_overwritten(&mut self.copy);
            self.state = CopyState::Intact;
            self.writers.note_end();
        }
        self.state
    }

    /// Returns the copy. All writes that were in progress during the copy must have ended.
    fn finish(mut self) -> CopiedRing {
        if self.state == CopyState::Unsettled {
            self.ring.remove_overwritten(&mut self.copy);
        }
        let (until, overwritten) = (self.copy.until, self.copy.overwritten());
        CopiedRing { ring: self.at as u32, until, overwritten, newest_first: self.copy.bytes }
    }
}

impl Capture {
    /// Copies the bytes that were written into the overwritten rings after the positions `since`. If `since` is empty, copies all
    /// that the rings hold. The events stay on during the copy.
    pub fn copy_overwritten(&self, since: &[Written]) -> Vec<CopiedRing> {
        let rings = self.overwritten.rings.iter().zip(&self.ring_cpus).enumerate();
        let mut copies: Vec<CopyInProgress<'_>> = rings
            .filter_map(|(at, (owned, cpu))| {
                let since = since.get(at).copied().unwrap_or_default();
                Some(CopyInProgress::begin(&owned.as_ref()?.ring, at, *cpu, since))
            })
            .collect();
        let mut settle = || {
            let unsettled = copies.iter_mut().filter_map(|copying| match copying.settle() {
                CopyState::Unsettled => Some(copying.writers.clone()),
                CopyState::Intact => None,
            });
            unsettled.collect::<Vec<_>>()
        };
        let unsettled = settle();
        if !unsettled.is_empty() {
            // If the kernel writes into a ring during the wait, only the bytes that it overwrites are lost.
            await_all(unsettled, || _ = settle());
        }
        copies.into_iter().map(CopyInProgress::finish).collect()
    }

    /// Returns how many bytes the kernel has written into each overwritten ring: 0 for a ring without events.
    pub fn written(&self) -> Vec<Written> {
        let written = |owned: &Option<OwnedRing>| owned.as_ref().map(|owned| owned.ring.written()).unwrap_or_default();
        self.overwritten.rings.iter().map(written).collect()
    }

    /// Returns the size of each overwritten ring in bytes: 0 for a ring without events.
    pub fn overwritten_sizes(&self) -> Vec<usize> {
        self.overwritten.rings.iter().map(|owned| owned.as_ref().map_or(0, |owned| owned.ring.size())).collect()
    }

    /// Replaces the overwritten ring beside `ring` by an empty ring of `size` bytes. If the kernel refuses this size,
    /// the new ring is smaller. Samples that are written during the call are in neither ring.
    pub fn resize_overwritten(&mut self, ring: usize, size: usize) -> Result<(), ResizeError> {
        let Some(OwnedRing { ring: old, owner }) = self.overwritten.rings.get_mut(ring).and_then(Option::take) else {
            return Ok(());
        };
        let former = old.size();
        // An event can have only one ring, so the old ring is unmapped first. The kernel then detaches all events that
        // wrote into it (`perf_mmap_close()` in kernel/events/core.c).
        drop(old);
        let fd = self.descriptors[owner].fd.as_fd();
        let Fitting { found, refused } = first_that_fits(sizes(size, former), |size| BackwardRing::map(fd, size));
        let Some(new) = found else { return refused.map_or(Ok(()), |source| Err(ResizeError::Gone(source))) };
        let size = new.size();
        self.overwritten.rings[ring] = Some(OwnedRing { ring: new, owner });
        let others = self
            .descriptors
            .iter()
            .enumerate()
            .filter(|(at, descriptor)| *at != owner && descriptor.ring == ring && descriptor.event.is_some());
        for (_, descriptor) in others {
            perf::set_output(descriptor.fd.as_fd(), fd).map_err(ResizeError::Gone)?;
        }
        refused.map_or(Ok(()), |source| Err(ResizeError::Smaller { size, source }))
    }
}

/// Why an overwritten ring does not have the requested size.
#[derive(Debug)]
pub enum ResizeError {
    /// The kernel refused the requested size. The ring now has `size` bytes.
    Smaller {
        /// The size in bytes.
        size: usize,
        /// Why the kernel refused the requested size.
        source: CallError,
    },
    /// The events have no ring any more, so their samples are lost.
    Gone(CallError),
}

/// The result for the first size that was accepted, and the error of the first size that was refused.
struct Fitting<T, E> {
    found: Option<T>,
    refused: Option<E>,
}

/// Returns the sizes to try: `wanted`, then `former` or a smaller size, then ever smaller sizes.
fn sizes(wanted: usize, former: usize) -> impl Iterator<Item = usize> {
    let next = if former < wanted { former } else { wanted / 2 };
    let smaller = std::iter::successors(Some(next), |size| Some(size / 2)).take_while(|&size| size >= page_size());
    std::iter::once(wanted).chain(smaller)
}

/// Calls `make` for these sizes in turn, until it succeeds. Returns its result.
fn first_that_fits<T, E>(sizes: impl Iterator<Item = usize>, make: impl Fn(usize) -> Result<T, E>) -> Fitting<T, E> {
    let mut refused = None;
    for size in sizes {
        match make(size) {
            Ok(found) => return Fitting { found: Some(found), refused },
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Fitting { found: None, refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: u16) -> Vec<u8> {
        let mut bytes = vec![kind; size.into()];
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    fn records(copied: &CopiedRing) -> Vec<&[u8]> {
        copied.starts().into_iter().filter_map(|start| copied.record(start)).collect()
    }

    #[test]
    fn the_newest_record_comes_first_and_a_cut_one_is_left_out() {
        let cut = &record(1, 40)[..16];
        let copied = CopiedRing {
            ring: 0,
            until: Written(0),
            overwritten: 0,
            newest_first: [&record(3, 24)[..], &record(2, 16), cut].concat(),
        };
        assert_eq!(records(&copied), [record(3, 24), record(2, 16)]);
        assert_eq!(copied.count(), 2);
    }

    #[test]
    fn bytes_never_written_are_no_records() {
        let newest_first = [&record(3, 24)[..], &[0; 64]].concat();
        let copied = CopiedRing { ring: 0, until: Written(0), overwritten: 0, newest_first };
        assert_eq!(records(&copied), [record(3, 24)]);
    }

    #[test]
    fn a_ring_whose_size_is_refused_has_the_former_size_or_less_or_is_gone() {
        let page = page_size();
        let up_to = |room: usize| {
            let make = |size| if size <= room { Ok(size) } else { Err(size) };
            let Fitting { found, refused } = first_that_fits(sizes(16 * page, 4 * page), make);
            (found.map(|size| size / page), refused.map(|size| size / page))
        };
        assert_eq!(up_to(16 * page), (Some(16), None));
        assert_eq!(up_to(15 * page), (Some(4), Some(16)));
        assert_eq!(up_to(3 * page), (Some(2), Some(16)));
        assert_eq!(up_to(0), (None, Some(16)));
        assert_eq!(sizes(2 * page, 8 * page).map(|size| size / page).collect::<Vec<_>>(), [2, 1]);
    }
}
