//! How many records of a batch were handled before delivery stopped.

use std::ops::ControlFlow;

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Batch, record_type},
};

use super::Pump;

impl Pump {
    /// Returns how many records of `batch` were handled before delivery stopped: all records up to and including the
    /// last delivered sample. `left` is the number that [`Pump::samples_left`] returned before the batch.
    #[cold]
    pub fn records_handled(&self, batch: &Batch, left: u64) -> usize {
        let mut samples = left - self.samples_left;
        let mut records = 0;
        let _ = batch.for_each(|_, record| {
            if samples == 0 {
                return ControlFlow::Break(());
            }
            records += 1;
            if record_type(record) == PERF_RECORD_SAMPLE {
                samples = samples.saturating_sub(self.deliveries(record));
            }
            ControlFlow::Continue(())
        });
        records
    }

    /// Returns to how many selected events a sample is delivered. This includes samples with the id of another
    /// program's event, if a selected event gets them.
    fn deliveries(&self, record: &[u8]) -> u64 {
        let id = self.layout.id(record);
        let Some(opened) = id.and_then(|id| self.ids.event(id).or(self.ids.foreign_event())) else { return 0 };
        let is_delivered = |event: usize| !self.cgroups.as_ref().is_some_and(|cgroups| cgroups.are_moves(event));
        match self.shared.as_ref().and_then(|shared| shared.tracepoint(opened)) {
            Some(tracepoint) => tracepoint.events(record).filter(|&event| is_delivered(event)).count() as u64,
            None => is_delivered(opened).into(),
        }
    }
}
