//! Events that are only counted: each call is counted once, however threads start and exit.

use std::{
    os::fd::AsRawFd,
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use perf_prof_capture::{Counters, EndCondition, EventRequest, Target, Waited};
use perf_prof_system::{eventfd::EventFd, procfs};

use crate::harness::{
    capture::{CHILD, WaitingChild, Worker, event, told_to_go},
    cgroup::Cgroup,
    machine::{Need, needs},
    task::{getppid, pin},
};

fn total(counters: &Counters, event: usize) -> u64 {
    let readings = counters.read().unwrap().into_iter().filter(|reading| reading.event == event);
    readings.map(|reading| reading.count.value).sum()
}

/// Counters are attached to a process while it only creates threads. Each later call is counted once. No thread is
/// missed because it was just being created, and none is counted twice because it was also listed.
#[test]
fn threads_that_come_and_go_while_attaching_are_counted_once() {
    needs([Need::Tracefs]);
    const NAME: &str = "capture::counting::threads_that_come_and_go_while_attaching_are_counted_once";
    const TIMES: usize = 7;
    /// Threads that are created after the counters are attached.
    const LATER: usize = 100;
    const ATTACHMENTS: usize = 20;
    if std::env::var_os(CHILD).is_some() {
        let told = told_to_go();
        let mut left = LATER;
        while left > 0 {
            let times = if told.is_finished() { TIMES } else { 0 };
            left -= usize::from(times > 0);
            std::thread::spawn(move || getppid(times)).join().unwrap();
        }
        return;
    }
    for _ in 0..ATTACHMENTS {
        assert_eq!(calls_when_told(NAME), (LATER * TIMES) as u64);
    }
}

/// Each thread creates the next one and exits. So a list of the threads is outdated at once, and often incomplete.
/// Still, each line of threads is found exactly once.
#[test]
fn lines_of_short_lived_threads_are_counted_once() {
    needs([Need::Tracefs]);
    const NAME: &str = "capture::counting::lines_of_short_lived_threads_are_counted_once";
    const TIMES: usize = 7;
    const LINES: usize = 3;
    /// The number of threads in each line that are created after the counters are attached.
    const LATER: usize = 50;
    const ATTACHMENTS: usize = 10;
    static TOLD: AtomicBool = AtomicBool::new(false);
    fn next(mut left: usize, done: mpsc::Sender<()>) {
        if TOLD.load(SeqCst) {
            getppid(TIMES);
            left -= 1;
        }
        if left == 0 {
            return done.send(()).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
        std::thread::spawn(move || next(left, done));
    }
    if std::env::var_os(CHILD).is_some() {
        let (done, all_done) = mpsc::channel();
        for _ in 0..LINES {
            let done = done.clone();
            std::thread::spawn(move || next(LATER, done));
        }
        told_to_go().join().unwrap();
        TOLD.store(true, SeqCst);
        (0..LINES).for_each(|_| all_done.recv().unwrap());
        return;
    }
    for _ in 0..ATTACHMENTS {
        assert_eq!(calls_when_told(NAME), (LINES * LATER * TIMES) as u64);
    }
}

/// Attaches counters to a test in its own process, and tells it to make its calls. Returns the count after its end.
fn calls_when_told(test: &str) -> u64 {
    let child = WaitingChild::start(test);
    let wake = EventFd::new().unwrap();
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let mut counters = Counters::open(&child.target(), &events, EndCondition::WithTasks, wake.as_raw_fd()).unwrap();
    counters.begin().unwrap();
    let reaper = child.go();
    assert_eq!(counters.wait(None).unwrap(), Waited::TasksExited);
    reaper.join().unwrap();
    total(&counters, 0)
}

#[test]
fn a_thread_on_one_cpu_is_counted_there_and_not_scaled() {
    needs([Need::Tracefs]);
    let cpus: Vec<u32> = procfs::online_cpus().unwrap().iter().collect();
    let (each, count) = (cpus.clone(), cpus.len() as u64);
    let worker = Worker::new(move || {
        for cpu in each {
            pin(cpu);
            getppid(10);
        }
    });
    let everywhere = event("syscalls", "sys_enter_getppid", None);
    let on_first = EventRequest { cpus: Some("0".parse().unwrap()), ..everywhere.clone() };
    let wake = EventFd::new().unwrap();
    let target = Target::Threads(vec![worker.tid]);
    let mut counters =
        Counters::open(&target, &[everywhere, on_first], EndCondition::WithTasks, wake.as_raw_fd()).unwrap();
    counters.begin().unwrap();
    worker.work();
    assert_eq!(counters.wait(None).unwrap(), Waited::TasksExited);
    assert_eq!((total(&counters, 0), total(&counters, 1)), (10 * count, 10));
    assert!(counters.read().unwrap().iter().all(|reading| reading.count.enabled == reading.count.running));
}

#[test]
fn a_wait_ends_when_it_is_woken_or_has_been_long_enough() {
    needs([Need::Tracefs]);
    let wake = EventFd::new().unwrap();
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let target = Target::Processes(vec![std::process::id()]);
    let mut counters = Counters::open(&target, &events, EndCondition::Never, wake.as_raw_fd()).unwrap();
    let soon = std::time::Instant::now() + std::time::Duration::from_millis(5);
    assert_eq!(counters.wait(Some(soon)).unwrap(), Waited::Timeout);
    wake.signal();
    assert_eq!(counters.wait(None).unwrap(), Waited::Woken);
}

#[test]
fn a_cgroup_is_counted() {
    needs([Need::Tracefs]);
    let cgroup = Cgroup::new();
    let events = [event("sched", "sched_process_exec", None)];
    let target = Target::Cgroups(perf_prof_system::cgroup::resolve(&cgroup.name).unwrap());
    let wake = EventFd::new().unwrap();
    let mut counters = Counters::open(&target, &events, EndCondition::WithTasks, wake.as_raw_fd()).unwrap();
    counters.begin().unwrap();
    let script = format!("echo $$ > {}; exec cat /dev/null", cgroup.procs());
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success() && Command::new("true").status().unwrap().success());
    let total = total(&counters, 0);
    drop(counters);
    assert_eq!(total, 1);
}
