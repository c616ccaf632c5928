//! `event._comm`: the comm of the event's task, live and in recordings.

use std::{os::unix::fs::symlink, process::Command};

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
    script::{Run, prints},
};

/// A script for which `print()` shows the comm in the first column, and `event._comm` is the same text.
const NAMES: &str = "
import contextlib, io
kept = []
def __sample__(event): kept.append(event)
def __exit__():
    for event in kept:
        out = io.StringIO()
        with contextlib.redirect_stdout(out): event.print(timestamp=False)
        assert out.getvalue().split()[0] == event._comm, (out.getvalue(), event._comm)
        print(event.pid, event._comm)
";

/// The comms are read at the end, after the tasks have exited.
#[test]
fn the_name_of_an_events_task_is_the_one_at_its_time_live_and_in_a_recording() {
    needs([Need::Tracefs]);
    let work = "comm first calls 1 comm second calls 1 fork comm third calls 1";
    let expected = "1 first\n2 second\n3 second\n3 third\n";
    let live = Run::script(NAMES).call_event().workload(work);
    let file = live.path("perf.data").display().to_string();
    let live = live.options(["--order", "--record", &file]);
    let outcome = live.run();
    assert_eq!((outcome.stdout.as_str(), outcome.status), (expected, 0), "{}", outcome.stderr);
    let replayed = Run::script(NAMES).options(["--input", &file]).run();
    assert_eq!((replayed.stdout.as_str(), replayed.status), (expected, 0), "{}", replayed.stderr);
}

/// The task gets its name on CPU 1. Its call on CPU 0 is the only event.
#[test]
fn with_a_list_of_cpus_the_names_that_tasks_got_on_other_cpus_are_known() {
    needs([Need::Tracefs, Need::TwoCpus]);
    let text = "
names = []
def __sample__(event): names.append((event._cpu, event._comm))
def __exit__(): print([name for name in names if name[1] == 'moves-here'])";
    let run = Run::script(text);
    symlink("/usr/bin/taskset", run.path("moves-here")).unwrap();
    let moves = format!("{} -c 0 /bin/true", run.path("moves-here").display());
    let moves_twice = format!("{moves}; {moves}; true");
    for layout in [&[][..], &["--threads"], &["--threads=0/0"]] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("perf.data");
        let mut recorder = Command::new(tested_program());
        recorder.args(["record", "-q", "-e", "syscalls:sys_enter_execve", "-C", "0"]).args(layout).arg("-o").arg(&file);
        assert!(recorder.args(["--", "taskset", "-c", "1", "sh", "-c", &moves_twice]).status().unwrap().success());
        let replayed = Run::script(text).options(["--order", "--input"]).options([&file]).run();
        let expected = ("[(0, 'moves-here'), (0, 'moves-here')]\n", 0);
        assert_eq!((replayed.stdout.as_str(), replayed.status), expected, "{layout:?}: {}", replayed.stderr);
    }
}

#[test]
fn the_name_of_the_task_is_reached_like_a_field_and_is_not_one_of_the_keys() {
    let text = "
import copy, pickle
def __sample__(e):
    print(e._comm, e['_comm'], e.get('_comm'), getattr(e, ''.join(['_co', 'mm'])), '_comm' in e, e.text('_comm'))
    print('_comm' in e.keys(), '_comm' in dict(e), len(e) == len(e.keys()), hasattr(type(e), '_comm'))
    print(copy.copy(e)._comm, pickle.loads(pickle.dumps(e))._comm)";
    prints(
        Run::script(text).call_event().workload("comm worker calls 1"),
        expect![[r#"
            worker worker worker worker True worker
            False False True True
            worker worker
        "#]],
    );
}

#[test]
fn events_other_than_tracepoints_have_the_name_of_their_task() {
    needs([Need::Tracefs]);
    let text = "
def page_faults_u(event): names.add((event._comm, event['_comm'], event.get('_comm'), '_comm' in event.keys()))
def __exit__(): print(('worker', 'worker', 'worker', False) in names)
names = set()";
    let run = Run::script(text).event("page-faults:u//period=1/").options(["--order"]);
    let outcome = run.workload("comm worker faults 64").run();
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("True\n", 0), "{}", outcome.stderr);
}
