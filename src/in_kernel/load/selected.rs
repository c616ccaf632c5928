//! The maps of the selected tasks and cgroups, and the programs that update the map of tasks.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
};

use perf_prof_format::{
    abi::bpf::{BPF_ANY, MapType},
    tracefs::EventFormat,
};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition},
};

use super::{Attached, Refusal, Slow, Tracepoint, load};
use crate::{
    instruction::{MapUse, Program},
    select::{NOT_KEPT_WORDS, TaskIds, fork_program, removal_program, start_program},
    table::chain::renew_program,
};

/// The maximum number of selected processes or threads.
const MOST_TASKS: u32 = 1 << 17;
/// The flags of a map whose memory is allocated at once. Otherwise the first fork of a traced task allocates 48 elements
/// (`alloc_bulk()` in `kernel/bpf/memalloc.c`). The kernel would count these allocations as events of `kmem:kmalloc` that a
/// program has missed.
const PREALLOCATED: u32 = 0;

/// The formats of the tracepoints for forks, exits and execs of tasks.
#[derive(Clone, Copy, Debug)]
pub struct TaskEvents<'a> {
    /// `sched:sched_process_fork`.
    pub fork: &'a EventFormat,
    /// `sched:sched_process_free`.
    pub free: &'a EventFormat,
    /// `task:task_rename`, which happens at an exec.
    pub rename: &'a EventFormat,
}

/// The formats of the tracepoints that show when a process gets other mappings.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEvents<'a> {
    /// `sched:sched_process_fork`.
    pub fork: &'a EventFormat,
    /// `sched:sched_process_free`.
    pub free: &'a EventFormat,
    /// `sched:sched_process_exec`.
    pub exec: &'a EventFormat,
}

/// Which tasks are selected at the start.
#[derive(Clone, Debug)]
pub enum FirstTasks {
    /// These processes, and all processes that they create.
    These(Vec<u32>),
    /// These threads only.
    Threads(Vec<u32>),
    /// A process from its next exec on, and all processes that it creates.
    Command(u32),
}

/// The selected tasks and cgroups.
#[derive(Debug, Default)]
pub struct SelectedTasks {
    tasks: Option<Map>,
    cgroups: Option<Map>,
    /// The programs that add tasks to the map.
    adders: Vec<Attached>,
    /// The programs that remove exited tasks from the map.
    removers: Vec<Attached>,
    /// When each process got its present mappings; `None` if programs do not note these times.
    since: Option<Map>,
    /// Where the programs count the tasks for which a map has no room.
    not_kept: Option<(Map, CounterPage)>,
}

impl SelectedTasks {
    /// Selects tasks: attaches the programs that update the map, and adds the first tasks.
    pub fn select_tasks(&mut self, first: &FirstTasks, events: TaskEvents<'_>) -> Result<(), Refusal> {
        let tasks = Map::new(&MapDefinition {
            name: "tasks",
            map_type: MapType::Hash,
            key_size: 4,
            value_size: 1,
            entries: MOST_TASKS,
            flags: PREALLOCATED,
            inner: None,
        })?;
        self.tasks = Some(tasks);
        self.count_not_kept()?;
        let (ids, start) = match first {
            FirstTasks::These(_) => (Some(TaskIds::Processes), None),
            FirstTasks::Threads(_) => (None, None),
            FirstTasks::Command(process) => (Some(TaskIds::Processes), Some(*process)),
        };
        if let Some(ids) = ids {
            self.removers.push(self.attached(removal_program(events.free, MapUse::Tasks)?, events.free)?);
            self.adders.push(self.attached(fork_program(events.fork, ids)?, events.fork)?);
        }
        if let Some(process) = start {
            self.adders.push(self.attached(start_program(process), events.rename)?);
        }
        let (FirstTasks::These(tasks) | FirstTasks::Threads(tasks)) = first else { return Ok(()) };
        tasks.iter().try_for_each(|&task| self.add(task))?;
        Ok(())
    }

