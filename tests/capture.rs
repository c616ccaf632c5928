//! Live capture of real tracepoints. Skipped where the kernel does not let us trace.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::{
    collections::HashMap,
    ffi::OsString,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use perf_prof::{
    capture::{Capture, Clock, EventRequest, Options, Order, Target},
    record::{Ended, Record, Source, Wait},
    sys::procfs,
};

const EVENTS: &str = "/sys/kernel/tracing/events";

/// Why this machine cannot run these tests.
fn skipped() -> bool {
    let id = std::fs::read_to_string(format!("{EVENTS}/syscalls/sys_enter_getppid/id"));
    if let Err(error) = &id {
        println!("skipped: {EVENTS}: {error}");
    }
    id.is_err()
}

fn event(system: &str, name: &str, filter: Option<String>) -> EventRequest {
    let id = std::fs::read_to_string(format!("{EVENTS}/{system}/{name}/id")).unwrap();
    let tracepoint = id.trim().parse().unwrap();
    EventRequest { tracepoint, name: format!("{system}:{name}"), filter, callchain: None, cpus: None }
}

/// The events of this thread alone: tests run side by side.
fn getppid_of(tid: u32) -> EventRequest {
    event("syscalls", "sys_enter_getppid", Some(format!("common_pid == {tid}")))
}

fn options() -> Options {
    Options {
        ring_bytes: 128 * 4096,
        buffer: 64 << 20,
        watermark_percent: 50,
        clock: Clock::Perf,
        order: None,
        sampling_limit: None,
        wake: None,
    }
}

fn gettid() -> u32 {
    // SAFETY: gettid takes no pointer and cannot fail.
    unsafe { libc::gettid() as u32 }
}

fn getppid(times: usize) {
    for _ in 0..times {
        // SAFETY: getppid takes no pointer and cannot fail. By number, because a C library may remember it.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

/// What a capture gave.
#[derive(Debug, Default)]
struct Seen {
    /// Samples per event.
    samples: HashMap<usize, u64>,
    /// Times per ring, in the order of delivery.
    times: Vec<(u32, u64)>,
    /// As PERF_RECORD_LOST says.
    lost: u64,
    names: Vec<String>,
}

impl Seen {
    fn total(&self) -> u64 {
        self.samples.values().sum()
    }
}

/// Takes everything until `last` comes.
fn collect(capture: &mut Capture, seen: &mut Seen, last: impl Fn(&Wait) -> bool) {
    let ids: HashMap<u64, usize> = capture.ids().iter().copied().collect();
    let layout = capture.layout(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let wait = capture.wait(Some(deadline));
        if let Wait::Batch(batch) = &wait {
            let _ = batch.for_each(|ring, bytes| {
                match Record::parse(bytes) {
                    Record::Sample => {
                        *seen.samples.entry(ids[&layout.id(bytes).unwrap()]).or_default() += 1;
                        seen.times.push((ring, layout.time(bytes).unwrap()));
                    }
                    Record::Lost { lost } => seen.lost += lost,
                    Record::Comm { comm, .. } => seen.names.push(String::from_utf8_lossy(comm).into_owned()),
                    _ => {}
                }
                ControlFlow::<()>::Continue(())
            });
        }
        assert!(!matches!(wait, Wait::Timeout), "nothing came");
        if last(&wait) {
            return;
        }
    }
}

fn stop(capture: &mut Capture, seen: &mut Seen) {
    capture.stop();
    collect(capture, seen, |wait| matches!(wait, Wait::Ended(Ended::Stopped)));
}

#[test]
fn every_event_is_delivered() {
    if skipped() {
        return;
    }
    let target = Target::SystemWide { cpus: None };
    for order in [None, Some(Order::default())] {
        let options = Options { order, ..options() };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        getppid(100_000);
        let mut seen = Seen::default();
        stop(&mut capture, &mut seen);
        assert_eq!(seen.total() + capture.losses().unwrap().per_event[0], 100_000, "{order:?}");
        assert_eq!(capture.late(), 0);
    }
}

#[test]
fn a_flush_hands_out_what_had_happened() {
    if skipped() {
        return;
    }
    let target = Target::SystemWide { cpus: None };
    for order in [None, Some(Order::default())] {
        let options = Options { order, ..options() };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        for round in 1..20 {
            getppid(10);
            capture.flush();
            let mut seen = Seen::default();
            collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
            assert_eq!(seen.total(), 10, "round {round}, {order:?}");
        }
    }
}

/// The process that holds our descriptors, and how many perf events it holds.
fn holder_of(parent: u32) -> Option<(u32, usize)> {
    let wanted = format!("Pid:\t{parent}\n");
    procfs::processes().into_iter().filter(|&pid| procfs::comm(pid).as_deref() == Some(b"perf-prof-close")).find_map(
        |pid| {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
            let links: Vec<_> =
                fds.filter_map(|fd| Some((fd.file_name(), std::fs::read_link(fd.path()).ok()?))).collect();
            let info = |fd: &OsString| {
                std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.display())).unwrap_or_default()
            };
            let ours = links.iter().any(|(fd, _)| info(fd).contains(&wanted));
            let events = links.iter().filter(|(_, link)| link.to_string_lossy().contains("perf_event")).count();
            ours.then_some((pid, events))
        },
    )
}

const CHILD: &str = "PERF_PROF_TEST_CHILD";

/// Runs a test of this file in a process of its own; gives what it printed.
fn in_child(test: &str) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn closing_many_tracepoints_is_left_to_a_child() {
    if skipped() {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let names = ["getppid", "getpid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getpgid"];
        let events: Vec<_> = names.iter().map(|name| event("syscalls", &format!("sys_enter_{name}"), None)).collect();
        let target = Target::SystemWide { cpus: None };
        let mut capture = Capture::open(&target, &events, &options()).unwrap();
        capture.enable().unwrap();
        let expected = capture.ids().len() + capture.ring_count();
        capture.close();
        let deadline = Instant::now() + Duration::from_secs(60);
        let (holder, held) = loop {
            // It names itself and closes what is not its business a moment after the fork.
            match holder_of(std::process::id()) {
                Some(found) => break found,
                None => assert!(Instant::now() < deadline, "no child holds the descriptors"),
            }
        };
        assert_eq!(held, expected);
        println!("holder={holder}");
        return;
    }
    let text = in_child("closing_many_tracepoints_is_left_to_a_child");
    let holder = text.split_once("holder=").unwrap().1.lines().next().unwrap().parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while procfs::comm(holder).as_deref() == Some(b"perf-prof-close") {
        assert!(Instant::now() < deadline, "the child stays when its parent has gone");
        std::thread::sleep(Duration::from_millis(10));
    }
}
