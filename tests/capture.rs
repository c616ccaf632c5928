//! Live capture of real tracepoints. Skipped where the kernel does not let us trace.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    os::fd::AsRawFd,
    process::Stdio,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use perf_prof::{
    abi::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER},
    capture::{Callchain, Capture, CaptureError, Clock, EventRequest, Frames, Options, Order, Target},
    record::{Ended, Record, Source, Wait},
    sys::{eventfd::EventFd, procfs, workload::Workload},
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

/// Keeps this thread on a CPU.
fn pin(cpu: u32) {
    // SAFETY: all zeroes is an empty set, which lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// What a capture gave.
#[derive(Debug, Default)]
struct Seen {
    /// Samples per event.
    samples: HashMap<usize, u64>,
    /// Times per ring, in the order of delivery.
    times: Vec<(u32, u64)>,
    /// Per ring, as PERF_RECORD_LOST says.
    lost: HashMap<u32, u64>,
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
                    Record::Lost { lost } => *seen.lost.entry(ring).or_default() += lost,
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

const CHILD: &str = "PERF_PROF_TEST_CHILD";

/// Runs a test of this file in a process of its own; gives what it printed.
fn in_child(test: &str) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(CHILD, test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn closing_many_tracepoints_is_left_to_a_child() {
    if skipped() {
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        in_child("closing_many_tracepoints_is_left_to_a_child");
        return;
    }
    // Orphans become ours, instead of init's.
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &syscalls(5), &options()).unwrap();
    capture.enable().unwrap();
    capture.close();
    assert_eq!(perf_events_open(), 0);
    // SAFETY: all zeroes is a siginfo; it lives across the call. The child is left to be waited for again.
    let child = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        assert_eq!(libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT), 0, "there is no child");
        info.si_pid() as u32
    };
    assert_eq!(procfs::comm(child).unwrap(), b"perf-prof-close");
    let mut status = -1;
    // SAFETY: `status` lives across the call.
    assert_eq!(unsafe { libc::waitpid(child as i32, &mut status, 0) }, child as i32);
    assert_eq!(status, 0);
}

fn perf_events_open() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}

/// So many different events.
fn syscalls(count: usize) -> Vec<EventRequest> {
    let names = std::fs::read_dir(format!("{EVENTS}/syscalls")).unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| name.starts_with("sys_enter_")).take(count);
    let events: Vec<_> = names.map(|name| event("syscalls", &name, None)).collect();
    assert_eq!(events.len(), count);
    events
}

/// What every capture owes: each event is delivered or counted as lost, by the kernel's counters and by the records in
/// the ring.
fn burst(options: &Options, times: usize, pause: Option<Duration>) -> (Capture, Seen) {
    let target = Target::SystemWide { cpus: None };
    let mut capture = Capture::open(&target, &[getppid_of(gettid())], options).unwrap();
    capture.enable().unwrap();
    getppid(times);
    if let Some(pause) = pause {
        std::thread::sleep(pause);
        // One more after the overrun, so that the kernel reports it in the ring.
        getppid(1);
    }
    let mut seen = Seen::default();
    stop(&mut capture, &mut seen);
    (capture, seen)
}

#[test]
fn losses_are_exact_with_a_tiny_ring() {
    if skipped() {
        return;
    }
    for order in [None, Some(Order::default())] {
        let options = Options { ring_bytes: 4096, order, ..options() };
        pin(0);
        let (mut capture, seen) = burst(&options, 200_000, Some(Duration::from_millis(300)));
        let losses = capture.losses().unwrap();
        assert!(losses.per_event[0] > 0, "a page holds 200,000 events?");
        assert_eq!(seen.total() + losses.per_event[0], 200_001);
        // Side-band records may be lost as well; then the ring's count says so.
        assert_eq!(losses.per_ring[0], seen.lost[&0], "{order:?}");
    }
}

