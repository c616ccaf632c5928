//! Helpers for tests of live capture: requests for events, and the collection of what is captured.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Lines, Write},
    ops::ControlFlow,
    process::{Child, ChildStdout, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use perf_prof_capture::{
    Capture, Clock, CommonMembers, EventRequest, EventStart, IdleRounds, Mappings, Options, OwnThreads, Samples,
    SideBand, Switching, Target,
};
use perf_prof_format::record::{Ended, Record, Source, Wait};
use perf_prof_system::budget::Budget;

use super::task::gettid;

pub const EVENTS: &str = "/sys/kernel/tracing/events";

pub fn event(system: &str, name: &str, filter: Option<String>) -> EventRequest {
    let id = std::fs::read_to_string(format!("{EVENTS}/{system}/{name}/id")).unwrap();
    EventRequest { filter, ..EventRequest::tracepoint(format!("{system}:{name}"), id.trim().parse().unwrap()) }
}

/// Requests only events of this thread, because other tests run at the same time.
pub fn getppid_of(tid: u32) -> EventRequest {
    event("syscalls", "sys_enter_getppid", Some(format!("common_pid == {tid}")))
}

pub fn options() -> Options {
    Options {
        ring_bytes: 128 * 4096,
        samples: Samples::Delivered,
        buffer: Budget::new(64 << 20),
        watermark_percent: 50,
        clock: Clock::Perf,
        order: None,
        mappings: Mappings::Ignored,
        members: CommonMembers::default(),
        side_band: SideBand::default(),
        begin: EventStart::default(),
        switching: Switching::default(),
        sampling_limit: None,
        own_threads: OwnThreads::Included,
        ends_with: None,
        ends_with_cgroups: Vec::new(),
        idle: IdleRounds::Rare,
        wake: None,
    }
}

/// What was captured.
#[derive(Debug, Default)]
pub struct Seen {
    /// The number of samples per event.
    pub samples: HashMap<usize, u64>,
    /// The ring and the time of each sample, in the order of delivery.
    pub times: Vec<(u32, u64)>,
    /// The number of lost events per ring, from PERF_RECORD_LOST.
    pub lost: HashMap<u32, u64>,
    pub names: Vec<String>,
}

impl Seen {
    pub fn total(&self) -> u64 {
        self.samples.values().sum()
    }
}

/// Collects everything until `last` returns true.
pub fn collect(capture: &mut Capture, seen: &mut Seen, last: impl Fn(&Wait) -> bool) {
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
                    Record::Lost { lost } => *seen.lost.entry(ring).or_default() += lost,
                    Record::Comm { comm, .. } => seen.names.push(String::from_utf8_lossy(comm).into_owned()),
                    _ => {}
                }
                ControlFlow::<()>::Continue(())
            });
        }
        assert!(!matches!(wait, Wait::Timeout), "the capture delivered nothing in time");
        if last(&wait) {
            return;
        }
    }
}

pub fn stop(capture: &mut Capture, seen: &mut Seen) {
    capture.stop();
    collect(capture, seen, |wait| matches!(wait, Wait::Ended(Ended::Stopped)));
}

pub const CHILD: &str = "PERF_PROF_TEST_CHILD";

/// Returns the command that runs a test in its own process.
fn child_command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, test);
    command
}

/// A test that runs in its own process, and waits.
pub struct WaitingChild {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WaitingChild {
    /// Starts the test, and waits until it prints "ready".
    pub fn start(test: &str) -> WaitingChild {
        let mut child = child_command(test).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("ready") {}
        WaitingChild { child, lines }
    }

    /// Returns the target of its process.
    pub fn target(&self) -> Target {
        Target::Processes(vec![self.child.id()])
    }

    /// Tells the test to go on. The thread ends with the test, which must succeed.
    pub fn go(mut self) -> JoinHandle<()> {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        std::thread::spawn(move || {
            self.lines.for_each(drop);
            assert!(self.child.wait().unwrap().success());
        })
    }
}

/// In the child: returns a thread that ends when the test is told to go on.
pub fn told_to_go() -> JoinHandle<usize> {
    println!("ready");
    std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).unwrap())
}

/// Runs a test in its own process, and returns what it printed.
pub fn in_child(test: &str) -> String {
    let output = child_command(test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "no test has this name:\n{text}");
    text
}

/// Returns this many different events.
pub fn syscalls(count: usize) -> Vec<EventRequest> {
    let names = std::fs::read_dir(format!("{EVENTS}/syscalls")).unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| name.starts_with("sys_enter_")).take(count);
    let events: Vec<_> = names.map(|name| event("syscalls", &name, None)).collect();
    assert_eq!(events.len(), count);
    events
}

/// A thread that starts its work when it is told to.
pub struct Worker {
    pub tid: u32,
    pub go: std::sync::mpsc::Sender<()>,
    pub thread: std::thread::JoinHandle<()>,
}

impl Worker {
    pub fn new(work: impl FnOnce() + Send + 'static) -> Worker {
        let (go, told) = std::sync::mpsc::channel();
        let (send_tid, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send_tid.send(gettid()).unwrap();
            told.recv().unwrap();
            work();
        });
        Worker { tid: tid.recv().unwrap(), go, thread }
    }

    pub fn work(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
