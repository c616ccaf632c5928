//! Marks the system calls of 32-bit programs in samples that the kernel has written: see [`system_calls::COMPAT`]. Such a sample
//! tells the kind of the program if it has registers of user space. BPF programs mark the calls that they pair themselves.

use perf_prof_format::{
    abi::{PERF_SAMPLE_REGS_USER, RegsAbi, system_calls::COMPAT},
    record::SampleLayout,
};

use super::Derived;
use crate::event::{Context, EventType};

/// Where the number of a call is in the raw data of samples.
#[derive(Clone, Copy, Debug)]
struct CallNumber {
    layout: SampleLayout,
    offset: usize,
}

/// The samples of the calls of 32-bit programs.
#[derive(Debug)]
pub(super) struct CompatCalls {
    /// For each input of the derivation.
    inputs: Vec<CallNumber>,
    /// The last marked sample.
    marked: Vec<u8>,
}

impl CompatCalls {
    /// Returns `None` if these events are no system calls of x86-64, or if their samples have no registers.
    pub fn of(derived: &Derived, types: &[EventType], context: &Context) -> Option<CompatCalls> {
        let spec = derived.span.spec();
        if !spec.is_source() || spec.name != "syscall" || context.machine() != "x86_64" {
            return None;
        }
        let number = |&input: &usize| {
            let EventType { format, layout, .. } = types.get(input)?;
            let offset = format.tracepoint()?.field("id").filter(|field| field.size == 8)?.offset;
            (layout.format.sample_type & PERF_SAMPLE_REGS_USER != 0).then_some(CallNumber { layout: *layout, offset })
        };
        // If only begins or only ends were marked, none of these calls would end.
        let inputs = derived.inputs.iter().map(number).collect::<Option<Vec<_>>>()?;
        Some(CompatCalls { inputs, marked: Vec::new() })
    }

    /// Returns the sample, or a copy in which the call is marked. A restored return has the number -1 and stays as it is.
    pub fn marked<'a>(&'a mut self, input: usize, record: &'a [u8]) -> &'a [u8] {
        match self.place(input, record) {
            None => record,
            Some((at, number)) => {
                self.marked.clear();
                self.marked.extend_from_slice(record);
                self.marked[at..at + 8].copy_from_slice(&(number + COMPAT).to_ne_bytes());
                &self.marked
            }
        }
    }

    /// Returns the offset of the number, and the number, of a call of a 32-bit program.
    fn place(&self, input: usize, record: &[u8]) -> Option<(usize, i64)> {
        let CallNumber { layout, offset } = self.inputs.get(input)?;
        if layout.regs_user(record)?.abi != RegsAbi::Bits32 {
            return None;
        }
        let at = layout.raw_at(record)? + offset;
        let number = i64::from_ne_bytes(*record.get(at..)?.first_chunk()?);
        (0..COMPAT).contains(&number).then_some((at, number))
    }
}
