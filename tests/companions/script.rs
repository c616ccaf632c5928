//! Compares the text of recordings that are not in `kinds`. Tests the options and errors of `perf-prof script`.

use std::{
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixDatagram,
    },
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::text::{Names, compare, compare_texts};
use crate::harness::{
    machine::{Need, needs, skip},
    older_perf,
    recording::{ours, perf, record, record_here},
    run::{perf_prof, printed},
    wait::{EndsThreads, Killed},
};

/// Records with these arguments, and compares the texts of both programs.
#[track_caller]
fn check(args: &[&str], names: Names) {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, args);
    println!("{}", compare(&path, &[], names));
}

const SLEEP: [&str; 5] = ["-a", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0.05; done"];
/// Tasks that start, sleep, wait and end, on two CPUs. Other tasks are not recorded, because perf 6.1 may abort on
/// their records.
const TASKS: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "for cpu in 0 1 0 1 0 1 0 1; do taskset -c $cpu ls -l /usr/bin | cat >/dev/null; sleep 0.02; done",
];
const LS: [&str; 4] = ["--", "ls", "-lR", "/usr/share/doc"];

#[test]
fn tracepoints_with_call_chains() {
    check(&[&["-g", "-e", "sched:sched_switch"][..], &TASKS].concat(), Names::Differ);
}

#[test]
fn one_of_several_events_with_call_chains() {
    let events = ["-e", "sched:sched_switch/call-graph=fp/", "-e", "sched:sched_wakeup", "-e", "cpu-clock"];
    check(&[&events[..], &LS].concat(), Names::Differ);
}

/// The samples contain no CPUs, so the lines contain none either.
#[test]
fn a_command_by_thread() {
    check(&[&["-e", "cpu-clock,page-faults"][..], &LS].concat(), Names::Differ);
}

/// perf shows system calls by their print format. The kernel itself prints them in another way.
#[test]
fn system_calls() {
    const CALLS: &str = "syscalls:sys_*_open*,syscalls:sys_*_mm*,syscalls:sys_*_read*,syscalls:sys_*stat*,syscalls:*_exec*,\
                         syscalls:sys_*_write*,syscalls:sys_*_prctl,syscalls:sys_*_close,syscalls:sys_*_mprotect";
    check(&["-e", CALLS, "--", "ls", "-l", "/"], Names::None);
}

/// A program's file may be removed while the program runs, for example when its package is updated.
#[test]
fn a_file_that_was_removed() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let (program, path) = (folder.path().join("removed"), folder.path().join("perf.data"));
    std::fs::copy("/bin/sh", &program).unwrap();
    let busy = Killed(Command::new(&program).args(["-c", "while :; do :; done"]).spawn().unwrap());
    std::fs::remove_file(&program).unwrap();
    record(&path, &["-g", "-e", "cpu-clock", "-p", &busy.0.id().to_string(), "--", "sleep", "0.2"]);
    drop(busy);
    compare(&path, &[], Names::Differ);
    let removed = format!("({} (deleted))", program.display());
    assert!(ours(&["script"], &path).iter().any(|line| line.ends_with(&removed)));
}

/// Loads a BPF program, which the kernel compiles, and runs it. The program causes an event, and is in the event's call
/// chain.
fn run_bpf_program() -> std::io::Result<()> {
    const BPF_PROG_LOAD: i32 = 5;
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    // r1 = "called"; *(u64 *)(r10 - 8) = r1; bpf_trace_printk(r10 - 8, 7); return 0
    let text = u64::from_le_bytes(*b"called\0\0");
    let word = |code: u64, registers: u64, offset: i16, number: u32| {
        code | registers << 8 | u64::from(offset as u16) << 16 | u64::from(number) << 32
    };
    let program = [
        word(0x18, 0x01, 0, text as u32),
        word(0, 0, 0, (text >> 32) as u32),
        word(0x7b, 0x1a, -8, 0),
        word(0xbf, 0xa1, 0, 0),
        word(0x07, 0x01, 0, -8i32 as u32),
        word(0xb7, 0x02, 0, 7),
        word(0x85, 0, 0, 6),
        word(0xb7, 0, 0, 0),
        word(0x95, 0, 0, 0),
    ];
    let mut attr = [0u64; 8];
    attr[0] = u64::from(BPF_PROG_TYPE_SOCKET_FILTER) | (program.len() as u64) << 32;
    (attr[1], attr[2]) = (program.as_ptr() as u64, c"GPL".as_ptr() as u64);
    attr[6] = u64::from_le_bytes(*b"recorded");
    // SAFETY: the attr is `struct bpf_attr` of PROG_LOAD, and the memory that it points to lives across the call.
    let loaded = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, attr.as_ptr(), size_of_val(&attr)) };
    if loaded < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor, and nobody else has it.
    let loaded = unsafe { OwnedFd::from_raw_fd(loaded as i32) };
    let (one, other) = UnixDatagram::pair()?;
    let fd = loaded.as_raw_fd();
    // SAFETY: the option's value is a descriptor, which has this size.
    let attached = unsafe {
        libc::setsockopt(other.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, (&raw const fd).cast(), 4)
    };
    if attached < 0 {
        return Err(std::io::Error::last_os_error());
    }
    one.send(b"x").map(drop)
}

