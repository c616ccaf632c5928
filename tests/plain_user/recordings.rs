//! Recordings of events that need no tracefs. A user without privileges makes them, and reads them with perf-prof and
//! with perf.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::harness::{
    older_perf,
    plain_user::{PAGES, Tracefs, as_seen, folder, level, needs_plain_user, perf_prof, run, with_workload, workload},
    run::tested_program,
};

const BOTH: [Tracefs; 2] = [Tracefs::Closed, Tracefs::NotMounted];

#[test]
fn a_plain_user_records_and_reads_what_needs_no_tracefs() {
    needs_plain_user();
    let workload = workload();
    for tracefs in BOTH {
        let dir = folder();
        let record = ["record", "-q", "-g", "-F", "200", "-e", "task-clock:u,page-faults/period=1/u,dummy:u", "--"];
        let recorded = perf_prof(&dir, tracefs, &with_workload(&record, &workload));
        assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""), "{tracefs:?}");
        let columns = ["-F", "comm,pid,tid,time,event"];
        let ours = perf_prof(&dir, tracefs, &[&["script", "-G"][..], &columns].concat());
        assert_eq!((ours.status, ours.stderr.as_str()), (Some(0), ""), "{tracefs:?}");
        let theirs = run(&dir, tracefs, &[&["perf", "script", "-G"][..], &columns].concat());
        assert_eq!((theirs.status, theirs.stderr.as_str()), (Some(0), ""), "{tracefs:?}");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (perf, shown) = older_perf::comparable_lines(lines(&theirs.stdout), lines(&ours.stdout));
        assert_eq!(shown, perf);
        let samples = |event: &str| ours.stdout.lines().filter(|line| line.contains(event)).count();
        assert!(samples("task-clock:u:") > 5 && samples("page-faults:u:") >= PAGES, "{}", ours.stdout);
        for words in [&[tested_program(), "report", "-q"][..], &["perf", "report", "--stdio"]] {
            let report = run(&dir, tracefs, words);
            assert_eq!((report.status, report.stderr.as_str()), (Some(0), ""), "{words:?}");
            assert!(report.stdout.contains("of event 'page-faults:u'"), "{}", report.stdout);
        }
        for words in [&[tested_program(), "evlist"][..], &["perf", "evlist"]] {
            let list = run(&dir, tracefs, words);
            let events: Vec<&str> = list.stdout.lines().filter(|line| !line.contains("HG")).collect();
            assert_eq!(events, ["task-clock:u", "page-faults:u", "dummy:u"], "{words:?}: {}", list.stderr);
        }
    }
}

#[test]
fn kernel_events_that_the_user_may_not_see_are_left_out_and_the_events_name_says_so() {
    needs_plain_user();
    let (dir, workload) = (folder(), workload());
    let record = ["record", "-e", "page-faults", "-c", "1", "--"];
    let recorded = perf_prof(&dir, Tracefs::Closed, &with_workload(&record, &workload));
    assert_eq!(recorded.status, Some(0), "{}", recorded.stderr);
    let note = "only events in user space are seen (page-faults:u), because kernel.perf_event_paranoid is 2";
    assert_eq!(recorded.stderr.contains(note), level() == 2, "{}", recorded.stderr);
    let list = run(&dir, Tracefs::Closed, &["perf", "evlist", "-v"]);
    let event = list.stdout.lines().next().unwrap_or_default();
    assert!(event.starts_with(&format!("{}: ", as_seen("page-faults"))), "{}", list.stdout);
    assert_eq!(event.contains("exclude_kernel: 1"), level() == 2, "{event}");
}

