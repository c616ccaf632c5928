//! Spans with `--jobs`: several processes make the same spans as one process, although spans begin in one part of the
//! recording and end in another.

use std::{path::Path, process::Command};

use super::PAIR;
use crate::harness::{
    awake::Awake,
    calls::WORKLOAD,
    machine::{Need, needs},
    recording::record,
    run::{said, tested_program},
    script::{Outcome, Run},
};

/// A script that prints each span, and the counts at the end.
const SCRIPT: &str = "
import perf_prof

def span__pair(e):
    print(e.pid, e.begin._time, e._time, e.duration, e.open, e.comm)

def __partial__():
    return perf_prof.stats()['events']['span:pair']

def __merge__(partials):
    global of_parts
    of_parts = partials

def __exit__():
    print(perf_prof.stats()['events']['span:pair'])
";

/// Returns operations for spans with 24 keys. Some keys begin again before they end, some end twice, and some stay open
/// for long.
fn operations() -> String {
    let mut words = "comm parts".to_owned();
    let mut state = 7u32;
    for number in 0..900 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = 1 + (state >> 20) % 24;
        words += &match state >> 8 & 15 {
            0..8 => format!(" call {key}"),
            _ => format!(" {}", super::getsid(key)),
        };
        if number % 50 == 49 {
            words += " sleep-ms 3";
        }
    }
    words
}

/// Records the operations into `perf.data` in this folder.
#[track_caller]
fn record_operations(folder: &Path) {
    record_operations_with(folder, &["-o", "perf.data"]);
}

#[track_caller]
fn record_operations_with(folder: &Path, options: &[&str]) {
    let mut command = Command::new(tested_program());
    command.args(["record", "-q", "-e", "syscalls:sys_enter_getpgid", "-e", "syscalls:sys_enter_getsid"]).args(options);
    command.arg("--").arg(std::env::current_exe().unwrap()).arg(WORKLOAD).args(operations().split_whitespace());
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    if options.contains(&"-") {
        std::fs::write(folder.join("perf.data"), output.stdout).unwrap();
    }
}

fn replay(folder: &Path, script: &str, selectors: &[&str], options: &[&str]) -> Outcome {
    let input = folder.join("perf.data");
    let run = Run::script(script).options(["--input", input.to_str().unwrap()]).options(options);
    let run = selectors.iter().fold(run, |run, selector| run.event(selector));
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{selectors:?} {options:?}: {}", outcome.stderr);
    outcome
}

/// Replays in one process and in several. Returns the output, which must be equal.
#[track_caller]
fn same_with_jobs(folder: &Path, script: &str, selectors: &[&str], options: &[&str]) -> String {
    let one = replay(folder, script, selectors, options);
    for jobs in ["2", "4"] {
        let several = replay(folder, script, selectors, &[options, &["--jobs", jobs]].concat());
        assert_eq!(several.stdout, one.stdout, "{selectors:?} {options:?} --jobs {jobs}");
        let last = |stderr: &str| stderr.lines().filter(|line| line.contains("spans")).map(str::to_owned).collect();
        let [one, several]: [Vec<String>; 2] = [&one, &several].map(|outcome| last(&outcome.stderr));
        assert_eq!(several, one, "{selectors:?} {options:?} --jobs {jobs}");
    }
    one.stdout
}

#[test]
fn several_processes_make_the_same_spans_as_one() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record_operations(folder);
    let rows = [
        "//key=pid/",
        "//key=pid/nested/open/",
        "//key=pid/max-open=5/open/",
        "//key=pid/max-open=5/nested/",
        "//key=pid/min=3ms/open/",
        "/begin.pid > 12 && duration > 1000000/key=pid/nested/",
    ];
    for rest in rows {
        let shown = same_with_jobs(folder, SCRIPT, &[&format!("{PAIR}{rest}")], &[]);
        assert!(shown.lines().count() > 40, "{rest}: {shown}");
        assert_eq!(shown.contains(" True "), rest.contains("open/"), "{rest}: {shown}");
    }
    // Each event ends a span and begins the next one.
    let both = "syscalls:sys_enter_getpgid|syscalls:sys_enter_getsid";
    same_with_jobs(folder, SCRIPT, &[&format!("span:pair={both}..{both}//key=pid/open/")], &[]);
    let pair = format!("{PAIR}//key=pid/nested/open/");
    same_with_jobs(folder, SCRIPT, &[&pair], &["--time", "20%-75%"]);
    let pids = replay(folder, "def __sample__(e): print(e._pid)", &["syscalls:sys_enter_getpgid"], &[]).stdout;
    same_with_jobs(folder, SCRIPT, &[&pair], &["-p", pids.lines().next().unwrap(), "-C", "0-127"]);
}

#[test]
fn spans_of_recordings_of_all_forms_are_joined() {
    needs([Need::Tracefs]);
    for form in [&["-z", "-o", "perf.data"][..], &["--threads", "-o", "perf.data"], &["-o", "-"], &["-z", "-o", "-"]] {
        let folder = tempfile::tempdir().unwrap();
        record_operations_with(folder.path(), form);
        let selector = format!("{PAIR}//key=pid/nested/open/");
        let shown = same_with_jobs(folder.path(), SCRIPT, &[&selector], &[]);
        assert!(shown.lines().count() > 40, "{form:?}: {shown}");
    }
}

