//! Counts the memory that a thread takes, for tests that limit the memory of a call.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// The bytes that this thread has allocated and not freed.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    /// The largest value of `TAKEN` so far.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // At the end of a thread, the counters no longer exist.
    let _ = TAKEN.try_with(|taken| {
        taken.set(taken.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(taken.get())));
    });
}

/// The system's allocator, which also counts.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls `body`. Returns its result, the peak memory of this thread during the call, and what it still takes after the
/// call, both in bytes.
pub fn of<T>(body: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = TAKEN.get();
    PEAK.set(before);
    let answer = body();
    let over = |bytes: isize| usize::try_from(bytes - before).unwrap_or(0);
    (answer, over(PEAK.get()), over(TAKEN.get()))
}
