//! Copies of spans: pickles that another process reads, and spans that an aggregator keeps.

use std::fs;

use super::{PAIR, getsid};
use crate::harness::{
    awake::Awake,
    machine::{Need, needs},
    script::{CALL, Run},
};

/// A script that prints everything about spans that is not in their fields.
const DESCRIBE: &str = "
from perf_prof import Count

def describe(e):
    table = Count('begin.common_pid', 'begin._comm', 'comm', 'begin._realtime')
    table.add(e)
    print(dict(e)['duration'], e._event, e.comm, e.open, table.to_dict(), type(e).__name__)
    for part in (e, e.begin, e.end, *e.between):
        if part is not None:
            print(type(part).__name__, part._time, part._realtime, part._comm, part._tid, part._callchain)
";

/// Runs a script that pickles and describes spans, and then a script that reads them in another process. Both must
/// print the same. Returns the lines.
#[track_caller]
fn pickled(selector: &str, handler: &str, operations: &str) -> Vec<String> {
    needs([Need::Tracefs]);
    let write = format!(
        "{DESCRIBE}
import pickle
from perf_prof import Top

kept = []
longest = Top(2, 'duration')
{handler} = longest, kept.append

def __exit__():
    with open('spans.pickle', 'wb') as file:
        pickle.dump((kept, longest), file)
    for e in [*kept, *longest]:
        describe(e)
"
    );
    let first = Run::script(&write).event(selector).workload(operations);
    let written = first.run();
    assert_eq!(written.status, 0, "{}", written.stderr);
    let file = first.path("spans.pickle");
    assert!(fs::metadata(&file).unwrap().len() > 0);
    let read = format!(
        "{DESCRIBE}
import pickle

with open({file:?}, 'rb') as file:
    kept, longest = pickle.load(file)
for e in [*kept, *longest]:
    describe(e)
raise SystemExit(0)
"
    );
    let read = Run::script("").file("program.py", read).module("program.py").options(["-q", "-e", CALL]).run();
    assert_eq!((read.stdout.as_str(), read.status), (written.stdout.as_str(), 0), "{}", read.stderr);
    written.stdout.lines().map(str::to_owned).collect()
}

/// Returns the number of lines that contain a text.
fn with(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn another_process_has_both_events_of_a_span() {
    let operations = format!("comm copied call 1 {} call 2 {} call 3", getsid(1), getsid(2));
    let lines = pickled(&format!("{PAIR}//key=pid/open/"), "span__pair", &operations);
    // Three spans, and two that the aggregator kept, each with a line for itself. One has no end.
    let of = |class: &str| lines.iter().filter(|line| line.starts_with(class)).count();
    assert_eq!((of("syscalls__sys_enter_getpgid "), of("span__pair ")), (5, 5), "{lines:?}");
    assert!(of("syscalls__sys_enter_getsid ") >= 3 && with(&lines, " copied ") == lines.len(), "{lines:?}");
}

#[test]
fn the_call_chains_of_both_events_are_in_a_copy() {
    let selector = "span:rename=task:task_rename..syscalls:sys_enter_getsid//key=_tid/stack/";
    let lines = pickled(selector, "span__rename", &format!("renames 1 {}", getsid(1)));
    let chains: Vec<&String> = lines.iter().filter(|line| line.starts_with("task__task_rename ")).collect();
    assert!(chains.len() == 2 && chains.iter().all(|line| line.contains("'symbol'")), "{lines:?}");
}

#[test]
fn events_between_are_in_a_copy() {
    // On some machines, perf gets no events of a CPU's idle task.
    let _awake = Awake::new();
    let lines = pickled("offcpu", "offcpu", "sleep-ms 5 sleep-ms 5 sleep-ms 5");
    assert!(with(&lines, "sched__sched_waking ") > 0 && with(&lines, "sched__sched_switch ") > 1, "{lines:?}");
}
