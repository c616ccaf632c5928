//! The source `alloc`.

use super::{beside_own, numbers};
use crate::harness::task::named;

const SENT: usize = 10;
const RECEIVED: usize = 7;
/// The size of a message, which no other message on the machine has.
const SIZE: usize = 1357;

/// Sends messages to a System V queue, and receives some of them. The remaining messages stay in the kernel when the
/// workload exits. Prints the number of the queue.
pub fn workload() {
    named(c"alloc-truth");
    let mut message = [1u8; 8 + SIZE];
    // SAFETY: the message has its type and `SIZE` bytes, and lives across the calls.
    unsafe {
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        assert!(queue >= 0);
        for _ in 0..SENT {
            assert_eq!(libc::msgsnd(queue, message.as_ptr().cast(), SIZE, 0), 0);
        }
        for _ in 0..RECEIVED {
            assert_eq!(libc::msgrcv(queue, message.as_mut_ptr().cast(), SIZE, 0, 0), SIZE as isize);
        }
        println!("\nown {queue}");
    }
}

#[test]
fn messages_that_nobody_receives_are_never_freed() {
    let (lines, own) = beside_own(
        "
import collections
counts = collections.Counter()
truth = 1357

def alloc(e):
    if e.begin._comm == 'alloc-truth' and truth < e.requested < truth + 100 and 'msg' in e.site:
        counts['open' if e.open else 'freed'] += 1
        counts[e.site.split('+')[0], e.freed_by.split('+')[0]] += 1
        assert e.bytes >= e.requested and e.ptr == e.begin.ptr and e._tid == e.begin._tid, e
        assert e.open == (e.end is None), e

def __exit__():
    for key, count in sorted(counts.items(), key=str):
        print(key, count)
",
        "alloc//open/",
        "allocations",
    );
    // SAFETY: the call removes the queue of the workload, and takes no pointer that is used.
    unsafe { libc::msgctl(numbers(&own[0])[0] as i32, libc::IPC_RMID, std::ptr::null_mut()) };
    let count = |what: &str| {
        let line = lines.iter().find(|line| line.starts_with(&format!("{what} ")));
        line.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
    };
    assert_eq!((count("freed"), count("open")), (Some(RECEIVED), Some(SENT - RECEIVED)), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("msg', 'free_msg')")), "{lines:?}");
}
