//! What reading an event asks of the run that it came from: names of kernel addresses and of tasks, and the offset
//! between its clock and the wall.

use std::sync::{
    Mutex, PoisonError, TryLockError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use super::Tasks;
use crate::{sys::procfs, tracefs::Kernel};

/// The run's knowledge, shared by all its events.
pub struct Context {
    /// Names of kernel addresses.
    pub kernel: Box<dyn Kernel + Send + Sync>,
    /// Add to an event's time to get nanoseconds since the Unix epoch.
    realtime_offset: AtomicI64,
    tasks: Mutex<Tasks>,
}

impl Context {
    /// The knowledge of a run on this machine.
    pub fn new(kernel: Box<dyn Kernel + Send + Sync>, realtime_offset: i64) -> Self {
        Self { kernel, realtime_offset: realtime_offset.into(), tasks: Mutex::default() }
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

    /// The name that a thread had at `time`. A thread that nobody has named yet is looked up in procfs.
    pub fn comm(&self, tid: i32, time: u64) -> Option<Vec<u8>> {
        // In a child that a script forked, another thread of the parent may hold the lock for ever.
        let mut tasks = match self.tasks.try_lock() {
            Ok(tasks) => tasks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return procfs::comm(u32::try_from(tid).ok()?),
        };
        if tasks.name(tid, time).is_none()
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
        (time as i64).wrapping_add(self.realtime_offset.load(Relaxed))
    }

    /// The event time of a moment given in nanoseconds since the Unix epoch.
    pub fn time_of_realtime(&self, realtime: i64) -> u64 {
        realtime.wrapping_sub(self.realtime_offset.load(Relaxed)) as u64
    }
}
