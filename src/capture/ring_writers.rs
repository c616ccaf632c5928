//! Waits until the kernel has completed the records that it was writing into rings.
//!
//! The kernel writes a record with preemption disabled (`perf_output_get_handle()` in kernel/events/ring_buffer.c). So a
//! thread that runs on the CPU of a ring knows that all earlier writes into this ring are complete. A thread of perf-prof
//! visits these CPUs, which takes less than a millisecond if they have little to do. An RCU grace period takes 5 to 50 ms.
//! It is waited for if perf-prof may not run on all of these CPUs, because the user has restricted it to others.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use perf_prof_format::spec::CpuSet;
use perf_prof_system::{
    backward_ring::{await_writers, have_writers_ended_on},
    own_threads, procfs,
    thread::{pin, pin_thread, take_short_turns},
};

/// How often the waiting thread looks whether the writes have ended.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// If the visits take longer, another thread waits for RCU. On a CPU with many tasks, a visiting thread may have to wait
/// for long, and on a CPU with a realtime task for ever.
const QUICK: Duration = Duration::from_millis(2);

/// How long a visitor that is not needed any more is led back to the CPUs of perf-prof.
const LEAD_BACK: Duration = Duration::from_millis(20);

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

/// Waits until the writes into all these rings are complete. Calls `meanwhile` again and again during the wait, and once
/// after it. Threads that are not needed any more end by themselves.
pub(super) fn await_all(rings: Vec<Arc<RingWriters>>, mut meanwhile: impl FnMut()) {
    let (rings, visit, began) = (Arc::new(rings), Arc::new(Visit::new()), Instant::now());
    let visiting = own_threads::spawn("visit-cpus", {
        let (rings, visit) = (rings.clone(), visit.clone());
        move || {
            let _ = visit.visitor.set(own_threads::tid());
            take_short_turns();
            visit.to_all(&rings);
        }
    });
    let has_visitor = || visiting.as_ref().is_ok_and(|visiting| !visiting.is_finished());
    let mut waits_for_rcu = false;
    while !rings.iter().all(|ring| ring.have_ended()) {
        if !waits_for_rcu && (began.elapsed() >= QUICK || !has_visitor()) {
            waits_for_rcu = true;
            let of_thread = rings.clone();
            if own_threads::spawn("await-writers", move || end_all(&of_thread)).is_err() {
                end_all(&rings);
            }
        }
        meanwhile();
        thread::sleep(LOOK_EVERY);
    }
    // All writes have ended, so whatever is overwritten from now on is in the copies.
    meanwhile();
    visit.is_over.store(true, Ordering::SeqCst);
    let until = Instant::now() + LEAD_BACK;
    // The visitor may wait for its CPU for ever, so it ends on another one. It may have gone to another CPU meanwhile, but it
    // does so at most once after the end.
    while let (Some(&visitor), true) = (visit.visitor.get(), has_visitor() && Instant::now() < until) {
        let _ = pin_thread(visitor, &visit.allowed);
        thread::sleep(LOOK_EVERY);
    }
}

/// A visit to the CPUs of rings.
struct Visit {
    /// The CPUs on which perf-prof may run.
    allowed: CpuSet,
    /// The thread id of the visitor.
    visitor: OnceLock<u32>,
    /// Whether nobody needs the visit any more.
    is_over: AtomicBool,
}

impl Visit {
    fn new() -> Visit {
        // If the CPUs are not known, none is visited.
        let allowed = procfs::allowed_cpus().unwrap_or_default();
        Visit { allowed, visitor: OnceLock::new(), is_over: AtomicBool::new(false) }
    }

    /// Runs on the CPU of each ring in turn. Does nothing if this thread may not run on one of them, because the other rings
    /// would then be waited for all the same. Returns early if the visit is over.
    fn to_all(&self, rings: &[Arc<RingWriters>]) {
        if !rings.iter().all(|ring| ring.cpu.is_some_and(|cpu| self.allowed.contains(cpu))) {
            return;
        }
        for ring in rings.iter().filter(|ring| !ring.have_ended()) {
            let Some(cpu) = ring.cpu.filter(|_| !self.is_over.load(Ordering::SeqCst)) else { return };
            if pin(&[cpu].into_iter().collect()).is_err() || !ring.have_ended() {
                return;
            }
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
        assert!(are_noted(&visited(online(), Visit::new())));
    }

    /// Returns the rings after a visit of a thread.
    fn visited(rings: Vec<Arc<RingWriters>>, visit: Visit) -> Vec<Arc<RingWriters>> {
        let of_thread = rings.clone();
        own_threads::spawn("visit-cpus", move || visit.to_all(&of_thread)).unwrap().join().unwrap();
        rings
    }

    #[test]
    fn cpus_on_which_perf_prof_may_not_run_are_not_visited() {
        let cpus: Vec<u32> = procfs::online_cpus().unwrap().iter().collect();
        if let [.., last, other] = cpus[..] {
            let restricted = move || {
                pin(&[other].into_iter().collect()).unwrap();
                let allowed = procfs::allowed_cpus().unwrap();
                assert_eq!(allowed.iter().collect::<Vec<_>>(), [other]);
                assert!(!visited(rings([Some(last)]), Visit::new())[0].have_ended.load(Ordering::Acquire));
                // They are waited for.
                let both = rings([Some(last), Some(other)]);
                await_all(both.clone(), || ());
                assert!(are_noted(&both));
                assert_eq!(procfs::allowed_cpus().unwrap(), allowed);
            };
            thread::spawn(restricted).join().unwrap();
        }
    }

    #[test]
    fn a_visit_that_is_over_goes_to_no_cpu() {
        let visit = Visit::new();
        visit.is_over.store(true, Ordering::SeqCst);
        let here =
            |rings: &[Arc<RingWriters>]| rings.iter().filter(|ring| ring.have_ended.load(Ordering::Acquire)).count();
        // The thread runs on one CPU when it begins.
        assert!(here(&visited(online(), visit)) <= 1);
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
