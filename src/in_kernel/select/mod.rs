//! Which events count: those on selected CPUs, of selected tasks and in selected cgroups, without perf-prof's own.

mod interrupt;
mod tasks;

use std::collections::BTreeSet;

use perf_prof_capture::Owner;
use perf_prof_format::abi::bpf::{
    BPF_FUNC_CURRENT_TASK_UNDER_CGROUP, BPF_FUNC_GET_SMP_PROCESSOR_ID, BPF_FUNC_MAP_LOOKUP_ELEM,
};

pub use interrupt::EventRegisters;
pub use tasks::{NOT_KEPT_WORDS, fork_program, removal_program, start_program};
pub(crate) use tasks::{count_unless_kept, offset_of};

use crate::{
    expression::{CONTEXT, Number},
    instruction::{Code, Condition, Instruction, Label, MapUse, Place, Register, Size},
    lower::{Chains, PidNamespace, Unsuited},
};

/// Where programs put the index or the id for a lookup: the 8 bytes at the end of the stack.
pub const SCRATCH: Place = Place { base: Register::Frame, offset: -8 };

/// Writes code that looks up the only element of an array: a value, or the map in the array. `R0` gets the address. The
/// verifier requires that the code then tests `R0` for 0.
pub(crate) fn look_up_only(code: &mut Code, array: MapUse) {
    code.store_number(Size::Word, SCRATCH, 0);
    code.map(Register::R1, array);
    code.address(Register::R2, SCRATCH);
    code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
}

/// Writes the code that adds 1 to the counter at this offset. It leaves the address of the counters in `R1`.
pub(crate) fn count_in(code: &mut Code, offset: i16) {
    code.map(Register::R1, MapUse::Counters);
    code.copy(Register::R2, 1);
    code.push(Instruction::AtomicAdd(Register::R1.at(offset), Register::R2));
}

/// Which events count.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Which events belong to perf-prof itself. They are counted separately.
    pub own: Own,
    /// The kind of ids in the map of tasks; `None` if all tasks are selected.
    pub tasks: Option<TaskIds>,
    /// The CPUs; `None` if all are selected.
    pub cpus: Option<BTreeSet<u32>>,
    /// The number of cgroups in the map of cgroups; 0 if tasks of all cgroups are selected.
    pub cgroups: u32,
    /// Which PID namespace perf-prof runs in.
    pub ids: PidNamespace,
    /// The call chains of the events; `None` if they have none, or if the kernel cannot take them.
    pub chains: Option<Chains>,
}

/// The kind of ids in the map of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskIds {
    /// Process ids: all threads of a process are selected.
    Processes,
    /// Thread ids.
    Threads,
}

/// Which events belong to perf-prof itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// All events of this process belong to perf-prof.
    pub process: Option<u32>,
    /// All events of these threads belong to perf-prof.
    pub threads: Vec<u32>,
    /// How to find the task of an event.
    pub owner: Owner,
    /// How to recognize events in interrupts, which do not belong to the running task. `None` if the event never happens in
    /// interrupts, or if programs cannot recognize them.
    pub registers: Option<EventRegisters>,
}

impl Own {
    /// No event belongs to perf-prof.
    pub const NOTHING: Own = Own { process: None, threads: Vec::new(), owner: Owner::Task, registers: None };

    /// Writes code that jumps to `own` if the event belongs to perf-prof.
    pub fn jump(&self, code: &mut Code, own: Label) {
        match self.owner {
            Owner::NoTask => {}
            Owner::Field(offset) if self.threads.is_empty() || offset > i16::MAX as usize => {}
            Owner::Field(offset) => {
                code.load(Size::Word, Register::R1, CONTEXT.at(offset as i16));
                self.jump_if_thread(code, own);
            }
            Owner::Task => match self.registers {
                None => self.jump_if_running(code, own),
                Some(registers) => {
                    // Test for interrupts only in tasks of perf-prof, so that the test costs other tasks nothing.
                    let (is_running, other) = (code.label(), code.label());
                    self.jump_if_running(code, is_running);
                    code.jump(other);
                    code.here(is_running);
                    registers.jump_if_in_interrupt(code, other);
                    code.jump(own);
                    code.here(other);
                }
            },
        }
    }

