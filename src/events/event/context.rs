//! The context of a run's events: names of addresses and tasks, and the offset between the perf clock and the wall clock.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc, LazyLock, MutexGuard,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use perf_prof_format::{abi::RegisterSet, tracefs::Kernel};
use perf_prof_symbols::{
    symbol::{Options, RecordedBinaries, Slot},
    unwind::{Arch, Unwinder},
};
use perf_prof_system::{block, budget::Budget, cgroup, mutex::Mutex, procfs};

use super::{
    Cgroups, Memberships, RunInterpreters, Sides, SpansOf, StackEndings, Symbolizer, Targets, Tasks,
    callchain::KernelFrames, perf_frame::PerfKernelFrames,
};

/// The maximum memory for the unwind information of files, in bytes.
const UNWIND_CACHE: usize = 64 << 20;

/// The maximum number of frames in a call chain if `kernel.perf_event_max_stack` cannot be read: the kernel's default,
/// PERF_MAX_STACK_DEPTH.
const MAX_STACK: usize = 127;

/// How often to try to lock a table, and the pause after each attempt. If no attempt succeeds, the caller goes on without
/// the table.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_micros(100);

/// What is needed to interpret the events of a run. All events of the run share one context.
pub struct Context {
    /// The names of kernel addresses.
    pub kernel: Box<dyn Kernel + Send + Sync>,
    /// The offset between the perf clock and the wall clock: event time + offset = nanoseconds since the Unix epoch.
    realtime_offset: AtomicI64,
    /// If set, replaces `realtime_offset`. The offset is then determined at its first use.
    lazy_offset: Option<LazyLock<FoundOffset, FindOffset>>,
    /// How far a recording has been read, in nanoseconds of the recording's clock. 0 for live events.
    reached_time: AtomicU64,
    /// When a recording began, in nanoseconds of its clock; `u64::MAX` if it is not known. 0 for live events.
    recorded_since: AtomicU64,
    tasks: Mutex<Tasks>,
    /// How often `tasks` may have changed.
    task_changes: AtomicU64,
    /// How often processes or their mappings have changed.
    symbol_changes: AtomicU64,
    cgroups: Mutex<Cgroups>,
    /// The selected tasks, in a run that receives the events of all tasks. `None` if all tasks are selected.
    targets: Option<Mutex<Targets>>,
    spans_of: SpansOf,
    /// The process id of perf-prof, if its own spans are not delivered.
    left_out: Option<i32>,
    kernel_frames: Mutex<KernelFrames>,
    perf_kernel_frames: Mutex<PerfKernelFrames>,
    symbols: Mutex<Symbolizer>,
    /// The processes with an interpreter. `None` if no event records frames of an interpreter.
    pub(super) interpreters: Mutex<Option<RunInterpreters>>,
    unwinder: Mutex<Unwinder>,
    /// The architecture of the machine that was traced, as `uname -m` prints it. `None` stands for this machine.
    machine: Option<String>,
    /// The registers of the traced machine.
    registers: RegisterSet,
    processes: ProcessRecords,
    max_stack: usize,
    budget: Budget,
    /// The user's limit for the number of frames in call chains.
    frame_limit: Option<usize>,
    sides: Sides,
    endings: StackEndings,
    /// How many hardware queues each block device has, by device number. `None` if this machine has the devices.
    recorded_queues: Option<HashMap<u64, u32>>,
    /// Data of any type that the receiver of the events keeps with the run.
    pub slot: Slot<Box<dyn Any + Send + Sync>>,
}

/// Determines the offset between the perf clock and the wall clock.
type FindOffset = Box<dyn FnOnce() -> FoundOffset + Send>;

/// The offset between the perf clock and the wall clock, as it was determined.
#[derive(Debug)]
pub struct FoundOffset {
    /// What to add to the times of events, in nanoseconds. `None` if it is unknown.
    pub offset: Option<i64>,
    /// Evaluated when a time of day is shown for the first time: warns if the offset is only a guess.
    pub shown: LazyLock<(), Box<dyn FnOnce() + Send>>,
}

