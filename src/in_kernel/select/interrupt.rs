//! Tells events in interrupts from those of the running task, as `common_flags` of a sample do. Programs do not get this field.

use perf_prof_format::{abi::bpf::BPF_FUNC_PROBE_READ_KERNEL, tracefs::Btf};

use super::SCRATCH;
use crate::{
    expression::CONTEXT,
    instruction::{Code, Condition, Label, Operation, Place, Register, Size},
};

/// The variable with the registers of a CPU's events (kernel/events/core.c).
const PERF_REGS: &str = "__perf_regs";
/// How many contexts can interrupt each other (`PERF_NR_CONTEXTS`): task, soft interrupt, hard interrupt, and interrupts that
/// cannot be masked. Each has registers in the variable.
const CONTEXTS: u32 = 4;
/// `TRACE_FLAG_SOFTIRQ`, `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_NMI` in include/linux/trace_events.h, in the order of the
/// registers.
const FLAGS: [i32; 3] = [0x10, 0x08, 0x40];
/// The smallest page. The memory of each CPU starts at a page.
const PAGE: u32 = 4096;

/// Where a CPU keeps the registers of events: separate registers for tasks and for each kind of interrupt. The record that
/// a program gets starts with a pointer to the registers of the task or the interrupt in which the event happened
/// (`perf_trace_buf_alloc()` in kernel/trace/trace_event_perf.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRegisters {
    /// The offset of a task's registers in their page, in bytes.
    in_page: i32,
    /// The size of the registers of one context, in bytes.
    bytes: i32,
}

impl EventRegisters {
    /// Returns whether this variable is needed.
    pub fn needs(name: &str) -> bool {
        name == PERF_REGS
    }

    /// Returns the place of the registers. `None` if the kernel has no such variable, or if places in a page do not tell
    /// contexts apart.
    pub fn of(types: &Btf) -> Option<EventRegisters> {
        let place = types.per_cpu(PERF_REGS).filter(|place| (CONTEXTS..=PAGE).contains(&place.size))?;
        let in_page = i32::try_from(place.offset % PAGE).ok()?;
        Some(EventRegisters { in_page, bytes: i32::try_from(place.size / CONTEXTS).ok()? })
    }

    /// Writes code that jumps to `to` if the event happened in an interrupt. Changes `SCRATCH`.
    pub fn jump_if_in_interrupt(self, code: &mut Code, to: Label) {
        self.load_distance(code);
        for context in 1..CONTEXTS as i32 {
            code.jump_if(Condition::Equal, Register::R1, context * self.bytes, to);
        }
    }

    /// Writes code that stores the event's `common_flags`, if the event happened in an interrupt: the bit of the innermost
    /// interrupt. Changes `SCRATCH`.
    pub fn store_flags(self, code: &mut Code, to: Place) {
        let done = code.label();
        self.load_distance(code);
        for (context, flag) in (1..).zip(FLAGS) {
            let other = code.label();
            code.jump_if(Condition::NotEqual, Register::R1, context * self.bytes, other);
            code.store_number(Size::Byte, to, flag);
            code.jump(done);
            code.here(other);
        }
        code.here(done);
    }

    /// Writes code that sets `R1` to the distance from the registers of a task to the registers of the event, in bytes.
    fn load_distance(self, code: &mut Code) {
        code.address(Register::R1, SCRATCH);
        code.copy(Register::R2, 8);
        // The verifier does not let programs load this pointer, but they may read it as memory of the kernel.
        code.copy(Register::R3, CONTEXT);
        code.call(BPF_FUNC_PROBE_READ_KERNEL);
        code.load(Size::Double, Register::R1, SCRATCH);
        code.operate(Operation::Subtract, Register::R1, self.in_page);
        code.operate(Operation::And, Register::R1, PAGE as i32 - 1);
    }
}
