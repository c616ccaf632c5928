//! The target of a run, in the form that BPF programs use: tasks, CPUs and cgroups. Also perf-prof's own threads, which
//! programs leave out.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

use perf_prof_capture::{Callchain, EventRequest, Frames, OwnThreads, Owner, Target};
use perf_prof_events::{
    derive::Span,
    event::{EventType, Format, InterpreterFrameUse, SpansOf},
};
use perf_prof_format::{
    spec::CallGraph,
    tracefs::{EventFormat, StringAddress},
};
use perf_prof_in_kernel::{
    frames::IdOffsets,
    load::{FirstTasks, ProcessEvents, Refusal, SelectedTasks, TaskEvents},
    lower::{Chains, PidNamespace},
    paths::{NumberIterator, PathTypes},
    select::{EventRegisters, Own, Selection, TaskIds},
    span::SpanTasks,
    strings::KernelTypes,
};
use perf_prof_symbols::running_kernel::read_btf;
use perf_prof_system::{
    CallError,
    capability::{self, CAP_SYS_ADMIN},
    limits, lockdown, output, own_threads, procfs,
    tracefs::Tracefs,
};

use super::requests;
use crate::plan::{self, Verbosity};

/// The target of a run.
#[derive(Clone, Copy)]
pub struct KernelTarget<'a> {
    /// The plan of the events.
    pub capture: &'a plan::Capture,
    /// The events that this kernel has.
    pub tracefs: &'a Tracefs,
    /// The target.
    pub target: &'a Target,
}

/// The reason why something is not done in the kernel. The text is the end of a message, after `because`.
pub struct Reason(pub String);

impl<T: fmt::Display> From<T> for Reason {
    fn from(reason: T) -> Reason {
        Reason(reason.to_string())
    }
}

