//! What reading an event asks of the run that it came from: names of addresses and of tasks, and the offset
//! between its clock and the wall.

use std::sync::{
    LazyLock, Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use super::{Endings, Sides, Tasks, callchain::KernelFrames};
use crate::{
    symbol::{Options, Recorded, Symbolizer},
    sys::procfs,
    tracefs::Kernel,
    unwind::Unwinder,
};

/// Bytes that the unwind information of files may take.
const UNWIND_CACHE: usize = 64 << 20;

/// The most frames of a call chain where nobody says otherwise (PERF_MAX_STACK_DEPTH).
const MAX_STACK: usize = 127;

/// The run's knowledge, shared by all its events.
pub struct Context {
    /// Names of kernel addresses.
    pub kernel: Box<dyn Kernel + Send + Sync>,
    /// Add to an event's time to get nanoseconds since the Unix epoch.
    realtime_offset: AtomicI64,
    /// What it is where that is found out only when it is asked for.
    found_offset: Option<LazyLock<i64, Box<dyn FnOnce() -> i64 + Send>>>,
    /// How far a recording's run is, in its clock; 0 of events that happen now.
    come_to: AtomicU64,
    tasks: Mutex<Tasks>,
    kernel_frames: Mutex<KernelFrames>,
    symbols: Mutex<Symbolizer>,
    unwinder: Mutex<Unwinder>,
    processes: Told,
    max_stack: usize,
    sides: Sides,
    endings: Endings,
}

/// Whether a run hears of what processes map, and tells their symbols.
#[derive(Clone, Debug, Default)]
pub enum Processes {
    /// They are read from procfs when an address is asked for, and forgotten when they execute something else or exit.
    #[default]
    Ignored,
    /// It does, from the beginning on.
    Followed,
    /// It does, and of nothing else: the processes of a recording are not those of this machine.
    Recorded(Recorded),
}

/// What a run is told of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    All,
    /// And nothing else can be found out of them.
    AllThereIs,
}

impl Context {
    /// The knowledge of a run on this machine.
    pub fn new(kernel: Box<dyn Kernel + Send + Sync>, realtime_offset: i64) -> Self {
        Self {
            kernel,
            realtime_offset: realtime_offset.into(),
            found_offset: None,
            come_to: 0.into(),
            tasks: Mutex::default(),
            kernel_frames: Mutex::default(),
            symbols: Mutex::new(Symbolizer::new(Options::default())),
            unwinder: Mutex::new(Unwinder::new(UNWIND_CACHE)),
            processes: Told::Nothing,
            max_stack: procfs::perf_event_max_stack().and_then(|max| max.try_into().ok()).unwrap_or(MAX_STACK),
            sides: Sides::Both,
            endings: Endings::default(),
        }
    }

    /// Finds the offset between the events' clock and the wall out when it is first asked for, which takes a while.
    pub fn with_offset_found_by(mut self, find: impl FnOnce() -> i64 + Send + 'static) -> Self {
        self.found_offset = Some(LazyLock::new(Box::new(find)));
        self
    }

    fn offset(&self) -> i64 {
        self.found_offset.as_ref().map_or_else(|| self.realtime_offset.load(Relaxed), |found| **found)
    }

    /// Looks symbols of processes up like this instead of as by default.
    pub fn with_symbol_options(mut self, options: Options, processes: Processes) -> Self {
        let symbolizer = Symbolizer::new(options);
        (self.symbols, self.processes) = match processes {
            Processes::Ignored => (Mutex::new(symbolizer), Told::Nothing),
            Processes::Followed => (Mutex::new(symbolizer), Told::All),
            Processes::Recorded(recorded) => (Mutex::new(symbolizer.recorded(recorded)), Told::AllThereIs),
        };
        self
    }

    /// Tells the frames of these sides alone, of call chains that may have more.
    pub fn with_sides(self, sides: Sides) -> Self {
        Self { sides, ..self }
    }

    pub(super) fn sides(&self) -> Sides {
        self.sides
    }

    /// The most frames of call chains for which nothing else was asked: `kernel.perf_event_max_stack`, as of now.
    pub(super) fn max_stack(&self) -> usize {
        self.max_stack
    }

    /// How the stacks that were unwound ended.
    pub fn endings(&self) -> &Endings {
        &self.endings
    }

