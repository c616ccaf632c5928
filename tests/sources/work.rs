//! The source `workqueue`.

use std::{ffi::c_int, time::Instant};

use super::{MS, beside_own, numbers};
use crate::harness::task::{gettid, named};

const BYTES: usize = 20;

/// Writes single bytes to a pseudo terminal, and reads each byte at the other end. Work of the kernel transfers it
/// (`flush_to_ldisc()` in drivers/tty/tty_buffer.c). Prints its thread id, and how long all bytes took, in ns.
pub fn workload() {
    named(c"work-truth");
    let start = Instant::now();
    write_through_a_terminal(BYTES);
    println!("\nown {} {}", gettid(), start.elapsed().as_nanos());
}

/// Each byte causes its own work, because the next byte is written after it was read.
pub fn write_through_a_terminal(bytes: usize) {
    // SAFETY: the values that the calls write live across them.
    unsafe {
        let (mut master, mut slave): (c_int, c_int) = (0, 0);
        let mut raw: libc::termios = std::mem::zeroed();
        libc::cfmakeraw(&mut raw);
        raw.c_cc[libc::VMIN] = 1;
        let null = std::ptr::null_mut();
        assert_eq!(libc::openpty(&mut master, &mut slave, null, &raw, null.cast()), 0);
        let mut byte = 7u8;
        for _ in 0..bytes {
            assert_eq!(libc::write(master, (&raw const byte).cast(), 1), 1);
            assert_eq!(libc::read(slave, (&raw mut byte).cast(), 1), 1);
        }
    }
}

#[test]
fn each_byte_through_a_terminal_is_work_that_its_writer_queued() {
    let (lines, own) = beside_own(
        "
def workqueue(e):
    queued = e.between[0]
    print(e.queuer_pid, e.waited, e.begin._comm.startswith('kworker/'))
    assert queued.work == e.begin.work == e.end.work == e.work and queued._tid == e._tid == e.queuer_pid, e
    assert e.workqueue == queued.workqueue != '', e
    assert e.waited == e.begin._time - queued._time and e.duration == e.end._time - e.begin._time, e
    assert e.begin._tid == e.end._tid, e
",
        "workqueue/function=flush_to_ldisc, queuer_comm=work-truth/",
        "work",
    );
    let own = numbers(&own[0]);
    let rows: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(rows.len(), BYTES, "{lines:?}");
    for row in &rows {
        assert_eq!((row[0], row[2]), (own[0].to_string().as_str(), "True"), "{lines:?}");
    }
    // The waits follow each other.
    let waited: u64 = rows.iter().map(|row| row[1].parse::<u64>().unwrap()).sum();
    assert!(waited <= own[1] + MS, "{waited} of {}", own[1]);
}
