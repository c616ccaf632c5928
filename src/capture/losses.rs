//! Reads from the kernel how many records it dropped. PERF_RECORD_LOST records in the rings are not used here.

use std::os::fd::AsFd;

use perf_prof_format::abi::{
    PERF_FORMAT_GROUP, PERF_FORMAT_LOST, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
};
use perf_prof_system::perf;

use super::{Capture, open::Descriptor};

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
    /// Samples that the kernel overwrote in their ring. Neither their event nor their exact number is known.
    Overwritten,
}

impl Capture {
    /// Returns the kernel's count of lost records for each id that has lost records. Returns `None` if this kernel does
    /// not count lost records.
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let mut all = Vec::new();
        self.for_each_loss(
            |_| true,
            |descriptor, id, count| {
                if count != 0 {
                    let what = if descriptor.event.is_some() { LostRecords::Samples } else { LostRecords::SideBand };
                    all.push(Lost { id, cpu: self.ring_cpus[descriptor.ring], what, count });
                }
            },
        )
        .then_some(all)
    }

    /// Calls `each` for each wanted descriptor that can be read: with the descriptor, its id and its number of lost
    /// records. Returns false if this kernel does not count lost records.
    pub(super) fn for_each_loss(
        &self,
        wanted: impl Fn(&Descriptor) -> bool,
        mut each: impl FnMut(&Descriptor, u64, u64),
    ) -> bool {
        if self.read_format & PERF_FORMAT_LOST == 0 {
            return false;
        }
        for descriptor in self.descriptors.iter().filter(|descriptor| wanted(descriptor)) {
            // perf_read_one() returns the values in this order: value, times, id, lost. An event in error state returns
            // no values. It has lost no records either.
            let format = descriptor.event.map_or(self.read_format, |event| self.layouts[event].format.read_format);
            if format & PERF_FORMAT_GROUP != 0 {
                if let Some((id, lost)) = self.loss_of_leader(descriptor, format) {
                    each(descriptor, id, lost);
                }
                continue;
            }
            let mut values = [0; 5];
            let values = &mut values[..1 + format.count_ones() as usize];
            let whole = perf::read(descriptor.fd.as_fd(), values).is_ok_and(|count| count == values.len());
            if let (true, &[.., id, lost]) = (whole, &*values) {
                each(descriptor, id, lost);
            }
        }
        true
    }

    /// Reads the id and the number of lost records of a group leader whose samples contain the counts of the group.
    /// Returns `None` for the other events of the group, because they are not sampled.
    fn loss_of_leader(&self, descriptor: &Descriptor, format: u64) -> Option<(u64, u64)> {
        let event = descriptor.event.filter(|&event| !self.attrs[event].grouping.is_member())?;
        let members = self.attrs[event + 1..].iter().take_while(|attr| attr.grouping.is_member()).count();
        // perf_read_group() returns the values in this order: the number of events, the times, and then value, id and
        // lost of each event, starting with the leader.
        let times = (format & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)).count_ones() as usize;
        let mut values = vec![0; 1 + times + 3 * (1 + members)];
        let count = perf::read(descriptor.fd.as_fd(), &mut values).ok()?;
        let &[_, id, lost] = values[..count].get(1 + times..)?.first_chunk()?;
        Some((id, lost))
    }
}
