//! An exception in a callback is printed a limited number of times, and does not stop the delivery of events.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{Run, check},
};

#[test]
fn an_exception_prints_its_traceback_and_events_go_on() {
    let text = "
def helper(event): return event.nosuchfield
def __sample__(event):
    if event.pid == 2: helper(event)
    print(event.pid)
";
    check(
        Run::script(text).call_event().workload("calls 3"),
        expect![[r#"
            1
            3
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 4, in __sample__
                if event.pid == 2: helper(event)
              File "DIR/s.py", line 2, in helper
                def helper(event): return event.nosuchfield
            AttributeError: 'perf_prof.syscalls__sys_enter_getpgid' object has no attribute 'nosuchfield'
            --- status 1
        "#]],
    );
}

#[test]
fn a_traceback_is_printed_once_and_its_exceptions_are_counted() {
    needs([Need::Tracefs]);
    let text = "
n = 0
def __sample__(event):
    global n
    n += 1
    if n % 2: raise ValueError(n)
    {}[n]
def __exit__(): print(n)
";
    let outcome = Run::script(text).call_event().workload("calls 5000").run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (1, "5000\n"));
    assert_eq!(outcome.stderr.matches("Traceback (most recent call last)").count(), 2);
    let ours: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("perf-prof: ")).collect();
    expect![[r#"
        perf-prof: __sample__: ValueError at DIR/s.py:6 again; from now on, this exception is only counted
        perf-prof: __sample__: KeyError at DIR/s.py:7 again; from now on, this exception is only counted
        perf-prof: ValueError at DIR/s.py:6: 2500 times in total
        perf-prof: KeyError at DIR/s.py:7: 2500 times in total"#]]
    .assert_eq(&ours.join("\n"));
}

#[test]
fn two_places_in_one_function_are_counted_apart() {
    needs([Need::Tracefs]);
    let text = "
def __sample__(event):
    for i in range(1):
        if event.pid > 12: raise ValueError
    if event.pid <= 12: raise ValueError
";
    let outcome = Run::script(text).call_event().workload("calls 24").run();
    assert_eq!(outcome.stderr.matches("Traceback (most recent call last)").count(), 2);
}

#[test]
fn exceptions_of_every_other_callback_are_printed_too() {
    let text = "
def __interval__(): raise ValueError('interval')
def __print_stat__(indent): raise ValueError('print_stat')
def __sample__(event): raise SystemExit(0)
def __exit__(): raise ValueError('exit')
";
    needs([Need::Tracefs]);
    let run = Run::script(text)
        .call_event()
        .options(["-i", "20"])
        .workload("sleep-ms 300 signal 12 sleep-ms 300 calls 1 forever");
    let outcome = run.run();
    outcome.assert_civil();
    for name in ["interval", "print_stat", "exit"] {
        assert!(outcome.stderr.contains(&format!("ValueError: {name}\n")), "{}", outcome.stderr);
    }
    assert_eq!(outcome.status, 1);
}

#[test]
fn an_exception_group_a_base_exception_and_a_recursion_do_not_end_the_run() {
    let text = "
import sys
class Own(BaseException): pass
def deep(n): return deep(n + 1)
def __sample__(event):
    if event.pid == 1: raise Own('own')
    if event.pid == 2: raise GeneratorExit
    if event.pid == 3:
        try: deep(0)
        except RecursionError as error: raise RecursionError(str(error)[:33]) from None
    if event.pid == 4: raise UnicodeError('\\udcff')
    print(event.pid)
";
    check(
        Run::script(text).call_event().workload("calls 5"),
        expect![[r#"
            5
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 6, in __sample__
                if event.pid == 1: raise Own('own')
            s.Own: own
            Traceback (most recent call last):
              File "DIR/s.py", line 7, in __sample__
                if event.pid == 2: raise GeneratorExit
            GeneratorExit
            Traceback (most recent call last):
              File "DIR/s.py", line 10, in __sample__
                except RecursionError as error: raise RecursionError(str(error)[:33]) from None
            RecursionError: maximum recursion depth exceeded
            Traceback (most recent call last):
              File "DIR/s.py", line 11, in __sample__
                if event.pid == 4: raise UnicodeError('\udcff')
            UnicodeError: \udcff
            --- status 1
        "#]],
    );
}

#[test]
fn on_error_stop_ends_at_the_first() {
    let text = "
def __sample__(event):
    print(event.pid)
    raise ValueError
def __exit__(): print('exit')
";
    check(
        Run::script(text).call_event().workload("calls 5 forever").options(["--on-error=stop"]),
        expect![[r#"
        1
        exit
        --- stderr
        Traceback (most recent call last):
          File "DIR/s.py", line 4, in __sample__
            raise ValueError
        ValueError
        --- status 1
    "#]],
    );
}

#[test]
fn a_scripts_own_excepthook_is_used() {
    let text = "
import sys
sys.excepthook = lambda kind, value, traceback: print('hook', kind.__name__, value)
def __sample__(event): raise ValueError(event.pid)
";
    check(
        Run::script(text).call_event().workload("calls 2"),
        expect![[r#"
            hook ValueError 1
            --- stderr
            perf-prof: __sample__: ValueError at DIR/s.py:4 again; from now on, this exception is only counted
            perf-prof: ValueError at DIR/s.py:4: 2 times in total
            --- status 1
        "#]],
    );
}

#[test]
fn an_exception_that_cannot_be_printed_does_not_end_the_run() {
    let text = "
class Bad(Exception):
    def __str__(self): raise RuntimeError('not even this')
def __sample__(event):
    print(event.pid)
    raise Bad
";
    check(
        Run::script(text).call_event().workload("calls 2"),
        expect![[r#"
            1
            2
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 6, in __sample__
                raise Bad
            s.Bad: <exception str() failed>
            perf-prof: __sample__: Bad at DIR/s.py:6 again; from now on, this exception is only counted
            perf-prof: Bad at DIR/s.py:6: 2 times in total
            --- status 1
        "#]],
    );
}
