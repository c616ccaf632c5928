//! `python`, `stat`, `list` and `doctor` of a user without privileges, with events that need no tracefs.

use std::fs;

use crate::harness::{
    plain_user::{
        PAGES, Tracefs, as_seen, command, folder, level, needs_plain_user, perf_prof, with_workload, workload,
    },
    run::tested_program,
};

const BOTH: [Tracefs; 2] = [Tracefs::Closed, Tracefs::NotMounted];

const SCRIPT: &str = "\
from collections import Counter
seen = Counter()
def page_faults(event): seen['faults'] += 1
def task_clock(event): seen['clock'] += 1
def __exit__(): print(seen['faults'], seen['clock'])
";

fn counts(line: &str) -> (usize, usize) {
    let (faults, clock) = line.trim().split_once(' ').unwrap_or_else(|| panic!("`{line}`"));
    (faults.parse().unwrap(), clock.parse().unwrap())
}

/// The handler's name is the event's name as it was selected, even if only events in user space are delivered.
#[test]
fn a_plain_users_script_gets_what_needs_no_tracefs() {
    needs_plain_user();
    let workload = workload();
    for tracefs in BOTH {
        let dir = folder();
        fs::write(dir.path().join("s.py"), SCRIPT).unwrap();
        let live = ["python", "-e", "page-faults,task-clock", "--record", "r.data", "s.py", "--exec"];
        let outcome = perf_prof(&dir, tracefs, &with_workload(&live, &workload));
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        // The workload printed the lines before the last one.
        let seen = counts(outcome.stdout.lines().last().unwrap_or_default());
        assert!(seen.0 >= PAGES && seen.1 > 5, "{outcome:?}");
        let note = "only events in user space are seen (page-faults:u, task-clock:u)";
        assert_eq!(outcome.stderr.contains(note), level() == 2, "{}", outcome.stderr);
        let replayed = perf_prof(&dir, tracefs, &["python", "-q", "--input", "r.data", "s.py"]);
        assert_eq!((replayed.status, counts(&replayed.stdout)), (Some(0), seen), "{}", replayed.stderr);
    }
}

/// The first line of a script may contain `-q`, and its output looks the same with and without kernel events.
#[test]
fn a_quiet_script_is_also_warned_that_kernel_events_are_missing() {
    needs_plain_user();
    let dir = folder();
    fs::write(dir.path().join("s.py"), "def task_clock(event): pass\ndef task_clock_u(event): pass\n").unwrap();
    let workload = workload();
    for (event, is_told) in [("task-clock", level() == 2), ("task-clock:u", false)] {
        let outcome = perf_prof(
            &dir,
            Tracefs::NotMounted,
            &with_workload(&["python", "-q", "-e", event, "s.py", "--exec"], &workload),
        );
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        let note = "only events in user space are seen (task-clock:u), because kernel.perf_event_paranoid is";
        assert_eq!(outcome.stderr.contains(note), is_told, "{event}: {}", outcome.stderr);
    }
}

