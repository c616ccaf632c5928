//! Spans that are missing because the kernel delivered no event and reported no loss. The recordings of these tests
//! were made with a filter that drops the switches to one task.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;

use crate::harness::{
    awake::Awake,
    counting::objects,
    machine::{Need, needs},
    recording::{Folder, record, record_here},
    run::{perf_prof, said, stdout},
    script::workload,
};

use super::replay;

pub const NAPS: usize = 8;

/// Records the naps of `napper`. `filter` is the filter of the switches.
pub fn recording(folder: &Folder, filter: &str) -> PathBuf {
    needs([Need::Tracefs]);
    let path = folder.path("naps.data");
    let events = format!(
        "sched:sched_switch/{filter}/,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new,\
         raw_syscalls:sys_enter,raw_syscalls:sys_exit"
    );
    // Other tasks compute on all CPUs, so each nap is between two other tasks.
    let _awake = Awake::new();
    let naps = format!("comm napper {}", "sleep-ms 20 ".repeat(NAPS));
    let output = perf_prof(&["record", "-q", "-a", "-m", "4096", "-e", &events, "-o"])
        .arg(&path)
        .arg("--")
        .args(workload(naps.trim_end()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    path
}

/// A filter that drops the switches to `napper`.
pub const MISSING: &str = r#"next_comm != "napper""#;

#[test]
fn tables_of_spans_with_missing_switches_say_so() {
    let folder = Folder::new();
    let path = recording(&folder, MISSING);
    for (command, source) in [("top", "offcpu"), ("top", "oncpu"), ("hist", "runqueue"), ("top", "task-state")] {
        let output = perf_prof(&[command, source, "--input"]).arg(&path).output().unwrap();
        let (table, said) = (stdout(&output), said(&output));
        assert!(table.starts_with("total: at least "), "{command} {source}: {table}");
        let note = table.lines().find(|line| line.starts_with("(at least: ")).unwrap_or_default();
        assert!(note.contains(" of napper/"), "{command} {source}: {table}");
        assert!(said.contains("spans are missing: ") && said.contains(" of napper/"), "{command} {source}: {said}");
        let json = perf_prof(&[command, source, "--json", "--input"]).arg(&path).output().unwrap();
        let total = objects(&stdout(&json)).pop().unwrap();
        assert_eq!(total["partial"], true, "{total}");
        let tasks = total["incomplete_tasks"].as_array().unwrap();
        let own = tasks.iter().filter(|task| task["comm"] == "napper");
        let missing: u64 = own.map(|task| task["missing"].as_u64().unwrap()).sum();
        // The last nap may end after the recording.
        assert!(missing >= NAPS as u64 - 1, "{tasks:?}");
        assert!(total["unseen"].as_u64() >= Some(missing) && total["lost"] == 0, "{total}");
    }
}

/// A source that needs other tasks, on a recording that has only the events of one command.
#[test]
fn a_source_whose_other_tasks_were_not_recorded_is_partial() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("one.data");
    let events = "signal:signal_generate,signal:signal_deliver,raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    let mut record = perf_prof(&["record", "-q", "-e", events, "-o"]);
    let recorded = record.arg(&path).args(["--", "sh", "-c", "trap : USR1; kill -USR1 $$"]).output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    tells_of_other_tasks(&path);
}

#[test]
fn a_source_whose_other_tasks_perf_did_not_record_is_partial() {
    needs([Need::Tracefs, Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("one.data");
    let events = "signal:signal_generate,signal:signal_deliver,raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    record(&path, &["-e", events, "--", "sh", "-c", "trap : USR1; kill -USR1 $$"]);
    tells_of_other_tasks(&path);
}

/// Checks that spans of `signal` are called incomplete, and those of `syscall` are not.
fn tells_of_other_tasks(path: &Path) {
    let run = |args: &[&str]| perf_prof(args).arg("--input").arg(path).output().unwrap();
    let output = run(&["top", "signal"]);
    let (table, said) = (stdout(&output), said(&output));
    assert!(table.contains("(at least: the events of other tasks were not recorded)"), "{table}");
    let warning = format!("warning: signal needs the events of all tasks, and {} has only those of", path.display());
    assert!(said.contains(&warning), "{said}");
    let partial = |source: &str| objects(&stdout(&run(&["top", source, "--json"]))).pop().unwrap()["partial"].clone();
    assert_eq!((partial("signal"), partial("syscall")), (true.into(), false.into()));
    let script = "
import perf_prof
signal = perf_prof.Count()
def __exit__():
    print(perf_prof.stats()['partial'], perf_prof.missing())
";
    let file = path.with_extension("py");
    fs::write(&file, script).unwrap();
    let all = ["True the events of other tasks were not recorded\n"; 2];
    let shown = |jobs| stdout(&run(&["python", "-q", "-e", "signal", "--jobs", jobs, file.to_str().unwrap()]));
    assert_eq!(["1", "2"].map(shown), all);
}

/// Each recording comes with a source that its filter leaves whole, and one that it does not. The kernel numbers calls from 0 on.
#[test]
fn spans_of_events_that_a_filter_kept_out_of_the_recording_are_partial() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("filtered.data");
    let partial = |source: &str| {
        let output = perf_prof(&["top", source, "--json", "--input"]).arg(&path).output().unwrap();
        (objects(&stdout(&output)).pop().unwrap()["partial"].clone(), said(&output))
    };
    for (events, whole, lacking) in [
        ("syscall/name=read|close/", Some("syscall/name=close|read/"), "syscall/name=openat/"),
        ("raw_syscalls:sys_enter/id >= 0/,raw_syscalls:sys_exit", None, "syscall"),
        ("syscall/name=read/,syscall/name=close/", Some("syscall/name=read/"), "syscall"),
        ("syscall", Some("syscall"), "syscall"),
    ] {
        record_here(&path, &["-e", events, "--", "true"]);
        if let Some(source) = whole {
            let (partial, said) = partial(source);
            assert!(partial == false && !said.contains("that pass the filter"), "{events} {source}: {said}");
        }
        if whole == Some(lacking) {
            continue;
        }
        // The filters are also known if the end of the file is missing.
        for missing in [0, 1] {
            let file = fs::read(&path).unwrap();
            fs::write(&path, &file[..file.len() - missing]).unwrap();
            let (partial, said) = partial(lacking);
            let named = said.contains("raw_syscalls:sys_enter that pass the filter `");
            assert!(partial == true && named, "{events} {lacking} {missing}: {said}");
        }
    }
}

/// stdout and stderr are one pipe, as most users have both on one terminal.
#[test]
fn the_tasks_that_lack_spans_are_named_once() {
    let folder = Folder::new();
    let path = recording(&folder, MISSING);
    for command in ["top", "hist"] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut run = perf_prof(&[command, "offcpu", "--input"]);
        run.arg(&path).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = run.spawn().unwrap();
        drop(run);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(text.matches("spans are missing: ").count(), 1, "{text}");
    }
}

#[test]
fn a_trace_and_a_script_with_missing_switches_say_so() {
    let folder = Folder::new();
    let path = recording(&folder, MISSING);
    let trace = perf_prof(&["trace", "-e", "offcpu/comm=napper/", "--input"]).arg(&path).output().unwrap();
    assert!(said(&trace).contains(" of napper/"), "{}", said(&trace));
    let script = "
import perf_prof
offcpu = times = perf_prof.Sum('duration', by='comm')
def __exit__():
    row = perf_prof.stats()['events']['offcpu']
    own = sum(gaps for comm, gaps in row['incomplete_tasks'].values() if comm == 'napper')
    print(row['partial'], own >= 7, row['unseen'] >= own, row['cpus_without_idle_events'])
    note = str(times).splitlines()[-1]
    print(note.startswith('(at least: '), ' of napper/' in note, note in times._repr_html_())
";
    for jobs in ["1", "2"] {
        let run = replay(script, "offcpu", &path, &["--jobs", jobs]);
        assert_eq!(run.stdout, "True True True []\nTrue True True\n", "{jobs}: {}", run.stderr);
        assert!(run.stderr.contains(" of napper/"), "{jobs}: {}", run.stderr);
    }
}

/// The task was switched in before each time at which it was switched out. So a span over such a time reaches over a switch to
/// the task.
#[test]
fn no_span_reaches_over_a_switch_that_was_not_delivered() {
    let folder = Folder::new();
    let path = recording(&folder, MISSING);
    let trace = |event: &str| {
        let output = perf_prof(&["trace", "-q", "--json", "-e", event, "--input"]).arg(&path).output().unwrap();
        objects(&stdout(&output))
    };
    let number = |object: &Json, name: &str| object[name].as_u64().unwrap();
    let switches = trace("sched:sched_switch/prev_comm == \"napper\"/");
    assert!(switches.len() >= NAPS, "{switches:?}");
    let spans = |source: &str| {
        let spans = trace(&format!("{source}/comm=napper/"));
        for span in &spans {
            let end = number(span, "_time");
            let begin = end - number(span, "duration");
            let own = switches.iter().filter(|switch| switch["prev_pid"] == span["_tid"]);
            let is_inside = |time: u64| begin < time && time < end;
            assert!(!own.map(|switch| number(switch, "_time")).any(is_inside), "{source}: {span} {switches:?}");
        }
        spans
    };
    for source in ["offcpu", "oncpu", "runqueue"] {
        spans(source);
    }
    // Without the switch to the task, it is not known when it starts to run. It sleeps until it is woken.
    let states = spans("task-state");
    assert!(states.iter().all(|span| span["state"] != "running"), "{states:?}");
    let sleeps = states.iter().filter(|span| number(span, "duration") >= 20_000_000).count();
    assert!(sleeps >= NAPS - 1, "{states:?}");
}

#[test]
fn tables_of_complete_spans_say_so_in_json_only() {
    let folder = Folder::new();
    let path = recording(&folder, r#"next_comm != "nobody""#);
    let args = ["top", "syscall/comm=napper, name=nanosleep|clock_nanosleep/"];
    let text = perf_prof(&args).arg("--input").arg(&path).output().unwrap();
    assert!(stdout(&text).starts_with("total: ") && stdout(&text).contains(" spans in "), "{}", stdout(&text));
    assert!(!stdout(&text).contains("at least"), "{}", stdout(&text));
    let json = perf_prof(&args).args(["--json", "--input"]).arg(&path).output().unwrap();
    let total = objects(&stdout(&json)).pop().unwrap();
    assert!(total["events"].as_u64() >= Some(NAPS as u64), "{total}");
    assert_eq!((&total["partial"], total.get("missing")), (&false.into(), None), "{total}");
    // The kernel reported no loss, so the events themselves are complete.
    let events = perf_prof(&["top", "sched:sched_switch", "--json", "--input"]).arg(&path).output().unwrap();
    assert_eq!(objects(&stdout(&events))[0]["partial"], false);
}

/// `perf record -F` samples tracepoints too. With -c, the kernel records each of them.
#[test]
fn spans_of_sampled_tracepoints_are_refused_and_their_counts_are_partial() {
    needs([Need::Tracefs, Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    const CALLS: [&str; 2] = ["syscalls:sys_enter_close", "syscalls:sys_exit_close"];
    for (option, how, is_partial) in
        [(["-F", "99"], "(99 a second)", true), (["-c", "3"], "", false), (["-c", "1"], "", false)]
    {
        record(&path, &[&option[..], &["-e", CALLS[0], "-e", CALLS[1], "--", "ls"]].concat());
        let counted = perf_prof(&["top", CALLS[0], "--json", "--input"]).arg(&path).output().unwrap();
        assert_eq!(objects(&stdout(&counted)).pop().unwrap()["partial"], is_partial, "{option:?}");
        let spans = perf_prof(&["top", &format!("span:x={}..{}", CALLS[0], CALLS[1]), "--input"]).arg(&path).output();
        let spans = spans.unwrap();
        assert_eq!(spans.status.success(), !is_partial, "{option:?}: {}", said(&spans));
        assert!(said(&spans).contains(how), "{option:?}: {}", said(&spans));
    }
}