/// BPF programs are loaded while the kernel runs. Later, no list of symbols contains them.
#[test]
fn bpf_programs() {
    needs([Need::Perf, Need::Bpf]);
    let folder = tempfile::tempdir().unwrap();
    for (name, recorder) in [("theirs.data", record as fn(&Path, &[&str])), ("ours.data", record_here)] {
        let path = folder.path().join(name);
        let recorded = AtomicBool::new(false);
        let ran = std::thread::scope(|scope| {
            let ran = scope.spawn(|| {
                while !recorded.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                    run_bpf_program()?;
                }
                std::io::Result::Ok(())
            });
            let end = EndsThreads(&recorded);
            recorder(&path, &["-g", "-e", "bpf_trace:bpf_trace_printk", "-a", "--", "sleep", "0.6"]);
            drop(end);
            ran.join().unwrap()
        });
        if let Err(error) = ran {
            skip(Need::Bpf, format!("a BPF program cannot be run: {error}"));
        }
        let named = ours(older_perf::script_words(), &path);
        // On a busy machine, perf may miss one of the many BPF programs. It then shows no name, or the name of an
        // earlier program at the same address.
        let mut theirs = perf(&["script"], &path);
        let place = |line: &str| line.split_whitespace().next().map(str::to_owned);
        for (theirs, ours) in theirs.iter_mut().zip(&named).filter(|(_, ours)| ours.contains("_recorded+0x")) {
            let is_former = theirs.contains(" bpf_prog_") && !theirs.contains("_recorded+0x");
            if (theirs.ends_with(" [unknown] ([unknown])") || is_former) && place(theirs) == place(ours) {
                theirs.clone_from(ours);
            }
        }
        compare_texts(theirs, named.clone(), Names::Differ);
        let of_it = named.iter().filter(|line| line.contains("_recorded+0x") && line.ends_with("_recorded)")).count();
        assert!(of_it > 1, "{named:?}");
    }
}

#[test]
fn options() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "--sample-cpu", "-e", "sched:sched_switch,cpu-clock"][..], &TASKS].concat());
    compare(&path, &["--ns"], Names::Differ);
    compare(&path, &["-G"], Names::Differ);
    // The scheduler may keep all tasks on one CPU.
    let cpus = perf(&["script", "-G", "-F", "cpu"], &path);
    let cpu = cpus[0].trim().trim_matches(['[', ']']).parse::<u32>().unwrap().to_string();
    compare(&path, &["-C", &cpu, "-G", "-F", "comm,tid,time,event"], Names::None);
    compare(&path, &["-F", "pid,tid,cpu,time,period,event,trace", "--time", "10%/2"], Names::None);
    compare(&path, &["--max-stack", "2"], Names::Differ);
    compare(&path, &["-v", "-G", "-c", "cat,ls", "--dsos", "[kernel.kallsyms]"], Names::Differ);
    // Several lists apply in their order. Each list applies to the events of its type.
    compare(&path, &["-G", "-F", "time,event", "-F", "trace:+tid", "-F", "sw:comm,time"], Names::None);
    compare(&path, &["-G", "-F", "+pid", "-F", "-cpu", "-F", "hw:time", "-F", "trace:"], Names::Differ);
}

/// The attr's period is 0 for all members of a group except the leader. If samples contain no periods, the count of a
/// member is its period.
#[test]
fn a_group_members_count_is_its_period_if_the_samples_have_none() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    // The shell itself does the work, because its children do not inherit a group with `:S`.
    let busy = "x=; i=0; while [ $i -lt 12000 ]; do i=$((i+1)); x=$x$i; done";
    let args = ["-e", "{cpu-clock,page-faults}:S", "-c", "200000", "--", "sh", "-c", busy];
    record(&path, &args);
    compare(&path, &[], Names::Differ);
    record_here(&path, &args);
    compare(&path, &[], Names::Differ);
    needs([Need::Python]);
    let script = "def __sample__(event): print(event._event, event._period, event.period, event['read'] is not None)\n";
    let file = folder.path().join("periods.py");
    std::fs::write(&file, script).unwrap();
    let output = perf_prof(&["python", "-q", "--input"]).arg(&path).arg(&file).output().unwrap();
    let periods = perf(&["script", "-F", "event,period"], &path);
    let periods = periods.iter().map(|line| {
        let [period, event] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        format!("{} {period} {period} True", event.trim_end_matches(':'))
    });
    assert_eq!(printed(&output), periods.collect::<Vec<_>>());
}

/// `script` and `report` take `-p` and `-t`, as all other commands do.
#[test]
fn tasks_are_chosen_by_the_letters_of_the_other_commands() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "sched:sched_switch"][..], &TASKS].concat());
    for (short, long, field) in [("-p", "--pid", "pid"), ("-t", "--tid", "tid")] {
        let ids = ours(&["script", "-F", field], &path);
        let one = ids[0].trim();
        let of_one = ours(&["script", "-F", field, short, one], &path);
        assert!(of_one.iter().all(|id| id.trim() == one), "{of_one:?}");
        assert_eq!(of_one.len(), ids.iter().filter(|id| id.trim() == one).count());
        let report = |option: &str| ours(&["report", option, &format!("{one},1")], &path);
        assert_eq!(report(short), report(long));
    }
}

/// `perf-prof script | head` is not a failure.
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "sched:sched_switch,irq:*,timer:*"][..], &SLEEP].concat());
    let mut ours =
        perf_prof(&["script", "-i"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(ours.stdout.take());
    let output = ours.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn errors_name_what_is_wrong() {
    let said = |args: &[&str]| {
        let output = perf_prof(&["script"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = said(&["-i", "not-there.data"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("not-there.data"), "{text}");
    let (status, text) = said(&["-F", "tme"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("there is no field `tme`; the fields are comm, pid,"), "{text}");
    let (status, text) = said(&["-F", "tracepoint:comm"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("`tracepoint:` is no type of events; the types are hw, sw, trace, raw, synth"), "{text}");
    let (status, text) = said(&["--time", "5,3"]);
    assert_eq!((status, text.contains("ends before it starts")), (Some(2), true), "{text}");
}
