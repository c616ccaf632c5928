//! Waits until the kernel has completed the records that it was writing into rings.
//!
//! The kernel writes a record with preemption disabled (`perf_output_get_handle()` in kernel/events/ring_buffer.c). So a
//! thread that runs on the CPU of a ring knows that all earlier writes into this ring are complete. A thread of perf-prof
//! visits these CPUs, which takes less than a millisecond if they have little to do. An RCU grace period takes 5 to 50 ms.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use perf_prof_system::{
    backward_ring::{await_writers, have_writers_ended_on},
    own_threads::OwnThread,
    procfs, signals,
    thread::{pin, pin_thread, take_short_turns},
};

/// How often the waiting thread looks whether the writes have ended.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// If the visits take longer, another thread waits for RCU. On a CPU with many tasks, a visiting thread may have to wait
/// for long, and on a CPU with a realtime task for ever.
const QUICK: Duration = Duration::from_millis(2);

/// The kernel's writes into one ring that were in progress when the ring was copied.
#[derive(Debug)]
pub(super) struct RingWriters {
    /// The CPU of the ring; `None` for the ring of a thread.
    cpu: Option<u32>,
    have_ended: AtomicBool,
}

impl RingWriters {
    /// Creates the state of a ring. Nothing is known about its writes yet.
    pub fn new(cpu: Option<u32>) -> RingWriters {
        RingWriters { cpu, have_ended: AtomicBool::new(false) }
    }

    /// Returns whether the writes are complete.
    pub fn have_ended(&self) -> bool {
        if self.cpu.is_some_and(have_writers_ended_on) {
            self.note_end();
        }
        self.have_ended.load(Ordering::Acquire)
    }

    /// Notes that the writes are complete.
    pub fn note_end(&self) {
        self.have_ended.store(true, Ordering::Release);
    }
}

/// Waits until the writes into all these rings are complete. Calls `meanwhile` again and again during the wait. Threads that
/// are not needed any more end by themselves.
pub(super) fn await_all(rings: Vec<Arc<RingWriters>>, mut meanwhile: impl FnMut()) {
    let (rings, visitor, began) = (Arc::new(rings), Arc::new(OnceLock::new()), Instant::now());
    let visiting = spawn("visit-cpus", {
        let (rings, visitor) = (rings.clone(), visitor.clone());
        move |own| {
            let _ = visitor.set(own.tid());
            take_short_turns();
            visit_all(&rings);
        }
    });
    let has_visitor = || visiting.as_ref().is_ok_and(|visiting| !visiting.is_finished());
    let mut waits_for_rcu = false;
    while !rings.iter().all(|ring| ring.have_ended()) {
        if !waits_for_rcu && (began.elapsed() >= QUICK || !has_visitor()) {
            waits_for_rcu = true;
            let of_thread = rings.clone();
            if spawn("await-writers", move |_| end_all(&of_thread)).is_err() {
                end_all(&rings);
            }
        }
        meanwhile();
        thread::sleep(LOOK_EVERY);
    }
    if let (Some(&visitor), true) = (visitor.get(), has_visitor()) {
        // The visitor may wait for its CPU for ever. So the visitor is moved to any CPU that is online, where it ends.
        let _ = procfs::online_cpus().and_then(|cpus| pin_thread(visitor, &cpus));
    }
}

fn spawn(name: &str, body: impl FnOnce(&OwnThread) + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        signals::block_in_this_thread();
        body(&OwnThread::enter());
    })
}

/// Runs on the CPU of each ring in turn. Returns early if this is not possible.
fn visit_all(rings: &[Arc<RingWriters>]) {
    for ring in rings.iter().filter(|ring| !ring.have_ended()) {
        let is_pinned = ring.cpu.is_some_and(|cpu| pin(&[cpu].into_iter().collect()).is_ok());
        if !is_pinned || !ring.have_ended() {
            return;
        }
    }
}

fn end_all(rings: &[Arc<RingWriters>]) {
    await_writers();
    rings.iter().for_each(|ring| ring.note_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(cpus: impl IntoIterator<Item = Option<u32>>) -> Vec<Arc<RingWriters>> {
        cpus.into_iter().map(|cpu| Arc::new(RingWriters::new(cpu))).collect()
    }

    fn online() -> Vec<Arc<RingWriters>> {
        rings(procfs::online_cpus().unwrap().iter().map(Some))
    }

    fn are_noted(rings: &[Arc<RingWriters>]) -> bool {
        rings.iter().all(|ring| ring.have_ended.load(Ordering::Acquire))
    }

    #[test]
    fn writes_have_ended_on_each_cpu_that_was_visited() {
        let rings = online();
        let of_thread = rings.clone();
        spawn("visit-cpus", move |_| visit_all(&of_thread)).unwrap().join().unwrap();
        assert!(are_noted(&rings));
    }

    #[test]
    fn the_wait_ends_also_for_rings_without_a_cpu_and_of_a_cpu_that_is_gone() {
        for rings in [online(), rings([None]), rings([Some(8191)])] {
            await_all(rings.clone(), || ());
            assert!(are_noted(&rings));
        }
    }

    #[test]
    fn the_cpus_of_the_waiting_thread_do_not_change() {
        let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let cpus = || status().lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned();
        let before = cpus();
        await_all(online(), || ());
        assert_eq!(cpus(), before);
    }
}