    /// Works on the unwind information of files; as [`Context::with_symbols`], which may be called around it.
    pub fn with_unwinder<R>(&self, work: impl FnOnce(&mut Unwinder) -> R) -> R {
        work(&mut self.unwinder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what all processes have mapped, if they are followed, so that the addresses of one that exits before it is
    /// asked for have names too.
    pub fn find_mappings(&self) {
        self.with_followed(|symbols| {
            for pid in procfs::processes() {
                symbols.processes().read(pid);
            }
        });
    }

    /// Tells the symbols of what processes do, if they are followed.
    pub fn with_followed(&self, work: impl FnOnce(&mut Symbolizer)) {
        if self.processes != Told::Nothing {
            self.with_symbols(work);
        }
    }

    /// A process executes something else, or has exited: tells the symbols of that, if they are followed. What was read
    /// of it otherwise holds no longer.
    pub fn image_ended(&self, pid: u32, tell: impl FnOnce(&mut Symbolizer)) {
        match self.processes {
            Told::Nothing => self.with_symbols(|symbols| symbols.forget(pid)),
            Told::All | Told::AllThereIs => self.with_symbols(tell),
        }
    }

    /// Works on the symbols of processes. Only while the interpreter's lock is held, or before events flow, so that nobody ever
    /// waits for another thread, which a child that a script forked would not have.
    pub fn with_symbols<R>(&self, work: impl FnOnce(&mut Symbolizer) -> R) -> R {
        // As with the names of tasks.
        work(&mut self.symbols.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frames of the kernel that were met; as [`Context::with_symbols`], which may be called while this is held.
    pub(super) fn kernel_frames(&self) -> MutexGuard<'_, KernelFrames> {
        self.kernel_frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clocks were compared again: they drift apart, and the wall clock is set.
    pub fn set_realtime_offset(&self, offset: i64) {
        self.realtime_offset.store(offset, Relaxed);
    }

    /// Works on the task names.
    pub fn with_tasks<R>(&self, work: impl FnOnce(&mut Tasks) -> R) -> R {
        // A panic elsewhere leaves the names at worst incomplete, so a poisoned lock is no reason to stop.
        work(&mut self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The name that a thread had at `time`. A thread that nobody has named yet is looked up in
    /// procfs, unless the run is a recording's.
    pub fn comm(&self, tid: i32, time: u64) -> Option<Vec<u8>> {
        // In a child that a script forked, another thread of the parent may hold the lock for ever.
        let mut tasks = match self.tasks.try_lock() {
            Ok(tasks) => tasks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.processes == Told::AllThereIs => return None,
            Err(TryLockError::WouldBlock) => return procfs::comm(u32::try_from(tid).ok()?),
        };
        if self.processes != Told::AllThereIs
            && tasks.name(tid, time).is_none()
            && let Ok(pid) = u32::try_from(tid)
            && let Some(comm) = procfs::comm(pid)
        {
            tasks.found(tid, &comm);
        }
        tasks.name(tid, time).map(<[u8]>::to_vec)
    }

    /// Notes the names of all tasks there are, so that one that exits before it is asked for has a name too.
    pub fn find_tasks(&self) {
        for tid in procfs::all_tasks() {
            if let Some(comm) = procfs::comm(tid) {
                self.with_tasks(|tasks| tasks.found(tid as i32, &comm));
            }
        }
    }

    /// Nanoseconds since the Unix epoch.
    pub fn realtime(&self, time: u64) -> i64 {
        (time as i64).wrapping_add(self.offset())
    }

    /// Whether the events are those of a recording, whose processes are not this machine's.
    pub fn is_recording(&self) -> bool {
        self.processes == Told::AllThereIs
    }

    /// A recording's run has come to this time.
    pub fn come_to(&self, time: u64) {
        self.come_to.store(time, Relaxed);
    }

    /// The time of day that the run has come to, in nanoseconds since the Unix epoch; `None` of events that happen now.
    pub fn reached(&self) -> Option<i64> {
        let time = self.come_to.load(Relaxed);
        (time != 0).then(|| self.realtime(time))
    }

    /// The event time of a moment given in nanoseconds since the Unix epoch.
    pub fn time_of_realtime(&self, realtime: i64) -> u64 {
        realtime.wrapping_sub(self.offset()) as u64
    }
}
