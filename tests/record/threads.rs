//! Recordings in a directory, written by several threads.

use std::process::{Command, Stdio};

use crate::harness::{
    calls::WORKLOAD,
    counting::objects,
    machine::{Need, needs},
    recorder::{CALL, RecordRun, await_events, command, ended, perf, record, record_calls},
    run::{perf_prof, stdout, tested_program},
    task::allowed_cpus,
    wait::Killed,
};

fn files(recorded: &RecordRun) -> Vec<String> {
    let entries = std::fs::read_dir(recorded.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn online() -> usize {
    perf_prof_system::procfs::online_cpus().unwrap().len()
}

#[test]
fn perf_reads_the_directory_in_the_order_of_time() {
    needs([Need::Tracefs, Need::Perf]);
    for options in [&["--threads"][..], &["--threads=package", "-z"]] {
        let recorded = record_calls(&[&["-e", CALL, "-e", "sched:sched_switch", "-a"], options].concat(), 100_000);
        assert_eq!(recorded.status, 0, "{}", recorded.said);
        let mut expected: Vec<String> = (0..online()).map(|ring| format!("data.{ring}")).collect();
        expected.push("data".into());
        expected.sort();
        assert_eq!(files(&recorded), expected);
        let script = recorded.perf(&["script", "-F", "comm,time,event"]);
        let calls = script.lines().filter(|line| line.contains("generator") && line.contains("getppid")).count();
        assert!(calls as u64 + recorded.said_number("lost") >= 100_000, "{}", recorded.said);
        let header = recorded.perf(&["report", "--header-only"]);
        assert!(header.contains("directory data version : 1") && header.contains("time of first sample"), "{header}");
        assert_eq!(header.contains("compressed : Zstd"), options.contains(&"-z"), "{header}");
        // The names of tasks may contain ends of lines, so the lines with times are counted.
        let times = recorded.perf(&["script", "-F", "time"]);
        assert_eq!(times.lines().count() as u64, recorded.said_number("samples"));
        assert!(times.lines().map(|line| line.trim().trim_end_matches(':').parse::<f64>().unwrap()).is_sorted());
        assert!(recorded.perf(&["buildid-list"]).contains("[kernel.kallsyms]"));
        assert!(recorded.perf(&["report", "--stdio"]).contains("Samples:"));
    }
}

/// The recorder is stopped while a task fills a ring, so that the end of its calls is lost, and no later record says so.
#[test]
fn what_was_recorded_before_a_loss_at_the_end_of_a_ring_is_kept() {
    needs([Need::Tracefs]);
    let cpu = allowed_cpus()[0].to_string();
    for form in [&[][..], &["--threads"]] {
        let mut traced = Command::new("taskset");
        traced.args(["-c", &cpu]).arg(std::env::current_exe().unwrap());
        traced.args([WORKLOAD, "wait-for-input", "calls", "20000"]).stdin(Stdio::piped());
        let mut traced = Killed(traced.spawn().unwrap());
        let (dir, pid) = (tempfile::tempdir().unwrap(), traced.0.id().to_string());
        let mut recorder = command(&dir, &[&["-e", "syscall", "-m", "64", "-p", &pid][..], form].concat());
        let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
        await_events(&recorder, &dir.path().join("perf.data"));
        // SAFETY: the process is a child that was not waited for.
        let signal = |signal| assert_eq!(unsafe { libc::kill(recorder.id() as i32, signal) }, 0);
        signal(libc::SIGSTOP);
        drop(traced.0.stdin.take());
        traced.0.wait().unwrap();
        signal(libc::SIGCONT);
        let recorded = ended(dir, recorder);
        assert!(recorded.said_number("lost") > 1000, "{}", recorded.said);
        let calls = ["top", "syscall/name=getpgid/", "--json", "--input"];
        let top = perf_prof(&calls).arg(recorded.path()).output().unwrap();
        let total = objects(&stdout(&top)).pop().unwrap();
        assert_eq!(total["partial"], true, "{form:?} {total}");
        assert!(total["events"].as_u64() > Some(100), "{form:?} {total}");
    }
}

/// Missing files must be reported.
#[test]
fn files_of_a_directory_that_are_missing_are_named() {
    needs([Need::Tracefs, Need::Perf]);
    let ours = record(&["-e", "sched:sched_switch", "-a", "--threads", "--", "sleep", "0.1"]);
    let theirs = tempfile::tempdir().unwrap();
    // perf 6.1 fails an assertion while another program on the machine requests build ids.
    let recorded = (0..20).any(|_| {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "--threads", "-o"]).arg(theirs.path().join("perf.data"));
        let status = perf.args(["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]).status().unwrap();
        status.success() || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            false
        }
    });
    assert!(recorded);
    for path in [ours.path(), theirs.path().join("perf.data")] {
        let said = || {
            let output = Command::new(tested_program()).args(["script", "-i"]).arg(&path).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{said}");
            said
        };
        assert_eq!(said(), "");
        // A file of no ring is not part of the recording.
        std::fs::write(path.join("data.txt"), "notes").unwrap();
        assert_eq!(said(), "");
        // If the last file is missing, the first record of `data` shows this.
        for number in [online() - 1, 0] {
            std::fs::remove_file(path.join(format!("data.{number}"))).unwrap();
            let text = said();
            assert!(text.contains("is incomplete: data.") && text.contains(&format!("data.{number}")), "{text}");
        }
    }
}

#[test]
fn a_command_can_be_recorded_in_every_layout() {
    needs([Need::Tracefs, Need::Perf]);
    let last = online() - 1;
    let spec = format!("--threads=0-{last}/0");
    for layout in ["--threads=cpu", "--threads=core", "--threads=package", "--threads=numa", &spec] {
        let recorded = record_calls(&["-e", CALL, layout], 3000);
        let samples = perf(&recorded.path(), &["script", "-F", "event"]).lines().count() as u64;
        assert_eq!(samples + recorded.said_number("lost"), 3000, "{layout}: {}", recorded.said);
    }
}

#[test]
fn only_the_chosen_cpus_are_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    // A nap causes a switch on this CPU, which may have no other task meanwhile.
    let command = ["--", "taskset", "-c", "0", "sleep", "0.01"];
    let recorded = record(&[&["-e", "sched:sched_switch", "-C", "0", "--threads=0/0"][..], &command].concat());
    assert_eq!(files(&recorded), ["data", "data.0"]);
    let script = recorded.perf(&["script", "-F", "cpu"]);
    assert!(script.lines().count() > 0 && script.lines().all(|line| line.trim() == "[000]"), "{script}");
}

