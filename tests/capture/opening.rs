//! Events that cannot be opened are reported with their cause, and open events are closed without waiting.

use expect_test::{Expect, expect};
use perf_prof_capture::{Callchain, Capture, CaptureError, EventRequest, Frames, Options, Presence, Target};
use perf_prof_system::{close_in_child::ClosingHeldOff, procfs};

use crate::harness::{
    capture::{CHILD, EVENTS, event, in_child, options, syscalls},
    machine::{Need, needs, skip},
    wait,
};

#[test]
fn closing_many_tracepoints_is_left_to_a_child() {
    needs([Need::Tracefs]);
    if std::env::var_os(CHILD).is_none() {
        in_child("capture::opening::closing_many_tracepoints_is_left_to_a_child");
        return;
    }
    // Orphans become children of this process, not of init.
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &syscalls(5), &options()).unwrap();
    capture.enable().unwrap();
    capture.close();
    assert_eq!(perf_events_open(), 0);
    // SAFETY: all zeroes is a valid siginfo, which lives across the call. The child can be waited for again.
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

#[test]
fn patterns_leave_out_events_that_cannot_be_sampled() {
    needs([Need::Tracefs]);
    if !std::path::Path::new(EVENTS).join("irq_vectors/irq_work_exit").exists() {
        skip(Need::Kernel, "it has no irq_vectors:irq_work_exit");
    }
    let everything = Target::SystemWide { cpus: None };
    let refused = event("irq_vectors", "irq_work_exit", None);
    assert!(matches!(
        Capture::open(&everything, std::slice::from_ref(&refused), &options()),
        Err(CaptureError::Permission { .. })
    ));
    let optional = EventRequest { presence: Presence::IfAllowed, ..refused };
    let events = [optional.clone(), event("syscalls", "sys_enter_getppid", None)];
    let capture = Capture::open(&everything, &events, &options()).unwrap();
    assert!(capture.ids().iter().all(|&(_, event)| event == 1));
    assert!(matches!(Capture::open(&everything, &[optional], &options()), Err(CaptureError::Permission { .. })));
}

#[test]
fn events_that_cannot_be_opened_are_reported_with_their_cause() {
    needs([Need::Tracefs]);
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
    assert_eq!(error, format!("CPU 9999 does not exist or is offline; the online CPUs are {online}"));
    check(
        &Target::Processes(vec![std::process::id(), 1 << 22]),
        getppid(),
        &options(),
        expect!["there is no process 4194304"],
    );
    check(&Target::Threads(vec![1 << 22]), getppid(), &options(), expect!["there is no thread 4194304"]);
    let unknown = EventRequest::tracepoint("no:such", 1 << 20);
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
    needs([Need::Tracefs]);
    if std::env::var_os(CHILD).is_some() {
        let limit = |soft, hard| {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            // SAFETY: `limit` lives across the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        };
        let events = syscalls(100);
        let first_cpu = Target::SystemWide { cpus: Some("0".parse().unwrap()) };
        limit(64, 200);
        let capture = Capture::open(&first_cpu, &events, &options()).unwrap();
        assert_eq!(capture.ids().len(), 100);
        capture.close();
        limit(64, 64);
        let error = Capture::open(&first_cpu, &events, &options()).err().unwrap();
        println!("error={error}");
        return;
    }
    let text = in_child("capture::opening::the_limit_of_open_files_is_raised_or_named");
    let error = text.split_once("error=").unwrap().1.lines().next().unwrap();
    let (begin, others) = error.split_once(" event descriptors are needed, ").unwrap();
    let (others, end) = others.split_once(' ').unwrap();
    assert_eq!(begin, "too many open files: 101");
    assert!((3..64).contains(&others.parse::<u64>().unwrap()), "{error}");
    expect![
        "other files are open, and the limit is 64; select fewer events or CPUs, or raise the hard limit (`ulimit -Hn`)"
    ]
    .assert_eq(end);
}

/// A process may exit at any moment while perf-prof attaches to it. The error must not be a lack of rights.
#[test]
fn a_process_that_exits_while_attaching_is_reported_as_missing() {
    needs([Need::Tracefs]);
    for round in 0..60 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // The process exits at another step each time.
        std::thread::sleep(std::time::Duration::from_micros(round * 30));
        let opened = Capture::open(&Target::Processes(vec![child.id()]), &syscalls(1), &options());
        let error = opened.err().filter(|error| !matches!(error, CaptureError::NoSuchTask { .. }));
        assert!(error.is_none(), "round {round}: {}", error.unwrap());
        child.wait().unwrap();
    }
}

/// The kernel takes a lock for each close of a tracepoint, and everybody who opens a tracepoint waits for this lock.
#[test]
fn a_child_that_closes_tracepoints_waits_for_a_start_and_has_the_lowest_priority() {
    needs([Need::Tracefs]);
    const NAME: &str =
        "capture::opening::a_child_that_closes_tracepoints_waits_for_a_start_and_has_the_lowest_priority";
    if std::env::var_os(CHILD).is_none() {
        in_child(NAME);
        return;
    }
    // Orphans become children of this process, and not of init.
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let capture = Capture::open(&Target::SystemWide { cpus: None }, &syscalls(10), &options()).unwrap();
    let starting = ClosingHeldOff::new();
    capture.close();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let children: String =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect();
    let child = children.split_whitespace().next().expect("a child closes them").to_owned();
    let open = || std::fs::read_dir(format!("/proc/{child}/fd")).unwrap().flatten().count();
    let nice = || -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
    };
    // The child starts to close after this process has closed its own descriptors.
    wait::until("the child closes descriptors", || nice() == 19);
    let before = open();
    // The child could close all its descriptors in this time.
    std::thread::sleep(std::time::Duration::from_secs(1));
    // The child may have opened another descriptor itself.
    let now = open();
    assert!(before > 10 && now >= before, "{before} before, {now} now");
    drop(starting);
    let mut status = 0;
    // SAFETY: `status` lives across the call.
    let ended = unsafe { libc::waitpid(child.parse().unwrap(), &mut status, 0) };
    assert_eq!((ended.to_string(), status), (child, 0));
}

#[test]
fn a_plain_users_missing_rights_are_reported() {
    needs([Need::Tracefs]);
    if std::env::var_os(CHILD).is_none() {
        let text = in_child("capture::opening::a_plain_users_missing_rights_are_reported");
        let error = text.split_once("error=").unwrap().1.lines().next().unwrap();
        let level = procfs::perf_event_paranoid().unwrap();
        let expected = format!("kernel.perf_event_paranoid is {level} and CAP_PERFMON is missing; run as root");
        assert!(error.contains(&expected), "{error}");
        return;
    }
    let events = [event("sched", "sched_switch", None)];
    // SAFETY: no pointers are passed. The raw system call changes the user of this thread only, not of the harness.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
    println!("error={}", Capture::open(&Target::SystemWide { cpus: None }, &events, &options()).err().unwrap());
}
