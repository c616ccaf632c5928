//! The targets of a recording (commands, processes, threads, CPUs), and how a recording ends.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, await_events, command, ended, generating_thread, record, record_attached, record_calls},
    run::tested_program,
};

/// Records a process that waits until the events are enabled, and checks the recording.
fn attached(events: &str, target: impl Fn(u32) -> (&'static str, u32)) {
    let recorded = record_attached(&["-e", events], target, 700);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    assert_eq!(recorded.samples(), 700, "{}", recorded.said);
    let script = recorded.perf(&["script", "-F", "comm,sym,ip"]);
    assert!(script.contains("syscall"), "{script}");
}

#[test]
fn a_process_that_runs_already() {
    needs([Need::Tracefs, Need::Perf]);
    attached(CALL, |pid| ("-p", pid));
    // The event is a member of a group whose leader's event never happens.
    attached(&format!("{{syscalls:sys_enter_reboot,{CALL}}}"), |pid| ("-p", pid));
}

/// The thread that makes the calls is not the main thread of its process.
#[test]
fn a_thread_that_runs_already() {
    needs([Need::Tracefs, Need::Perf]);
    attached(CALL, |pid| ("-t", generating_thread(pid)));
}

/// Probes on CPUs are not inherited. Recordings still contain them as tracepoints, because samples of the PMU `uprobe`
/// do not show the event to which they belong.
#[test]
fn probes_on_all_cpus() {
    needs([Need::Tracefs, Need::Perf, Need::Uprobes]);
    let recorded = record_calls(&["-a", "-e", "uprobe:syscall@libc,uprobe:syscall+0x3@libc"], 300);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let script = recorded.perf(&["script", "-G"]);
    let of_generator = script.lines().filter(|line| line.contains("generator") && line.contains("uprobe:syscall: ("));
    assert!(of_generator.count() as u64 + recorded.said_number("lost") >= 300, "{}", recorded.said);
    assert!(recorded.perf(&["evlist"]).contains("uprobe:syscall_0x3\n"));
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    needs([Need::Tracefs, Need::Perf]);
    assert_eq!(record(&["-e", CALL, "--", "sh", "-c", "exit 7"]).status, 7);
    assert_eq!(record(&["-e", CALL, "-a", "--", "sh", "-c", "exit 7"]).status, 7);
    assert_eq!(record(&["-q", "-e", CALL, "-C", "0", "--", "true"]).said, "");
}

#[test]
fn only_the_chosen_cpu_is_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    // Each nap causes a switch on this CPU.
    let naps = "sleep 0.01; sleep 0.01; sleep 0.01; sleep 0.01";
    let recorded = record(&["-e", "sched:sched_switch", "-C", "0", "--", "taskset", "-c", "0", "sh", "-c", naps]);
    let script = recorded.perf(&["script", "-F", "cpu"]);
    assert!(script.lines().count() > 0 && script.lines().all(|line| line.trim() == "[000]"), "{script}");
}

const SWITCH: &str = "sched:sched_switch";

/// Returns what `perf-prof top offcpu` says about a recording, and whether it fails.
fn top_offcpu(recording: &Path) -> (bool, String) {
    let mut top = Command::new(tested_program());
    let output = top.args(["top", "offcpu", "--input"]).arg(recording).output().unwrap();
    (!output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A task that goes to another CPU would look as if it had been off the CPU until it came back.
#[test]
fn a_source_of_all_cpus_refuses_a_recording_of_one_cpu() {
    needs([Need::Tracefs, Need::Perf, Need::TwoCpus]);
    const SAID: &str =
        " has the events of only some CPUs: offcpu needs the events of all CPUs, because it may begin on one CPU";
    let of_one_cpu: [&[&str]; 4] = [
        &["-C", "0", "-e", SWITCH],
        &["-C", "0", "-e", SWITCH, "--threads"],
        &["-C", "0", "-e", SWITCH, "-z"],
        &["-a", "-e", "sched:sched_switch//cpus=0/"],
    ];
    for options in of_one_cpu {
        let recorded = record(&[options, &["--", "true"]].concat());
        let (fails, said) = top_offcpu(&recorded.path());
        assert!(fails && said.contains(SAID), "{options:?}: {said}");
    }
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.data");
    let mut recorder = Command::new(tested_program());
    recorder.args(["record", "-q", "-C", "0", "-e", SWITCH, "-o", "-", "--", "true"]);
    assert!(recorder.stdout(File::create(&pipe).unwrap()).status().unwrap().success());
    // Recordings of perf say it since 6.0. With --buildid-mmap perf does not read its recording at the end, which it cannot
    // if others load BPF programs meanwhile.
    let of_perf = dir.path().join("perf.data");
    let mut recorder = Command::new("perf");
    let recorder = recorder
        .args(["record", "-q", "--buildid-mmap", "-C", "0", "-e", SWITCH, "-o"])
        .arg(&of_perf)
        .args(["--", "true"]);
    assert!(recorder.status().unwrap().success());
    let dump = Command::new("perf").args(["script", "-D", "-i"]).arg(&of_perf).output().unwrap();
    let says_it = String::from_utf8_lossy(&dump.stdout).contains("PERF_RECORD_ID_INDEX");
    for path in [Some(&pipe), Some(&of_perf).filter(|_| says_it)].into_iter().flatten() {
        let (fails, said) = top_offcpu(path);
        assert!(fails && said.contains(SAID), "{said}");
    }
}

/// The events of a thread have no CPU, so they may be fewer than the CPUs.
#[test]
fn a_source_of_all_cpus_takes_a_recording_of_tasks() {
    needs([Need::Tracefs, Need::Perf]);
    let of_thread = record_attached(&["-q", "-e", SWITCH], |pid| ("-t", generating_thread(pid)), 1);
    assert_eq!((of_thread.status, of_thread.said.as_str()), (0, ""));
    let (fails, said) = top_offcpu(&of_thread.path());
    assert!(!fails && !said.contains("CPUs"), "{said}");
    let recordings: [&[&str]; 2] = [&[], &["--per-thread"]];
    for options in recordings {
        let path = of_thread.dir.path().join("of_perf.data");
        let mut perf = Command::new("perf");
        let perf = perf
            .args(["record", "-q", "--buildid-mmap", "-e", SWITCH, "-o"])
            .arg(&path)
            .args(options)
            .args(["--", "true"]);
        assert!(perf.status().unwrap().success());
        let (fails, said) = top_offcpu(&path);
        assert!(!fails, "{options:?}: {said}");
    }
    let recorded = record(&["-e", SWITCH, "--", "sleep", "0.01"]);
    let (fails, said) = top_offcpu(&recorded.path());
    assert!(!fails, "{said}");
}

#[test]
fn ctrl_c_ends_it_and_the_recording_is_whole() {
    needs([Need::Tracefs, Need::Perf]);
    for (signal, expected) in [(libc::SIGINT, 0), (libc::SIGTERM, 143)] {
        let dir = tempfile::tempdir().unwrap();
        let recorder = command(&dir, &["-e", "sched:sched_switch", "-a"]).stderr(Stdio::piped()).spawn().unwrap();
        await_events(&recorder, &dir.path().join("perf.data"));
        // SAFETY: the child was not waited for.
        unsafe { libc::kill(recorder.id() as i32, signal) };
        let recorded = ended(dir, recorder);
        assert_eq!(recorded.status, expected, "{}", recorded.said);
        assert_eq!(recorded.samples(), recorded.said_number("samples"));
    }
}
