//! The sources that are made of the scheduler's events.

use expect_test::expect;

use super::live_and_recorded;
use crate::harness::{
    counting::objects,
    machine::{Need, needs},
    recording::Folder,
    run::{perf_prof, stdout},
};

#[test]
fn a_nap_is_a_time_off_the_cpu() {
    live_and_recorded(
        "
def offcpu(e):
    long = e.duration >= 20_000_000
    print(e.comm, e.state, long, e.blocked >= 20_000_000, e.blocked + e.waited == e.duration, e.pid == e._tid == e._pid)
    print(e.begin.prev_comm, e.end.next_comm, len(e.between) <= 1)
",
        "offcpu/comm=napper, state=sleeping, min=19ms/",
        "comm napper sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20",
        expect![[r#"
            napper sleeping True True True True
            napper napper True
            napper sleeping True True True True
            napper napper True
            napper sleeping True True True True
            napper napper True
        "#]],
    );
}

#[test]
fn the_states_of_a_task_follow_each_other() {
    live_and_recorded(
        "
last = None
states = set()
overlaps = 0

def task_state(e):
    global last, overlaps
    # Some kernels do not trace all wakeups and switches, so there may be gaps.
    overlaps += last is not None and last > e.begin._time
    last = e._time
    states.add(e.state)

def __exit__():
    print(overlaps, states >= {'running', 'sleeping', 'runnable'}, 'unknown' in states)
",
        "task-state/comm=napper/",
        "comm napper sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20",
        expect![[r#"
            0 True False
        "#]],
    );
}

#[test]
fn a_task_waits_runs_and_waits_again() {
    live_and_recorded(
        "
import collections
counts = collections.Counter()
waited = False

def runqueue(e):
    global waited
    waited = True
    counts['waits'] += 1
    counts['wrong'] += e.end.next_comm != 'napper' or e.preempted not in (0, 1)

def oncpu(e):
    global waited
    counts['runs'] += 1
    counts['without a wait'] += not waited
    waited = False
    counts['wrong'] += e.why not in ('sleeping', 'preempted', 'disk', 'dead', 'zombie')

def __exit__():
    print(counts['waits'] >= 3, counts['runs'] >= 3, counts['wrong'], counts['without a wait'] <= 1)
",
        "runqueue/comm=napper/,oncpu/comm=napper/",
        "comm napper sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20",
        expect![[r#"
            True True 0 True
        "#]],
    );
}

#[test]
fn other_events_cannot_be_selected_for_a_task_beside_those_of_all_tasks() {
    needs([Need::Tracefs]);
    let outcome = perf_prof(&["trace", "-e", "offcpu,sched:sched_switch", "-p", "1"]).output().unwrap();
    let message = String::from_utf8(outcome.stderr).unwrap();
    assert!(message.contains("offcpu is made of events of all tasks, and sched:sched_switch would be"), "{message}");
    assert_eq!(outcome.status.code(), Some(2));
}

#[test]
fn a_recording_of_a_source_has_the_events_of_all_its_spans() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("o.data");
    let record = |args: &[&str]| {
        let mut command = perf_prof(&["record", "-q", "-e", "offcpu/min=20ms/", "-o"]);
        command.arg(&path).args(args).args(["--", "sleep", "0.03"]).output().unwrap()
    };
    let refused = record(&[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("offcpu/min=20ms/ is made of events of all tasks; record with -a"), "{message}");
    assert!(record(&["-a"]).status.success());
    let trace = perf_prof(&["trace", "-q", "--json", "-e", "offcpu/comm=sleep, min=30ms/", "--input"])
        .arg(&path)
        .output()
        .unwrap();
    let naps = objects(&stdout(&trace));
    assert_eq!(naps.len(), 1, "{naps:?}");
    assert_eq!(naps[0]["fields"]["state"], "sleeping");
}

#[test]
fn a_source_that_moves_between_cpus_needs_all_of_them() {
    needs([Need::Tracefs]);
    for (selector, options) in [("offcpu", &["-C", "0"][..]), ("syscall", &["-C", "0"]), ("oncpu//cpus=0/", &[])] {
        let outcome = perf_prof(&["trace", "-e", selector]).args(options).output().unwrap();
        let message = String::from_utf8(outcome.stderr).unwrap();
        assert!(message.contains("may begin on one CPU and end on another"), "{selector}: {message}");
        assert_eq!(outcome.status.code(), Some(2), "{selector}");
    }
}

#[test]
fn a_span_that_is_open_at_the_end_belongs_to_its_own_task() {
    needs([Need::Tracefs]);
    let shell = "sleep 5 > /dev/null 2>&1 & echo $! >&2; sleep 0.2; exec true";
    let trace =
        perf_prof(&["trace", "-q", "--json", "-e", "process//open/", "--", "sh", "-c", shell]).output().unwrap();
    let spans = objects(&stdout(&trace));
    let open: Vec<_> = spans.iter().filter(|span| span["fields"]["open"] == true).collect();
    assert_eq!(open.len(), 1, "{spans:?}");
    let child: u32 = String::from_utf8(trace.stderr).unwrap().trim().parse().unwrap();
    assert_eq!((&open[0]["tid"], &open[0]["fields"]["pid"]), (&child.into(), &child.into()), "{open:?}");
}
