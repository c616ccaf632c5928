//! Each script says how to record what it needs, and works on what was recorded like that.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::harness::{in_path, script, skipped, text};

/// Programs that start and end, sleep, wake each other up and touch memory.
const WORK: &str = "sh -c 'for i in 1 2 3 4 5 6 7 8; do ls /usr/bin | cat >/dev/null; sleep 0.02; done'";

/// The command that records, and the one that shows the recording; of a script's usage.
fn commands(usage: &str) -> (String, String) {
    let usage = usage.replace("\\\n", "");
    let lines: Vec<&str> = usage.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with("perf-prof record ")).expect(&usage);
    (lines[at].replace("COMMAND", WORK).replace("sleep 10", WORK), lines[at + 1].to_owned())
}

/// What perf's own command is called, in the place of which of ours.
fn in_perf(usage: &str) -> (&str, &str) {
    let (_, rest) = usage.split_once("(also perf's own").expect(usage);
    let quoted: Vec<&str> = rest.split('`').collect();
    (quoted[1], quoted[3])
}

fn shell(folder: &Path, command: &str) -> Output {
    let mut shell = Command::new("sh");
    in_path(shell.args(["-c", command]).current_dir(folder)).output().unwrap()
}

#[test]
fn scripts_work_on_what_they_say_is_to_be_recorded() {
    if skipped() {
        return;
    }
    let perf = Command::new("perf").arg("--version").output().is_ok();
    if !perf {
        println!("not tested: recordings of perf, which is not in PATH");
    }
    for (name, options, shown) in [
        ("wakeups.py", "", " wake-ups, "),
        ("runqlat.py", "", "ls: "),
        ("syscalls.py", "", " calls of "),
        ("execsnoop.py", "", "/ls\n"),
        ("offcpu.py", "--top 1000", " ls\n"),
        ("profile.py", "", " samples in "),
        ("faults.py", "", " minor and "),
    ] {
        let usage = text(script(name).arg("--usage").output().unwrap());
        let (record, show) = commands(&usage);
        let (theirs, ours) = in_perf(&usage);
        let records = [Some(record.clone()), perf.then(|| record.replace(ours, theirs))];
        for record in records.into_iter().flatten() {
            let folder = tempfile::tempdir().unwrap();
            // Into a pipe perf would write the recording itself. While somebody else on the machine asks for build ids of mappings, perf 6.1 takes what it gets for damaged, and
            // aborts at its end.
            let mut attempts = (0..5).map(|_| shell(folder.path(), &format!("{record} >/dev/null")));
            let aborted = |output: &Output| output.status.code().is_none_or(|code| code > 128);
            let recorded = attempts.find(|output| !aborted(output)).unwrap();
            assert!(recorded.status.success(), "{record}: {}", String::from_utf8_lossy(&recorded.stderr));
            assert!(fs::exists(folder.path().join("perf.data")).unwrap(), "{record}");
            let shown_by = shell(folder.path(), &format!("{show} {options}"));
            let (out, err) = (String::from_utf8_lossy(&shown_by.stdout), String::from_utf8_lossy(&shown_by.stderr));
            // Of a busy machine some may be lost.
            assert!(shown_by.status.success() && !err.contains("Traceback"), "{record}; {show}: {err}");
            assert!(out.contains(shown), "{record}; {show}: {out}");
            for nothing in ["\n0 samples", "no waits", "\n0 calls", ": 0 wake-ups", "\n0 minor", "in 0 stacks"] {
                assert!(!format!("\n{out}").contains(nothing), "{record}; {show}: {out}");
            }
        }
    }
}

/// It read the mappings of processes that are there now, or found nothing and did not say why.
#[test]
fn uprobe_latency_says_that_it_cannot_work_on_a_recording() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let recorded = shell(folder.path(), "perf-prof record -q -a -e cpu-clock -- sleep 0.05");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let out = script("uprobe_latency.py").args(["--input", "perf.data"]).current_dir(folder.path()).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && err.contains("run it live"), "{err}");
}