#[test]
fn a_slow_consumer_is_bounded_and_losses_are_exact() {
    if skipped() {
        return;
    }
    for order in [None, Some(Order::default())] {
        let options = Options { ring_bytes: 64 << 10, buffer: 1 << 20, order, ..options() };
        let target = Target::SystemWide { cpus: None };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        // Nobody takes anything meanwhile, and asks to be told at the end of it.
        getppid(200_000);
        let bound = (1 << 20).max(2 * capture.ring_count() * (256 << 10));
        assert!(capture.backlog() <= bound, "{} bytes wait", capture.backlog());
        let mut seen = Seen::default();
        capture.flush();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        let losses = capture.losses().unwrap();
        assert!(losses.per_event[0] > 0, "200,000 events in a mebibyte?");
        assert_eq!(seen.total() + losses.per_event[0], 200_000, "{order:?}");
        stop(&mut capture, &mut seen);
        assert_eq!(seen.total() + losses.per_event[0], 200_000, "{order:?}");
        assert_eq!(capture.backlog(), 0);
    }
}

#[test]
fn the_order_has_no_inversion() {
    if skipped() {
        return;
    }
    let options = Options { order: Some(Order::default()), ..options() };
    let target = Target::SystemWide { cpus: None };
    let own = std::process::id();
    let filter = Some(format!("common_pid >= {own}"));
    let events = [event("syscalls", "sys_enter_getppid", filter), event("sched", "sched_switch", None)];
    let mut capture = Capture::open(&target, &events, &options).unwrap();
    capture.enable().unwrap();
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        getppid(2_000);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        while !busy.iter().all(|thread| thread.is_finished()) {
            capture.flush();
            collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        }
    });
    stop(&mut capture, &mut seen);
    assert_eq!(capture.late(), 0);
    let lost = capture.losses().unwrap().per_event[0];
    assert!(seen.samples[&0] + lost >= 300_000, "{} seen, {lost} lost", seen.samples[&0]);
    assert!(seen.times.is_sorted_by_key(|&(_, time)| time));
    let rings: std::collections::HashSet<u32> = seen.times.iter().map(|&(ring, _)| ring).collect();
    assert_eq!(rings.len(), capture.ring_count(), "not every CPU took part");
}

#[test]
fn a_sampling_limit_holds() {
    if skipped() {
        return;
    }
    let options = Options { sampling_limit: Some(10), ..options() };
    let (mut capture, seen) = burst(&options, 1000, None);
    let lost = capture.losses().unwrap().per_event[0];
    assert_eq!(seen.total() + capture.limited() + lost, 1000);
    let mut windows: HashMap<u32, Vec<u64>> = HashMap::new();
    seen.times.iter().for_each(|&(ring, time)| windows.entry(ring).or_default().push(time));
    for times in windows.values() {
        // The eleventh of a ring begins another second.
        assert!(times.windows(11).all(|eleven| eleven[10] - eleven[0] >= 1_000_000_000));
    }
}

fn is_readable(fd: &EventFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives across the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn a_signal_goes_before_the_backlog() {
    if skipped() {
        return;
    }
    let wake = EventFd::new().unwrap();
    let options = Options { wake: Some(wake.as_raw_fd()), ..options() };
    let target = Target::SystemWide { cpus: None };
    let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
    capture.enable().unwrap();
    for _ in 0..10 {
        getppid(20_000);
    }
    wake.signal();
    while is_readable(&wake) {
        std::thread::yield_now();
    }
    capture.flush();
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| {
        assert!(!matches!(wait, Wait::Flushed), "woken behind the backlog");
        matches!(wait, Wait::Woken)
    });
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
    assert_eq!(seen.total() + capture.losses().unwrap().per_event[0], 200_000);
}

