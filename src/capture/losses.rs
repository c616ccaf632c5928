//! Reads from the kernel how many records it dropped, and how many events have no sample. PERF_RECORD_LOST records in the rings
//! are not used here.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use perf_prof_format::{
    abi::{PERF_FORMAT_GROUP, PERF_FORMAT_LOST, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING},
    record::{LossCounts, Source, Wait},
};
use perf_prof_system::perf;

use super::{Capture, open::Descriptor, unwritten::Unwritten};

/// The maximum time for dropping the records that nobody wants. It takes some ms.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

/// The number of records of one descriptor that the kernel dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The id in the records of this descriptor.
    pub id: u64,
    /// The CPU of the ring that had no room; `None` for the ring of a thread.
    pub cpu: Option<u32>,
    /// The kind of the lost records.
    pub what: LostRecords,
    /// The number of lost records.
    pub count: u64,
}

/// What was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecords {
    /// Samples of an event.
    Samples,
    /// Side-band records, which say what happened to tasks and mappings.
    SideBand,
    /// Events that the kernel counted, and wrote no sample of. It did not count them as lost.
    Unwritten,
    /// Samples that the kernel overwrote in their ring. Neither their event nor their exact number is known.
    Overwritten,
}

/// The kernel's counts of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorCounts {
    pub id: u64,
    /// How often the event happened, samples or not.
    pub value: u64,
    /// The number of lost records.
    pub lost: u64,
}

impl Capture {
    /// Returns the kernel's count of lost records for each id that has lost records. Returns `None` if this kernel does
    /// not count lost records.
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let mut all = Vec::new();
        let is_known = self.for_each_loss(
            |_| true,
            |descriptor, DescriptorCounts { id, lost: count, .. }| {
                if count != 0 {
                    let what = if descriptor.event.is_some() { LostRecords::Samples } else { LostRecords::SideBand };
                    all.push(Lost { id, cpu: self.ring_cpus[descriptor.ring], what, count });
                }
            },
        );
        let id = |event, ring| {
            let is_it = |descriptor: &&Descriptor| (descriptor.event, descriptor.ring) == (Some(event), ring);
            perf::id(self.descriptors.iter().find(is_it)?.fd.as_fd()).ok()
        };
        for Unwritten { event, ring, count } in self.unwritten() {
            let id = id(event, ring).unwrap_or_default();
            all.push(Lost { id, cpu: self.ring_cpus[ring], what: LostRecords::Unwritten, count });
        }
        is_known.then_some(all)
    }

    /// Returns the numbers of lost records of each event and each ring. Returns `None` if this kernel does not count lost
    /// records.
    pub(super) fn loss_counts(&self) -> Option<LossCounts> {
        let mut counts = LossCounts {
            per_event: vec![0; self.layouts.len()],
            per_ring: vec![0; self.ring_count()],
            samples_per_ring: vec![0; self.ring_count()],
            unwritten: 0,
        };
        let is_known = self.for_each_loss(
            |_| true,
            |descriptor, of_descriptor| {
                counts.per_ring[descriptor.ring] += of_descriptor.lost;
                if let Some(event) = descriptor.event {
                    counts.per_event[event] += of_descriptor.lost;
                    counts.samples_per_ring[descriptor.ring] += of_descriptor.lost;
                }
            },
        );
        for Unwritten { event, ring, count } in self.unwritten() {
            counts.per_event[event] += count;
            counts.samples_per_ring[ring] += count;
            counts.unwritten += count;
        }
        is_known.then_some(counts)
    }

    /// Returns the number of lost side-band records of each ring. Returns `None` if this kernel does not count lost records.
    pub(super) fn side_band_losses(&self) -> Option<Vec<u64>> {
        let mut per_ring = vec![0; self.ring_count()];
        self.for_each_loss(Descriptor::is_dummy, |descriptor, of_descriptor| {
            per_ring[descriptor.ring] += of_descriptor.lost
        })
        .then_some(per_ring)
    }

    /// Returns the events that were counted, and of which the kernel neither wrote a sample nor reported a loss. They are
    /// known at the end of the capture: before, samples may be on their way.
    pub(super) fn unwritten(&self) -> Vec<Unwritten> {
        let Some(found) = self.found.as_ref().filter(|_| self.ended.is_some()) else { return Vec::new() };
        let mut counted = Vec::new();
        self.for_each_loss(
            |descriptor| descriptor.event.is_some_and(|event| found.are_compared(event)),
            |descriptor, DescriptorCounts { value, lost, .. }| {
                let samples = value.saturating_sub(lost);
                counted.extend(descriptor.event.map(|event| (event, descriptor.ring, samples)));
            },
        );
        found.unwritten(counted)
    }

    /// Reads and drops the records that are left, if samples are compared with the kernel's counts: the comparison needs all
    /// samples.
    pub(super) fn drop_rest_if_compared(&mut self) {
        let until = Instant::now() + DROPPED_WITHIN;
        while self.found.is_some()
            && Instant::now() < until
            && !matches!(self.wait(Some(until)), Wait::Ended(_) | Wait::Timeout)
        {}
    }

    /// Calls `each` for each wanted descriptor that can be read. Returns false if this kernel does not count lost records.
    pub(super) fn for_each_loss(
        &self,
        wanted: impl Fn(&Descriptor) -> bool,
        mut each: impl FnMut(&Descriptor, DescriptorCounts),
    ) -> bool {
        if self.read_format & PERF_FORMAT_LOST == 0 {
            return false;
        }
        for descriptor in self.descriptors.iter().filter(|descriptor| wanted(descriptor)) {
            // perf_read_one() returns the values in this order: value, times, id, lost. An event in error state returns
            // no values. It has lost no records either.
            let format = descriptor.event.map_or(self.read_format, |event| self.layouts[event].format.read_format);
            if format & PERF_FORMAT_GROUP != 0 {
                if let Some(counts) = self.counts_of_leader(descriptor, format) {
                    each(descriptor, counts);
                }
                continue;
            }
            let mut values = [0; 5];
            let values = &mut values[..1 + format.count_ones() as usize];
            let whole = perf::read(descriptor.fd.as_fd(), values).is_ok_and(|count| count == values.len());
            if let (true, &[value, .., id, lost]) = (whole, &*values) {
                each(descriptor, DescriptorCounts { id, value, lost });
            }
        }
        true
    }

    /// Reads a group leader whose samples contain the counts of the group. Returns `None` for the other events of the
    /// group, because they are not sampled.
    fn counts_of_leader(&self, descriptor: &Descriptor, format: u64) -> Option<DescriptorCounts> {
        let event = descriptor.event.filter(|&event| !self.attrs[event].grouping.is_member())?;
        let members = self.attrs[event + 1..].iter().take_while(|attr| attr.grouping.is_member()).count();
        // perf_read_group() returns the values in this order: the number of events, the times, and then value, id and
        // lost of each event, starting with the leader.
        let times = (format & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)).count_ones() as usize;
        let mut values = vec![0; 1 + times + 3 * (1 + members)];
        let count = perf::read(descriptor.fd.as_fd(), &mut values).ok()?;
        let &[value, id, lost] = values[..count].get(1 + times..)?.first_chunk()?;
        Some(DescriptorCounts { id, value, lost })
    }
}
