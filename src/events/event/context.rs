//! The context of a run's events: the names of addresses and tasks, and the offset between the events' clock and the
//! wall clock.

use std::{
    any::Any,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use perf_prof_format::{abi::RegisterSet, tracefs::Kernel};
use perf_prof_symbols::{
    symbol::{Options, RecordedBinaries, Slot},
    unwind::{Arch, Unwinder},
};
use perf_prof_system::{block, budget::Budget, cgroup, procfs};

use super::{
    Cgroups, Memberships, RunInterpreters, Sides, SpansOf, StackEndings, Symbolizer, Targets, Tasks,
    callchain::KernelFrames, perf_frame::PerfKernelFrames,
};

/// The maximum memory for the unwind information of files, in bytes.
const UNWIND_CACHE: usize = 64 << 20;

/// The maximum number of frames in a call chain if the kernel's limit cannot be read. It is the kernel's default,
/// PERF_MAX_STACK_DEPTH.
const MAX_STACK: usize = 127;

/// The maximum number of attempts to lock a table, and the pause between two attempts. If all of them fail, the caller
/// goes on without the table.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_micros(100);

/// The data that is needed to interpret the events of a run. All events of the run share one context.
pub struct Context {
    /// The names of kernel addresses.
    pub kernel: Box<dyn Kernel + Send + Sync>,
    /// The offset between the events' clock and the wall clock, in nanoseconds. The time of an event plus this offset
    /// is the time since the Unix epoch.
    realtime_offset: AtomicI64,
    /// If set, this offset is used instead of `realtime_offset`. It is determined when it is first needed.
    lazy_offset: Option<LazyLock<FoundOffset, FindOffset>>,
    /// The time up to which a recording has been read, in nanoseconds of the recording's clock. 0 for live events.
    reached_time: AtomicU64,
    tasks: Mutex<Tasks>,
    /// The number of times that `tasks` may have changed.
    task_changes: AtomicU64,
    /// The number of changes of processes and their mappings.
    symbol_changes: AtomicU64,
    cgroups: Mutex<Cgroups>,
    /// The tasks that the user selected, in a run in which the events of all tasks are delivered. `None` if all tasks
    /// are selected.
    targets: Option<Mutex<Targets>>,
    spans_of: SpansOf,
    /// The process id of perf-prof itself, whose spans are not delivered.
    left_out: Option<i32>,
    kernel_frames: Mutex<KernelFrames>,
    perf_kernel_frames: Mutex<PerfKernelFrames>,
    symbols: Mutex<Symbolizer>,
    /// The processes with an interpreter. `None` if no event has frames of their functions.
    pub(super) interpreters: Mutex<Option<RunInterpreters>>,
    unwinder: Mutex<Unwinder>,
    /// The architecture of the machine on which the events happened, as `uname -m` prints it.
    machine: Option<String>,
    /// The registers of this machine.
    registers: RegisterSet,
    processes: ProcessRecords,
    max_stack: usize,
    /// The memory budget of the run.
    budget: Budget,
    /// The number of frames after which the user wants call chains to be cut.
    frame_limit: Option<usize>,
    sides: Sides,
    endings: StackEndings,
    hardware_queues: HardwareQueues,
    /// Data of any type that the receiver of the events keeps with the run.
    pub slot: Slot<Box<dyn Any + Send + Sync>>,
}

/// A function that returns the number of hardware queues of a block device, if it is known.
type HardwareQueues = fn(u64) -> Option<usize>;

/// A function that determines the offset between the events' clock and the wall clock.
type FindOffset = Box<dyn FnOnce() -> FoundOffset + Send>;

/// The offset between the events' clock and the wall clock, as the result of a search.
#[derive(Debug)]
pub struct FoundOffset {
    /// The number to add to the events' times, in nanoseconds. `None` if it is not known.
    pub offset: Option<i64>,
    /// Called when a time of day is first shown: warns if the offset is only a guess.
    pub shown: LazyLock<(), Box<dyn FnOnce() + Send>>,
}

/// How a run learns which files processes have mapped.
#[derive(Clone, Debug, Default)]
pub enum Processes {
    /// Mappings are read from procfs when an address is resolved. When a process executes another program or exits, its
    /// mappings are forgotten.
    #[default]
    Ignored,
    /// Mappings come from the side-band records. Mappings that the records did not report are read from procfs.
    Followed,
    /// Mappings come only from the side-band records, because the processes of a recording do not run on this machine.
    Recorded(RecordedBinaries),
}

/// How a run uses the side-band records about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessRecords {
    Unused,
    Live,
    /// The records are the only source; procfs is not read.
    Recording,
}