#[test]
fn little_memory_that_may_be_locked_makes_rings_small() {
    needs_plain_user();
    let (dir, workload) = (folder(), workload());
    let record = ["prlimit", "--memlock=65536", tested_program(), "record", "-q", "-e", "page-faults:u", "--"];
    let recorded = run(&dir, Tracefs::Closed, &with_workload(&record, &workload));
    assert_eq!((recorded.status, recorded.stderr.as_str()), (Some(0), ""));
    // The message is also printed without -v.
    let record = ["prlimit", "--memlock=0", tested_program(), "record", "-e", "page-faults:u", "--"];
    let recorded = run(&dir, Tracefs::Closed, &with_workload(&record, &workload));
    assert_eq!(recorded.status, Some(0), "{}", recorded.stderr);
    let mlock_kb = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").unwrap();
    // On up to 128 CPUs, the default size of a ring is 2 MiB.
    let has_few_cpus = std::thread::available_parallelism().unwrap().get() <= 128;
    if has_few_cpus && mlock_kb.trim().parse::<u32>().unwrap() < 2048 {
        assert!(recorded.stderr.contains(" KiB instead of "), "{}", recorded.stderr);
    }
}

#[test]
fn a_script_replays_without_rights_and_without_tracefs_what_root_recorded() {
    needs_plain_user();
    let dir = folder();
    let event = "syscalls:sys_enter_exit_group";
    let mut root = std::process::Command::new(tested_program());
    let made = root.current_dir(dir.path()).args(["record", "-q", "-e", event, "--", "true"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = dir.path().join("perf.data");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let script = "def syscalls__sys_enter_exit_group(event):\n    print(event.error_code)\n";
    std::fs::write(dir.path().join("s.py"), script).unwrap();
    for tracefs in BOTH {
        let replayed = perf_prof(&dir, tracefs, &["python", "-q", "--input", "perf.data", "s.py"]);
        assert_eq!((replayed.status, replayed.stdout.as_str()), (Some(0), "0\n"), "{}", replayed.stderr);
        let shown = perf_prof(&dir, tracefs, &["script", "-F", "comm,trace"]);
        assert!(shown.stdout.contains("error_code: 0x"), "{shown:?}");
    }
}

/// A flame graph can overwrite a writable file, even if the folder is read-only.
#[test]
fn an_existing_file_is_overwritten_in_a_read_only_folder() {
    needs_plain_user();
    let (dir, workload) = (folder(), workload());
    let recorded =
        perf_prof(&dir, Tracefs::Closed, &with_workload(&["record", "-q", "-e", "task-clock:u", "--"], &workload));
    assert_eq!(recorded.status, Some(0), "{}", recorded.stderr);
    let place = |name: &str| dir.path().join("closed").join(name);
    fs::create_dir(place("")).unwrap();
    for (name, mode) in [("x.svg", 0o666), ("y.svg", 0o644), ("perf.data", 0o666)] {
        fs::write(place(name), "former").unwrap();
        fs::set_permissions(place(name), Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(place(""), Permissions::from_mode(0o755)).unwrap();
    symlink("closed/perf.data", dir.path().join("link")).unwrap();
    let report = |name: &str| perf_prof(&dir, Tracefs::Closed, &["report", "-q", "--flame", name]);
    let drawn = report("closed/x.svg");
    assert_eq!((drawn.status, drawn.stderr.as_str()), (Some(0), ""));
    assert!(fs::read_to_string(place("x.svg")).unwrap().contains("<svg"));
    for name in ["closed/y.svg", "closed/z.svg"] {
        let refused = report(name);
        assert!(refused.status == Some(1) && refused.stdout.is_empty(), "{}", refused.stderr);
        assert!(refused.stderr.starts_with(&format!("perf-prof: cannot write '{name}': ")), "{}", refused.stderr);
    }
    // An earlier recording or a link at the path is renamed, which needs a writable folder.
    for (name, status) in [("closed/perf.data", 1), ("link", 0)] {
        let args = ["record", "-q", "-e", "task-clock:u", "-o", name, "--"];
        let recorded = perf_prof(&dir, Tracefs::Closed, &with_workload(&args, &workload));
        assert_eq!(recorded.status, Some(status), "{name}: {}", recorded.stderr);
    }
    assert_eq!(fs::read(place("perf.data")).unwrap(), b"former");
    assert!(fs::read(dir.path().join("link")).unwrap().starts_with(b"PERFILE2"));
}
