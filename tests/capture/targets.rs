//! CPUs, processes, threads, cgroups and workloads as targets: which tasks belong to them, and when the capture ends.

use std::{
    collections::HashMap,
    ffi::OsString,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use perf_prof_capture::{Capture, EventRequest, Options, RecordOrder, Switching, Target};
use perf_prof_format::record::{Ended, Record, Source, Wait};
use perf_prof_system::{procfs, workload::Workload};

use crate::harness::{
    capture::{CHILD, Seen, WaitingChild, Worker, collect, event, getppid_of, options, stop, told_to_go},
    cgroup::Cgroup,
    machine::{Need, needs, skip},
    task::{getppid, pin},
};

#[test]
fn a_thread_is_followed_until_it_exits() {
    needs([Need::Tracefs]);
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { order, ..options() };
        let (one, other) = (Worker::new(|| getppid(100)), Worker::new(|| getppid(1000)));
        let events = [event("syscalls", "sys_enter_getppid", None)];
        let mut capture = Capture::open(&Target::Threads(vec![one.tid]), &events, &options).unwrap();
        assert_eq!(capture.ring_cpus(), [None]);
        capture.enable().unwrap();
        other.work();
        one.work();
        let mut seen = Seen::default();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Ended(Ended::TasksExited)));
        assert_eq!(seen.total(), 100);
    }
}

#[test]
fn a_thread_on_some_cpus_only() {
    needs([Need::Tracefs]);
    let cpus: Vec<u32> = procfs::online_cpus().unwrap().iter().collect();
    let worker = Worker::new(move || {
        for cpu in cpus {
            pin(cpu);
            getppid(10);
        }
    });
    let on_first = EventRequest { cpus: Some("0".parse().unwrap()), ..event("syscalls", "sys_enter_getppid", None) };
    let mut capture = Capture::open(&Target::Threads(vec![worker.tid]), &[on_first], &options()).unwrap();
    capture.enable().unwrap();
    worker.work();
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Ended(Ended::TasksExited)));
    assert_eq!(seen.total(), 10);
}

#[test]
fn a_process_is_followed_with_threads_and_children() {
    needs([Need::Tracefs]);
    if std::env::var_os(CHILD).is_some() {
        let early: Vec<_> = (0..4).map(|_| Worker::new(|| getppid(100))).collect();
        told_to_go().join().unwrap();
        early.into_iter().for_each(Worker::work);
        (0..4).for_each(|_| std::thread::spawn(|| getppid(100)).join().unwrap());
        // SAFETY: the child only makes system calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                getppid(100);
                libc::_exit(0);
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        return;
    }
    let child = WaitingChild::start("capture::targets::a_process_is_followed_with_threads_and_children");
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let mut capture = Capture::open(&child.target(), &events, &options()).unwrap();
    capture.enable().unwrap();
    let reaper = child.go();
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Ended(Ended::TasksExited)));
    reaper.join().unwrap();
    assert_eq!(seen.total(), 900);
}

#[test]
fn a_workload_is_traced_from_exec_to_exit() {
    needs([Need::Tracefs]);
    let command = ["sh", "-c", "for i in 1 2 3; do cat /dev/null; done; exit 3"].map(OsString::from);
    let mut workload = Workload::fork(&command).unwrap();
    let events = [event("sched", "sched_process_exec", None), event("sched", "sched_process_exit", None)];
    let options = Options { order: Some(RecordOrder::default()), ..options() };
    let mut capture = Capture::open(&Target::Workload { pid: workload.pid() }, &events, &options).unwrap();
    capture.enable().unwrap();
    workload.start().unwrap();
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Ended(Ended::TasksExited)));
    assert_eq!(workload.wait().unwrap().code(), Some(3));
    assert_eq!(seen.names, ["sh", "cat", "cat", "cat"]);
    assert_eq!(seen.samples, HashMap::from([(0, 4), (1, 4)]));
}

#[test]
fn a_cgroup_is_traced() {
    needs([Need::Tracefs]);
    let cgroup = Cgroup::new();
    let events = [event("sched", "sched_process_exec", None)];
    let target = Target::Cgroups(perf_prof_system::cgroup::resolve(&cgroup.name).unwrap());
    let mut capture = Capture::open(&target, &events, &options()).unwrap();
    capture.enable().unwrap();
    let script = format!("echo $$ > {}; exec cat /dev/null", cgroup.procs());
    let status = std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success() && std::process::Command::new("true").status().unwrap().success());
    let mut seen = Seen::default();
    stop(&mut capture, &mut seen);
    drop(capture);
    assert_eq!((seen.total(), seen.names.as_slice()), (1, ["cat".to_owned()].as_slice()));
}