/// A thread that does what it is told.
struct Worker {
    tid: u32,
    go: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    fn new(work: impl FnOnce() + Send + 'static) -> Worker {
        let (go, told) = std::sync::mpsc::channel();
        let (send_tid, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send_tid.send(gettid()).unwrap();
            told.recv().unwrap();
            work();
        });
        Worker { tid: tid.recv().unwrap(), go, thread }
    }

    fn work(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_thread_is_followed_until_it_exits() {
    if skipped() {
        return;
    }
    for order in [None, Some(Order::default())] {
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
    if skipped() {
        return;
    }
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
    if skipped() {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let early: Vec<_> = (0..4).map(|_| Worker::new(|| getppid(100))).collect();
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
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
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process_is_followed_with_threads_and_children", "--nocapture"]).env(CHILD, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("ready") {}
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let mut capture = Capture::open(&Target::Processes(vec![child.id()]), &events, &options()).unwrap();
    capture.enable().unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let reaper = std::thread::spawn(move || {
        lines.for_each(drop);
        child.wait().unwrap()
    });
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Ended(Ended::TasksExited)));
    assert!(reaper.join().unwrap().success());
    assert_eq!(seen.total(), 900);
}

#[test]
fn a_workload_is_traced_from_exec_to_exit() {
    if skipped() {
        return;
    }
    let command = ["sh", "-c", "for i in 1 2 3; do cat /dev/null; done; exit 3"].map(OsString::from);
    let mut workload = Workload::fork(&command).unwrap();
    let events = [event("sched", "sched_process_exec", None), event("sched", "sched_process_exit", None)];
    let options = Options { order: Some(Order::default()), ..options() };
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
    if skipped() {
        return;
    }
    let name = format!("perf-prof-test-{}", std::process::id());
    let directory = match perf_prof::sys::cgroup::resolve("/") {
        Ok(root) => root[0].join(&name),
        Err(error) => return println!("skipped: {error}"),
    };
    if let Err(error) = std::fs::create_dir(&directory) {
        return println!("skipped: {}: {error}", directory.display());
    }
    let events = [event("sched", "sched_process_exec", None)];
    let target = Target::Cgroups(perf_prof::sys::cgroup::resolve(&name).unwrap());
    let mut capture = Capture::open(&target, &events, &options()).unwrap();
    capture.enable().unwrap();
    let script = format!("echo $$ > {}/cgroup.procs; exec cat /dev/null", directory.display());
    let status = std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success() && std::process::Command::new("true").status().unwrap().success());
    let mut seen = Seen::default();
    stop(&mut capture, &mut seen);
    drop(capture);
    std::fs::remove_dir(&directory).unwrap();
    assert_eq!((seen.total(), seen.names.as_slice()), (1, ["cat".to_owned()].as_slice()));
}

#[test]
fn what_cannot_be_opened_says_why() {
    if skipped() {
        return;
    }
    let everything = Target::SystemWide { cpus: None };
    let check = |target: &Target, event: EventRequest, options: &Options, expected: Expect| {
        let error = Capture::open(target, &[event], options).err().unwrap();
        expected.assert_eq(&error.to_string());
    };
    let getppid = || event("syscalls", "sys_enter_getppid", None);
    check(
        &everything,
        event("sched", "sched_switch", Some("no_such_field == 1".to_owned())),
        &options(),
        expect![
            "the kernel refuses the filter `no_such_field == 1` of sched:sched_switch: Invalid argument (os error 22)"
        ],
    );
    let nowhere = Target::SystemWide { cpus: Some("9999".parse().unwrap()) };
    let online = procfs::online_cpus().unwrap();
    let error = Capture::open(&nowhere, &[getppid()], &options()).err().unwrap().to_string();
    assert_eq!(error, format!("there is no CPU 9999, or it is offline; online are {online}"));
    check(&Target::Processes(vec![1 << 22]), getppid(), &options(), expect!["there is no process 4194304"]);
    check(&Target::Threads(vec![1 << 22]), getppid(), &options(), expect!["there is no thread 4194304"]);
    let unknown = EventRequest { tracepoint: 1 << 20, name: "no:such".to_owned(), ..getppid() };
    check(
        &everything,
        unknown,
        &options(),
        expect!["cannot open no:such: perf_event_open: Invalid argument (os error 22)"],
    );
    let chain = Callchain { kernel: Frames::Sampled, user: Frames::Excluded, max_stack: Some(5000) };
    let error = Capture::open(&everything, &[EventRequest { callchain: Some(chain), ..getppid() }], &options());
    assert!(matches!(error.err().unwrap(), CaptureError::MaxStack { asked: 5000, .. }));
    let huge = Options { ring_bytes: 1 << 40, ..options() };
    assert!(matches!(Capture::open(&everything, &[getppid()], &huge).err().unwrap(), CaptureError::Mmap { .. }));
}