impl Context {
    /// Creates the context of a live run on this machine.
    pub fn new(kernel: Box<dyn Kernel + Send + Sync>, realtime_offset: i64) -> Self {
        Self {
            kernel,
            realtime_offset: realtime_offset.into(),
            lazy_offset: None,
            reached_time: 0.into(),
            tasks: Mutex::default(),
            task_changes: 0.into(),
            symbol_changes: 0.into(),
            cgroups: Mutex::default(),
            targets: None,
            spans_of: SpansOf::default(),
            left_out: None,
            kernel_frames: Mutex::default(),
            perf_kernel_frames: Mutex::default(),
            symbols: Mutex::new(Symbolizer::deriving(Options::default())),
            interpreters: Mutex::default(),
            unwinder: Mutex::new(Unwinder::new(UNWIND_CACHE)),
            machine: None,
            registers: RegisterSet::native(),
            processes: ProcessRecords::Unused,
            max_stack: procfs::perf_event_max_stack().and_then(|max| max.try_into().ok()).unwrap_or(MAX_STACK),
            budget: Budget::unlimited(),
            frame_limit: None,
            sides: Sides::Both,
            endings: StackEndings::default(),
            hardware_queues: block::hardware_queues,
            slot: Slot::default(),
        }
    }

    /// Sets the function that returns the number of hardware queues of a block device.
    #[cfg(test)]
    pub fn with_hardware_queues(self, hardware_queues: HardwareQueues) -> Self {
        Self { hardware_queues, ..self }
    }

    /// Returns whether a block device is known to have only one hardware queue. `dev` is its number, as events have it. The
    /// devices of a recording are not those of this machine.
    pub fn has_one_hardware_queue(&self, dev: u64) -> bool {
        !self.is_recording() && (self.hardware_queues)(dev) == Some(1)
    }

    /// Sets the function that determines the offset between the events' clock and the wall clock. `find` is called when the
    /// offset is first needed, because it takes a while.
    pub fn with_offset_found_by(mut self, find: impl FnOnce() -> FoundOffset + Send + 'static) -> Self {
        self.lazy_offset = Some(LazyLock::new(Box::new(find)));
        self
    }

    #[inline]
    fn offset(&self) -> Option<i64> {
        let Some(found) = &self.lazy_offset else { return Some(self.realtime_offset.load(Relaxed)) };
        LazyLock::force(&found.shown);
        found.offset
    }

    /// Sets how symbols of processes are looked up, and where the mappings of processes come from.
    pub fn with_symbol_options(mut self, options: Options, processes: Processes) -> Self {
        let symbolizer = Symbolizer::deriving(options);
        (self.symbols, self.processes) = match processes {
            Processes::Ignored => (Mutex::new(symbolizer), ProcessRecords::Unused),
            Processes::Followed => (Mutex::new(symbolizer), ProcessRecords::Live),
            Processes::Recorded(recorded) => {
                (Mutex::new(symbolizer.with_recorded_binaries(recorded)), ProcessRecords::Recording)
            }
        };
        self
    }

    /// Sets the number of frames after which call chains are cut, for all events.
    pub fn with_frame_limit(self, limit: Option<u16>) -> Self {
        Self { frame_limit: limit.map(usize::from), ..self }
    }

    /// Sets the memory budget of the run. Without this call, there is no limit.
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the memory budget of the run. Tables and open spans take their memory from it.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Sets the tasks that the user selected, and whose spans are delivered. Without this call, all tasks are selected.
    pub fn with_targets(self, targets: Option<Targets>, spans_of: SpansOf) -> Self {
        Self { targets: targets.map(Mutex::new), spans_of, ..self }
    }