impl KernelTarget<'_> {
    /// Returns which events are selected. The selected events include perf-prof's own events. `format` is `None` if the
    /// event has no fields.
    pub fn selection(&self, format: Option<&EventFormat>, request: &EventRequest) -> Result<Selection, Reason> {
        let has_tasks = matches!(self.target, Target::Processes(_) | Target::Threads(_) | Target::Workload { .. });
        // The kernel gives the events that `names_task` recognizes to two tasks: the running task, and the task in the
        // event's fields. So the program would run twice for one event.
        let names_task = |format: &EventFormat| {
            &*format.system == "sched"
                && ["sched_wak", "sched_stat_"].iter().any(|start| format.name.starts_with(start))
        };
        if has_tasks && format.is_some_and(names_task) {
            return Err("tasks are selected, and each of its events belongs to two tasks".into());
        }
        let ids = match procfs::is_in_first_pid_namespace() {
            true => PidNamespace::First,
            false => PidNamespace::Other,
        };
        Ok(Selection {
            own: Own::NOTHING,
            tasks: match self.target {
                Target::Processes(_) | Target::Workload { .. } => Some(TaskIds::Processes),
                Target::Threads(_) => Some(TaskIds::Threads),
                Target::SystemWide { .. } | Target::UntilExit(_) | Target::Cgroups(_) => None,
            },
            cpus: request.cpus.as_ref().map(|cpus| cpus.iter().collect::<BTreeSet<u32>>()),
            cgroups: if let Target::Cgroups(folders) = self.target { folders.len() as u32 } else { 0 },
            ids,
            chains: format.and_then(|format| self.chains(format, request)),
        })
    }

    /// Returns the call chains of an event that the program stores: only those that the kernel itself can follow.
    fn chains(&self, format: &EventFormat, request: &EventRequest) -> Option<Chains> {
        let chains = self.capture.callchain;
        let of_kernel = chains.how == CallGraph::FramePointer && chains.live_python() == InterpreterFrameUse::No;
        let Callchain { kernel, user, max_stack } = request.callchain.filter(|_| of_kernel)?;
        // The samples of the tracepoints of system calls contain the registers of the process, so they have no kernel
        // frames (perf_syscall_enter() in kernel/trace/trace_syscalls.c). A program gets other registers.
        let has_kernel = &*format.system != "syscalls";
        Some(Chains {
            kernel: has_kernel && kernel == Frames::Sampled,
            user: user == Frames::Sampled,
            most: max_stack.map_or_else(most_frames, |most| most.min(most_frames())),
        })
    }

    /// Returns how a program recognizes perf-prof's own events of this format. The program leaves these events out.
    pub fn own(&self, format: &EventFormat, request: &EventRequest) -> Result<Own, Reason> {
        let own = std::process::id();
        let nothing = Own { owner: request.owner, ..Own::NOTHING };
        match (requests::own_threads(self.capture), self.target) {
            (OwnThreads::Included, _) => Ok(nothing),
            (OwnThreads::StartedLeftOut, Target::Processes(pids)) if !pids.contains(&own) => Ok(nothing),
            (OwnThreads::StartedLeftOut, Target::Workload { .. }) => Ok(nothing),
            (OwnThreads::StartedLeftOut, _) => Err("some threads of this program are left out".into()),
            (OwnThreads::LeftOut, _) => {
                let (threads, registers) = match request.owner {
                    Owner::Field(_) => (all_own_threads(), None),
                    Owner::Task => (Vec::new(), event_registers(format)),
                    Owner::NoTask => (Vec::new(), None),
                };
                Ok(Own { process: Some(own), threads, owner: request.owner, registers })
            }
        }
    }

    /// Returns the tasks whose spans are added up. A source may need events of other tasks for these spans.
    pub fn span_tasks(&self, span: &Span) -> Result<SpanTasks, Reason> {
        if !span.spec().is_source() {
            return Ok(SpanTasks::ALL);
        }
        let own = std::process::id();
        let is_left_out = requests::own_threads(self.capture) == OwnThreads::LeftOut;
        Ok(SpanTasks {
            own: is_left_out.then_some(own),
            own_threads: if is_left_out { all_own_threads() } else { Vec::new() },
            are_selected: self.selects_spans()?,
        })
    }

    /// Returns whether the events of all tasks are needed for the spans of the selected tasks.
    fn selects_spans(&self) -> Result<bool, Reason> {
        match (&self.capture.selected_tasks, self.capture.spans_of) {
            (None, _) | (_, SpansOf::AllTasks) => Ok(false),
            (Some(plan::Target::Cgroups { .. }), _) => Err("the cgroups of spans are known only in perf-prof".into()),
            (Some(_), SpansOf::SelectedTasks) => Ok(true),
        }
    }

    /// Selects the tasks of the target.
    pub fn selected_tasks(&self) -> Result<SelectedTasks, Refusal> {
        let mut selected = SelectedTasks::default();
        let first = match self.target {
            Target::UntilExit(tasks) if matches!(self.selects_spans(), Ok(true)) => match &**tasks {
                Target::Processes(pids) => FirstTasks::These(pids.clone()),
                Target::Threads(tids) => FirstTasks::Threads(tids.clone()),
                Target::Workload { pid } => FirstTasks::Command(*pid),
                _ => return Ok(selected),
            },
            Target::SystemWide { .. } | Target::UntilExit(_) => return Ok(selected),
            Target::Cgroups(folders) => {
                selected.select_cgroups(folders)?;
                return Ok(selected);
            }
            Target::Processes(pids) => FirstTasks::These(pids.clone()),
            Target::Threads(tids) => FirstTasks::Threads(tids.clone()),
            Target::Workload { pid } => FirstTasks::Command(*pid),
        };
        let [fork, free] = ["sched_process_fork", "sched_process_free"].map(|name| self.format("sched", name));
        let (fork, free, rename) = (fork?, free?, self.format("task", "task_rename")?);
        selected.select_tasks(&first, TaskEvents { fork: &fork, free: &free, rename: &rename })?;
        if let (FirstTasks::These(processes), Target::UntilExit(_)) = (&first, self.target) {
            // Spans are selected by their threads, so add the threads that exist now. The programs add the threads that
            // start later.
            selected.also_select(&threads_of(processes))?;
        }
        Ok(selected)
    }

    /// Starts the programs that note when each process got its mappings.
    pub fn follow_mappings(&self, selected: &mut SelectedTasks) -> Result<(), Refusal> {
        let names = ["sched_process_fork", "sched_process_free", "sched_process_exec"];
        let [fork, free, exec] = names.map(|name| self.format("sched", name));
        selected.follow_mappings(ProcessEvents { fork: &fork?, free: &free?, exec: &exec? })
    }

    fn format(&self, system: &str, name: &str) -> Result<EventFormat, Refusal> {
        let text = self.tracefs.format(system, name).map_err(|error| Refusal::Tracefs(error.to_string()))?;
        EventFormat::parse(system, &text).map_err(|error| Refusal::Tracefs(error.to_string()))
    }
}

/// Returns the layout of the kernel's structures from which paths are made. Returns `None` if no event has paths, or if
/// programs may not read the kernel's memory.
pub fn path_types<'a>(mut formats: impl Iterator<Item = &'a Arc<EventFormat>>) -> Option<PathTypes> {
    let has_paths =
        |format: &Arc<EventFormat>| format.strings().iter().any(|string| string.address == StringAddress::OfTask);
    let are_known = formats.any(has_paths) && !lockdown::hides_kernel_memory();
    // The types never change, and reading them is a noticeable part of a run's start.
    static TYPES: OnceLock<Option<PathTypes>> = OnceLock::new();
    are_known.then(|| *TYPES.get_or_init(|| PathTypes::of(&read_btf(PathTypes::needs))))?
}

/// Returns where the kernel has the ids of tasks in PID namespaces. `None` if programs cannot know it.
pub fn id_offsets() -> Option<IdOffsets> {
    if lockdown::hides_kernel_memory() { None } else { frame_types().1 }
}

/// Returns how programs recognize events of this format in interrupts. System calls are never in interrupts.
pub fn event_registers(format: &EventFormat) -> Option<EventRegisters> {
    static REGISTERS: OnceLock<Option<EventRegisters>> = OnceLock::new();
    let is_of_calls = ["syscalls", "raw_syscalls"].contains(&&*format.system);
    let may_be_known = !is_of_calls && !lockdown::hides_kernel_memory();
    may_be_known.then(|| *REGISTERS.get_or_init(|| EventRegisters::of(&read_btf(EventRegisters::needs))))?
}

