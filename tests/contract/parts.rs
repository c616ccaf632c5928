//! `perf_prof.Parts` and `perf_prof.States` give the same result in one process and in several.

use std::process::Command;

use expect_test::expect;

use crate::harness::{
    calls::WORKLOAD,
    machine::{Need, needs},
    run::tested_program,
    script::{CALL, Outcome, Run, prints},
};

/// Records bursts of calls of a process and its children into `perf.data` in the folder of the run. Calls of other
/// tests may be in the recording too.
#[track_caller]
fn record_calls(run: &Run) {
    let bursts = "calls 37 fork fork sleep-ms 11 ".repeat(12);
    let mut command = Command::new(tested_program());
    command.args(["record", "-q", "-a", "-e", CALL, "-o", "perf.data", "--"]);
    command.arg(std::env::current_exe().unwrap()).arg(WORKLOAD).args(bursts.split_whitespace());
    let output = command.current_dir(run.dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a script on a recording, in one process and in several. Returns the output, which must be equal in all runs.
#[track_caller]
fn same_with_jobs(text: &str, options: &[&str]) -> String {
    let replay = |run: Run, shares: &[&str]| -> Outcome {
        let outcome = run.options(["-q", "--input", "perf.data"]).options(options).options(shares).run();
        assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{shares:?}: {}", outcome.stdout);
        outcome
    };
    let run = Run::script(text);
    record_calls(&run);
    let recording = std::fs::read(run.path("perf.data")).unwrap();
    let serial = replay(run, &[]).stdout;
    for shares in [&["--jobs", "2"][..], &["--jobs", "5"], &["--jobs", "2", "--split", "cpu"]] {
        let shared = replay(Run::script(text).file("perf.data", &recording), shares).stdout;
        assert_eq!(shared, serial, "{options:?} {shares:?}");
    }
    serial
}

/// A script in which each event makes a random step on one of seven keys. `plain` makes the same steps on a dict after
/// the run.
const STEPS: &str = "
from collections import Counter, defaultdict
from random import Random
from perf_prof import Log2Hist, Parts, States
seen = []  # (time, number of the call) of all events
total = Counter()

def show(table, end):
    print(end, sorted((key, hist.to_dict()) for key, hist in table.items()))

parts = Parts(lambda: defaultdict(Log2Hist), show, total)
states = States(parts)

@states.sets
def begins(now, key, number):
    if number % 5: states[key] = number
    else: states.pop(key, None)

@states.step
def grows(now, key):
    if key in states: states[key] += 1000
    else: total['nothing to grow'] += 1

@states.ends
def over(now, key, number):
    state = states.pop(key, None)
    if state is None: total['nothing to end'] += 1
    else:
        total[key, state % 1000 - number] += state // 1000
        parts.table[key].add(state)

def plain():
    states, total = {}, Counter()
    for now, number in sorted(seen):
        key, action = number % 7, Random(number).randrange(9)
        if number % 100 == 50: states.clear()
        if action < 4:
            if number % 5: states[key] = number
            else: states.pop(key, None)
        elif action < 7:
            if key in states: states[key] += 1000
            else: total['nothing to grow'] += 1
        elif key in states:
            state = states.pop(key)
            total[key, state % 1000 - number] += state // 1000
        else: total['nothing to end'] += 1
    return total

def syscalls__sys_enter_getpgid(event):
    now, number = event._time, event.pid
    seen.append((now, number))
    key, action = number % 7, Random(number).randrange(9)
    if number % 100 == 50: states.forget(now)
    if action < 4: begins(now, key, number)
    elif action < 7: grows(now, key)
    else: over(now, key, number)

__interval__ = parts.interval

def __partial__(): return parts.partial(), seen

def __merge__(partials):
    for _, their_seen in partials: seen.extend(their_seen)
    parts.merge(of_part for of_part, _ in partials)

def __exit__():
    parts.exit()
    print(total == plain(), len(seen) > 400, sorted(map(str, total.items())))
";

#[test]
fn states_go_on_from_one_part_to_the_next() {
    needs([Need::Tracefs]);
    let shown = same_with_jobs(STEPS, &[]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.starts_with("None [(0, {"), "{shown}");
    assert!(shown.lines().last().unwrap().starts_with("True True "), "{shown}");
}

#[test]
fn a_step_counts_in_its_own_interval() {
    needs([Need::Tracefs]);
    let shown = same_with_jobs(STEPS, &["-i", "20"]);
    // The sleeps alone take 132 ms.
    assert!(shown.lines().count() > 6 && shown.lines().last().unwrap().starts_with("True True "), "{shown}");
}

/// A step of one key may call a step of another key.
#[test]
fn states_of_several_kinds_are_merged_together() {
    needs([Need::Tracefs]);
    let text = "
from perf_prof import Parts, States
parts = Parts()
owners = States(parts)
counts = States(parts)
lines = []

@owners.sets
def owns(now, thing, owner): owners[thing] = owner

@owners.step
def uses(now, thing): counts_one(now, owners.get(thing))

@counts.step
def counts_one(now, owner): counts[owner] = counts.get(owner, 0) + 1

@counts.ends
def reads(now, owner): lines.append((now, owner, counts.pop(owner, 0)))

def __sample__(event):
    now, number = event._time, event.pid
    if number % 5 == 0: owns(now, number % 3, number % 2)
    elif number % 11 == 0:
        # Both owners are known from here on, so both things have to be.
        owns(now, 0, 1), owns(now, 1, 0), owns(now, 2, 0)
        for owner in 0, 1, None: reads(now, owner)
    else: uses(now, number % 3)

def __partial__(): return parts.partial(), lines

def __merge__(partials):
    global lines
    lines = [line for _, theirs in partials for line in theirs]
    parts.merge(of_part for of_part, _ in partials)

def __exit__(): print(sorted(lines, key=str), sorted(counts.items(), key=str))
";
    let shown = same_with_jobs(text, &[]);
    assert!(shown.len() > 1000, "{shown}");
}

#[test]
fn without_jobs_a_step_is_the_function_itself() {
    let text = "
from collections import Counter
from perf_prof import Parts, States
shown = []
parts = Parts(Counter, lambda table, end: shown.append((dict(table), end and end > 10**18)))
states = States(parts)
def step(now, key): states[key] = now
print([decorate(step) is step for decorate in (states.step, states.sets, states.ends)])
step(5, 'a')
print(states, isinstance(states, dict))
states.forget(6)
print(states)
parts.table['a'] += 1
parts.interval()
parts.interval()
parts.exit()
parts.table['b'] += 1
parts.exit()
print(shown)
# One table of the whole run.
parts = Parts(Counter)
parts.table['a'] += 1
parts.interval()
parts.exit()
print(parts.table)
# Shown once, though nothing was counted.
parts = Parts(Counter, print)
parts.exit()
parts.exit()
try: Parts(show=print)
except TypeError as error: print(error)
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            [True, True, True]
            {'a': 5} True
            {}
            [({'a': 1}, True), ({}, True), ({'b': 1}, None)]
            Counter({'a': 1})
            Counter() None
            Parts(show=...) needs table=, a function that returns an empty table
        "#]],
    );
}

#[test]
fn partial_results_are_merged_by_what_they_are() {
    let text = "
from collections import Counter
from perf_prof import FlameGraph, Log2Hist, Parts
class Row:
    n = 0
    def update(self, other): self.n += other.n
def partial(table):
    parts = Parts()
    parts.table = table
    return parts.partial()
def merged(*tables):
    parts = Parts()
    parts.merge(map(partial, tables))
    return parts.table
row = Row()
row.n = 3
hist = Log2Hist()
hist.add(5)
graph = FlameGraph()
graph.add(['a', 'b'])
print(merged(Counter(a=1), Counter(a=2, b=1)))
print({key: type(value).__name__ + str(getattr(value, 'n', '')) for key, value in merged({'a': Row()}, {'a': row, 'b': row}).items()})
print(merged({1: {'x': Counter(a=1)}}, {1: {'x': Counter(a=2), 'y': {5}}}))
print(merged(Log2Hist(), hist).to_dict(), merged(FlameGraph(), graph, graph).folded())
try: merged({'a': 1}, {'a': 2})
except TypeError as error: print(error)
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            Counter({'a': 3, 'b': 1})
            {'a': 'Row3', 'b': 'Row3'}
            {1: {'x': Counter({'a': 3}), 'y': {5}}}
            {4: 1} a;b 2

            a table is an object with update() or a dict of such objects, not 'int'; use a Counter
        "#]],
    );
}

#[test]
fn a_file_of_a_flame_graph_is_checked_before_the_run() {
    let text = "
import os, pathlib
from perf_prof import FlameGraph
os.mkdir('folder.svg')
open('file', 'w').close()
for path in 'x.svg', pathlib.Path('x.folded'), '/dev/null', 'x.png', 'x', '.svg', 'folder.svg', 'no/x.svg', 'file/x.svg', b'x.svg':
    try: print(path, FlameGraph.check(path))
    except Exception as error: print(type(error).__name__, error)
print(sorted(name for name in os.listdir() if name.startswith('x')))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        x.svg None
        x.folded None
        ValueError /dev/null: the name of a flame graph must end in .svg or .folded
        ValueError x.png: the name of a flame graph must end in .svg or .folded
        ValueError x: the name of a flame graph must end in .svg or .folded
        ValueError .svg: the name of a flame graph must end in .svg or .folded
        OSError folder.svg: this is a folder; give the path of a file
        OSError no/x.svg: cannot create or overwrite a file in no; use another folder
        OSError file/x.svg: cannot create or overwrite a file in file; use another folder
        TypeError 'bytes' object is not an instance of 'str'
        []
    "#]],
    );
}
