//! The maximum size of the samples of an event.

use perf_prof_format::{
    abi::*,
    tracefs::{INTERPRETER_FRAME_BYTES, INTERPRETER_HEADER_BYTES, MOST_INTERPRETER_FRAMES},
};

use super::{EventRequest, Writer};

/// The assumed size of a tracepoint's data, in bytes. Most formats are smaller. The length of their strings is not
/// known.
const RAW: usize = 256;
/// The bytes for the strings that a BPF program reads. Most events have one or two strings, and no system call has more
/// than five.
const STRINGS: usize = 5 * 256;
/// The maximum number of bytes for the frames of an interpreter. Programs write them only into samples with a callchain.
const INTERPRETER_FRAMES: usize = INTERPRETER_HEADER_BYTES + MOST_INTERPRETER_FRAMES * INTERPRETER_FRAME_BYTES;
/// The maximum number of entries of a callchain: the default of `kernel.perf_event_max_stack`, plus the kernel's limit
/// for context markers.
const FRAMES: usize = 127 + 8;
/// The maximum number of branches that a processor records (LBR).
const BRANCHES: usize = 32;
/// The assumed maximum number of counters of a group in one sample.
const COUNTERS: usize = 8;
/// The maximum size of a record in bytes: its header stores the size in 16 bits.
const LARGEST: usize = u16::MAX as usize;

impl EventRequest {
    /// Returns the maximum size of a sample of this event in a ring, in bytes. The members come in the order of
    /// `perf_output_sample()` in kernel/events/core.c.
    pub fn largest_sample(&self) -> usize {
        let frames = self.callchain.map(|callchain| callchain.max_stack.map_or(FRAMES, usize::from));
        let registers = |mask: u64| 8 + 8 * mask.count_ones() as usize;
        let written = match (self.writer, self.callchain) {
            (Writer::Kernel | Writer::Nobody, _) => 0,
            (Writer::Program, None) => STRINGS,
            (Writer::Program, Some(_)) => STRINGS + INTERPRETER_FRAMES,
        };
        let asked = self.samples.sample_type;
        let members = [
            // PERF_SAMPLE_IDENTIFIER, and the members that all samples have.
            (u64::MAX, 8 * 10),
            (PERF_SAMPLE_READ, 8 * (3 + 3 * COUNTERS)),
            (PERF_SAMPLE_RAW, RAW + written),
            (PERF_SAMPLE_BRANCH_STACK, 16 + 24 * BRANCHES),
            (PERF_SAMPLE_REGS_USER, registers(self.samples.regs_user)),
            (PERF_SAMPLE_STACK_USER, 16 + self.stack_user as usize),
            (PERF_SAMPLE_REGS_INTR, registers(self.samples.regs_intr)),
            // The members weight, source, transaction, physical address, cgroup and page sizes.
            (u64::MAX, 8 * 7),
        ];
        let of_members: usize = members.iter().filter(|(bit, _)| asked & bit != 0).map(|(_, size)| size).sum();
        LARGEST.min(of_members + frames.map_or(0, |frames| 8 + 8 * frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Callchain, Frames};

    #[test]
    fn copied_stacks_make_samples_large() {
        let tracepoint = EventRequest::tracepoint("s:n", 1);
        assert!(tracepoint.largest_sample() < 512);
        let callchain = Some(Callchain { kernel: Frames::Sampled, user: Frames::Sampled, max_stack: None });
        let mut with_stack = EventRequest { callchain, ..tracepoint };
        assert!((1024..2048).contains(&with_stack.largest_sample()));
        let by_program = EventRequest { writer: Writer::Program, ..with_stack.clone() };
        assert!((12 << 10..14 << 10).contains(&by_program.largest_sample()));
        with_stack.samples.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
        (with_stack.samples.regs_user, with_stack.stack_user) = (0xff, 8192);
        assert!((9 << 10..10 << 10).contains(&with_stack.largest_sample()));
        with_stack.stack_user = 65_528;
        assert_eq!(with_stack.largest_sample(), LARGEST);
    }
}
