//! The kernel's own counts of the records that it dropped. Does not use the records in the rings that report losses.

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

/// Which records were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecords {
    /// Samples of an event.
    Samples,
    /// Side-band records: what happened to tasks and mappings.
    SideBand,
    /// Samples that were overwritten in their ring. It is not known of which events, nor exactly how many.
    Overwritten,
}

impl Capture {
    /// Returns the kernel's count of lost records for each id that has lost records. Returns `None` if the kernel does
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

    /// For each wanted descriptor that can be read, calls `each` with it, its id and its number of lost records. Returns
    /// false if the kernel does not count lost records.
    pub(super) fn for_each_loss(
        &self,
        wanted: impl Fn(&Descriptor) -> bool,
        mut each: impl FnMut(&Descriptor, u64, u64),
    ) -> bool {
        if self.read_format & PERF_FORMAT_LOST == 0 {
            return false;
        }
        for descriptor in self.descriptors.iter().filter(|descriptor| wanted(descriptor)) {
            // The values have the order of perf_read_one(): value, the times, id, lost. An event in error state has no
            // values, but it has not lost records either.
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

    /// Reads the id and the number of lost records of a group leader that reads the whole group in its samples. Returns
    /// `None` for the other events of the group, because they have no samples.
    fn loss_of_leader(&self, descriptor: &Descriptor, format: u64) -> Option<(u64, u64)> {
        let event = descriptor.event.filter(|&event| !self.attrs[event].grouping.is_member())?;
        let members = self.attrs[event + 1..].iter().take_while(|attr| attr.grouping.is_member()).count();
        // The values have the order of perf_read_group(): the number of events, the times, then value, id and lost of
        // each event, the leader first.
        let times = (format & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)).count_ones() as usize;
        let mut values = vec![0; 1 + times + 3 * (1 + members)];
        let count = perf::read(descriptor.fd.as_fd(), &mut values).ok()?;
        let &[_, id, lost] = values[..count].get(1 + times..)?.first_chunk()?;
        Some((id, lost))
    }
}