/// Returns the kernel's types that programs need for frames of interpreters. The types never change, and reading them takes
/// a while.
fn frame_types() -> (Option<NumberIterator>, Option<IdOffsets>) {
    static TYPES: OnceLock<(Option<NumberIterator>, Option<IdOffsets>)> = OnceLock::new();
    *TYPES.get_or_init(|| {
        let types = read_btf(|name| NumberIterator::needs(name) || IdOffsets::needs(name));
        (NumberIterator::of(&types), IdOffsets::of(&types))
    })
}

/// Returns the kernel's iterator for loops in BPF programs, if an event has frames of an interpreter.
pub fn iterator<'a>(mut formats: impl Iterator<Item = &'a Format>) -> Option<NumberIterator> {
    formats.any(Format::has_interpreter_frames).then(|| frame_types().0)?
}

/// Loads a program that may make paths. Tries three forms until the kernel accepts one: with the kernel's iterator; without
/// it, because some kernels cannot compile calls of kernel functions; without paths.
fn load_with_paths<T>(
    types: Option<&PathTypes>,
    mut load: impl FnMut(Option<&PathTypes>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let without_iterator = types.filter(|types| types.iterator.is_some());
    let without_iterator = without_iterator.map(|types| PathTypes { iterator: None, ..*types });
    for types in [types, without_iterator.as_ref()].into_iter().flatten() {
        match load(Some(types)) {
            Err(Refusal::Verifier(_)) => {}
            loaded => return loaded,
        }
    }
    load(None)
}

/// Loads a program that may make paths and read frames, in the best form that the kernel accepts.
pub fn load_with_types<T>(
    types: KernelTypes<'_>,
    mut load: impl FnMut(KernelTypes<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut with_iterator =
        |iterator| load_with_paths(types.paths, |paths| load(KernelTypes { paths, iterator, ..types }));
    match with_iterator(types.iterator) {
        // An older kernel cannot compile calls of kernel functions.
        Err(Refusal::Verifier(_)) if types.iterator.is_some() => with_iterator(None),
        loaded => loaded,
    }
}

/// Returns the kernel's limit for the frames of a chain.
fn most_frames() -> u16 {
    procfs::perf_event_max_stack().and_then(|most| u16::try_from(most).ok()).unwrap_or(u16::MAX)
}

/// Returns the threads of perf-prof, each once.
fn all_own_threads() -> Vec<u32> {
    let of_process = procfs::tasks(std::process::id()).unwrap_or_default();
    own_threads::list().into_iter().chain(of_process).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Returns the threads that these processes have now.
fn threads_of(processes: &[u32]) -> Vec<u32> {
    processes.iter().flat_map(|&pid| procfs::tasks(pid).unwrap_or_default()).collect()
}

/// Returns the reason why the kernel refused the programs of an event. `done` says what perf-prof does with the event
/// instead. A refusal by the verifier is a defect of perf-prof. So such a refusal is always printed, unless the kernel is
/// locked down.
pub fn refused(event: &EventType, done: &str, refusal: &Refusal, verbosity: Verbosity) -> Reason {
    let is_defect = verbosity > Verbosity::Quiet && !lockdown::hides_kernel_memory();
    if let (Refusal::Verifier(log), true) = (refusal, is_defect) {
        output::say(format_args!("{} is {done} in perf-prof: {refusal}", event.shown_name()));
        if verbosity >= Verbosity::Verbose {
            log.lines().for_each(output::say);
        }
    }
    Reason(reason(refusal))
}

fn no_rights(error: &CallError) -> String {
    format!("perf-prof may not use BPF, which needs root or CAP_BPF and CAP_PERFMON ({error})")
}

/// The calls that attach programs.
const ATTACHING: [&str; 2] = ["BPF_LINK_CREATE", "SET_BPF"];

/// Returns the reason for a refusal.
pub fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Call(error) if error.errno() == libc::EPERM => match limits::bpf_memory_limit() {
            Some(limit) if capability::has(CAP_SYS_ADMIN) => format!(
                "RLIMIT_MEMLOCK is {limit} bytes, and before Linux 5.11 the memory of BPF counts towards it; `ulimit -l unlimited` raises \
                 it ({error})"
            ),
            _ => no_rights(error),
        },
        Refusal::Call(error) if error.errno() == libc::E2BIG && ATTACHING.iter().any(|call| error.call.contains(call)) => {
            format!("too many BPF programs are attached to its tracepoint ({error})")
        }
        // In a locked-down kernel, the verifier refuses the functions that read the kernel's memory.
        Refusal::Verifier(_) if lockdown::hides_kernel_memory() => {
            "the lockdown of the kernel is \"confidentiality\" (/sys/kernel/security/lockdown), and programs may not read its memory"
                .to_owned()
        }
        refusal => refusal.to_string(),
    }
}
