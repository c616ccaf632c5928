//! The source `lock`.

use std::{sync::Barrier, thread, time::Instant};

use super::{MS, beside_own, numbers};
use crate::harness::task::{gettid, named};

const THREADS: usize = 6;

/// Threads change the mappings of their process, for which they need the lock `mmap_lock`. Prints for each thread its
/// id and the time in ns.
pub fn workload() {
    let start = Barrier::new(THREADS);
    let change = || {
        named(c"lock-truth");
        start.wait();
        let began = Instant::now();
        for _ in 0..300 {
            const SIZE: usize = 1 << 20;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
            // SAFETY: the kernel chooses where the new memory is, and nothing uses it.
            unsafe {
                let memory = libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                libc::munmap(memory, SIZE);
            }
        }
        let took = began.elapsed().as_nanos();
        println!("\nown {} {took}", gettid());
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(change)));
}

#[test]
fn threads_wait_for_the_lock_of_their_mappings() {
    let (lines, own) = beside_own(
        "
import collections, perf_prof
KINDS = ('spinlock', 'mutex', 'semaphore', 'rt-mutex')
KINDS += tuple(kind + ':' + side for kind in ('rwsem', 'rwlock', 'pcpu-sem', 'rwlock-rt') for side in 'RW')
waits = collections.defaultdict(collections.Counter)  # address -> tid -> ns

def lock(e):
    assert e.kind in KINDS and e.addr == e.begin.lock_addr == e.end.lock_addr != 0, e
    assert e.errno == '' and e._tid == e.begin._tid == e.end._tid, e
    assert e.duration == e.end._time - e.begin._time, e
    if e.kind.startswith('rwsem') and e.comm == 'lock-truth':
        waits[e.addr][e._tid] += e.duration

def __exit__():
    counts = perf_prof.stats()['events']['lock']
    assert counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'], counts
    assert counts['delivered'] == counts['ended'] and counts['dropped'] == 0, counts
    most = max(waits.values(), key=lambda tids: sum(tids.values()))
    for tid, ns in sorted(most.items()):
        print(tid, ns)
",
        "lock",
        "locks",
    );
    assert!(lines.len() >= 2, "{lines:?}");
    let own: Vec<Vec<u64>> = own.iter().map(|line| numbers(line)).collect();
    for line in &lines {
        let [tid, waited] = numbers(line)[..] else { panic!("{line}") };
        let took = own.iter().find(|row| row[0] == tid).unwrap_or_else(|| panic!("{tid}: {own:?}"))[1];
        assert!(waited > 0 && waited <= took + MS, "{waited} of {took}");
    }
}
