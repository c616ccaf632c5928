//! The event object: all ways to read it, comparison, copies, and events that scripts keep.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, python, record_here},
    run::stdout,
    script::{CALL, RENAME, Run, prints},
};

/// A run with a handler of this body, which is called once.
fn with_event(body: &str) -> Run {
    let body = body.replace('\n', "\n    ");
    let script = format!("import perf_prof\ndef __sample__(event):\n    e = event\n    {body}\n");
    Run::script(&script).call_event().workload("calls 1")
}

#[test]
fn all_forms_of_access() {
    prints(
        with_event(
            "
print(e.pid, e['pid'], e.get('pid'), 'pid' in e, 'nope' in e)
print(e.get('nope'), e.get('nope', 5), e.get('nope', default=6), e.get(name='pid', default=7), e.get(''.join('pid'), 8))
print(e._pid == e['_pid'] == e.common_pid, e._time == e['_time'] > 0, e._event, e['_event'])
print(len(e) == len(e.keys()) == len(e.values()) == len(e.items()), type(e.keys()), type(e.values()), type(e.items()))
print(list(e) == e.items(), [name for name, value in e] == e.keys())
print(dict(e) == {**e} == e.to_dict() == dict(e.items()) == dict(zip(e.keys(), e.values())))
print(str(e) == str(e.to_dict()), f'{e}' == str(e))
print(repr(e) == f'<PerfEvent {e._event} cpu={e._cpu} pid={e._pid} time={e._time}>')",
        ),
        expect![[r#"
            1 1 1 True False
            None 5 6 1 1
            True True syscalls:sys_enter_getpgid syscalls:sys_enter_getpgid
            True <class 'list'> <class 'list'> <class 'list'>
            True True
            True
            True True
            True
        "#]],
    );
}

/// A format in a recording may contain any names of fields.
#[test]
fn a_field_does_not_replace_a_method_of_events() {
    needs([Need::Tracefs]);
    let script = "
import copy
def sched__sched_process_exit(e):
    print(e['keys'], e['get'] == e._pid, type(e['text']).__name__, 'keys' in e, 'keys' in e.keys())
    print(e.get('keys'), e.text('keys'), dict(e)['keys'], e.to_dict()['get'] == e['get'], dict(copy.copy(e)) == dict(e))
    print(e.get is not e['get'], [name for name in ('keys', 'get', 'text') if name in type(e).__dict__])
";
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record_here(&path, &["-e", "sched:sched_process_exit", "--", "true"]);
    let mut bytes = std::fs::read(&path).unwrap();
    for (name, other) in
        [("char comm[16];", "char keys[16];"), ("pid_t pid;", "pid_t get;"), ("int prio;", "int text;")]
    {
        let at: Vec<usize> =
            (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name.as_bytes())).collect();
        assert!(!at.is_empty(), "{name}");
        at.into_iter().for_each(|at| bytes[at..at + name.len()].copy_from_slice(other.as_bytes()));
    }
    let path = folder.write("renamed.data", &bytes);
    let script = folder.write("s.py", script.as_bytes());
    let run = |module: &str| {
        let event = ["-e", "sched:sched_process_exit"];
        stdout(&python(&[&["--input", path.to_str().unwrap()], &event[..], &[module]].concat()))
    };
    expect![[r#"
        true True int True True
        true true true True True
        True []
    "#]]
    .assert_eq(&run(script.to_str().unwrap()));
    assert!(run("help").contains("keys : str    (C: char[16]; event['keys'])"), "{}", run("help"));
}

#[test]
fn the_order_of_keys() {
    prints(
        with_event("print(*e.keys())"),
        expect![[r#"
        _pid _tid _time _cpu _period common_type common_flags common_preempt_count common_pid _realtime _callchain _event __syscall_nr pid
    "#]],
    );
}

#[test]
fn an_event_is_a_perf_event_of_a_class_of_its_own() {
    prints(
        with_event(
            "
print(isinstance(e, perf_prof.PerfEvent), type(e) is not perf_prof.PerfEvent, type(e).__name__, type(e).__module__)
print(type(e).__doc__)
print([name for name in dir(e) if not name.startswith('_')])",
        ),
        expect![[r#"
            True True syscalls__sys_enter_getpgid perf_prof
            syscalls:sys_enter_getpgid

            Fields:
                common_type : int    (C: unsigned short)
                common_flags : int    (C: unsigned char)
                common_preempt_count : int    (C: unsigned char)
                common_pid : int    (C: int)
                __syscall_nr : int    (C: int)
                pid : int    (C: pid_t)

            ['array', 'common_flags', 'common_pid', 'common_preempt_count', 'common_type', 'get', 'items', 'keys', 'pid', 'print', 'text', 'to_dict', 'values']
        "#]],
    );
}

#[test]
fn an_event_is_read_only_and_not_constructible() {
    prints(
        with_event(
            "
def refused(action):
    try: action()
    except (AttributeError, TypeError) as error:
        # Newer Pythons add how it can be done, and say of __new__() what they say of the class.
        text = str(error).split(' and no ')[0]
        text = text if 'object.__new__' not in text else 'cannot create %r instances' % ('perf_prof.' + type(e).__name__)
        print(type(error).__name__, text)
    else: print('allowed')
refused(lambda: setattr(e, 'pid', 5))
refused(lambda: setattr(e, '_pid', 5))
refused(lambda: setattr(e, 'new', 5))
refused(lambda: delattr(e, 'pid'))
refused(lambda: e.__setitem__('pid', 5))
refused(lambda: perf_prof.PerfEvent())
refused(lambda: type(e)())
refused(lambda: object.__new__(type(e)))
refused(lambda: setattr(type(e), 'pid', 5))
refused(lambda: setattr(perf_prof.PerfEvent, 'pid', 5))
print(e.pid)",
        ),
        expect![[r#"
            AttributeError attribute 'pid' of 'perf_prof.syscalls__sys_enter_getpgid' objects is not writable
            AttributeError attribute '_pid' of 'perf_prof.PerfEvent' objects is not writable
            AttributeError 'perf_prof.syscalls__sys_enter_getpgid' object has no attribute 'new'
            AttributeError attribute 'pid' of 'perf_prof.syscalls__sys_enter_getpgid' objects is not writable
            AttributeError 'perf_prof.syscalls__sys_enter_getpgid' object has no attribute '__setitem__'
            TypeError cannot create 'perf_prof.PerfEvent' instances
            TypeError cannot create 'perf_prof.syscalls__sys_enter_getpgid' instances
            TypeError cannot create 'perf_prof.syscalls__sys_enter_getpgid' instances
            TypeError cannot set 'pid' attribute of immutable type 'perf_prof.syscalls__sys_enter_getpgid'
            TypeError cannot set 'pid' attribute of immutable type 'perf_prof.PerfEvent'
            1
        "#]],
    );
}

#[test]
fn a_missing_name_raises() {
    prints(
        with_event(
            "
try: e.nope
except AttributeError as error: print(type(error).__name__, error)
for kind in KeyError, AttributeError:
    try: e['pids']
    except kind as error: print(isinstance(error, KeyError), isinstance(error, AttributeError), error)
print(hasattr(e, 'nope'), getattr(e, 'nope', 7))
for key in 5, None, ('pid',), b'pid':
    try: e[key]
    except KeyError as error: print(error)
    print(key in e, e.get(key))
try: e[[]]
except TypeError as error: print(str(error).split('(')[-1].strip(')'))
try: e.get()
except TypeError as error: print(error)
try: e.get('pid', 1, 2)
except TypeError as error: print(error)",
        ),
        expect![[r#"
            AttributeError 'perf_prof.syscalls__sys_enter_getpgid' object has no attribute 'nope'
            True True "syscalls:sys_enter_getpgid has no field 'pids'; did you mean pid?"
            True True "syscalls:sys_enter_getpgid has no field 'pids'; did you mean pid?"
            False 7
            'syscalls:sys_enter_getpgid has no field 5'
            False None
            'syscalls:sys_enter_getpgid has no field None'
            False None
            "syscalls:sys_enter_getpgid has no field ('pid',)"
            False None
            "syscalls:sys_enter_getpgid has no field b'pid'"
            False None
            unhashable type: 'list'
            get() is missing its argument 'name'
            get() takes at most 2 arguments (3 given)
        "#]],
    );
}

#[test]
fn names_compare_by_value() {
    prints(
        with_event(
            "
name = ''.join(['p', 'i', 'd'])
class Name(str): pass
print(getattr(e, name), e[name], e.get(name), name in e, e[Name('pid')], getattr(e, Name('pid')))
print(e[bytes([95, 112, 105, 100]).decode()] == e._pid)",
        ),
        expect![[r#"
            1 1 1 True 1 1
            True
        "#]],
    );
}

#[test]
fn a_field_whose_name_python_mangles_is_reached_by_its_name() {
    // Some names of fields cannot follow a dot: on some kernels, events of `exceptions:` and other systems have a field
    // `from`, `in` or `class`. This event has `__syscall_nr`, which Python mangles in a class body.
    prints(
        with_event(
            "
class C:
    def of(self, e): return e['__syscall_nr']
print(C().of(e) == getattr(e, '__syscall_nr') == e.get('__syscall_nr') == perf_prof.syscall_nr('getpgid'))",
        ),
        expect![[r#"
            True
        "#]],
    );
}

#[test]
fn equal_records_are_equal() {
    let text = "
import copy
kept = []
def __sample__(event): kept.extend([event, copy.copy(event)])
def __exit__():
    print(len(kept), len(set(kept)), len({event: 1 for event in kept}))
    for a in kept:
        for b in kept:
            assert (a == b) == (a.to_dict() == b.to_dict()), (a, b)
            assert (a != b) == (not a == b)
            if a == b: assert hash(a) == hash(b)
    a = kept[0]
    print(a == 5, a != 5, a == a.to_dict(), a in kept, kept.index(a), kept.count(a))
    try: a < a
    except TypeError: print('not ordered')
";
    prints(
        Run::script(text).call_event().workload("calls 3"),
        expect![[r#"
        6 3 3
        False True False True 0 2
        not ordered
    "#]],
    );
}

#[test]
fn objects_that_pretend_to_be_events_are_not_equal_to_events() {
    prints(
        with_event(
            "
import unittest.mock
class Liar: __class__ = property(lambda self: type(e))
for other in unittest.mock.Mock(spec=perf_prof.PerfEvent), Liar():
    print(isinstance(other, perf_prof.PerfEvent), e == other, e != other, e in [other])",
        ),
        expect![[r#"
            True False True False
            True False True False
        "#]],
    );
}

#[test]
fn an_event_matches_by_its_fields() {
    prints(
        with_event(
            "
match e:
    case perf_prof.PerfEvent(pid=5): print('never')
    case perf_prof.PerfEvent(pid=number): print('call', number)",
        ),
        expect![[r#"
            call 1
        "#]],
    );
}

#[test]
fn events_of_other_aliases_are_not_equal() {
    let text = "
kept = []
def __sample__(event): kept.append(event)
def __exit__(): print(len(kept), len(set(kept)), kept[0] == kept[1])
";
    let events = format!("{CALL}//alias=a/,{CALL}//alias=b/");
    prints(
        Run::script(text).event(events).workload("calls 1"),
        expect![[r#"
        2 2 False
    "#]],
    );
}

#[test]
fn copies_are_detached_and_equal() {
    prints(
        with_event(
            "
import copy, pickle
for c in [copy.copy(e), copy.deepcopy(e)] + [pickle.loads(pickle.dumps(e, protocol)) for protocol in range(6)]:
    assert c is not e and c == e and hash(c) == hash(e) and len({c, e}) == 1
    assert type(c) is type(e) and c.to_dict() == e.to_dict() and repr(c) == repr(e), c
print('equal')",
        ),
        expect![[r#"
            equal
        "#]],
    );
}

#[test]
fn a_pickle_is_read_in_another_run() {
    needs([Need::Tracefs]);
    let text = "
import contextlib, io, pickle
def __sample__(event):
    out = io.StringIO()
    with contextlib.redirect_stdout(out): event.print()
    with open('event.pickle', 'wb') as file: pickle.dump((event, event.to_dict(), out.getvalue(), repr(event)), file)
";
    let reader = "
import contextlib, io, pickle, sys
def __init__():
    with open(sys.argv[1], 'rb') as file: event, values, text, name = pickle.load(file)
    out = io.StringIO()
    with contextlib.redirect_stdout(out): event.print()
    assert out.getvalue() == text, (out.getvalue(), text)
    assert event.to_dict() == values, (event, values)
    print(repr(event) == name, len(event._callchain) > 0, event._callchain == values['_callchain'], event.newcomm)
def __exit__(): print('exit')
";
    let writer = Run::script(text).event(RENAME).options(["-g"]).workload("renames 1");
    let outcome = writer.run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    let path = writer.path("event.pickle");
    // The first run selects the event that was pickled. The second run selects another event, so it does not know the
    // pickled event's type.
    for event in [RENAME, "sched:sched_process_hang"] {
        let outcome = Run::script(reader).event(event).options(["-q"]).args([&path]).workload("exit 0").run();
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
        assert_eq!(outcome.stdout, "True True True worker\nexit\n");
    }
}

#[test]
fn an_event_crosses_a_pool_of_forked_workers() {
    let text = "
import multiprocessing
def work(event): return event.pid + 1
def __sample__(event):
    with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(work, [event, event]))
";
    prints(
        Run::script(text).call_event().workload("calls 2"),
        expect![[r#"
        [2, 2]
        [3, 3]
    "#]],
    );
}

#[test]
fn a_damaged_pickle_is_refused() {
    prints(
        with_event(
            "
restore, (identity, state) = e.__reduce__()
def refused(*args):
    try: event = restore(*args)
    except (TypeError, ValueError) as error: print(type(error).__name__)
    else:
        try: print(len(event.to_dict()))
        except ValueError as error: print(error)
refused(identity, (b'',) + state[1:])
refused(identity, (state[0][:40],) + state[1:])
refused(identity, (bytes(70000),) + state[1:])
refused(identity[:1] + ('no format',) + identity[2:], state)
refused(identity, state[:2])
refused((1, 2), state)
refused(identity[:3] + ([2**64 - 1] + identity[3][1:],), state)",
        ),
        expect![[r#"
            this record of syscalls:sys_enter_getpgid is too short to contain the field
            this record of syscalls:sys_enter_getpgid is too short to contain the field
            ValueError
            ValueError
            ValueError
            ValueError
            this record of syscalls:sys_enter_getpgid is too short to contain the field
        "#]],
    );
}

#[test]
fn kept_events_stay_what_they_were() {
    let text = "
import contextlib, io, random
def shown(event):
    out = io.StringIO()
    with contextlib.redirect_stdout(out): event.print()
    return out.getvalue()
kept = []
def __sample__(event):
    kept.append((event, event.to_dict(), shown(event), event._callchain))
def __exit__():
    for event, values, text, chain in kept:
        assert event.to_dict() == values and shown(event) == text and event._callchain == chain
    print(len(kept), len(kept[0][3]) > 0, len({id(event) for event, *_ in kept}))
";
    prints(
        Run::script(text).event(RENAME).options(["-g"]).workload("renames 300"),
        expect![[r#"
            300 True 300
        "#]],
    );
}

#[test]
fn costly_values_are_kept_while_the_event_is() {
    let text = "def __sample__(e): print(e._callchain is e._callchain, len(e._callchain) > 0)\n";
    let run = Run::script(text).event(RENAME).options(["-g"]).workload("renames 1");
    prints(
        run,
        expect![[r#"
            True True
        "#]],
    );
}

#[test]
fn the_realtime_is_the_wall_clock() {
    prints(
        with_event("import time\nprint(abs(e._realtime / 1e9 - time.time()) < 60, type(e._realtime).__name__)"),
        expect![[r#"
            True int
        "#]],
    );
    // An event is usually delivered within a second. Because the machine may pause, one event of three is enough.
    let text = "
import time
near = []
def __sample__(event): near.append(abs(event._realtime / 1e9 - time.time()) < 1)
def __exit__(): print(any(near))
";
    prints(
        Run::script(text).call_event().workload("calls 1 sleep-ms 20 calls 1 sleep-ms 20 calls 1"),
        expect![[r#"
            True
        "#]],
    );
    let monotonic = "
import time
near = []
def __sample__(event):
    near.append(abs(event._realtime / 1e9 - time.time()) < 1 and 0 <= time.monotonic_ns() - event._time < 10**9)
def __exit__(): print(any(near))
";
    let run = Run::script(monotonic).call_event().options(["--monotonic"]);
    prints(
        run.workload("calls 1 sleep-ms 20 calls 1 sleep-ms 20 calls 1"),
        expect![[r#"
        True
    "#]],
    );
}

#[test]
fn call_chains_only_where_they_are_asked_for() {
    let text = "
def __sample__(event): print(event._event, min(len(event._callchain), 2))
";
    let events = format!("{RENAME}alias=none/,{RENAME}stack/alias=stack/,{RENAME}max-stack=1/alias=one/");
    let script = text.replace("print(", "seen.add((").replace(", 2))", ", 2)))");
    let script = format!("seen = set()\n{script}\ndef __exit__(): print(*sorted(seen))\n");
    prints(
        Run::script(&script).event(events).workload("renames 1"),
        expect![[r#"
        ('task:none', 0) ('task:one', 1) ('task:stack', 2)
    "#]],
    );
}

#[test]
fn the_frames_of_a_call_chain() {
    let text = "
def __sample__(event):
    print([sorted(frame) for frame in event._callchain][:1])
    print({tuple(type(frame[key]).__name__ for key in ('addr', 'symbol', 'offset', 'kernel', 'dso')) for frame in event._callchain})
    print({frame['kernel'] for frame in event._callchain}, all(frame['addr'] > 2**63 for frame in event._callchain))
    print({frame['dso'] for frame in event._callchain})
";
    prints(
        Run::script(text).event(format!("{RENAME}stack/")).workload("renames 1"),
        expect![[r#"
            [['addr', 'dso', 'kernel', 'offset', 'symbol']]
            {('int', 'str', 'int', 'bool', 'str')}
            {True} True
            {'[kernel.kallsyms]'}
        "#]],
    );
    let text = "
def __sample__(event):
    kinds = [frame['kernel'] for frame in event._callchain]
    print(kinds == sorted(kinds, reverse=True), set(kinds) == {True, False}, min(f['addr'] for f in event._callchain) < 2**63)
";
    let run = Run::script(text).event(RENAME).options(["-g", "--user-callchain"]);
    prints(
        run.workload("renames 1"),
        expect![[r#"
            True True True
        "#]],
    );
}

#[test]
fn changes_to_a_frame_do_not_reach_the_next_event() {
    let text = "
last = None
n = 0
def __sample__(event):
    global last, n
    chain = [dict(frame) for frame in event._callchain]
    n += last == chain and all(list(frame) == ['addr', 'symbol', 'offset', 'kernel', 'dso'] for frame in chain)
    last = chain
    for frame in event._callchain:
        frame['symbol'] = 'mine'
        del frame['dso']
        frame['more'] = n
def __exit__(): print(n)
";
    prints(Run::script(text).event(format!("{RENAME}stack/")).workload("renames 5"), expect!["4\n"]);
}

#[test]
fn methods_refuse_what_they_do_not_know() {
    prints(
        with_event(
            "
for call in (lambda: e.keys(1), lambda: e.to_dict(x=1), lambda: e.print(1, 2, 3), lambda: e.print(color=1),
             lambda: e.array(), lambda: e.array('pid'), lambda: e.array('nope'), lambda: e.text('nope'), lambda: e.text()):
    try: call()
    except Exception as error: print(type(error).__name__, error)",
        ),
        expect![[r#"
            TypeError keys() takes at most 0 arguments (1 given)
            TypeError to_dict() got an unexpected keyword argument 'x'
            TypeError print() takes at most 2 arguments (3 given)
            TypeError print() got an unexpected keyword argument 'color'
            TypeError array() is missing its argument 'name'
            TypeError field 'pid' is not an array of integers
            FieldError "syscalls:sys_enter_getpgid has no field 'nope'"
            FieldError "syscalls:sys_enter_getpgid has no field 'nope'"
            TypeError text() is missing its argument 'name'
        "#]],
    );
}

/// `-g` has the same meaning as in `perf-prof record`. In the C implementation, it means only kernel frames.
#[test]
fn g_samples_kernel_and_user_frames() {
    let text = "
def __sample__(event):
    print(sorted({frame['kernel'] for frame in event._callchain}))
";
    let run = || Run::script(text).event(RENAME).options(["-g"]);
    prints(run().workload("renames 1"), expect!["[False, True]\n"]);
    prints(
        run().env("PERF_PROF_COMPAT", "1").options(["-q"]).workload("renames 1"),
        expect![[r#"
        Loaded module: DIR/s.py
        [True]
    "#]],
    );
    prints(run().options(["--no-user-callchain"]).workload("renames 1"), expect!["[True]\n"]);
}
