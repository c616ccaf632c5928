//! Selects the tasks whose spans are added. A span may consist of events of other tasks, so the test is for the task that
//! the span belongs to.

use perf_prof_format::abi::bpf::BPF_FUNC_MAP_LOOKUP_ELEM;

use crate::{
    instruction::{Code, Condition, Label, MapUse, Register, Size},
    lower::LoweredTask,
    select::SCRATCH,
};

/// The tasks whose spans are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanTasks {
    /// The process whose spans are left out: perf-prof itself.
    pub own: Option<u32>,
    /// The threads of perf-prof, for spans of which programs know only the thread.
    pub own_threads: Vec<u32>,
    /// Whether only threads in the map of tasks count.
    pub are_selected: bool,
}

impl SpanTasks {
    /// The spans of all tasks.
    pub const ALL: SpanTasks = SpanTasks { own: None, own_threads: Vec::new(), are_selected: false };

    /// Returns whether the spans of all tasks are added.
    pub(super) fn are_all(&self) -> bool {
        *self == SpanTasks::ALL
    }

    /// Writes code that jumps to `to` unless the spans of this task are added.
    pub(super) fn jump_unless(&self, code: &mut Code, task: LoweredTask, to: Label) {
        match (task.process, self.own) {
            (Some(process), Some(own)) => {
                process.load(code, Register::R1);
                code.jump_if_number(Condition::Equal, Register::R1, (own.into(), Register::R2), to);
            }
            _ if self.own_threads.is_empty() => {}
            _ => {
                task.thread.load(code, Register::R1);
                for &thread in &self.own_threads {
                    code.jump_if_number(Condition::Equal, Register::R1, (thread.into(), Register::R2), to);
                }
            }
        }
        if self.are_selected {
            task.thread.load(code, Register::R1);
            code.store(Size::Word, SCRATCH, Register::R1);
            code.map(Register::R1, MapUse::Tasks);
            code.address(Register::R2, SCRATCH);
            code.call(BPF_FUNC_MAP_LOOKUP_ELEM);
            code.jump_if(Condition::Equal, Register::R0, 0, to);
        }
    }
}
