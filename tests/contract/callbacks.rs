//! Which functions of the script are called, when, and with which arguments.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{CALL, Run, check, prints},
};

fn calls(script: &str, workload: &str) -> Run {
    Run::script(script).call_event().workload(workload)
}

#[test]
fn every_callback_in_its_order() {
    let text = "
def __init__(): print('init')
def __exit__(): print('exit')
def syscalls__sys_enter_getpgid(event): print('call', event.pid)
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        init
        call 1
        call 2
        call 3
        exit
    "#]],
    );
}

#[test]
fn init_runs_before_events_are_enabled() {
    // All processes are traced here, and `__init__` itself makes some calls.
    let text = "
import os
mine = os.getpid()
def __init__():
    for _ in range(3): os.getpgid(0)
def __sample__(event): print('never' if event._pid == mine else 'other')
def __interval__(): raise SystemExit(4)
def __exit__(): print('exit')
";
    needs([Need::Tracefs]);
    let outcome = Run::script(text).call_event().options(["-i", "100"]).run();
    outcome.assert_civil();
    assert_eq!(outcome.status, 4, "{}", outcome.stderr);
    assert!(outcome.stdout.ends_with("exit\n") && !outcome.stdout.contains("never"), "{}", outcome.stdout);
}

#[test]
fn an_exception_in_init_ends_the_start() {
    let text = "
def __init__(): raise RuntimeError('no')
def __exit__(): print('never')
def __sample__(event): print('never')
";
    check(
        calls(text, "calls 3"),
        expect![[r#"
            --- stderr
            Traceback (most recent call last):
              File "DIR/s.py", line 2, in __init__
                def __init__(): raise RuntimeError('no')
            RuntimeError: no
            perf-prof: __init__() failed
            --- status 1
        "#]],
    );
}

#[test]
fn exit_in_init_gives_its_status() {
    let text = "
import sys
def __init__(): sys.exit(7)
def __sample__(event): print('never')
";
    check(
        calls(text, "calls 3"),
        expect![[r#"
        --- status 7
    "#]],
    );
}

#[test]
fn a_handler_of_its_own_wins_over_sample() {
    let text = "
def syscalls__sys_enter_getpgid(event): print('own', event._event)
def __sample__(event): print('sample', event._event)
";
    let run = calls(text, "calls 2").event("syscalls:sys_exit_getpgid");
    prints(
        run.options(["--order"]),
        expect![[r#"
        own syscalls:sys_enter_getpgid
        sample syscalls:sys_exit_getpgid
        own syscalls:sys_enter_getpgid
        sample syscalls:sys_exit_getpgid
    "#]],
    );
}

#[test]
fn an_alias_names_the_handler() {
    let text = "
def syscalls__mine(event): print('mine', event._event)
def syscalls__sys_enter_getpgid(event): print('never')
";
    check(
        Run::script(text).event(format!("{CALL}//alias=mine/")).workload("calls 2"),
        expect![[r#"
        mine syscalls:mine
        mine syscalls:mine
        --- stderr
        perf-prof: warning: syscalls__sys_enter_getpgid() is never called: syscalls:sys_enter_getpgid has an alias and calls syscalls__mine() instead
        --- status 0
    "#]],
    );
}

#[test]
fn dashes_dots_and_colons_of_an_alias_become_underscores() {
    let text = "
def syscalls__a_b_c_d(event): print(event._event)
";
    prints(
        Run::script(text).event(format!("{CALL}//alias=a-b.c:d/")).workload("calls 1"),
        expect![[r#"
        syscalls:a-b.c:d
    "#]],
    );
}

#[test]
fn the_same_event_twice_is_delivered_twice() {
    let text = "
n = 0
def syscalls__sys_enter_getpgid(event):
    global n
    n += 1
def __exit__(): print(n)
";
    prints(
        calls(text, "calls 5").call_event(),
        expect![[r#"
        10
    "#]],
    );
}

#[test]
fn the_same_event_with_two_aliases_has_two_handlers_and_filters() {
    let text = "
def syscalls__low(event): print('low', event.pid)
def syscalls__high(event): print('high', event.pid)
";
    let events = format!("{CALL}/pid<3/alias=low/,{CALL}/pid>=3/alias=high/");
    prints(
        Run::script(text).event(events).workload("calls 4").options(["--order"]),
        expect![[r#"
        low 1
        low 2
        high 3
        high 4
    "#]],
    );
}

#[test]
fn an_event_without_handler_is_counted_only() {
    let text = "
import perf_prof
def __exit__(): print(perf_prof.stats()['events'])
";
    needs([Need::Tracefs]);
    let outcome = calls(text, "calls 5").run();
    assert!(outcome.complaints().contains("no function handles the selected events"), "{}", outcome.stderr);
    prints(
        calls(text, "calls 5").options(["-q"]),
        expect![[r#"
        {'syscalls:sys_enter_getpgid': {'delivered': 5, 'lost': 0, 'where': 'perf-prof'}}
    "#]],
    );
}

#[test]
fn any_callable_can_be_a_callback() {
    let text = "
import functools
class Counter:
    def __init__(self): self.n = 0
    def __call__(self, event): self.n += 1
    def method(self): print('exit', self.n)
counter = Counter()
syscalls__sys_enter_getpgid = counter
__exit__ = counter.method
__init__ = functools.partial(print, 'partial')
";
    prints(
        calls(text, "calls 5"),
        expect![[r#"
        partial
        exit 5
    "#]],
    );
}

#[test]
fn builtins_classes_and_lambdas_can_be_callbacks() {
    let text = "
kept = []
syscalls__sys_enter_getpgid = kept.append
__sample__ = lambda event: print('never')
class __exit__:
    def __init__(self): print([event.pid for event in kept])
";
    prints(
        calls(text, "calls 3"),
        expect![[r#"
        [1, 2, 3]
    "#]],
    );
}

#[test]
fn callbacks_are_looked_up_once_after_the_import() {
    let text = "
def syscalls__sys_enter_getpgid(event):
    global syscalls__sys_enter_getpgid
    print('first', event.pid)
    syscalls__sys_enter_getpgid = lambda event: print('second')
";
    prints(
        calls(text, "calls 2"),
        expect![[r#"
        first 1
        first 2
    "#]],
    );
}

#[test]
fn a_coroutine_is_refused() {
    check(
        calls("async def __sample__(event): pass\n", "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py:1: __sample__() is an async function, so a call would not run its body; make it a plain function
        --- status 1
    "#]],
    );
}

#[test]
fn a_coroutine_in_an_instance_is_refused() {
    let text = "
class C:
    async def __call__(self, event): pass
__sample__ = C()
";
    check(
        calls(text, "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py: __sample__() is an async function, so a call would not run its body; make it a plain function
        --- status 1
    "#]],
    );
}

#[test]
fn a_generator_is_refused() {
    check(
        calls("def __sample__(event):\n    yield event\n", "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py:1: __sample__() is a generator, so a call would not run its body; make it a plain function
        --- status 1
    "#]],
    );
}

#[test]
fn a_script_without_callbacks_is_an_error() {
    check(
        calls("x = 1\n", "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py: no callback for the selected events: define syscalls__sys_enter_getpgid(event) or __sample__(event) (`perf-prof python -e ... help` prints a template)
        --- status 1
    "#]],
    );
}

#[test]
fn objects_that_cannot_be_called_are_no_callbacks() {
    check(
        calls("__sample__ = 5\n", "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: DIR/s.py: no callback for the selected events: define syscalls__sys_enter_getpgid(event) or __sample__(event) (`perf-prof python -e ... help` prints a template)
        --- status 1
    "#]],
    );
}

#[test]
fn a_misspelt_callback_gets_a_warning_with_the_right_name() {
    let text = "
def syscalls__sys_enter_getpgdi(event): pass
def __intervall__(): pass
def __helper__(): pass
def __getattr__(name): raise AttributeError(name)
def __sample__(event): pass
";
    check(
        calls(text, "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: warning: syscalls__sys_enter_getpgdi() is never called: no event or callback has this name; did you mean syscalls__sys_enter_getpgid?
        perf-prof: warning: __intervall__() is never called: no event or callback has this name; did you mean __interval__?
        --- status 0
    "#]],
    );
}

#[test]
fn a_handler_of_an_event_that_is_not_selected_gets_a_warning() {
    let text = "
def syscalls__sys_enter_getsid(event): pass
def syscalls__no_such_event(event): pass
def __sample__(event): pass
";
    check(
        calls(text, "calls 1"),
        expect![[r#"
        --- stderr
        perf-prof: warning: syscalls__sys_enter_getsid() is never called: syscalls:sys_enter_getsid is not selected (use -e syscalls:sys_enter_getsid)
        --- status 0
    "#]],
    );
    check(
        calls(text, "calls 1").options(["-q"]),
        expect![[r#"
        --- status 0
    "#]],
    );
}

#[test]
fn an_interval_is_called_after_all_that_happened_before() {
    // All calls are made at the start. The first interval ends long after them, so all events were delivered before it.
    let text = "
import sys
n = 0
def __sample__(event):
    global n
    n += 1
def __interval__():
    if n:
        print(n)
        sys.exit()
";
    prints(
        calls(text, "calls 1000 forever").options(["-i", "1000"]),
        expect![[r#"
        1000
    "#]],
    );
}

#[test]
fn an_interval_alone_is_a_script() {
    let text = "
import sys
ticks = 0
def __interval__():
    global ticks
    ticks += 1
    if ticks == 3: sys.exit()
def __exit__(): print(ticks)
";
    prints(
        calls(text, "forever").options(["-i", "10ms"]),
        expect![[r#"
        3
    "#]],
    );
}

#[test]
fn statistics_are_printed_on_sigusr2() {
    needs([Need::Tracefs]);
    let text = "
import os, signal, sys
kept = []
def __sample__(event):
    kept.append(event)
    if event.pid == 3: os.kill(os.getpid(), signal.SIGUSR2)
def __print_stat__(indent): print('mine', type(indent).__name__, indent, len(kept))
";
    let outcome = calls(text, "calls 5").run();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "mine int 2 3\n"), "{}", outcome.stderr);
    let text = outcome.complaints();
    assert!(text.contains("syscalls:sys_enter_getpgid          3 delivered,        0 lost"), "{text}");
    assert!(text.contains("rings:") && text.contains("backlog:") && text.contains("events kept: 3"), "{text}");
}

#[test]
fn losses_are_reported_and_add_up() {
    needs([Need::Tracefs]);
    // The ring has one page, and the reader is woken only when the ring is full.
    let text = "
import perf_prof
lost = []
n = 0
def __sample__(event):
    global n
    n += 1
def __lost__(lost_start, lost_end): lost.append((lost_start, lost_end))
def __exit__():
    stats = perf_prof.stats()
    print(stats['delivered'] == n, stats['lost'] > 0, stats['delivered'] + stats['lost'], len(lost) > 0, set(lost))
";
    let outcome = calls(text, "calls 200000").options(["-m", "1", "--watermark", "100"]).run();
    outcome.assert_civil();
    assert_eq!(
        (outcome.status, outcome.stdout.as_str()),
        (0, "True True 200000 True {(0, 0)}\n"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("events on CPU"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("of 200000 events ("), "{}", outcome.stderr);
}

#[test]
fn losses_in_order_have_the_times_around_them() {
    needs([Need::Tracefs]);
    let text = "
import perf_prof
times, lost = [], []
def __sample__(event): times.append(event._time)
def __lost__(lost_start, lost_end): lost.append((lost_start, lost_end, len(times)))
def __exit__():
    inner = [loss for loss in lost if 0 < loss[2] < len(times)]
    print(all(start < end for start, end, _ in lost), times == sorted(times), len(inner) > 0)
    known = set(times)
    print(all(end in known for _, end, _ in inner), perf_prof.stats()['delivered'] + perf_prof.stats()['lost'])
";
    let outcome = calls(text, "calls 100000 sleep-ms 50 calls 100000").options(["-m", "1", "--order"]).run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "True True True\nTrue 200000\n"), "{}", outcome.stderr);
}
