//! What the kernel dropped, by its own counts. Knows nothing of what records tell of it.

use std::os::fd::AsFd;

use super::{Capture, open::Descriptor};
use crate::{
    abi::{PERF_FORMAT_GROUP, PERF_FORMAT_LOST, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING},
    sys::perf,
};

/// What the kernel dropped of a descriptor's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The id that its records carry.
    pub id: u64,
    /// The CPU whose ring had no room; `None` for a ring of a thread.
    pub cpu: Option<u32>,
    /// What it was.
    pub what: LostRecords,
    /// How many.
    pub count: u64,
}

/// Which records were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecords {
    /// Samples of an event.
    Samples,
    /// What happened to tasks.
    SideBand,
}

impl Capture {
    /// The kernel's own counts of lost records, of each id that lost some; `None` where it does not keep them.
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let mut all = Vec::new();
        self.for_each_loss(|descriptor, id, count| {
            if count != 0 {
                let what = if descriptor.event.is_some() { LostRecords::Samples } else { LostRecords::SideBand };
                all.push(Lost { id, cpu: self.ring_cpus[descriptor.ring], what, count });
            }
        })
        .then_some(all)
    }

    /// Whether the kernel counts; if so, each descriptor with its id and what it has lost.
    pub(super) fn for_each_loss(&self, mut each: impl FnMut(&Descriptor, u64, u64)) -> bool {
        if self.read_format & PERF_FORMAT_LOST == 0 {
            return false;
        }
        for descriptor in self.descriptors.iter() {
            // The order of perf_read_one(): value, the times, id, lost. Nothing is read of an event in error state, which
            // lost nothing either.
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

    /// The id and the loss of an event whose samples read its group; nothing of the others of the group, which have no samples.
    fn loss_of_leader(&self, descriptor: &Descriptor, format: u64) -> Option<(u64, u64)> {
        let event = descriptor.event.filter(|&event| !self.attrs[event].grouping.is_member())?;
        let members = self.attrs[event + 1..].iter().take_while(|attr| attr.grouping.is_member()).count();
        // The order of perf_read_group(): how many there are, the times, then value, id and lost of each, the leader first.
        let times = (format & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)).count_ones() as usize;
        let mut values = vec![0; 1 + times + 3 * (1 + members)];
        let count = perf::read(descriptor.fd.as_fd(), &mut values).ok()?;
        let &[_, id, lost] = values[..count].get(1 + times..)?.first_chunk()?;
        Some((id, lost))
    }
}
