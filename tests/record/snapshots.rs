//! Snapshots that a script requests (`perf-prof python --before`): what they contain, and why there is none.

use std::{fs, path::Path};

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    run::{perf_prof, stdout},
    script::{CALL, Run, check, prints},
};

/// After this time, the rings have their final size and keep events.
const UNTIL_SIZED: &str = "sleep-ms 1500";

/// Returns a script that calls `snapshot` with these arguments in the handler of a sleep of 60 to 1000 ms, and prints
/// the result.
fn at_slow_sleep(arguments: &str) -> String {
    format!(
        "
import os, perf_prof, signal, threading
calls = 0
def syscalls__sys_enter_getpgid(event):
    global calls
    calls += 1
def syscall(event):
    if 60_000_000 <= event.duration < 1_000_000_000:
        snapshot()
def snapshot():
    print(perf_prof.snapshot({arguments}))
"
    )
}

/// Returns the numbers of the calls in a recording, and the text of its trigger.
fn recorded(path: &Path) -> (Vec<u64>, String) {
    let path = path.to_str().unwrap();
    let output = perf_prof(&["script", "-i", path, "-F", "event,trace"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = stdout(&output);
    let number = |line: &str| u64::from_str_radix(line.split("pid: 0x").nth(1)?.trim(), 16).ok();
    let trigger = text.lines().find(|line| line.contains("perf-prof:trigger")).unwrap_or_default();
    (text.lines().filter(|line| line.contains(CALL)).filter_map(number).collect(), trigger.trim().to_owned())
}

fn dumps(run: &Run) -> Vec<String> {
    let Ok(entries) = fs::read_dir(run.path("dumps")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The handler requests the first snapshot at a slow call. `__exit__` requests another one after the command has
/// exited.
#[test]
fn a_snapshot_has_every_call_up_to_the_one_that_was_slow() {
    needs([Need::Tracefs, Need::Python]);
    let script = at_slow_sleep("'slow call'") + "def __exit__(): print(calls, perf_prof.snapshot(path='end.data'))\n";
    let run = Run::script(&script).options(["--before", "20s", "--record", "dumps"]).call_event();
    let run = run
        .event("syscall/name=*nanosleep/")
        .workload(&format!("{UNTIL_SIZED} calls 700 sleep-ms 80 calls 300 sleep-ms 300"));
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let found = dumps(&run);
    // The sleep of 300 ms is slow as well.
    assert_eq!(found.len(), 2, "{found:?} {}", outcome.stdout);
    assert!(found.iter().all(|name| name.contains("-slow_call")), "{found:?}");
    let printed: Vec<&str> = outcome.stdout.lines().collect();
    let [first, second, end] = printed[..] else { panic!("{}", outcome.stdout) };
    assert_eq!(end, "1000 end.data");
    for (path, least) in [(first, 700), (second, 1000), ("end.data", 1000)] {
        let (calls, trigger) = recorded(&run.path(path));
        assert!(calls.len() >= least, "{path} {}", calls.len());
        assert_eq!(calls, (1..=calls.len() as u64).collect::<Vec<_>>(), "{path}");
        let reason = if path == "end.data" { "perf-prof:trigger: :" } else { "perf-prof:trigger: slow call:" };
        assert!(trigger.starts_with(reason), "{trigger}");
    }
}

#[test]
fn a_snapshot_goes_on_for_after_and_the_newest_remain() {
    needs([Need::Tracefs, Need::Python]);
    let run = Run::script(&at_slow_sleep("'slow'"))
        .options(["--before", "20s", "--after", "400ms", "--max-files", "1", "--record", "dumps/"])
        .call_event()
        .event("syscall/name=*nanosleep/");
    // All handlers of the first 400 ms wait for the first snapshot.
    let run = run
        .workload(&format!("{UNTIL_SIZED} calls 10 sleep-ms 80 sleep-ms 50 calls 5 sleep-ms 1500 calls 1 sleep-ms 80"));
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let printed: Vec<&str> = outcome.stdout.lines().collect();
    let [first, second] = printed[..] else { panic!("{}", outcome.stdout) };
    assert_eq!(dumps(&run), [second.strip_prefix("dumps/").unwrap()]);
    let told = outcome.stderr.lines().find(|line| line.contains(first)).unwrap_or_default();
    assert!(told.contains(" s before to 0.4 s after `slow`"), "{}", outcome.stderr);
    assert_eq!(recorded(&run.path(second)).0, (1..=16).collect::<Vec<_>>());
}

#[test]
fn ctrl_c_ends_the_wait_for_a_snapshot() {
    needs([Need::Tracefs, Need::Python]);
    let script = at_slow_sleep("'slow'").replace(
        "    print(perf_prof",
        "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n    print(perf_prof",
    );
    let run = Run::script(&script).options(["--before", "20s", "--after", "10m", "--record", "dumps/"]).call_event();
    let run =
        run.event("syscall/name=*nanosleep/").workload(&format!("{UNTIL_SIZED} calls 20 sleep-ms 80 sleep-ms 60000"));
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let [path] = outcome.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{}", outcome.stdout) };
    assert_eq!(recorded(&run.path(path)).0, (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_that_cannot_be_made_raises_an_exception() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import os, perf_prof
def attempt(**arguments):
    try: print(perf_prof.snapshot(**arguments))
    except perf_prof.Error as error: print(type(error).__name__, error, flush=True)
attempt()
def syscalls__sys_enter_getpgid(event):
    attempt(path='no/folder/x.data')
    if os.fork() == 0:
        attempt()
        os._exit(0)
    os.wait()
";
    check(
        Run::script(script).options(["-q", "--before", "1s"]).call_event().workload("calls 1"),
        expect![[r#"
            Error snapshot(): no events are kept; run the script on live events with --before TIME, for example `perf-prof python --before 10s -e EVENT SCRIPT`, and call it in a handler
            RecordingFileError cannot write 'no/folder/x.data': No such file or directory (os error 2)
            ClosedError snapshot(): this is a forked child; the events are kept in its parent
            --- stderr
            perf-prof: no dump for : cannot write 'no/folder/x.data': No such file or directory (os error 2); the next trigger tries again
            --- status 0
        "#]],
    );
    let without = "
import perf_prof
def syscalls__sys_enter_getpgid(event): perf_prof.snapshot()
";
    let outcome = Run::script(without).call_event().workload("calls 1").run();
    assert_eq!(outcome.status, 1);
    assert!(
        outcome.stderr.contains("Error: snapshot(): no events are kept; run the script on live events"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_script_gets_the_same_events_with_a_flight_recorder_beside_it() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
from collections import Counter
seen = Counter()
def __sample__(event): seen[event._event] += 1
def __exit__(): print(dict(seen))
";
    let run = |options: &[&str]| {
        Run::script(script).options(options).call_event().workload("calls 500 sleep-ms 20 calls 500")
    };
    prints(
        run(&["-q", "--before", "1s"]),
        expect![[r#"
        {'syscalls:sys_enter_getpgid': 1000}
    "#]],
    );
}
