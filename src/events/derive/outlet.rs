//! Delivers samples to the program, up to a limit, and counts them. Derived samples may wait to be delivered.

use std::sync::Arc;

use crate::event::{Deliver, Flow, SpanCounts, Stop};

/// Delivers samples to the program, up to a limit, and counts them.
pub(super) struct Outlet {
    /// How many samples can still be delivered.
    pub left: u64,
    /// The index of the first derived event.
    pub first: usize,
    /// The counts of each derived event.
    pub counts: Vec<Arc<SpanCounts>>,
}

impl Outlet {
    /// Delivers a sample, unless the limit was reached.
    #[inline]
    pub fn deliver(&mut self, event: usize, record: &[u8], program: &mut dyn Deliver) -> Flow {
        if self.left == 0 {
            return Flow::Break(Stop::Limit);
        }
        self.left -= 1;
        if let Some(counts) = event.checked_sub(self.first).and_then(|derived| self.counts.get(derived)) {
            counts.add_delivered(1);
        }
        if let Flow::Break(stop) = program.sample(event, record) {
            // After a stop, nothing more is delivered, not even the open spans at the end of the run.
            self.left = 0;
            return Flow::Break(stop);
        }
        if self.left == 0 { Flow::Break(Stop::Limit) } else { Flow::Continue(()) }
    }
}

/// Derived samples that wait to be delivered.
#[derive(Default)]
pub(super) struct Held {
    /// The event type and the size of the record of each sample.
    pub samples: Vec<(usize, usize)>,
    pub records: Vec<u8>,
}

impl Held {
    pub fn hold(&mut self, event: usize, record: &[u8]) {
        self.samples.push((event, record.len()));
        self.records.extend_from_slice(record);
    }

    pub fn deliver(&mut self, program: &mut dyn Deliver, outlet: &mut Outlet) -> Flow {
        let mut rest = self.records.as_slice();
        let mut flow = Flow::Continue(());
        for &(event, size) in &self.samples {
            let (record, after) = rest.split_at(size);
            rest = after;
            flow = outlet.deliver(event, record, program);
            if flow.is_break() {
                break;
            }
        }
        self.samples.clear();
        self.records.clear();
        flow
    }
}
