//! The derivations of a run, each with what its input samples need before it gets them.

use std::sync::Arc;

use super::{Derivation, PairSplitter, compat_calls::CompatCalls};
use crate::event::{Context, Deliver, Flow};

/// The derivations of a run.
pub struct Derivations(pub(super) Vec<Started>);

/// A derivation during a run.
pub(super) struct Started {
    /// The index of its event type.
    pub event: usize,
    pub derivation: Box<dyn Derivation>,
    /// Splits the input records, if BPF programs have paired them. The context names the kernel's functions.
    pub pairs: Option<(PairSplitter, Arc<Context>)>,
    /// Marks calls of 32-bit programs in samples that the kernel has written.
    pub compat: Option<CompatCalls>,
}

impl Started {
    /// Passes an input sample to the derivation.
    #[inline]
    pub(super) fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
        let record = self.compat.as_mut().map_or(record, |compat| compat.marked(input, record));
        match &mut self.pairs {
            None => self.derivation.sample(input, record, emit),
            Some((pairs, context)) => {
                pairs.leave_out_programs(context);
                match pairs.split(record) {
                    Some([begin, end]) => self.derivation.pair(begin, end, emit),
                    None => Flow::Continue(()),
                }
            }
        }
    }
}

impl Derivations {
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Derivation>> {
        self.0.iter_mut().map(|started| &mut started.derivation)
    }

    pub(super) fn lost(&mut self, start: u64, end: u64) {
        self.each().for_each(|derivation| derivation.lost(start, end));
    }

    pub(super) fn loss_begins(&mut self) {
        self.each().for_each(|derivation| derivation.loss_begins());
    }

    /// Reports the spans that are missing since the last call. At the end of the run, also reports those that have not ended.
    pub(super) fn deliver_missing(&mut self, program: &mut dyn Deliver) {
        for Started { event, derivation, .. } in &mut self.0 {
            derivation.take_missing(&mut |record| program.missing(*event, record));
            if let Some(number) = derivation.not_ended() {
                program.not_ended(*event, number);
            }
        }
    }
}
