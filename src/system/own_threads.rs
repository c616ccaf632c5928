//! The threads that perf-prof starts. In a process that belongs to another program, only these threads are perf-prof's.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// The number of ended threads that are still listed, because their last samples are read after their end.
const ENDED: usize = 16;

/// The ids of the threads.
struct Threads {
    running: Vec<u32>,
    /// The threads that ended last, oldest first.
    ended: VecDeque<u32>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { running: Vec::new(), ended: VecDeque::new() });
/// Grows with each change of `THREADS`.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// While this value exists, the thread that created it is one of perf-prof's threads.
#[derive(Debug)]
pub struct OwnThread(u32);

impl OwnThread {
    /// Notes that the calling thread belongs to perf-prof.
    pub fn enter() -> OwnThread {
        let tid = rustix::thread::gettid().as_raw_pid() as u32;
        change(|threads| {
            threads.ended.retain(|&ended| ended != tid);
            threads.running.push(tid);
        });
        OwnThread(tid)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        change(|threads| {
            threads.running.retain(|&tid| tid != self.0);
            threads.ended.push_back(self.0);
            if threads.ended.len() > ENDED {
                threads.ended.pop_front();
            }
        });
    }
}

fn change(work: impl FnOnce(&mut Threads)) {
    work(&mut THREADS.lock().unwrap_or_else(PoisonError::into_inner));
    CHANGES.fetch_add(1, SeqCst);
}

/// Returns a number that grows with each change of [`list`].
pub fn changes() -> u64 {
    CHANGES.load(SeqCst)
}

/// Returns the ids of the threads, sorted.
pub fn list() -> Vec<u32> {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<u32> = threads.running.iter().chain(&threads.ended).copied().collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_listed_until_others_have_ended_after_it() {
        let before = changes();
        let own = OwnThread::enter();
        assert!(list().contains(&own.0) && changes() > before);
        let tid = own.0;
        drop(own);
        assert!(list().contains(&tid));
        (0..ENDED as u32).for_each(|number| drop(OwnThread(u32::MAX - number)));
        assert!(!list().contains(&tid));
    }
}