    /// Writes code that jumps to `own` if the running task belongs to perf-prof.
    fn jump_if_running(&self, code: &mut Code, own: Label) {
        if let Some(process) = self.process {
            Number::Process.load(code, Register::R1);
            code.jump_if_number(Condition::Equal, Register::R1, (process.into(), Register::R2), own);
        }
        if !self.threads.is_empty() {
            Number::Thread.load(code, Register::R1);
            self.jump_if_thread(code, own);
        }
    }

    /// Writes code that jumps to `own` if `R1` is the id of one of the threads.
    fn jump_if_thread(&self, code: &mut Code, own: Label) {
        for &thread in &self.threads {
            code.jump_if_number(Condition::Equal, Register::R1, (thread.into(), Register::R2), own);
        }
    }

    fn has_ids(&self) -> bool {
        self.process.is_some() || !self.threads.is_empty()
    }
}

impl Selection {
    /// Selects all events.
    pub const EVERYTHING: Selection =
        Selection { own: Own::NOTHING, tasks: None, cpus: None, cgroups: 0, ids: PidNamespace::First, chains: None };

    /// Fails if programs cannot select these events.
    pub fn check(&self) -> Result<(), Unsuited> {
        let has_ids = self.own.has_ids() || self.tasks.is_some();
        if has_ids && self.ids == PidNamespace::Other { Err(Unsuited::PidNamespace) } else { Ok(()) }
    }

    /// Writes code that jumps to `to` unless the event is selected. Does not test for perf-prof's own events: see
    /// [`Own::jump`].
    pub fn jump_unless(&self, code: &mut Code, to: Label) {
        if let Some(cpus) = &self.cpus {
            jump_unless_on(code, cpus, to);
        }
        if let Some(ids) = self.tasks {
            ids.look_up(code);
            code.jump_if(Condition::Equal, Register::R0, 0, to);
        }
        if self.cgroups != 0 {
            let is_selected = code.label();
            for index in 0..self.cgroups {
                code.map(Register::R1, MapUse::Cgroups);
                code.set(Register::R2, index.into());
                code.call(BPF_FUNC_CURRENT_TASK_UNDER_CGROUP);
                code.jump_if(Condition::Equal, Register::R0, 1, is_selected);
            }
            code.jump(to);
            code.here(is_selected);
        }
    }
}

impl TaskIds {
    /// Returns the id of the running task.
    fn running(self) -> Number {
        match self {
            TaskIds::Processes => Number::Process,
            TaskIds::Threads => Number::Thread,
        }
    }

    /// Writes code that looks up the running task in the map of tasks. `R0` is 0 if the task is not in the map.
    fn look_up(self, code: &mut Code) {
        self.running().load(code, Register::R1);
        code.store(Size::Word, SCRATCH, Register::R1);
        code.map(Register::R1, MapUse::Tasks);
        code.address(Register::R2, SCRATCH);
        code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
    }
}

/// Writes code that jumps to `to` unless the program runs on one of these CPUs.
fn jump_unless_on(code: &mut Code, cpus: &BTreeSet<u32>, to: Label) {
    let is_selected = code.label();
    code.call(BPF_FUNC_GET_SMP_PROCESSOR_ID);
    for (first, last) in ranges(cpus) {
        let next = code.label();
        code.jump_if_number(Condition::Less, Register::R0, (first.into(), Register::R1), next);
        code.jump_if_number(Condition::LessOrEqual, Register::R0, (last.into(), Register::R1), is_selected);
        code.here(next);
    }
    code.jump(to);
    code.here(is_selected);
}

/// Returns the first and the last number of each range without gaps: (1, 2) and (5, 5) for 1, 2, 5.
fn ranges(numbers: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
pub(crate) mod tests;
