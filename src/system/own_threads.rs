//! Starts threads, and lists those that perf-prof has started. In a process that belongs to another program, only these
//! threads are perf-prof's.
//!
//! The thread ids are in atomic words without a lock. If another thread held a lock at the moment of a fork, the lock
//! would stay locked in the child for ever.

use std::{
    io,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread::{self, JoinHandle, Scope, ScopedJoinHandle},
};

use super::blocked_signals::BlockedSignals;

/// The maximum number of running threads in the list.
const MOST: usize = 4096;

/// The number of ended threads that stay in the list, because their last samples are read after the threads have ended.
const LAST: usize = 16;

/// The ids of running threads; 0 in free entries.
static RUNNING: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// The number of entries of `RUNNING` that have been used. All later entries are 0.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The ids of the threads that ended last; 0 in free entries.
static ENDED: [AtomicU32; LAST] = [const { AtomicU32::new(0) }; LAST];
/// The number of threads that have ended.
static ENDS: AtomicUsize = AtomicUsize::new(0);
/// The number of changes of the list.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Returns the id of the calling thread.
pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// Starts one of perf-prof's threads. Signals never interrupt it.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    let _blocked = BlockedSignals::all().map_err(|error| error.source)?;
    thread::Builder::new().name(name.to_owned()).spawn(|| own(body))
}

/// Starts one of perf-prof's threads, which ends within `scope`. Signals never interrupt it.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = BlockedSignals::all().map_err(|error| error.source)?;
    thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || own(body))
}

fn own<T>(body: impl FnOnce() -> T) -> T {
    let _own = OwnThread::enter();
    body()
}

/// While this value exists, the thread that created it is one of perf-prof's threads.
struct OwnThread(u32);

impl OwnThread {
    /// Adds the calling thread to the list.
    fn enter() -> OwnThread {
        let tid = tid();
        // An ended thread in the list may have had the id of this thread. The entry of the ended thread is cleared.
        ENDED.iter().for_each(|ended| _ = replace(ended, tid, 0));
        if let Some(place) = RUNNING.iter().position(|running| replace(running, 0, tid)) {
            USED.fetch_max(place + 1, SeqCst);
        }
        CHANGES.fetch_add(1, SeqCst);
        OwnThread(tid)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        // The id is added to `ENDED` before it is removed from `RUNNING`, so it is always in the list.
        ENDED[ENDS.fetch_add(1, SeqCst) % LAST].store(self.0, SeqCst);
        running().any(|running| replace(running, self.0, 0));
        CHANGES.fetch_add(1, SeqCst);
    }
}

/// Replaces the value `before` by `after`. Returns whether the word contained `before`.
fn replace(word: &AtomicU32, before: u32, after: u32) -> bool {
    word.compare_exchange(before, after, SeqCst, SeqCst).is_ok()
}

fn running() -> impl Iterator<Item = &'static AtomicU32> {
    RUNNING.iter().take(USED.load(SeqCst))
}

/// Returns a number that grows with each change of [`list`].
pub fn changes() -> u64 {
    CHANGES.load(SeqCst)
}

/// Returns the ids of all threads in the list, sorted.
pub fn list() -> Vec<u32> {
    let mut all: Vec<u32> = running().chain(&ENDED).map(|tid| tid.load(SeqCst)).filter(|&tid| tid != 0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use super::*;
    use crate::mutex::Mutex;

    /// Held by each test, because the list would also contain the threads of other tests.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_thread_is_listed_until_others_have_ended_after_it() {
        let _alone = ALONE.lock();
        let before = changes();
        let own = OwnThread::enter();
        assert!(list().contains(&own.0) && changes() > before);
        let tid = own.0;
        drop(own);
        assert!(list().contains(&tid));
        (0..LAST as u32).for_each(|number| drop(OwnThread(u32::MAX - number)));
        assert!(!list().contains(&tid));
    }

    #[test]
    fn a_forked_child_notes_threads_whatever_others_did_at_the_fork() {
        let _alone = ALONE.lock();
        let ends = AtomicBool::new(false);
        let children_that_hang = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ends.load(SeqCst) {
                        drop(OwnThread::enter());
                    }
                });
            }
            let hangs = |_: &i32| {
                // SAFETY: the child takes no lock, and ends at once, or by its alarm.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(5);
                        drop(OwnThread::enter());
                        libc::_exit(0);
                    }
                    let mut status = 0;
                    libc::waitpid(child, &mut status, 0);
                    status != 0
                }
            };
            let found = (0..300).find(hangs);
            ends.store(true, SeqCst);
            found
        });
        assert_eq!(children_that_hang, None);
    }
}