#[test]
fn a_cpu_that_goes_offline_keeps_what_it_recorded() {
    needs([Need::Tracefs]);
    let switch = "/sys/devices/system/cpu/cpu1/online";
    // Other tests need all CPUs, so this test must not run at the same time.
    if std::env::var_os("PERF_PROF_TEST_OFFLINE").is_none() || !std::path::Path::new(switch).exists() {
        skip(Need::Offline, format!("takes CPU 1 offline only with PERF_PROF_TEST_OFFLINE=1 and {switch}"));
    }
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { order, ..options() };
        let worker = Worker::new(|| {
            pin(1);
            getppid(1000);
        });
        let events = [getppid_of(worker.tid)];
        let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &events, &options).unwrap();
        capture.enable().unwrap();
        worker.work();
        std::fs::write(switch, "0").unwrap();
        getppid(10);
        let mut seen = Seen::default();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Woken));
        assert_eq!(capture.take_offline_cpus(), [1], "{order:?}");
        capture.flush();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        stop(&mut capture, &mut seen);
        std::fs::write(switch, "1").unwrap();
        assert_eq!(seen.total(), 1000, "{order:?}");
    }
}

/// A thread that is created while perf-prof attaches to its process inherits events from its creator. If perf-prof also
/// attached to this thread, each event would be delivered twice.
#[test]
fn threads_that_come_and_go_while_attaching_are_never_counted_twice() {
    needs([Need::Tracefs]);
    const NAME: &str = "capture::targets::threads_that_come_and_go_while_attaching_are_never_counted_twice";
    const TIMES: u64 = 7;
    /// Threads that are created after the events are attached.
    const LATER: usize = 100;
    if std::env::var_os(CHILD).is_some() {
        let told = told_to_go();
        let mut left = LATER;
        while left > 0 {
            left -= usize::from(told.is_finished());
            std::thread::spawn(|| getppid(TIMES as usize)).join().unwrap();
        }
        return;
    }
    let child = WaitingChild::start(NAME);
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let mut capture = Capture::open(&child.target(), &events, &options()).unwrap();
    capture.enable().unwrap();
    let reaper = child.go();
    let layout = capture.layout(0);
    let mut per_thread: HashMap<u32, u64> = HashMap::new();
    loop {
        match capture.wait(None) {
            Wait::Batch(batch) => {
                let _ = batch.for_each(|_, bytes| {
                    if Record::parse(bytes) == Record::Sample {
                        *per_thread.entry(layout.pid_tid(bytes).unwrap().1).or_default() += 1;
                    }
                    ControlFlow::<()>::Continue(())
                });
            }
            Wait::Ended(_) => break,
            _ => {}
        }
    }
    assert_eq!(capture.losses().unwrap().per_event, [0]);
    assert!(per_thread.values().all(|&times| times <= TIMES), "a call was delivered twice");
    let whole = per_thread.values().filter(|&&times| times == TIMES).count();
    assert!(whole >= LATER, "all calls of only {whole} of {LATER} threads were delivered");
    reaper.join().unwrap();
}

/// A thread that is created while events are enabled may inherit them disabled. If its creator then got them from it,
/// nothing more of the process would be seen.
#[test]
fn events_of_a_process_that_creates_threads_are_on_after_each_time_they_were_turned_on() {
    needs([Need::Tracefs]);
    const NAME: &str =
        "capture::targets::events_of_a_process_that_creates_threads_are_on_after_each_time_they_were_turned_on";
    if std::env::var_os(CHILD).is_some() {
        // There is an event per CPU, and each may be disabled. So the threads stay on one CPU.
        pin(0);
        let told = told_to_go();
        while !told.is_finished() {
            std::thread::spawn(|| getppid(1)).join().unwrap();
        }
        return;
    }
    let child = WaitingChild::start(NAME);
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let options = Options { switching: Switching::Repeated, ..options() };
    let mut capture = Capture::open(&child.target(), &events, &options).unwrap();
    capture.enable().unwrap();
    for _ in 0..20 {
        capture.disable_events().unwrap();
        // Takes the events that happened before the events were disabled.
        capture.flush();
        collect(&mut capture, &mut Seen::default(), |wait| matches!(wait, Wait::Flushed));
        capture.enable_events().unwrap();
        let (mut seen, begun) = (Seen::default(), Instant::now());
        while seen.total() < 10 {
            assert!(begun.elapsed() < Duration::from_secs(30), "the events are off");
            capture.flush();
            collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        }
    }
    child.go().join().unwrap();
}