#[test]
fn events_beside_spans_and_intervals_come_in_the_same_order() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    let script =
        format!("{SCRIPT}\ndef syscalls__call(e): print('call', e.pid)\ndef __interval__(): print('interval')\n");
    let selectors = [&format!("{PAIR}//key=pid/open/"), "syscalls:sys_enter_getpgid//alias=call/"];
    let shown = same_with_jobs(folder.path(), &script, &selectors, &["-i", "4"]);
    for word in ["call ", "interval", " True ", " False "] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn aggregators_of_spans_are_merged() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    let script = "
import perf_prof
from perf_prof import Count, Sum
count = Count('pid')
span__pair = (count, Sum('duration', by='pid'))

def __interval__():
    count.print()
    count.clear()
";
    let shown = same_with_jobs(folder.path(), script, &[&format!("{PAIR}//key=pid/nested/open/")], &["-i", "9"]);
    assert!(shown.lines().count() > 30, "{shown}");
}

#[test]
fn spans_that_are_open_at_a_border_are_counted_once() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    // The counts of a part include spans that are open at its start, but not as spans that it opened.
    let script = format!(
        "{SCRIPT}
    before = 0
    for part in of_parts:
        print(before + part['opened'] == part['ended'] + part['dropped'] + part['open'], before > 0)
        before = part['open']
    print(before == perf_prof.stats()['events']['span:pair']['open'] > 0)
"
    );
    let outcome = replay(folder.path(), &script, &[&format!("{PAIR}//key=pid/nested/")], &["--jobs", "4"]);
    let lines: Vec<&str> = outcome.stdout.lines().rev().take(5).collect();
    assert_eq!(lines, ["True", "True True", "True True", "True True", "True False"], "{}", outcome.stdout);
}

#[test]
fn sources_are_the_same_in_several_processes() {
    needs([Need::Tracefs]);
    // On some machines, perf gets no events of a CPU's idle task.
    let _awake = Awake::new();
    let script = "
import perf_prof
def __sample__(e): e.print()
def __partial__(): pass
def __merge__(partials): pass
def __exit__():
    print({name: (row['opened'], row['dropped'], row['open'])
           for name, row in perf_prof.stats()['events'].items() if 'opened' in row})
";
    let sources = "offcpu//open/,runqueue//open/,oncpu//open/,task-state//open/,syscall//open/";
    let live = Run::script(script).event(sources).options(["--record", "perf.data"]).workload(&operations());
    assert_eq!(live.run().status, 0);
    for source in [sources, "offcpu/comm=parts/", "syscall//min=1ms/"] {
        let shown = same_with_jobs(live.dir.path(), script, &[source], &[]);
        assert!(shown.lines().count() > 3, "{source}: {shown}");
    }
}

/// Causes more events than rings of one page can hold.
const BURST: &str = "for i in 1 2; do (head -c 10000 /dev/zero | dd bs=1 of=/dev/null 2>/dev/null) & done; wait";

#[test]
fn losses_drop_the_same_spans() {
    needs([Need::Tracefs, Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    record(&folder.path().join("perf.data"), &["-m", "1", "-e", events, "--", "sh", "-c", BURST]);
    let script = "
import perf_prof
from perf_prof import Count, Sum
span__call = (Count('_tid'), Sum('duration', by='_tid'))
def __exit__():
    counts = perf_prof.stats()['events']['span:call']
    print(counts, counts['dropped'] > 0)
    print(counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'])
";
    for rest in ["", "/open/", "/nested/"] {
        let selector = format!("span:call=raw_syscalls:sys_enter..raw_syscalls:sys_exit//key=_tid{rest}/");
        let shown = same_with_jobs(folder.path(), script, &[&selector], &[]);
        assert!(shown.contains("} True\nTrue\n"), "{shown}");
    }
}

#[test]
fn spans_cannot_be_divided_by_cpu() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    let input = folder.path().join("perf.data");
    let run = Run::script(SCRIPT).event(format!("{PAIR}//key=pid/")).options(["--input", input.to_str().unwrap()]);
    let outcome = run.options(["--jobs", "2", "--split", "cpu"]).run();
    let message = "a span may begin on one CPU and end on another";
    assert!(outcome.status != 0 && outcome.stderr.contains(message), "{}", outcome.stderr);
}

#[test]
fn a_script_that_fails_ends_the_reading_in_advance() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    let input = folder.path().join("perf.data");
    let run = Run::script("import no_such_module").event(format!("{PAIR}//key=pid/"));
    let outcome = run.options(["--input", input.to_str().unwrap(), "--jobs", "4"]).run();
    assert!(outcome.status != 0 && outcome.stderr.contains("no_such_module"), "{}", outcome.stderr);
}

#[test]
fn programs_can_divide_a_recording_with_spans() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    record_operations(folder.path());
    let program = format!(
        "
import perf_prof

def run(jobs):
    found = []
    class Handlers:
        def span__pair(self, e): found.append((e.pid, e.begin._time, e._time, e.open))
        def __partial__(self): return found
        def __merge__(self, partials): found.extend(span for part in partials for span in part)
        def __exit__(self): found.append(perf_prof.stats()['events']['span:pair'])
    perf_prof.run({:?}, input={:?}, handlers=Handlers(), jobs=jobs)
    return found

def __init__():
    one = run(1)
    print(len(one) > 40, any(span[3] for span in one[:-1]), [run(jobs) == one for jobs in (2, 5)])

def __sample__(e): pass
",
        format!("{PAIR}//key=pid/open/"),
        folder.path().join("perf.data")
    );
    let outcome = replay(folder.path(), &program, &["syscalls:sys_enter_getsid"], &[]);
    assert_eq!(outcome.stdout, "True True [True, True]\n", "{}", outcome.stderr);
}