    /// Sets the architecture of the machine on which the events happened, which may be another machine than this one.
    /// `name` is the architecture as `uname -m` prints it. The names of registers and the rules of unwinding depend on
    /// it. If `name` is `None`, the architecture of this machine is assumed, as in perf (`perf_env__arch()` in
    /// `tools/perf/util/env.c`).
    pub fn with_machine(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            self.machine = Some(name.to_owned());
            self.registers = RegisterSet::of_machine(name);
            self.unwinder = Mutex::new(Unwinder::for_arch(Arch::of_machine(name), UNWIND_CACHE));
        }
        self
    }

    /// Returns the architecture of the machine on which the events happened.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(std::env::consts::ARCH)
    }

    /// Returns the registers of the machine on which the events happened.
    pub fn registers(&self) -> RegisterSet {
        self.registers
    }

    /// Limits call chains to the frames that `sides` selects.
    pub fn with_sides(self, sides: Sides) -> Self {
        Self { sides, ..self }
    }

    pub(super) fn sides(&self) -> Sides {
        self.sides
    }

    /// Returns the number of frames after which the user wants call chains to be cut.
    pub(super) fn frame_limit(&self) -> Option<usize> {
        self.frame_limit
    }

    /// Returns the maximum number of frames in the call chains of events that did not request a maximum. It is the
    /// value that `kernel.perf_event_max_stack` had at the start of the run.
    pub(super) fn max_stack(&self) -> usize {
        self.max_stack
    }

    /// Returns the counters for the reasons why unwinding of stacks ended.
    pub fn endings(&self) -> &StackEndings {
        &self.endings
    }

    /// Calls `work` with the unwinder. The caller must meet the conditions of [`Context::with_symbols`]. This function
    /// may be called inside the `work` of `with_symbols`.
    pub fn with_unwinder<R>(&self, work: impl FnOnce(&mut Unwinder) -> R) -> R {
        work(&mut self.unwinder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the mappings of all processes, if the run uses the side-band records about processes. So the addresses of a
    /// process can be resolved even if the process exits before.
    pub fn find_mappings(&self) {
        self.with_followed(|symbols| {
            for pid in procfs::processes() {
                symbols.processes().read(pid);
            }
        });
    }

    /// If the run uses the side-band records about processes, calls `work` with the symbolizer, so that `work` can
    /// report a record to it.
    pub fn with_followed(&self, work: impl FnOnce(&mut Symbolizer)) {
        if self.processes != ProcessRecords::Unused {
            self.with_symbols(work);
            self.symbol_changes.fetch_add(1, Relaxed);
        }
    }

    /// Handles a process that executes another program or has exited. If the run uses the side-band records about
    /// processes, calls `tell`, which reports the change to the symbolizer. Otherwise forgets the process, because the
    /// mappings that were read from procfs are no longer valid.
    pub fn program_ended(&self, pid: u32, tell: impl FnOnce(&mut Symbolizer)) {
        match self.processes {
            ProcessRecords::Unused => self.with_symbols(|symbols| symbols.forget(pid)),
            ProcessRecords::Live | ProcessRecords::Recording => self.with_symbols(tell),
        }
        self.with_interpreters(|run| run.interpreters.ended(pid));
        self.symbol_changes.fetch_add(1, Relaxed);
    }

    /// Returns a number that changes when the mappings of a process change. As long as the number stays the same, a cached
    /// address of a process keeps its name at all later times.
    #[inline]
    pub fn symbol_changes(&self) -> u64 {
        self.symbol_changes.load(Relaxed)
    }

    /// Calls `work` with the symbols of processes. The caller must hold the interpreter's lock, or must call this
    /// function before the first event is delivered. These conditions ensure that no thread waits here for another
    /// thread. In a child that a script forked, such a wait would never end, because the child does not have the other
    /// thread.
    pub fn with_symbols<R>(&self, work: impl FnOnce(&mut Symbolizer) -> R) -> R {
        // Ignore a poisoned lock, as in `with_tasks`.
        work(&mut self.symbols.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the cached frames of the kernel. Their lock is held until the returned guard is dropped. The caller must
    /// meet the conditions of [`Context::with_symbols`], and may call `with_symbols` while it holds the guard.
    pub(super) fn kernel_frames(&self) -> MutexGuard<'_, KernelFrames> {
        self.kernel_frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the cached frames of the kernel for perf's scripts. The caller must meet the conditions of
    /// [`Context::with_symbols`].
    pub(super) fn with_perf_kernel_frames<R>(&self, work: impl FnOnce(&mut PerfKernelFrames) -> R) -> R {
        work(&mut self.perf_kernel_frames.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the offset between the events' clock and the wall clock. The offset changes because the two clocks drift
    /// apart, and because the wall clock may be set.
    pub fn set_realtime_offset(&self, offset: i64) {
        self.realtime_offset.store(offset, Relaxed);
    }

    /// Calls `work` with the task names, which it may change.
    pub fn with_tasks<R>(&self, work: impl FnOnce(&mut Tasks) -> R) -> R {
        // Ignore a poisoned lock: a panic elsewhere leaves the names incomplete at worst.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut tasks);
        // Count the change after it was made, but while the lock is held. Otherwise, the new number could be read
        // together with a name from before the change.
        self.task_changes.fetch_add(1, Relaxed);
        result
    }

    /// Returns a number that changes with each call of [`Context::with_tasks`]. As long as the number stays the same, a task
    /// keeps its name at all later times.
    #[inline]
    pub fn task_changes(&self) -> u64 {
        self.task_changes.load(Relaxed)
    }

    /// Notes that a process created a process or a thread during the run.
    pub fn forked(&self, parent: (u32, u32), child: (u32, u32), time: u64) {
        let [(ppid, ptid), (pid, tid)] = [parent, child].map(|(pid, tid)| (pid as i32, tid as i32));
        self.with_tasks(|tasks| {
            tasks.forked(ptid, tid, time);
            tasks.belongs(tid, pid);
        });
        if ppid != pid {
            self.with_interpreters(|run| run.interpreters.forked(ppid as u32, pid as u32));
        }
        // The time 0 means that the task existed before the recording: recorders write fork records for such tasks too.
        if time == 0 {
            return;
        }
        if self.with_cgroups(|cgroups| cgroups.tasks.is_some()) {
            self.cgroup_of_task(ptid);
            self.with_memberships(|tasks| tasks.forked(ptid, (pid, tid), time));
        }
        if let Some(targets) = &self.targets {
            targets.lock().unwrap_or_else(PoisonError::into_inner).forked(ppid, pid);
        }
    }

    /// Sets the process whose spans are not delivered.
    pub fn with_left_out(self, process: Option<u32>) -> Self {
        Self { left_out: process.map(|pid| pid as i32), ..self }
    }

    /// Returns whether only the spans of selected tasks are delivered, although the spans of all tasks are made.
    #[inline]
    pub fn selects_spans(&self) -> bool {
        self.targets.is_some() && self.spans_of == SpansOf::SelectedTasks
    }

    /// Returns whether the spans of all threads are delivered.
    #[inline]
    pub fn delivers_all_spans(&self) -> bool {
        !self.selects_spans() && self.left_out.is_none()
    }

    /// Returns whether the spans of this thread are delivered: the user selected the thread, and it does not belong to
    /// perf-prof.
    pub fn delivers_spans_of(&self, tid: i32) -> bool {
        (!self.selects_spans() || self.is_target(tid))
            && self.left_out.is_none_or(|left_out| tid != left_out && self.process(tid) != Some(left_out))
    }

    /// Returns whether the user selected this thread. A thread is not selected if processes are selected and its process
    /// is not known, or if cgroups are selected and its cgroup is not known.
    pub fn is_target(&self, tid: i32) -> bool {
        let Some(targets) = &self.targets else { return true };
        let mut targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.contains(tid, || self.process(tid)) && targets.has_cgroup_of(tid, self)
    }

    /// Returns the number of threads that were not selected because their cgroups were not known.
    pub fn tasks_of_unknown_cgroups(&self) -> usize {
        let targets = self.targets.as_ref().map(|targets| targets.lock().unwrap_or_else(PoisonError::into_inner));
        targets.map_or(0, |targets| targets.of_unknown_cgroups())
    }

    /// Calls `work` with the cgroups, which it may change.
    pub fn with_cgroups<R>(&self, work: impl FnOnce(&mut Cgroups) -> R) -> R {
        work(&mut self.cgroups.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `work` with the cgroups of tasks, if they are followed.
    pub fn with_memberships(&self, work: impl FnOnce(&mut Memberships)) {
        self.with_cgroups(|cgroups| cgroups.tasks.as_mut().map(work));
    }

    /// Notes that a thread is in this cgroup. Looks up the name of a new cgroup at once, because the cgroup may be removed
    /// before its name is needed.
    #[inline]
    pub fn note_cgroup(&self, cgroup: u64, pid: i32, tid: i32) {
        let is_known = self.with_cgroups(|cgroups| {
            cgroups.tasks.iter_mut().for_each(|tasks| tasks.contains(cgroup, pid, tid));
            cgroups.knows(cgroup)
        });
        if !is_known {
            self.cgroup_path(cgroup);
        }
    }

    /// Reads the names of all cgroups, so that the name of a cgroup is known even if the cgroup is removed before its name is
    /// needed.
    pub fn find_cgroups(&self) {
        let all = cgroup_paths();
        self.with_cgroups(|cgroups| all.iter().for_each(|(id, path)| cgroups.named(*id, path)));
    }

    /// Returns the path of a cgroup in its hierarchy, if it is known. If it is not known, all paths are read from the file
    /// system, unless the run reads a recording.
    pub fn cgroup_path(&self, id: u64) -> Option<Arc<[u8]>> {
        let find = || if self.is_recording() { Vec::new() } else { cgroup_paths() };
        lock_soon(&self.cgroups)?.path(id, find)
    }

    /// Returns the id of a thread's cgroup at this point of the run; 0 if it is not known. If no record has the id, it is read
    /// from procfs, unless the run reads a recording.
    pub fn cgroup_of_task(&self, tid: i32) -> u64 {
        if let Some(known) = lock_soon(&self.cgroups).and_then(|cgroups| cgroups.tasks.as_ref()?.of_task(tid)) {
            return known;
        }
        let Some(task) = u32::try_from(tid).ok().filter(|_| tid > 0 && !self.is_recording()) else { return 0 };
        let found = cgroup::of_task(task).unwrap_or(0);
        let pid = self.process(tid).unwrap_or(tid);
        self.with_memberships(|tasks| tasks.contains(found, pid, tid));
        found
    }

    /// Returns the process of a thread. If it is not known, it is read from procfs, unless the run reads a recording.
    pub fn process(&self, tid: i32) -> Option<i32> {
        let known = self.tasks_soon().and_then(|tasks| tasks.process(tid));
        known.or_else(|| {
            let is_live = tid > 0 && self.processes != ProcessRecords::Recording;
            let pid = procfs::process_of(u32::try_from(tid).ok().filter(|_| is_live)?)? as i32;
            self.with_tasks(|tasks| tasks.belongs(tid, pid));
            Some(pid)
        })
    }

    /// Returns the name that a thread had at `time`. If no name is known, it is read from procfs, unless the run reads
    /// a recording.
    #[inline]
    pub fn comm(&self, tid: i32, time: u64) -> Option<Vec<u8>> {
        self.comm_until(tid, time).map(|(comm, _)| comm)
    }

    /// Returns the name that a thread had at `time`, and the time of its next change of name that is known. The second
    /// value is `u64::MAX` if no such change is known. Returns `None` if no name is known.
    pub fn comm_until(&self, tid: i32, time: u64) -> Option<(Vec<u8>, u64)> {
        let Some(mut tasks) = self.tasks_soon() else {
            return match self.processes {
                ProcessRecords::Recording => None,
                _ => Some((procfs::comm(u32::try_from(tid).ok()?)?, u64::MAX)),
            };
        };
        if self.processes != ProcessRecords::Recording
            && tasks.name(tid, time).is_none()
            && !tasks.is_gone(tid)
            && let Ok(pid) = u32::try_from(tid)
        {
            match procfs::comm(pid) {
                Some(comm) => tasks.named_before_run(tid, &comm),
                None => tasks.note_gone(tid),
            }
        }
        Some((tasks.name(tid, time)?.to_vec(), tasks.replaced(tid, time)))
    }

    /// Returns the task names; `None` if their lock could not be taken for a short time.
    fn tasks_soon(&self) -> Option<MutexGuard<'_, Tasks>> {
        lock_soon(&self.tasks)
    }

    /// Reads the names of all tasks, and also their cgroups if the cgroups of tasks are followed. So they are known
    /// later, even if a task has exited by then.
    pub fn find_tasks(&self) {
        let are_followed = self.with_cgroups(|cgroups| cgroups.tasks.is_some());
        for pid in procfs::processes() {
            let cgroup = if are_followed { cgroup::of_task(pid) } else { None };
            for tid in procfs::tasks(pid).unwrap_or_default() {
                if let Some(cgroup) = cgroup {
                    self.with_memberships(|tasks| tasks.contained(cgroup, pid as i32, tid as i32));
                }
                if let Some(comm) = procfs::comm(tid) {
                    self.with_tasks(|tasks| {
                        tasks.named_before_run(tid as i32, &comm);
                        tasks.belongs(tid as i32, pid as i32);
                    });
                }
            }
        }
    }

    /// Converts an event's time to nanoseconds since the Unix epoch. Returns `None` if a recording does not say at what
    /// time of day it was made.
    #[inline]
    pub fn realtime(&self, time: u64) -> Option<i64> {
        self.offset().map(|offset| (time as i64).wrapping_add(offset))
    }

    /// Like [`Context::realtime`], but prints no warning about a guessed time. Used for events that are passed to another
    /// process, because no user sees the time in this process.
    pub fn realtime_unseen(&self, time: u64) -> Option<i64> {
        let found = self.lazy_offset.as_ref().map(|found| found.offset);
        let offset = found.unwrap_or_else(|| Some(self.realtime_offset.load(Relaxed)));
        offset.map(|offset| (time as i64).wrapping_add(offset))
    }

    /// Returns whether the events come from a recording. The processes of a recording do not run on this machine.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.processes == ProcessRecords::Recording
    }

    /// Notes that a recording has been read up to `time`.
    #[inline]
    pub fn note_reached(&self, time: u64) {
        self.reached_time.store(time, Relaxed);
    }

    /// Returns the time up to which the recording has been read, in nanoseconds since the Unix epoch; `None` for live
    /// events. If the recording does not say at what time of day it was made, this is the time of its own clock.
    pub fn reached(&self) -> Option<i64> {
        let time = self.reached_time.load(Relaxed);
        (time != 0).then(|| self.realtime(time).unwrap_or(time as i64))
    }

    /// Like [`Context::reached`], but prints no warning about a guessed time. Used for results that another process merges,
    /// because no user sees the time in this process.
    pub fn reached_unseen(&self) -> Option<i64> {
        let time = self.reached_time.load(Relaxed);
        (time != 0).then(|| self.realtime_unseen(time).unwrap_or(time as i64))
    }

    /// Converts nanoseconds since the Unix epoch to an event time.
    pub fn time_of_realtime(&self, realtime: i64) -> u64 {
        realtime.wrapping_sub(self.offset().unwrap_or(0)) as u64
    }
}

/// Locks a table. Returns `None` if another thread holds the lock for longer than a short wait. Usually it holds the lock for
/// microseconds. But in a child that a script forked, the lock may never be released, because the thread that holds it exists
/// only in the parent.
fn lock_soon<T>(table: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..LOCK_ATTEMPTS {
        match table.try_lock() {
            Ok(table) => return Some(table),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
    None
}

/// Returns the ids and the paths of all cgroups of this machine.
fn cgroup_paths() -> Vec<(u64, Vec<u8>)> {
    cgroup::all().into_iter().map(|(id, path)| (id, path.into_os_string().into_encoded_bytes())).collect()
}
