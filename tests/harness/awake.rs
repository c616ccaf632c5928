//! CPUs that never idle, for tests about interrupts.
//!
//! On some virtual machines, perf gets no events from interrupts of a CPU's idle task, although the kernel's own trace
//! contains them. A task that computes only when nothing else runs keeps the idle task from running.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::task::{allowed_cpus, pin};

/// While this value exists, each CPU computes instead of being idle.
pub struct Awake {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    pub fn new() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let compute = |cpu| {
            let ends = ends.clone();
            std::thread::spawn(move || {
                pin(cpu);
                give_way();
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = allowed_cpus().into_iter().map(compute).collect();
        Self { ends, threads }
    }
}

/// Makes this thread run only if no other thread wants to run.
fn give_way() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives across the call.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) }, 0);
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let is_joined = thread.join().is_ok();
            assert!(is_joined || std::thread::panicking());
        }
    }
}