    /// Selects further tasks.
    pub fn also_select(&self, tasks: &[u32]) -> Result<(), CallError> {
        tasks.iter().try_for_each(|&task| self.add(task))
    }

    /// Starts to note when each process gets its mappings, for call chains with frames of processes.
    pub fn follow_mappings(&mut self, events: ProcessEvents<'_>) -> Result<(), Refusal> {
        self.since = Some(Map::new(&MapDefinition {
            name: "since",
            map_type: MapType::Hash,
            key_size: 4,
            value_size: 8,
            entries: MOST_TASKS,
            flags: PREALLOCATED,
            inner: None,
        })?);
        self.count_not_kept()?;
        self.removers.push(self.attached(removal_program(events.free, MapUse::Since)?, events.free)?);
        self.adders.push(self.attached(renew_program(events.fork, Some("child_pid"))?, events.fork)?);
        self.adders.push(self.attached(renew_program(events.exec, None)?, events.exec)?);
        Ok(())
    }

    /// Creates the counters of the programs, if there are none.
    fn count_not_kept(&mut self) -> Result<(), CallError> {
        if self.not_kept.is_none() {
            self.not_kept = Some(CounterPage::new("not_kept", NOT_KEPT_WORDS)?);
        }
        Ok(())
    }

    fn attached(&self, program: Program, format: &EventFormat) -> Result<Attached, Refusal> {
        let tracepoint = Tracepoint { name: &format.name, id: format.id };
        let loaded = load(&program, tracepoint, |map| self.descriptor(map).unwrap_or(u32::MAX))?;
        Ok(Attached::new(loaded, tracepoint)?)
    }

    /// Selects the tasks in these cgroups and below them. `folders` are the folders of the cgroups. The kernel supports only
    /// cgroups of version 2 here.
    pub fn select_cgroups(&mut self, folders: &[PathBuf]) -> Result<(), Refusal> {
        let map = Map::new(&MapDefinition {
            name: "cgroups",
            map_type: MapType::CgroupArray,
            key_size: 4,
            value_size: 4,
            entries: folders.len() as u32,
            flags: 0,
            inner: None,
        })?;
        for (index, folder) in folders.iter().enumerate() {
            let opened = File::open(folder);
            let opened = opened.map_err(|error| CallError::new(format!("open {}", folder.display()), error))?;
            map.set_descriptor(index as u32, opened.as_fd())?;
        }
        self.cgroups = Some(map);
        Ok(())
    }

    /// Returns how many forks and execs the programs missed, because another BPF program was running on the CPU or a map
    /// was full. It is possible that the tasks of these events are not selected, or that their frames are those of the
    /// program that they ran before. Missed exits are not counted. They are frequent, because tasks are freed in
    /// interrupts, but do no harm: an exited task has no more events.
    pub fn missed(&self) -> u64 {
        let without_room = self.not_kept.as_ref().map_or(0, |(_, page)| page.word(0));
        self.adders.iter().map(Attached::missed).sum::<u64>() + without_room
    }

    /// Returns the file descriptor of a map; `None` if this map is not used.
    pub(super) fn descriptor(&self, map: MapUse) -> Option<u32> {
        let map = match map {
            MapUse::Tasks => self.tasks.as_ref(),
            MapUse::Cgroups => self.cgroups.as_ref(),
            MapUse::Since => self.since.as_ref(),
            MapUse::Counters => self.not_kept.as_ref().map(|(map, _)| map),
            _ => None,
        };
        map.map(|map| map.as_fd().as_raw_fd() as u32)
    }

    /// Returns the file descriptors that keep the programs attached.
    pub fn into_slow(self) -> impl Iterator<Item = Slow> {
        self.adders.into_iter().chain(self.removers).flat_map(Attached::into_slow)
    }

    fn add(&self, task: u32) -> Result<(), CallError> {
        self.tasks.as_ref().map_or(Ok(()), |tasks| tasks.set(&task.to_ne_bytes(), &[1], BPF_ANY))
    }
}