#[test]
fn wrong_layouts_are_refused() {
    for (layout, status, text) in [
        ("--threads=socket", 2, "`socket` is not a thread layout; write cpu, core, package, numa"),
        ("--threads=0/", 2, "`0/` has no CPU on one side"),
        ("--threads=0/0:0/1", 2, "two threads write the events of CPU 0"),
        ("--threads=0/0:1/0", 2, "two threads run on CPU 0"),
        ("--threads=0/4000", 1, "CPU 4000 does not exist or is offline"),
        ("--threads=4000/0", 1, "CPU 4000 does not exist or is offline"),
    ] {
        if status == 1 {
            needs([Need::Tracefs]);
        }
        let recorded = record(&["-e", CALL, "-a", layout, "--", "true"]);
        assert!(recorded.status == status && recorded.said.contains(text), "{layout}: {}", recorded.said);
        assert!(!recorded.path().exists(), "{layout}");
    }
}

#[test]
fn a_cpu_that_no_thread_writes_is_reported() {
    needs([Need::Tracefs, Need::TwoCpus]);
    let recorded = record(&["-e", CALL, "-a", "--threads=0/0", "--", "true"]);
    assert!(recorded.said.contains("CPU 1 is recorded, but no thread writes its events"), "{}", recorded.said);
}

#[test]
fn an_existing_recording_replaces_the_one_renamed_before() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("perf.data.old");
    for (options, old_is_dir) in
        [(&["--threads"][..], None), (&[], Some(true)), (&["--threads"], Some(false)), (&[], Some(true))]
    {
        let args = [&["-q", "-e", CALL][..], options, &["--", "true"]].concat();
        assert!(command(&dir, &args).status().unwrap().success());
        assert_eq!(old.metadata().ok().map(|found| found.is_dir()), old_is_dir);
    }
    // A folder with other files is not removed.
    std::fs::write(old.join("precious"), "").unwrap();
    let output = command(&dir, &["-e", CALL, "--threads", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("precious' is not part of a recording"), "{said}");
    assert!(old.join("data").exists() && dir.path().join("perf.data").is_file());
}
