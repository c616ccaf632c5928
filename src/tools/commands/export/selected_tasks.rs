//! The tasks that the user selected, for a trace that also uses the events of others.

use std::{collections::HashMap, mem};

use perf_prof_events::{
    event::{Context, Names},
    picture::perfetto::{KernelEvent, Place, Task},
};
use perf_prof_session::plan::{Input, TaskSelection};

/// The tasks that the user selected. The trace shows only these. Switches to them, and what wakes them, are events of other
/// tasks. So the samples of all tasks are read.
#[derive(Default)]
pub struct SelectedTasks {
    names: Names,
    is_any: bool,
    /// The last switch of each CPU.
    switches: HashMap<u32, LastSwitch>,
}

/// The last switch of a CPU.
struct LastSwitch {
    /// The task that came to the CPU.
    task: Task,
    time: u64,
    /// Whether the trace has the switch. A task may be selected only later: its name changes, or its first own event tells its
    /// cgroup.
    is_written: bool,
}

impl SelectedTasks {
    /// Returns the selected tasks, and lets `input` read the samples of all tasks.
    pub fn of(input: &mut Input) -> SelectedTasks {
        let has_ids = input.pids.is_some() || input.tids.is_some() || !input.cgroups.is_empty();
        if has_ids {
            input.tasks = TaskSelection::OfSpans;
        }
        let names = Names { comms: mem::take(&mut input.names.comms), ..Names::default() };
        let is_any = has_ids || !names.are_all();
        SelectedTasks { is_any, names, switches: HashMap::new() }
    }

    /// Returns whether tasks were selected.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Returns whether a thread is selected. `context` follows the children of processes.
    pub fn has(&self, tid: i32, time: u64, context: &Context) -> bool {
        !self.is_any || (context.is_target(tid) && self.names.select_task(tid, time, context))
    }

    /// Returns whether the trace shows a thread on a CPU.
    pub fn shows(&self, cpu: u32, tid: i32) -> bool {
        self.switches.get(&cpu).is_some_and(|last| last.is_written && last.task.tid == tid)
    }

    /// Returns the switch to the selected thread `tid`, which is on the CPU, if the trace does not have it yet.
    pub fn earlier_switch(&mut self, cpu: u32, tid: i32) -> Option<(u64, KernelEvent)> {
        let last = self.switches.get_mut(&cpu).filter(|last| !last.is_written && last.task.tid == tid)?;
        last.is_written = true;
        Some((last.time, KernelEvent::Switch { prev: Task::idle(), state: 0, next: last.task.clone() }))
    }

    /// Returns an event as it concerns the selected tasks: instead of other tasks, the idle task is on the CPU. Returns `None`
    /// if it does not concern them.
    pub fn narrowed(&mut self, event: KernelEvent, of: Place, context: &Context) -> Option<KernelEvent> {
        if !self.is_any {
            return Some(event);
        }
        if let KernelEvent::Switch { prev, state, next } = event {
            let has = |tid: i32| self.has(tid, of.time, context);
            let (has_prev, has_next) = (self.shows(of.cpu, prev.tid) || has(prev.tid), has(next.tid));
            let last = LastSwitch { task: next.clone(), time: of.time, is_written: has_next };
            let before = self.switches.insert(of.cpu, last);
            // The switch away from a task that the trace shows was not seen.
            let is_unseen = before.is_some_and(|before| before.is_written && before.task.tid != prev.tid);
            let (prev, state) = if has_prev { (prev, state) } else { (Task::idle(), 0) };
            let next = if has_next { next } else { Task::idle() };
            return (has_prev || has_next || is_unseen).then_some(KernelEvent::Switch { prev, state, next });
        }
        let has = |tid: i32| self.has(tid, of.time, context);
        match event {
            KernelEvent::Switch { .. } => None,
            KernelEvent::Waking(ref task, _)
            | KernelEvent::Wakeup(ref task, _)
            | KernelEvent::WakeupNew(ref task, _)
            | KernelEvent::NewTask { ref task, .. }
            | KernelEvent::Rename { ref task, .. } => has(task.tid).then_some(event),
            KernelEvent::Free(_) => Some(event),
            KernelEvent::Frequency { .. } | KernelEvent::Idle { .. } => has(of.tid).then_some(event),
        }
    }
}
