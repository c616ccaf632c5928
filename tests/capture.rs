//! Live capture of real tracepoints. Skipped where the kernel does not let us trace.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use perf_prof::{
    capture::{Capture, Clock, EventRequest, Options, Order, Target},
    record::{Ended, Record, Source, Wait},
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