#[test]
fn the_limit_of_open_files_is_raised_or_named() {
    if skipped() {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let limit = |soft, hard| {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            // SAFETY: `limit` lives across the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        };
        let events = syscalls(100);
        let first_cpu = Target::SystemWide { cpus: Some("0".parse().unwrap()) };
        limit(64, 300);
        let capture = Capture::open(&first_cpu, &events, &options()).unwrap();
        assert_eq!(capture.ids().len(), 100);
        capture.close();
        limit(64, 64);
        let error = Capture::open(&first_cpu, &events, &options()).err().unwrap();
        println!("error={error}");
        return;
    }
    let text = in_child("the_limit_of_open_files_is_raised_or_named");
    let error = text.split_once("error=").unwrap().1.lines().next().unwrap();
    expect![
        "too many open files: 101 event descriptors are needed and the limit is 64; select fewer events or CPUs, or \
         raise the hard limit (`ulimit -Hn`)"
    ]
    .assert_eq(error);
}

#[test]
fn call_chains_are_sampled_where_asked() {
    if skipped() {
        return;
    }
    let chain = |kernel, user| Some(Callchain { kernel, user, max_stack: Some(16) });
    // A syscall's tracepoint gives the program's registers, hence no kernel frames (perf_syscall_enter); this one does.
    let own = Some(format!("common_pid == {}", gettid()));
    let request = |callchain| EventRequest { callchain, ..event("sched", "sched_switch", own.clone()) };
    let events = [
        request(None),
        request(chain(Frames::Sampled, Frames::Excluded)),
        request(chain(Frames::Excluded, Frames::Sampled)),
    ];
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &events, &options()).unwrap();
    capture.enable().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    capture.stop();
    let ids: HashMap<u64, usize> = capture.ids().iter().copied().collect();
    let mut markers = [None; 3];
    while let Wait::Batch(batch) = capture.wait(None) {
        let _ = batch.for_each(|_, bytes| {
            if Record::parse(bytes) == Record::Sample {
                let event = ids[&capture.layout(0).id(bytes).unwrap()];
                let layout = capture.layout(event);
                assert!(layout.raw(bytes).is_some_and(|raw| raw.len() >= 8));
                let chain = layout.callchain(bytes).unwrap_or_default();
                assert!(chain.len() <= 17 * 8);
                markers[event] = Some(chain.first_chunk().map(|first| u64::from_ne_bytes(*first)));
            }
            ControlFlow::<()>::Continue(())
        });
    }
    assert_eq!(markers, [Some(None), Some(Some(PERF_CONTEXT_KERNEL)), Some(Some(PERF_CONTEXT_USER))]);
}

#[test]
fn a_cpu_that_goes_offline_keeps_what_it_recorded() {
    if skipped() {
        return;
    }
    let switch = "/sys/devices/system/cpu/cpu1/online";
    // Other tests count on all CPUs, so this one does not run beside them.
    if std::env::var_os("PERF_PROF_TEST_OFFLINE").is_none() || !std::path::Path::new(switch).exists() {
        return println!("skipped: takes CPU 1 offline only with PERF_PROF_TEST_OFFLINE=1 and {switch}");
    }
    for order in [None, Some(Order::default())] {
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
        capture.flush();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        stop(&mut capture, &mut seen);
        std::fs::write(switch, "1").unwrap();
        assert_eq!(seen.total(), 1000, "{order:?}");
    }
}

/// A thread that appears while its process is being attached to inherits events from its creator, so
/// attaching to it as well would deliver everything twice.
#[test]
fn threads_that_come_and_go_while_attaching_are_never_counted_twice() {
    if skipped() {
        return;
    }
    const NAME: &str = "threads_that_come_and_go_while_attaching_are_never_counted_twice";
    const TIMES: u64 = 7;
    /// Threads that are created when everything is attached.
    const LATER: usize = 100;
    if std::env::var_os(CHILD).is_some() {
        let told = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).unwrap());
        println!("ready");
        let mut left = LATER;
        while left > 0 {
            left -= usize::from(told.is_finished());
            std::thread::spawn(|| getppid(TIMES as usize)).join().unwrap();
        }
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]).env(CHILD, NAME);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("ready") {}
    let target = Target::Processes(vec![child.id()]);
    let events = [event("syscalls", "sys_enter_getppid", None)];
    let mut capture = Capture::open(&target, &events, &options()).unwrap();
    capture.enable().unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let reaper = std::thread::spawn(move || {
        lines.for_each(drop);
        child.wait().unwrap()
    });
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
    assert!(per_thread.values().all(|&times| times <= TIMES), "twice");
    let whole = per_thread.values().filter(|&&times| times == TIMES).count();
    assert!(whole >= LATER, "{whole} of {LATER} threads");
    assert!(reaper.join().unwrap().success());
}
