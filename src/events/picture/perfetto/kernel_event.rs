//! What happens in a kernel, as Perfetto has it: machines, tasks and events.

use super::kernel::{CpuState, Event, FtraceEvent, NewTask, ProcessFree, SchedSwitch, TaskRename, Wakeup};
use crate::picture::timeline::Argument;

/// The machine that was traced. What is unknown is `None`.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The host's name.
    pub hostname: Option<String>,
    /// The release of the kernel. Perfetto needs it to interpret the states of tasks.
    pub kernel: Option<String>,
    /// The architecture.
    pub arch: Option<String>,
}

/// A task in an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub comm: String,
    /// The thread id.
    pub tid: i32,
    /// Its priority.
    pub prio: i32,
}

impl Task {
    /// Returns the idle task of a CPU.
    pub fn idle() -> Task {
        Task { comm: "swapper".to_owned(), ..Task::default() }
    }
}

/// An event from which Perfetto fills its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// `sched:sched_switch`.
    Switch {
        /// The task that leaves the CPU.
        prev: Task,
        /// The state in which `prev` leaves the CPU.
        state: i64,
        /// The task that starts to run on the CPU.
        next: Task,
    },
    /// `sched:sched_waking`, or another event that makes a task runnable. The number is the CPU on which the task will run.
    Waking(Task, i32),
    /// `sched:sched_wakeup`, for recordings that contain `sched:sched_waking` too.
    Wakeup(Task, i32),
    /// `sched:sched_wakeup_new`, for recordings that contain `task:task_newtask` too.
    WakeupNew(Task, i32),
    /// `sched:sched_process_free`.
    Free(Task),
    /// `task:task_newtask`.
    NewTask {
        /// The new task.
        task: Task,
        /// The flags of `clone()`.
        clone_flags: u64,
    },
    /// `task:task_rename`.
    Rename {
        /// The task under its new name.
        task: Task,
        /// The old name.
        old: String,
    },
    /// `power:cpu_frequency`.
    Frequency {
        /// The CPU.
        cpu: u32,
        /// The frequency in kHz.
        khz: u32,
    },
    /// `power:cpu_idle`.
    Idle {
        /// The CPU.
        cpu: u32,
        /// The idle state; `u32::MAX` if the CPU leaves its idle state.
        state: u32,
    },
}

/// Where an event happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The CPU.
    pub cpu: u32,
    /// The time, in ns.
    pub time: u64,
    /// The thread that was running on the CPU.
    pub tid: i32,
}

/// An event that becomes an instant of its thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadMoment {
    /// The name of the event.
    pub name: String,
    /// Its fields.
    pub arguments: Vec<(String, Argument)>,
    /// The functions on the stack, outermost first.
    pub stack: Vec<String>,
}

impl FtraceEvent {
    pub(super) fn new(Place { time, tid, .. }: Place, event: KernelEvent) -> FtraceEvent {
        let wakeup = |Task { comm, tid, prio }, cpu| Wakeup {
            comm: Some(comm),
            pid: Some(tid),
            prio: Some(prio),
            target_cpu: Some(cpu),
        };
        let event = match event {
            KernelEvent::Switch { prev, state, next } => Event::SchedSwitch(SchedSwitch {
                prev_comm: Some(prev.comm),
                prev_pid: Some(prev.tid),
                prev_prio: Some(prev.prio),
                prev_state: Some(state),
                next_comm: Some(next.comm),
                next_pid: Some(next.tid),
                next_prio: Some(next.prio),
            }),
            KernelEvent::Waking(task, cpu) => Event::SchedWaking(wakeup(task, cpu)),
            KernelEvent::Wakeup(task, cpu) => Event::SchedWakeup(wakeup(task, cpu)),
            KernelEvent::WakeupNew(task, cpu) => Event::SchedWakeupNew(wakeup(task, cpu)),
            KernelEvent::Free(Task { comm, tid, prio }) => {
                Event::SchedProcessFree(ProcessFree { comm: Some(comm), pid: Some(tid), prio: Some(prio) })
            }
            KernelEvent::NewTask { task: Task { comm, tid, .. }, clone_flags } => {
                Event::TaskNewtask(NewTask { pid: Some(tid), comm: Some(comm), clone_flags: Some(clone_flags) })
            }
            KernelEvent::Rename { task: Task { comm, tid, .. }, old } => {
                Event::TaskRename(TaskRename { pid: Some(tid), oldcomm: Some(old), newcomm: Some(comm) })
            }
            KernelEvent::Frequency { cpu, khz } => {
                Event::CpuFrequency(CpuState { state: Some(khz), cpu_id: Some(cpu) })
            }
            KernelEvent::Idle { cpu, state } => Event::CpuIdle(CpuState { state: Some(state), cpu_id: Some(cpu) }),
        };
        FtraceEvent { timestamp: Some(time), pid: Some(tid.cast_unsigned()), event: Some(event) }
    }
}
