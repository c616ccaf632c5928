//! The sources that are made from the scheduler's events.
//!
//! On some machines, perf gets no events of a CPU's idle task, so no CPU is idle during these workloads. Other tasks
//! may be affected too, so a few switches and wakeups may be missing.

use expect_test::expect;

use super::{live_and_recorded, replay};
use crate::harness::{
    awake::Awake,
    counting::objects,
    machine::{Need, needs},
    recording::Folder,
    run::{perf_prof, stdout},
    script::{Run, workload},
    task,
};

#[test]
fn a_nap_is_a_time_off_the_cpu() {
    let _awake = Awake::new();
    live_and_recorded(
        "
naps = []

def offcpu(e):
    naps.append(e.duration >= 20_000_000 and e.blocked >= 20_000_000 and e.blocked + e.waited == e.duration)
    naps.append(e.pid == e._tid == e._pid and e.begin.prev_comm == e.end.next_comm == e.comm == 'napper')
    naps.append(e.state == 'sleeping' and len(e.between) <= 1)

def __exit__():
    print(6 <= len(naps) <= 18, all(naps))
",
        "offcpu/comm=napper, state=sleeping, min=19ms/",
        "comm napper sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20 sleep-ms 20 sleep-ms 20 sleep-ms 20",
        expect![[r#"
            True True
        "#]],
    );
}

#[test]
fn the_states_of_a_task_follow_each_other() {
    let _awake = Awake::new();
    live_and_recorded(
        "
last = None
states = set()
overlaps = 0

def task_state(e):
    global last, overlaps
    overlaps += last is not None and last > e.begin._time
    last = e._time
    states.add(e.state)

def __exit__():
    print(overlaps, {'running', 'sleeping'} & states != set(), states - {'running', 'runnable', 'sleeping', 'disk'})
",
        "task-state/comm=changer/",
        "comm changer sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20",
        expect![[r#"
            0 True set()
        "#]],
    );
}

#[test]
fn a_task_waits_and_then_runs() {
    let _awake = Awake::new();
    live_and_recorded(
        "
import collections
counts = collections.Counter()

def runqueue(e):
    counts['waits'] += 1
    counts['wrong'] += e.end.next_comm != 'waiter' or e.preempted not in (0, 1)

def oncpu(e):
    counts['runs'] += 1
    counts['wrong'] += e.begin.next_comm != 'waiter' and e.end.prev_comm != 'waiter'
    counts['wrong'] += e.why not in ('sleeping', 'preempted', 'disk', 'dead', 'zombie')

def __exit__():
    print(counts['waits'] >= 1, counts['runs'] >= 1, counts['wrong'])
",
        "runqueue/comm=waiter/,oncpu/comm=waiter/",
        "comm waiter sleep-ms 20 sleep-ms 20 call 1 sleep-ms 20",
        expect![[r#"
            True True 0
        "#]],
    );
}

/// A Python script computes the same from switches and wakeups.
#[test]
fn a_wait_for_a_cpu_is_charged_to_the_tasks_that_ran_meanwhile() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let by_spans = "
import collections
ran = collections.Counter()
def runqueue(e):
    for other in filter(None, e.ran.split(', ')):
        name, _, ns = other.rpartition(' ')
        ran[e.comm, name] += int(ns)
def __exit__():
    for row in sorted(ran.items()): print(row)
";
    let by_switches = "
import collections
ran, runs, waits = collections.Counter(), collections.defaultdict(list), {}
def sched__sched_switch(e):
    own = runs[e._cpu]
    if (begin := waits.pop(e.next_pid, None)) is not None:
        until = e._time
        for time, name in reversed(own):
            if max(time, begin) < until:
                ran[e.next_comm, name] += until - max(time, begin)
                until = max(time, begin)
            if time <= begin: break
    own.append((e._time, e.next_comm))
    waits.pop(e.prev_pid, None)
    if e.prev_pid and not e.prev_state & 0xff: waits[e.prev_pid] = e._time
def sched__sched_wakeup(e): waits.setdefault(e.pid, e._time)
sched__sched_wakeup_new = sched__sched_wakeup
def __exit__():
    for row in sorted(ran.items()): print(row)
";
    let live = Run::script(by_spans).event("runqueue").options(["-q", "-m", "1024", "--record", "r.data"]);
    let live = live.workload("comm charged sleep-ms 20 call 1 sleep-ms 20 sleep-ms 20");
    assert_eq!(live.run().status, 0);
    let recording = live.path("r.data");
    let events = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new";
    let expected = replay(by_switches, events, &recording, &["-q"]).stdout;
    assert!(expected.contains("('charged', "), "{expected}");
    for jobs in ["1", "3"] {
        let merged = format!(
            "{by_spans}\n__partial__ = lambda: ran\ndef __merge__(partials):\n    for partial in partials: ran.update(partial)\n"
        );
        assert_eq!(replay(&merged, "runqueue", &recording, &["-q", "--jobs", jobs]).stdout, expected, "--jobs {jobs}");
    }
}

/// Each source opens its own events, so the recording contains each event several times.
#[test]
fn each_source_of_a_recording_takes_an_event_once() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let script = "
import perf_prof
def __sample__(e): pass
def __exit__():
    for name, row in sorted(perf_prof.stats()['events'].items()):
        if 'opened' in row: print(name, row['opened'], row['ended'], row['dropped'], row['open'])
";
    let sources = ["offcpu", "oncpu", "runqueue", "task-state"];
    let live = Run::script(script).event(sources.join(",")).options(["-q", "-m", "1024", "--record", "r.data"]);
    let live = live.workload("comm once sleep-ms 20 call 1 sleep-ms 20 sleep-ms 20");
    let outcome = live.run();
    assert_eq!((outcome.status, outcome.stdout.lines().count()), (0, 4), "{}", outcome.stderr);
    let recording = live.path("r.data");
    let together = replay(script, &sources.join(","), &recording, &["-q"]);
    assert_eq!(together.stdout, outcome.stdout);
    for (source, counts) in sources.iter().zip(outcome.stdout.lines()) {
        let numbers =
            |line: &str| -> Vec<u64> { line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect() };
        let alone = replay(script, source, &recording, &["-q"]);
        // The copies of the events of two sources need not start and end at the same moment.
        for (own, other) in numbers(alone.stdout.trim_end()).into_iter().zip(numbers(counts)) {
            assert!(own.abs_diff(other) <= 5 + other / 20, "{source}: {} and {counts}", alone.stdout);
        }
    }
}

#[test]
fn other_events_cannot_be_selected_for_a_task_beside_those_of_all_tasks() {
    needs([Need::Tracefs]);
    let outcome = perf_prof(&["trace", "-e", "offcpu,sched:sched_switch", "-p", "1"]).output().unwrap();
    let message = String::from_utf8(outcome.stderr).unwrap();
    assert!(
        message.contains("offcpu needs the events of all tasks, so tasks cannot be selected for sched:sched_switch"),
        "{message}"
    );
    assert_eq!(outcome.status.code(), Some(2));
}

#[test]
fn a_recording_of_a_source_has_the_events_of_all_its_spans() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let folder = Folder::new();
    let path = folder.path("o.data");
    // Other tasks of the machine sleep too.
    let own = format!("own-{}", task::gettid());
    let record = |args: &[&str]| {
        let mut command = perf_prof(&["record", "-q", "-e", "offcpu/min=20ms/", "-o"]);
        command
            .arg(&path)
            .args(args)
            .arg("--")
            .args(workload(&format!("comm {own} {}", ["sleep-ms 30"; 5].join(" "))))
            .output()
            .unwrap()
    };
    let refused = record(&[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("offcpu/min=20ms/ is made of events of all tasks; record with -a"), "{message}");
    assert!(record(&["-a"]).status.success());
    let selector = format!("offcpu/comm={own}, min=30ms/");
    let trace = perf_prof(&["trace", "-q", "--json", "-e", &selector, "--input"]).arg(&path).output().unwrap();
    let spans = objects(&stdout(&trace));
    // On a busy machine, the task may also wait that long for a CPU.
    let naps = spans.iter().filter(|span| span["state"] == "sleeping").count();
    assert!((1..=5).contains(&naps), "{spans:?}");
}

#[test]
fn each_source_of_a_recording_needs_its_tasks_and_cpus_in_any_order() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let own = std::process::id().to_string();
    let tasks = "signal is made of events of all tasks; record with -a, without -p or -t, and select the tasks";
    let cpus = "offcpu needs the events of all CPUs";
    let of_tasks = "syscall,signal";
    for (events, options, message) in [
        (of_tasks, &["-p", &own][..], tasks),
        ("signal,syscall", &["-p", &own], tasks),
        (of_tasks, &["-t", &own], tasks),
        (of_tasks, &[], tasks),
        (of_tasks, &["-p", &own, "--threads"], tasks),
        (of_tasks, &["-p", &own, "-z"], tasks),
        (of_tasks, &["-p", &own, "--before", "1s"], tasks),
        (of_tasks, &["-p", &own, "--overwrite"], tasks),
        ("irq,offcpu", &["-C", "0"], cpus),
    ] {
        let mut record = perf_prof(&["record", "-q", "-e", events, "-o"]);
        let output = record.arg(folder.path("r.data")).args(options).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(message) && !output.status.success(), "{events} {options:?}: {said}");
    }
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
    let open: Vec<_> = spans.iter().filter(|span| span["open"] == true).collect();
    assert_eq!(open.len(), 1, "{spans:?}");
    let child: u32 = String::from_utf8(trace.stderr).unwrap().trim().parse().unwrap();
    assert_eq!((&open[0]["_tid"], &open[0]["pid"]), (&child.into(), &child.into()), "{open:?}");
}

#[test]
fn a_span_of_a_thread_has_its_process() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let threads = "import os, threading, time\n\
                   nap = lambda: [time.sleep(0.01) for _ in range(10)]\n\
                   thread = threading.Thread(target=nap)\n\
                   thread.start()\n\
                   nap()\n\
                   thread.join()\n\
                   print(os.getpid(), thread.native_id, flush=True)";
    let folder = Folder::new();
    let recording = folder.path("threads.data");
    let recorded = perf_prof(&["record", "-q", "-a", "-e", "runqueue,task-state", "-o"])
        .arg(&recording)
        .args(["--", "python3", "-c", threads])
        .output()
        .unwrap();
    let live = perf_prof(&["trace", "-q", "--json", "-e", "runqueue,task-state", "-o"])
        .arg(folder.path("live.json"))
        .args(["--", "python3", "-c", threads])
        .output()
        .unwrap();
    let replayed =
        perf_prof(&["trace", "-q", "--json", "-e", "runqueue,task-state", "--input"]).arg(&recording).output().unwrap();
    let of_live = std::fs::read_to_string(folder.path("live.json")).unwrap();
    for (ids, spans) in [(stdout(&live), of_live), (stdout(&recorded), stdout(&replayed))] {
        let (pid, tid) = ids.trim().split_once(' ').unwrap();
        let (pid, tid): (i64, i64) = (pid.parse().unwrap(), tid.parse().unwrap());
        let own: Vec<_> = objects(&spans).into_iter().filter(|span| span["_tid"] == tid).collect();
        assert!(!own.is_empty() && own.iter().all(|span| span["_pid"] == pid), "{pid} {tid}: {own:?}");
    }
}
