//! Closes a forked child's copies of the descriptors of perf events, BPF maps and BPF programs. A script that forks
//! does not know these descriptors.

use std::{
    fs, process,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Descriptors above this number are not noted. Linux allows none by default (`fs.nr_open`).
const MOST: usize = 1 << 20;

/// The targets of the links in `/proc/PID/fd` for descriptors of perf events, BPF maps and BPF programs.
const KINDS: [&str; 4] =
    ["anon_inode:[perf_event]", "anon_inode:bpf-map", "anon_inode:bpf-prog", "anon_inode:bpf_link"];

/// One bit for each descriptor that was opened for a perf event or for BPF. Closing a descriptor does not clear its
/// bit, so the descriptor may be closed or reused. The words are atomic, without a lock: another thread could hold a
/// lock at the moment of a fork.
static OPENED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];
/// The number of words of `OPENED` that may contain bits. All later words are 0.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Notes a descriptor that was opened for a perf event or for BPF.
pub(super) fn note(descriptor: i32) {
    let descriptor = descriptor as usize;
    if let Some(word) = OPENED.get(descriptor / 64) {
        word.fetch_or(1 << (descriptor % 64), Relaxed);
        WORDS.fetch_max(descriptor / 64 + 1, Relaxed);
    }
}

/// Closes all noted descriptors. Must be called only in a forked child, where no other thread uses the descriptors.
pub fn close() {
    let folder = format!("/proc/{}/fd", process::id());
    for (index, word) in OPENED.iter().take(WORDS.load(Relaxed)).enumerate() {
        let mut bits = word.swap(0, Relaxed);
        while bits != 0 {
            let descriptor = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // The descriptor may have been closed and reused for another file since it was noted.
            let link = fs::read_link(format!("{folder}/{descriptor}"));
            if link.is_ok_and(|link| KINDS.iter().any(|kind| link.as_os_str() == *kind)) {
                // SAFETY: in a forked child, the thread that owns the descriptor does not exist.
                unsafe { libc::close(descriptor as i32) };
            }
        }
    }
}
