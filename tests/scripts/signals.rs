//! `signals.py` on tasks that send each other known signals.

use crate::harness::{
    machine::{Need, needs},
    scripts::{on_made_up_events, on_workload, script, text},
    task::named,
};

/// The number of signals that `sig-sender` sends to `sig-target`.
const SENT: i32 = 5;

/// A task that sends signals to its child, and a child that the kernel kills. It prints their ids.
pub fn signals() {
    named(c"sig-sender");
    // SAFETY: the children of the forks only call functions that may be called after a fork.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        let target = libc::fork();
        if target == 0 {
            named(c"sig-target");
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        libc::waitpid(target, std::ptr::null_mut(), libc::WUNTRACED);
        for _ in 0..SENT {
            libc::kill(target, libc::SIGUSR1);
        }
        libc::kill(target, libc::SIGCONT);
        libc::waitpid(target, std::ptr::null_mut(), 0);
        let faulty = libc::fork();
        if faulty == 0 {
            named(c"sig-faulty");
            let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &limit);
            std::ptr::with_exposed_provenance_mut::<u8>(8).write_volatile(1);
        }
        libc::waitpid(faulty, std::ptr::null_mut(), 0);
        println!("\nids {} {target} {faulty}", libc::getpid());
    }
}

/// Returns the ids that the workload printed: sender, target, and the child that causes a fault.
fn ids(out: &str) -> Vec<&str> {
    out.lines().find_map(|line| line.strip_prefix("ids ")).unwrap().split(' ').collect()
}

#[test]
fn signals_names_the_sender_and_the_target_of_each_signal() {
    needs([Need::Tracefs]);
    let out = on_workload("signals.py", &[], "signals");
    let ids = ids(&out);
    // The first word is the time.
    let lines = |signal: &str| -> Vec<String> {
        let words = out.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
        words.filter(|line| line.starts_with(&format!("{signal} "))).collect()
    };
    let (sender, target) = (format!("sig-sender {}", ids[0]), format!("sig-target {}", ids[1]));
    assert_eq!(lines("SIGUSR1"), vec![format!("SIGUSR1 {sender} {target} ignored"); SENT as usize], "{out}");
    assert_eq!(lines("SIGCONT"), [format!("SIGCONT {sender} {target} ignored")], "{out}");
    let faulty = format!("sig-faulty {}", ids[2]);
    let faults = lines("SIGSEGV");
    let expected = format!("SIGSEGV kernel ({faulty}) {faulty} delivered");
    assert!(!faults.is_empty() && faults.iter().all(|line| *line == expected), "{expected} in {out}");
}

#[test]
fn signals_counts_by_sender_and_target() {
    needs([Need::Tracefs]);
    let out = on_workload("signals.py", &["--table", "--signal", "USR1"], "signals");
    let ids = ids(&out);
    let row = format!("{SENT} SIGUSR1 sig-sender {} sig-target {}", ids[0], ids[1]);
    let words = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(words.into_iter().any(|line| line == row), "{row} in {out}");
    assert!(out.contains(&format!("{SENT} signals in 1 row\n")), "{out}");
}

#[test]
fn signals_prints_in_several_processes_what_it_prints_in_one() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data").display().to_string();
    let work = crate::harness::workload::words("signals");
    let mut record =
        crate::harness::run::perf_prof(&["record", "-q", "-a", "-e", "signal:signal_generate", "-o", &file, "--"]);
    let output = record.args(work).output().unwrap();
    assert!(output.status.success());
    let ids = ids(std::str::from_utf8(&output.stdout).unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>();
    // For a selected task, the script shows the signals that the task sends and the signals that it gets.
    for id in &ids[..2] {
        let shown = text(script("signals.py").args(["--input", &file, "-p", id, "--signal", "USR1"]).output().unwrap());
        assert_eq!(shown.matches(" SIGUSR1 ").count(), SENT as usize, "{id}: {shown}");
    }
    for options in [&[][..], &["--table"]] {
        let shown = |jobs: &str| {
            text(script("signals.py").args(["--input", &file, "--jobs", jobs]).args(options).output().unwrap())
        };
        let serial = shown("1");
        assert!(serial.contains("sig-sender") && serial.contains("sig-target"), "{serial}");
        assert_eq!(shown("3"), serial);
    }
}

/// A recording may not contain the time of day. Its signals are still shown.
#[test]
fn signals_without_a_time_of_day_are_shown() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "signals.py",
        "
script.is_target = lambda tid: True
sent = dict(_tid=5, _comm='a', pid=6, comm='b', sig=10, code=0, result=0, common_flags=0, _time=7)
script.signal__signal_generate(event(**sent, group=1, _realtime=None))
",
    );
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words, ["--:--:--.---", "SIGUSR1", "a", "5", "b", "6", "delivered"]);
}

/// The kernel sends SIGPIPE with the code of kill(), but to one thread. A task may also send SIGPIPE to itself.
#[test]
fn a_write_to_a_closed_pipe_is_a_signal_of_the_kernel() {
    needs([Need::Tracefs]);
    let command = "yes | head -1 >/dev/null; sh -c 'kill -USR2 $$'; true";
    let words = |out: String| out.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut signals = script("signals.py");
    let out = words(text(signals.args(["--table", "--exec", "sh", "-c", command]).output().unwrap()));
    assert!(out.contains("1 SIGPIPE kernel (yes ") && out.contains("1 SIGUSR2 sh "), "{out}");
    let out = text(script("execsnoop.py").args(["--name", "yes", "--exec", "sh", "-c", command]).output().unwrap());
    assert!(out.contains("killed by SIGPIPE of the kernel"), "{out}");
}
