//! Faults of the C implementation that must not happen here, in the order of the table "Fixed faults" in
//! `docs/differences.md`.

use std::process::Command;

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
    script::{CALL, Run, check, prints},
};

fn plain() -> Run {
    Run::script("def __sample__(event): pass\n")
}

fn calls(script: &str, workload: &str) -> Run {
    Run::script(script).call_event().workload(workload)
}

#[test]
fn u64_fields_are_never_negative() {
    let text = "
def __sample__(event): print(event.ptr > 2**63, str(event).count('-1'))
";
    let run = Run::script(text).event("kmem:kmem_cache_free/common_pid>0/").options(["-N", "3"]);
    prints(
        run.workload("fork fork fork open /proc/self/status"),
        expect![[r#"
        True 0
        True 0
        True 0
    "#]],
    );
}

#[test]
fn s32_fields_can_be_negative() {
    let text = "
def __sample__(event): print(event.node)
";
    let run = Run::script(text).event("kmem:kmalloc/node==-1/").options(["-N", "1"]);
    prints(
        run.workload("fork open /proc/self/status"),
        expect![[r#"
        -1
    "#]],
    );
}

#[test]
fn names_built_at_run_time_find_their_fields() {
    prints(
        calls("def __sample__(event): print(getattr(event, ''.join('pid')), event['xpid'[1:]])\n", "calls 1"),
        expect![[r#"
            1 1
        "#]],
    );
}

#[test]
fn a_comm_that_is_not_utf_8_is_a_str() {
    let text = "
def __sample__(event): print(ascii(event.newcomm), 'newcomm' in event, event.get('newcomm') == event.newcomm)
";
    let run = Run::script(text).event("task:task_rename").options(["-N", "2"]).workload("comm");
    let run = run.operation(b"\xe9t\xe9").operation(b"calls").operation(b"1");
    needs([Need::Tracefs]);
    let outcome = run.run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    assert!(outcome.stdout.ends_with("'\\udce9t\\udce9' True True\n"), "{}", outcome.stdout);
}

#[test]
fn an_unknown_event_attribute_or_pmu_is_an_error() {
    needs([Need::Tracefs]);
    for selector in [
        "no:such",
        "nosuch",
        "nosuch/x/",
        "sched:sched_wakeup//nosuch/",
        "sched:sched_wakeup//nosuch=5/",
        "nopmu/config=1/",
        ":",
        "a:",
        "//",
    ] {
        let outcome = plain().event(selector).run();
        outcome.assert_civil();
        assert!((1..=2).contains(&outcome.status), "{selector}: {}", outcome.status);
        assert!(
            outcome.stderr.starts_with("perf-prof: ") && outcome.stderr.lines().count() <= 2,
            "{selector}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn a_second_e_selects_more_events() {
    let text = "
seen = set()
def __sample__(event): seen.add(event._event)
def __exit__(): print(sorted(seen))
";
    let run = Run::script(text).call_event().event("syscalls:sys_exit_getpgid");
    prints(
        run.workload("calls 1"),
        expect![[r#"
        ['syscalls:sys_enter_getpgid', 'syscalls:sys_exit_getpgid']
    "#]],
    );
}

#[test]
fn c_99_is_an_error() {
    needs([Need::Tracefs]);
    let outcome = plain().call_event().options(["-C", "99"]).run();
    assert_ne!(outcome.status, 0);
    assert!(outcome.stderr.contains("99"), "{}", outcome.stderr);
}

#[test]
fn a_second_ctrl_c_ends_a_handler_that_blocks() {
    // The workload sends SIGINT twice, as Ctrl-C does.
    let text = "
import time
def __sample__(event): time.sleep(1000)
def __exit__(): print('exit')
";
    check(
        calls(text, "calls 1 sleep-ms 300 signal 2 sleep-ms 300 signal 2 forever"),
        expect![[r#"
        exit
        --- status 0
    "#]],
    );
}

#[test]
fn python_threads_run_while_perf_prof_waits() {
    let text = "
import os, signal, threading, time
ticks = 0
def work():
    global ticks
    for _ in range(20):
        time.sleep(0.001)
        ticks += 1
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=work, daemon=True).start()
def __sample__(event): pass
def __exit__(): print(ticks)
";
    prints(
        calls(text, "forever"),
        expect![[r#"
        20
    "#]],
    );
}

#[test]
fn exit_is_called_after_sys_exit_and_sighup() {
    let text = "
import os, signal, sys
def __sample__(event): DO
def __exit__(): print('exit')
";
    check(
        calls(&text.replace("DO", "sys.exit(3)"), "calls 1 forever"),
        expect![[r#"
        exit
        --- status 3
    "#]],
    );
    check(
        calls(&text.replace("DO", "os.kill(os.getpid(), signal.SIGHUP)"), "calls 1 forever"),
        expect![[r#"
        exit
        --- status 129
    "#]],
    );
}

#[test]
fn a_set_removes_equal_events() {
    let text = "
import copy, pickle
kept = []
def __sample__(event): kept.extend([event, copy.copy(event), pickle.loads(pickle.dumps(event))])
def __exit__(): print(len(kept), len(set(kept)))
";
    prints(
        calls(text, "calls 4"),
        expect![[r#"
        12 4
    "#]],
    );
}

#[test]
fn a_script_named_os_py_is_loaded() {
    let run = plain().file("os.py", "print('mine')\ndef __sample__(event): pass\n").module("os.py");
    prints(
        run.call_event().workload("calls 1"),
        expect![[r#"
        mine
    "#]],
    );
}

#[test]
fn a_script_named_a_b_py_is_loaded() {
    let run = plain().file("a.b.py", "print('mine')\ndef __sample__(event): pass\n").module("a.b.py");
    prints(
        run.call_event().workload("calls 1"),
        expect![[r#"
        mine
    "#]],
    );
}

#[test]
fn a_closed_pipe_causes_no_tracebacks() {
    needs([Need::Tracefs]);
    let run = Run::script("def __sample__(event): print(event)\ndef __exit__(): print('exit')\n");
    let own = std::env::current_exe().unwrap();
    let line = "\"$0\" python -m 16M -e \"$1\" s.py --exec \"$2\" \"$3\" calls 50000 | head -1; echo ${PIPESTATUS[0]}";
    let output = Command::new("bash")
        .args(["-c", line, tested_program(), CALL])
        .arg(own)
        .arg(crate::harness::calls::WORKLOAD)
        .current_dir(run.dir.path())
        // If a locale is not installed, bash writes a warning of its own to stderr.
        .env("LC_ALL", "C")
        .output();
    let output = output.unwrap_or_else(|error| skip(Need::Programs, format!("bash: {error}")));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!((lines.len(), lines.last()), (2, Some(&"0")), "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().all(|line| line.starts_with("Loaded module: ")), "{stderr}");
}

#[test]
fn a_script_without_handlers_is_an_error() {
    check(
        calls("def sched_wakeup(event): pass\n", "forever"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py: no callback for the selected events: define syscalls__sys_enter_getpgid(event) or __sample__(event) (`perf-prof python -e ... help` prints a template)
        --- status 1
    "#]],
    );
}

#[test]
fn pid_0_prints_as_swapper() {
    let text = "
def __sample__(event): event.print(timestamp=False)
";
    needs([Need::Tracefs, Need::Idle]);
    let outcome = Run::script(text).event("sched:sched_switch/prev_pid==0/").options(["-N", "2"]).run();
    assert!(outcome.stdout.lines().all(|line| line.starts_with("         swapper      0 ")), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("<...>") && !outcome.stdout.is_empty());
}