#[test]
fn a_plain_users_script_is_attached_to_the_users_process() {
    needs_plain_user();
    let dir = folder();
    // The process is a child of the shell, and waits until the events are enabled.
    let commands = r#"
        (while ! [ -e begun ]; do :; done; "$@" >&2) & work=$!
        "$PERF_PROF" python -q -i 50 -p $work -e page-faults:u,task-clock:u s.py
    "#;
    let script = format!("{SCRIPT}def __interval__(): open('begun', 'w')\n");
    fs::write(dir.path().join("s.py"), script.replace("page_faults", "page_faults_u")).unwrap();
    let workload = workload();
    let mut words = vec!["sh", "-c", commands, "sh"];
    words.extend(workload.iter().map(String::as_str));
    let output = command(&dir, Tracefs::NotMounted, &words).env("PERF_PROF", tested_program()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let (faults, clock) = counts(&stdout);
    assert!(faults >= PAGES && clock > 5, "{stdout}");
}

#[test]
fn a_plain_user_counts_what_needs_no_tracefs() {
    needs_plain_user();
    let workload = workload();
    for tracefs in BOTH {
        let dir = folder();
        let stat = ["stat", "--json", "-e", "task-clock,page-faults", "--"];
        let outcome = perf_prof(&dir, tracefs, &with_workload(&stat, &workload));
        assert_eq!(outcome.status, Some(0), "{}", outcome.stderr);
        let counts = outcome.stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let counts: Vec<_> = counts.collect();
        let text = format!("{counts:?}");
        for event in ["task-clock", "page-faults"] {
            assert!(text.contains(&format!("String(\"{}\")", as_seen(event))), "{}", outcome.stderr);
        }
        // Context switches only happen in the kernel. Without kernel events, their count would always be 0.
        let usual = perf_prof(&dir, tracefs, &["stat", "--", "true"]);
        assert_eq!(usual.status, Some(0), "{}", usual.stderr);
        assert_eq!(usual.stderr.contains("context-switches"), level() < 2, "{}", usual.stderr);
    }
}

/// Without tracefs, `list` must not fail, and `doctor` must not say that no script can run.
#[test]
fn list_and_doctor_know_what_needs_no_tracefs() {
    needs_plain_user();
    let dir = folder();
    for (tracefs, why) in
        [(Tracefs::Closed, "no permission to read /sys/kernel/tracing"), (Tracefs::NotMounted, "not mounted")]
    {
        let list = perf_prof(&dir, tracefs, &["list"]);
        assert_eq!(list.status, Some(0), "{}", list.stderr);
        assert!(
            list.stderr.starts_with("perf-prof: tracepoints are left out: ") && list.stderr.contains(why),
            "{}",
            list.stderr
        );
        assert!(list.stdout.contains("page-faults ") && !list.stdout.contains("sched:"), "{}", list.stdout);
        let list = perf_prof(&dir, tracefs, &["list", "-v", "page-faults"]);
        assert!(list.status == Some(0) && list.stdout.contains("addr"), "{}{}", list.stdout, list.stderr);
        let list = perf_prof(&dir, tracefs, &["list", "sched:*"]);
        assert!(list.status == Some(1) && list.stdout.is_empty() && list.stderr.contains(why), "{}", list.stderr);

        let doctor = perf_prof(&dir, tracefs, &["doctor"]);
        assert_eq!(doctor.status, Some(0), "{}{}", doctor.stdout, doctor.stderr);
        let line = |name: &str| doctor.stdout.lines().find(|line| line.contains(&format!("  {name} "))).unwrap();
        for (name, end) in [
            ("tracefs", "; tracepoints need tracefs, other events do not"),
            ("tracepoint", "; other events can be used without it"),
        ] {
            let line = line(name);
            assert!(line.starts_with("warn ") && line.ends_with(end), "{line}");
        }
        assert!(doctor.stdout.lines().last().unwrap().starts_with("scripts can run; "), "{}", doctor.stdout);
    }
}

/// `doctor` must not suggest `kernel.kptr_restrict=0` if the value is already 0.
#[test]
fn doctor_tells_a_plain_user_only_what_is_not_done_yet() {
    needs_plain_user();
    let dir = folder();
    let doctor = perf_prof(&dir, Tracefs::Closed, &["doctor"]);
    let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().to_owned();
    let mends: Vec<&str> = doctor.stdout.lines().filter_map(|line| line.trim().strip_prefix("to fix it: ")).collect();
    let settings = mends.iter().flat_map(|mend| mend.split(' ')).filter_map(|word| word.strip_prefix("kernel."));
    let settings: Vec<(&str, &str)> = settings.filter_map(|setting| setting.split_once('=')).collect();
    assert!(settings.iter().any(|(name, _)| *name == "perf_event_paranoid"), "{}", doctor.stdout);
    for (name, value) in settings {
        assert_ne!(sysctl(name), value.trim_end_matches(','), "kernel.{name}: {}", doctor.stdout);
    }
    let symbols = doctor.stdout.lines().skip_while(|line| !line.contains("  kernel symbols ")).take(2);
    let symbols = symbols.map(str::trim).collect::<Vec<_>>().join(" ");
    if (sysctl("kptr_restrict").as_str(), level()) == ("0", 2) {
        let mend = "to fix it: sudo perf-prof ..., or sudo sysctl kernel.perf_event_paranoid=1";
        assert!(symbols.starts_with("warn ") && symbols.ends_with(mend), "{symbols}");
    }
}
