//! A lock that every fork of this process takes first. A thread takes the fork lock before it takes other locks, so the
//! process cannot fork while those locks are held. Without the fork lock, a child could find them locked for ever: the
//! thread that would release them does not exist in the child.

use std::{cell::UnsafeCell, marker::PhantomData, sync::Once};

struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the mutex is only used by functions that are made for several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: the mutex is initialised, is never moved, and lives as long as the process.
    unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: as above. This thread has locked the mutex. In a forked child, this thread is the copy of the thread that
    // locked the mutex.
    unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
}

/// Proves that this thread holds the fork lock. Dropping the value releases the lock.
pub struct HeldForkLock(PhantomData<*const ()>);

/// Makes forks take the fork lock. A fork that has begun before does not take it, so this is called before other threads
/// may fork.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    // SAFETY: the functions take no arguments and exist as long as the process.
    WATCHED.call_once(|| unsafe {
        let (lock, unlock): (unsafe extern "C" fn(), unsafe extern "C" fn()) = (lock, unlock);
        libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock));
    });
}

/// Waits until no other thread holds the fork lock, and locks it. A thread that holds the lock must not fork. It must
/// not wait for anything that a forking thread may hold, such as the GIL.
pub fn hold() -> HeldForkLock {
    watch_forks();
    lock();
    HeldForkLock(PhantomData)
}

impl Drop for HeldForkLock {
    fn drop(&mut self) {
        unlock();
    }
}