/// How a run learns the mappings of processes.
#[derive(Clone, Debug, Default)]
pub enum Processes {
    /// Mappings are read from procfs when an address is resolved. They are forgotten when the process calls exec or exits.
    #[default]
    Ignored,
    /// Mappings come from the side-band records. Mappings that no record reported are read from procfs.
    Followed,
    /// Mappings come only from the side-band records: the processes of a recording do not run on this machine.
    Recorded(RecordedBinaries),
}

/// Whether a run uses the side-band records about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessRecords {
    Unused,
    Live,
    /// The records are the only source: procfs is never read.
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
            recorded_since: 0.into(),
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
            recorded_queues: None,
            slot: Slot::default(),
        }
    }

    /// Notes when a recording began; `u64::MAX` if it is not known.
    pub fn note_recorded_since(&self, time: u64) {
        self.recorded_since.store(time.max(1), Relaxed);
    }

    /// Returns when the recording began; `u64::MAX` if it is not known, and `None` for live events.
    pub fn recorded_since(&self) -> Option<u64> {
        Some(self.recorded_since.load(Relaxed)).filter(|&time| time != 0)
    }

    /// Sets how many hardware queues each block device of a recording has, by device number.
    pub fn with_recorded_queues(self, queues: HashMap<u64, u32>) -> Self {
        Self { recorded_queues: Some(queues), ..self }
    }

    /// Returns whether a block device is known to have one hardware queue. `dev` is the device number in events. For a
    /// recording, only the recorded numbers of queues count: its devices are not those of this machine.
    pub fn has_one_hardware_queue(&self, dev: u64) -> bool {
        match &self.recorded_queues {
            Some(queues) => queues.get(&dev) == Some(&1),
            None => !self.is_recording() && block::hardware_queues(dev) == Some(1),
        }
    }

    /// Sets how the offset between the perf clock and the wall clock is determined. `find` takes a while, so it is called
    /// when the offset is first needed.
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

    /// Sets how symbols of processes are found, and where the mappings of processes come from.
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

    /// Sets the maximum length of call chains, for all events.
    pub fn with_frame_limit(self, limit: Option<u16>) -> Self {
        Self { frame_limit: limit.map(usize::from), ..self }
    }

    /// Sets the memory budget of the run. Without this call, there is no limit.
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the memory budget of the run, from which tables and open spans take their memory.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Sets the selected tasks, and whether the spans of other tasks are delivered too. Without this call, all tasks are
    /// selected.
    pub fn with_targets(self, targets: Option<Targets>, spans_of: SpansOf) -> Self {
        Self { targets: targets.map(Mutex::new), spans_of, ..self }
    }

    /// Sets the architecture of the machine that was traced, as `uname -m` prints it. The architecture determines the names
    /// of registers and the rules of unwinding. For `None`, it is that of this machine, as in perf (`perf_env__arch()` in
    /// `tools/perf/util/env.c`).
    pub fn with_machine(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            self.machine = Some(name.to_owned());
            self.registers = RegisterSet::of_machine(name);
            self.unwinder = Mutex::new(Unwinder::for_arch(Arch::of_machine(name), UNWIND_CACHE));
        }
        self
    }

    /// Returns the architecture of the machine that was traced.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(std::env::consts::ARCH)
    }

    /// Returns the registers of the machine that was traced.
    pub fn registers(&self) -> RegisterSet {
        self.registers
    }

    /// Limits call chains to frames of the kernel or of programs.
    pub fn with_sides(self, sides: Sides) -> Self {
        Self { sides, ..self }
    }

    pub(super) fn sides(&self) -> Sides {
        self.sides
    }

    /// Returns the user's limit for the length of call chains.
    pub(super) fn frame_limit(&self) -> Option<usize> {
        self.frame_limit
    }

    /// Returns the maximum length of call chains of events without a maximum of their own: `kernel.perf_event_max_stack` at
    /// the start of the run.
    pub(crate) fn max_stack(&self) -> usize {
        self.max_stack
    }

    /// Returns the counts of why unwinding ended.
    pub fn endings(&self) -> &StackEndings {
        &self.endings
    }

    /// Calls `work` with the unwinder. The caller must meet the conditions of [`Context::with_symbols`]. The `work` of
    /// `with_symbols` may call this function.
    pub fn with_unwinder<R>(&self, work: impl FnOnce(&mut Unwinder) -> R) -> R {
        work(&mut self.unwinder.lock())
    }

    /// Reads the mappings of all processes, if the run uses side-band records. The addresses of a process can then be
    /// resolved even after the process has exited.
    pub fn find_mappings(&self) {
        self.with_followed(|symbols| {
            for pid in procfs::processes() {
                symbols.processes().read(pid);
            }
        });
    }

    /// Calls `work` with the symbolizer, if the run uses side-band records. `work` passes a record to the symbolizer.
    pub fn with_followed(&self, work: impl FnOnce(&mut Symbolizer)) {
        if self.processes != ProcessRecords::Unused {
            self.with_symbols(work);
            self.symbol_changes.fetch_add(1, Relaxed);
        }
    }

    /// Handles a process that called exec or exited. If the run uses side-band records, calls `tell`, which reports the
    /// change to the symbolizer. Otherwise forgets the process, because its mappings in procfs have changed.
    pub fn program_ended(&self, pid: u32, tell: impl FnOnce(&mut Symbolizer)) {
        match self.processes {
            ProcessRecords::Unused => self.with_symbols(|symbols| symbols.forget(pid)),
            ProcessRecords::Live | ProcessRecords::Recording => self.with_symbols(tell),
        }
        self.symbol_changes.fetch_add(1, Relaxed);
    }

    /// Returns a number that changes whenever a mapping changes. As long as it stays the same, a resolved address of a
    /// process keeps its name.
    #[inline]
    pub fn symbol_changes(&self) -> u64 {
        self.symbol_changes.load(Relaxed)
    }

    /// Calls `work` with the symbols of processes. The caller must hold the GIL, or call this before the first event is
    /// delivered. Then no thread ever waits here for another thread. Otherwise, a child that a script forks could wait
    /// forever, because the thread that holds the lock does not exist in the child.
    pub fn with_symbols<R>(&self, work: impl FnOnce(&mut Symbolizer) -> R) -> R {
        work(&mut self.symbols.lock())
    }

    /// Locks the cached frames of the kernel. The caller must meet the conditions of [`Context::with_symbols`], and may call
    /// `with_symbols` while it holds the guard.
    pub(super) fn kernel_frames(&self) -> MutexGuard<'_, KernelFrames> {
        self.kernel_frames.lock()
    }

    /// Calls `work` with the cached kernel frames for scripts of perf. The caller must meet the conditions of
    /// [`Context::with_symbols`].
    pub(super) fn with_perf_kernel_frames<R>(&self, work: impl FnOnce(&mut PerfKernelFrames) -> R) -> R {
        work(&mut self.perf_kernel_frames.lock())
    }

    /// Updates the offset between the perf clock and the wall clock. The offset changes when the clocks drift apart, and
    /// when somebody sets the wall clock.
    pub fn set_realtime_offset(&self, offset: i64) {
        self.realtime_offset.store(offset, Relaxed);
    }

    /// Calls `work` with the names of tasks. `work` may change them.
    pub fn with_tasks<R>(&self, work: impl FnOnce(&mut Tasks) -> R) -> R {
        let mut tasks = self.tasks.lock();
        let result = work(&mut tasks);
        // Count the change while the lock is held. Otherwise a reader could see the new number together with a name from
        // before the change.
        self.task_changes.fetch_add(1, Relaxed);
        result
    }

    /// Returns a number that changes with each call of [`Context::with_tasks`]. As long as it stays the same, a task keeps
    /// its name.
    #[inline]
    pub fn task_changes(&self) -> u64 {
        self.task_changes.load(Relaxed)
    }

    /// Notes that a process created a process or a thread during the run. `parent` and `child` are each a process id and a
    /// thread id.
    pub fn forked(&self, parent: (u32, u32), child: (u32, u32), time: u64) {
        let [(ppid, ptid), (pid, tid)] = [parent, child].map(|(pid, tid)| (pid as i32, tid as i32));
        self.with_tasks(|tasks| {
            tasks.forked(ptid, tid, time);
            tasks.belongs(tid, pid);
        });
        // At the time 0, recorders write a fork record for each task that exists already.
        if time == 0 {
            return;
        }
        if self.with_cgroups(|cgroups| cgroups.tasks.is_some()) {
            self.cgroup_of_task(ptid);
            self.with_memberships(|tasks| tasks.forked(ptid, (pid, tid), time));
        }
        if let Some(targets) = &self.targets {
            targets.lock().forked(ppid, pid);
        }
    }

    /// Sets the process whose spans are not delivered: perf-prof itself.
    pub fn with_left_out(self, process: Option<u32>) -> Self {
        Self { left_out: process.map(|pid| pid as i32), ..self }
    }

    /// Returns whether spans are made of all tasks, but delivered only of the selected ones.
    #[inline]
    pub fn selects_spans(&self) -> bool {
        self.targets.is_some() && self.spans_of == SpansOf::SelectedTasks
    }

    /// Returns whether the spans of all threads are delivered.
    #[inline]
    pub fn delivers_all_spans(&self) -> bool {
        !self.selects_spans() && self.left_out.is_none()
    }

    /// Returns whether the user's selection of tasks lets spans of this thread be delivered. Returns true if spans of all
    /// tasks are delivered.
    pub fn selects_spans_of(&self, tid: i32) -> bool {
        !self.selects_spans() || self.is_target(tid)
    }

    /// Returns whether the thread belongs to perf-prof, and its spans are not delivered.
    pub fn is_left_out(&self, tid: i32) -> bool {
        self.left_out.is_some_and(|left_out| tid == left_out || self.process(tid) == Some(left_out))
    }

    /// Returns whether this thread is selected. A thread whose process is unknown is not selected if the user selected
    /// processes. A thread whose cgroup is unknown is not selected if the user selected cgroups.
    pub fn is_target(&self, tid: i32) -> bool {
        let Some(targets) = &self.targets else { return true };
        let mut targets = targets.lock();
        targets.contains(tid, || self.process(tid)) && targets.has_cgroup_of(tid, self)
    }

    /// Returns the number of threads that were not selected because their cgroup was unknown.
    pub fn tasks_of_unknown_cgroups(&self) -> usize {
        let targets = self.targets.as_ref().map(|targets| targets.lock());
        targets.map_or(0, |targets| targets.of_unknown_cgroups())
    }

    /// Calls `work` with the cgroups. `work` may change them.
    pub fn with_cgroups<R>(&self, work: impl FnOnce(&mut Cgroups) -> R) -> R {
        work(&mut self.cgroups.lock())
    }

    /// Calls `work` with the cgroups of tasks, if the run follows them.
    pub fn with_memberships(&self, work: impl FnOnce(&mut Memberships)) {
        self.with_cgroups(|cgroups| cgroups.tasks.as_mut().map(work));
    }

    /// Notes that a thread is in this cgroup. Looks up the name of a new cgroup at once, because the cgroup may be removed
    /// soon.
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

    /// Reads the names of all cgroups, so that they are known even after a cgroup is removed.
    pub fn find_cgroups(&self) {
        let all = cgroup_paths();
        self.with_cgroups(|cgroups| all.iter().for_each(|(id, path)| cgroups.named(*id, path)));
    }

    /// Returns the path of a cgroup from the root of its hierarchy; `None` if it is unknown. Reads unknown paths from the
    /// file system in a live run.
    pub fn cgroup_path(&self, id: u64) -> Option<Arc<[u8]>> {
        let find = || if self.is_recording() { Vec::new() } else { cgroup_paths() };
        lock_soon(&self.cgroups)?.path(id, find)
    }

    /// Returns the id of the cgroup in which a thread is now; 0 if the cgroup is unknown. If no record contains the id,
    /// reads it from procfs in a live run.
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

    /// Returns the process of a thread. If no record contains the process, reads it from procfs in a live run.
    pub fn process(&self, tid: i32) -> Option<i32> {
        let known = self.tasks_soon().and_then(|tasks| tasks.process(tid));
        known.or_else(|| {
            let is_live = tid > 0 && self.processes != ProcessRecords::Recording;
            let pid = procfs::process_of(u32::try_from(tid).ok().filter(|_| is_live)?)? as i32;
            self.with_tasks(|tasks| tasks.belongs(tid, pid));
            Some(pid)
        })
    }

    /// Returns the name that a thread had at `time`. If no record contains a name of the thread, reads it from procfs in a
    /// live run.
    #[inline]
    pub fn comm(&self, tid: i32, time: u64) -> Option<Vec<u8>> {
        self.comm_until(tid, time).map(|(comm, _)| comm)
    }

    /// Returns the name that a thread had at `time`, and the time of the next known change of the name; `u64::MAX` if none
    /// is known. Returns `None` if no name is known.
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

    /// Locks the names of tasks. Returns `None` if another thread holds the lock for too long (see `lock_soon`).
    fn tasks_soon(&self) -> Option<MutexGuard<'_, Tasks>> {
        lock_soon(&self.tasks)
    }

    /// Converts the time of an event to nanoseconds since the Unix epoch. Returns `None` for a recording without a time of
    /// day.
    #[inline]
    pub fn realtime(&self, time: u64) -> Option<i64> {
        self.offset().map(|offset| (time as i64).wrapping_add(offset))
    }

    /// Like [`Context::realtime`], but never warns that the offset is a guess. It is meant for events that go to another
    /// process: no user sees the time in this process.
    pub fn realtime_unseen(&self, time: u64) -> Option<i64> {
        let found = self.lazy_offset.as_ref().map(|found| found.offset);
        let offset = found.unwrap_or_else(|| Some(self.realtime_offset.load(Relaxed)));
        offset.map(|offset| (time as i64).wrapping_add(offset))
    }

    /// Returns whether the events come from a recording: the recorded processes do not run on this machine.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.processes == ProcessRecords::Recording
    }

    /// Notes that a recording has been read up to `time`.
    #[inline]
    pub fn note_reached(&self, time: u64) {
        self.reached_time.store(time, Relaxed);
    }

    /// Returns how far the recording has been read, in nanoseconds of its clock. Returns 0 for live events.
    pub fn reached_time(&self) -> u64 {
        self.reached_time.load(Relaxed)
    }

    /// Returns how far the recording has been read, in nanoseconds since the Unix epoch. If the recording has no time of
    /// day, the nanoseconds are those of its own clock. Returns `None` for live events.
    pub fn reached(&self) -> Option<i64> {
        let time = self.reached_time.load(Relaxed);
        (time != 0).then(|| self.realtime(time).unwrap_or(time as i64))
    }

    /// Like [`Context::reached`], but never warns that the offset is a guess. It is meant for results that another process
    /// merges: no user sees the time in this process.
    pub fn reached_unseen(&self) -> Option<i64> {
        let time = self.reached_time.load(Relaxed);
        (time != 0).then(|| self.realtime_unseen(time).unwrap_or(time as i64))
    }

    /// Converts nanoseconds since the Unix epoch to the time of an event.
    pub fn time_of_realtime(&self, realtime: i64) -> u64 {
        realtime.wrapping_sub(self.offset().unwrap_or(0)) as u64
    }
}

/// Locks a table. Returns `None` if another thread holds the lock for longer than a short wait. Usually the other thread
/// holds the lock for microseconds. But in a child that a script forked, the thread that holds the lock may not exist, so
/// it never releases the lock.
fn lock_soon<T>(table: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..LOCK_ATTEMPTS {
        match table.try_lock() {
            None => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
    None
}

/// Returns the ids and the paths of all cgroups of this machine.
fn cgroup_paths() -> Vec<(u64, Vec<u8>)> {
    cgroup::all().into_iter().map(|(id, path)| (id, path.into_os_string().into_encoded_bytes())).collect()
}
