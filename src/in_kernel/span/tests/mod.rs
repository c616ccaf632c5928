//! Tests that the programs of spans give the same tables and counts as the span engine and the aggregator in perf-prof.

mod pairs;

mod misses;

use std::{collections::HashMap, sync::Arc};

use perf_prof_events::{
    aggregate::{Buckets, Groups, Measure, Memo},
    derive::SpanRule,
    event::{
        Context, Format, Sample, SpanCounts,
        reader::{Facts, Input, KeptFacts},
    },
};
use perf_prof_format::{
    spec::{EventKind, parse_events},
    tracefs::{EventFormat, NoKernel},
};

use super::*;
use crate::{
    instruction::interpreter::{Hash, Machine},
    table::{
        Row,
        tests::records::{Chosen, Running, data, event as event_of, record, shipped},
    },
};

/// A span, with its event type and the types of its inputs.
struct Prepared {
    span: Span,
    event: EventType,
    inputs: Vec<EventType>,
}

impl Prepared {
    fn codes(&self, (plan, definition): (&Plan, &Definition), tasks: &SpanTasks) -> Result<SpanCodes, Unsuited> {
        let input = SelectedInput { filter: None, selection: Selection::EVERYTHING };
        let inputs = vec![input; self.inputs.len()];
        let selected = SelectedSpan { span: &self.span, event: &self.event, inputs: &inputs, tasks, context: None };
        span_codes(selected, (plan, definition), Hook::Tracepoints)
    }
}

impl SpanCodes {
    /// Returns the program for an event; `None` if the event does nothing for the table.
    fn of(&self, input: usize) -> Option<&Code> {
        self.codes.iter().find(|(of, _)| *of == input).map(|(_, code)| code)
    }
}

/// Prepares the span of a selector, as a live run does.
fn prepare(selector: &str) -> Prepared {
    prepare_with(selector, shipped)
}

/// Prepares the span of a selector. `shipped` returns the formats of its events.
fn prepare_with(selector: &str, shipped: impl Fn(&str) -> Arc<EventFormat>) -> Prepared {
    let spec = parse_events(selector).unwrap().remove(0);
    let EventKind::Span(span) = &spec.kind else { panic!("{selector} is not a span") };
    let rules = SpanRule::all(span).unwrap();
    let mut inputs: Vec<(String, Vec<usize>)> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let EventKind::Tracepoint { system, name } = &rule.event else { panic!("{selector} has probes") };
        let name = format!("{system}:{name}");
        match inputs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, own)) => own.push(at),
            None => inputs.push((name, vec![at])),
        }
    }
    let of_input = |(name, own): &(String, Vec<usize>)| (Format::Tracepoint(shipped(name)), own.clone());
    let formats: Vec<(Format, Vec<usize>)> = inputs.iter().map(of_input).collect();
    let span = Span::new(span, spec.filter.as_deref(), None, &formats).unwrap();
    let inputs: Vec<EventType> = inputs.iter().map(|(name, _)| event_of(&shipped(name))).collect();
    let event = span.event_type(&inputs).unwrap();
    Prepared { span, event, inputs }
}

fn definition(keys: &[&str], value: Option<&str>, filter: Option<&str>, measure: Measure) -> Definition {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    Definition { keys, value: value.map(str::to_owned), filter: filter.map(str::to_owned), limit: 1 << 20, measure }
}

struct Happened {
    input: usize,
    data: Vec<u8>,
    running: Running,
    time: u64,
}

const COMMS: [&[u8]; 3] = [b"bash", b"kworker/0:1", b"a"];

fn comm(thread: u32) -> &'static [u8] {
    COMMS[thread as usize % COMMS.len()]
}

/// Returns random events. The fields that are keys have few different values.
fn happened(prepared: &Prepared, keys: &[(&str, &[i64])], seed: u64) -> Vec<Happened> {
    let chosen = &mut Chosen(seed);
    let mut time = 1_000_000_000;
    // The running task of each CPU, if the switches must fit together.
    let mut running = (!keys.iter().any(|(name, _)| *name == "prev_pid")).then_some([0i32; 2]);
    let mut next = || {
        let input = chosen.below(prepared.inputs.len());
        let format = prepared.inputs[input].format.tracepoint().unwrap();
        let thread = 100 + chosen.below(4) as u32;
        let mut data = data(format, thread, chosen);
        for (name, values) in keys {
            let Some(field) = format.field(name) else { continue };
            let value = chosen.one(values).to_ne_bytes();
            data[field.offset..field.offset + field.size].copy_from_slice(&value[..field.size]);
        }
        let cpu = chosen.below(2);
        let thread = match &*format.name {
            "sched_switch" => switch_between_tasks(format, &mut data, running.as_mut().map(|running| (running, cpu))),
            _ => thread,
        };
        time += 1 + (chosen.number() >> (40 + chosen.below(24)));
        Happened { input, data, running: Running { process: 50, thread, cpu: cpu as u32 }, time }
    };
    (0..200).map(|_| next()).collect()
}

/// Sets the two tasks of a switch in its data, and returns the task that leaves. If `running` contains the running tasks of
/// two CPUs, the task that leaves is the running one, and the task that comes runs nowhere.
fn switch_between_tasks(format: &EventFormat, data: &mut [u8], running: Option<(&mut [i32; 2], usize)>) -> u32 {
    let [prev, next] = ["prev_pid", "next_pid"].map(|name| format.field(name).unwrap().offset);
    let at = |data: &[u8], offset: usize| i32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
    let mut coming = at(data, next);
    if let Some((running, cpu)) = running {
        data[prev..prev + 4].copy_from_slice(&running[cpu].to_ne_bytes());
        if coming == running[1 - cpu] {
            coming = 0;
        }
        if coming == running[cpu] {
            coming += 20;
        }
        running[cpu] = coming;
    } else if coming == at(data, prev) {
        coming += 20;
    }
    data[next..next + 4].copy_from_slice(&coming.to_ne_bytes());
    at(data, prev) as u32
}

/// Returns the table and the counts of the engine.
fn in_perf_prof(prepared: &Prepared, definition: &Definition, all: &[Happened]) -> (Groups, SpanCounters) {
    let plan = Plan::new(definition, &prepared.event).unwrap();
    let counts = Arc::new(SpanCounts::default());
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    context.with_tasks(|tasks| (100..104).for_each(|thread| tasks.named(thread, 0, comm(thread as u32))));
    let mut engine = prepared.span.start(&prepared.event, counts.clone(), context).unwrap();
    let (mut groups, mut memo) = (Groups::new(definition.clone()), Memo::default());
    for Happened { input, data, running, time } in all {
        let record = record(data, *running, *time);
        let facts = KeptFacts { comm: Some(comm(running.thread).to_vec()), ..KeptFacts::default() };
        let parts = vec![KeptFacts::default(), facts.clone()];
        let facts = KeptFacts { parts, ..facts };
        let flow = engine.sample(*input, &record, &mut |record| {
            let sample = Sample { event: &prepared.event, record };
            groups.add(&plan, &Input { sample, facts: Facts::Kept(&facts) }, &mut memo);
            std::ops::ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    let found = SpanCounters {
        opened: counts.opened(),
        ended: counts.ended(),
        dropped: counts.dropped(),
        replaced: counts.replaced(),
        without_begin: counts.without_begin(),
        without_room: counts.without_room(),
        lost: counts.lost(),
    };
    assert_eq!(counts.open() + found.ended + found.dropped, found.opened);
    (groups, found)
}

/// Returns the table and the counts of the programs. At most `most` spans can be open.
fn in_kernel(codes: &SpanCodes, definition: &Definition, all: &[Happened], most: usize) -> (Groups, SpanCounters) {
    let mut machine = Machine::new((codes.shape.key_bytes, codes.shape.value_bytes));
    machine.open = Hash::new(codes.open_bytes);
    machine.open.limit = most;
    for Happened { input, data, running, time } in all {
        let Running { process, thread, cpu } = *running;
        (machine.ids, machine.cpu, machine.time, machine.comm) = ((process, thread), cpu, *time, [0; 16]);
        machine.comm[..comm(thread).len()].copy_from_slice(comm(thread));
        let context = [&[0xff; 8][..], &data[8..]].concat();
        if let Some(code) = codes.of(*input) {
            assert_eq!(machine.run(code, &context), 1);
            assert_eq!(machine.run(&witness::witness_code(*input), &[]), 0);
        }
    }
    let mut rows: Vec<Row> = machine.rows().iter().map(|(key, value)| codes.shape.row(key, value)).collect();
    rows.sort_by_key(|row| row.first);
    let mut groups = Groups::new(definition.clone());
    rows.iter().for_each(|row| groups.add_amount(&row.key, &row.amount));
    let words: [u64; SpanCounters::ALL_WORDS] = machine.counters();
    assert_eq!(words[SpanCounters::GENERATION_WORD..][..2], [0, 0]);
    let counts = &words[Counters::WORDS..SpanCounters::GENERATION_WORD];
    let counts = SpanCounters::from(<[u64; SpanCounters::WORDS]>::try_from(counts).unwrap());
    // The entry of a task without an open span contains the time 0.
    let open = machine.open_values().iter().filter(|value| value[..8] != [0; 8]).count();
    assert_eq!(counts.opened, counts.ended + counts.dropped + open as u64);
    (groups, counts)
}

/// Compares the programs with the engine, for several random series of events.
fn compare(selector: &str, definition: &Definition, keys: &[(&str, &[i64])]) {
    let prepared = prepare(selector);
    let plan = Plan::new(definition, &prepared.event).unwrap();
    let codes = prepared
        .codes((&plan, definition), &SpanTasks::ALL)
        .unwrap_or_else(|reason| panic!("{selector} {definition:?}: {reason}"));
    let mut ended = 0;
    for seed in 0..5 {
        let all = happened(&prepared, keys, seed);
        let (expected, counts) = in_perf_prof(&prepared, definition, &all);
        let (found, found_counts) = in_kernel(&codes, definition, &all, usize::MAX);
        let rows = |groups: &Groups| groups.iter().collect::<HashMap<_, _>>();
        assert_eq!(rows(&found), rows(&expected), "{selector} {definition:?} seed {seed}");
        assert_eq!(found_counts, counts, "{selector} seed {seed}");
        ended += counts.ended * u64::from(!expected.is_empty());
        // If few spans can be open, the counts still fit together, which `in_kernel` checks.
        let (_, few) = in_kernel(&codes, definition, &all, 2);
        assert!(few.without_room != 0, "{selector} seed {seed}");
    }
    assert!(ended > 30, "{selector} {definition:?}: only {ended} spans ended in runs that added some");
}

const CALLS: &[(&str, &[i64])] = &[("id", &[0, 1, 15, -1, 257])];
const LOG2: Measure = Measure::Distribution(Buckets::log2(1000));

#[test]
fn system_calls_are_paired_and_added_up() {
    let syscall = |selector: &str, keys: &[&str], value, filter| {
        compare(selector, &definition(keys, value, filter, Measure::Sum), CALLS);
        compare(selector, &definition(keys, Some("duration"), filter, LOG2), CALLS);
    };
    syscall("syscall", &["name", "comm"], None, None);
    syscall("syscall/min=10us/", &["nr", "_tid", "_cpu"], Some("duration"), None);
    syscall("syscall/name=openat|read/", &["name", "_event"], None, Some("ret < 0 || ret > 1000"));
    syscall("syscall/ret > 5 && name != write/", &["end.ret"], Some("ret"), None);
    syscall("syscall", &["begin.id", "end.id", "_comm"], Some("end.ret"), Some("begin.id != 1 && duration > 100"));
}

#[test]
fn spans_of_two_events_are_paired_and_added_up() {
    let irqs: &[(&str, &[i64])] = &[("irq", &[1, 2, 3])];
    let irq = "span:i=irq:irq_handler_entry..irq:irq_handler_exit//key=_cpu+irq/";
    for selector in
        [irq.to_owned(), irq.replace("..irq:irq_handler_exit//", "..irq:irq_handler_exit/ret > 0 && duration > 5/")]
    {
        compare(&selector, &definition(&["irq"], Some("duration"), None, LOG2), irqs);
        compare(&selector, &definition(&["end.ret", "_cpu"], None, Some("irq != 2"), Measure::Sum), irqs);
    }
    let runs: &[(&str, &[i64])] = &[("pid", &[5, 6, 7])];
    let wait = "span:w=sched:sched_wakeup..sched:sched_waking//key=pid/";
    compare(wait, &definition(&["begin.comm", "begin.prio"], Some("end.target_cpu"), None, Measure::Sum), runs);
    compare(
        wait,
        &definition(&["end.comm", "pid"], Some("duration"), Some("begin.comm ~ \"ba*\""), Measure::Sum),
        runs,
    );
}

#[test]
fn what_programs_cannot_pair_is_told() {
    let reason = |selector: &str, keys: &[&str]| -> Option<String> {
        let prepared = prepare(selector);
        let definition = definition(keys, None, None, Measure::Sum);
        let plan = Plan::new(&definition, &prepared.event).unwrap();
        prepared.codes((&plan, &definition), &SpanTasks::ALL).map(|_| ()).map_err(|reason| reason.to_string()).err()
    };
    assert_eq!(reason("syscall", &["name"]), None);
    assert_eq!(reason("syscall", &["errno"]).unwrap(), "BPF programs cannot read `errno`");
    assert_eq!(reason("offcpu", &["waker_comm"]).unwrap(), "BPF programs cannot read `waker_comm`");
    assert_eq!(reason("runqueue", &["_pid"]).unwrap(), "BPF programs cannot read `_pid`");
    assert_eq!(reason("runqueue", &["begin._comm"]).unwrap(), "several events begin its spans");
    assert_eq!(reason("hrtimer", &[]), None);
    assert_eq!(reason("hrtimer", &["_tid"]).unwrap(), "BPF programs cannot know the task of its spans");
    assert_eq!(reason("hrtimer", &["waited"]).unwrap(), "BPF programs cannot read `waited`");
    assert_eq!(reason("workqueue", &["_tid"]).unwrap(), "BPF programs cannot know the task of its spans");
    assert_eq!(reason("workqueue/function=flush_*/", &[]).unwrap(), "its filter compares names of addresses");
    assert_eq!(reason("workqueue", &["workqueue"]).unwrap(), "BPF programs cannot read `workqueue`");
    assert_eq!(reason("signal", &[]).unwrap(), "BPF programs cannot know the task of its spans");
    assert_eq!(reason("task-state", &[]).unwrap(), "several events end its spans");
    assert_eq!(reason("irq", &["name"]).unwrap(), "BPF programs cannot read `name`");
    let nested = "span:i=irq:irq_handler_entry..irq:irq_handler_exit//key=irq/nested/";
    assert_eq!(reason(nested, &[]).unwrap(), "a key may be open several times");
}

#[test]
fn a_loss_drops_the_spans_that_are_open() {
    let prepared = prepare("syscall");
    let definition = definition(&[], None, None, Measure::Sum);
    let plan = Plan::new(&definition, &prepared.event).unwrap();
    let codes = prepared.codes((&plan, &definition), &SpanTasks::ALL).unwrap();
    let mut machine = Machine::new((codes.shape.key_bytes, codes.shape.value_bytes));
    machine.open = Hash::new(codes.open_bytes);
    let (begin, end) = (codes.of(0).unwrap(), codes.of(1).unwrap());
    let record = [0; 64];
    machine.run(begin, &record);
    machine.set_counter(SpanCounters::GENERATION_WORD, 1);
    machine.run(end, &record);
    machine.run(begin, &record);
    machine.run(end, &record);
    let words: [u64; Counters::WORDS + SpanCounters::WORDS] = machine.counters();
    assert_eq!(words[Counters::WORDS..], [2, 1, 1, 0, 0, 0, 1]);
}

const SWITCHES: &[(&str, &[i64])] = &[
    ("prev_pid", &[0, 5, 6, 7, 8]),
    ("next_pid", &[0, 5, 6, 7, 8]),
    ("pid", &[5, 6, 7, 8]),
    ("prev_state", &[0, 0, 1, 2, 4, 0x10, 0x20, 0x100]),
];

#[test]
fn spans_of_the_scheduler_are_paired_and_added_up() {
    for (selector, keys, value) in [
        ("offcpu", &["comm", "pid"][..], None),
        ("offcpu/state=disk|preempted/", &["state", "_cpu"], Some("duration")),
        ("offcpu/min=10us/", &["state", "_tid", "_pid", "end.prev_state"], None),
        ("offcpu/comm=ba*/", &["begin.next_comm", "begin.prev_state", "begin._tid"], Some("end.next_prio")),
        ("oncpu", &["comm", "why"], Some("duration")),
        ("oncpu/why=dead|sleeping/", &["pid", "begin.prev_comm", "_tid"], None),
    ] {
        compare(selector, &definition(keys, value, None, Measure::Sum), SWITCHES);
        compare(selector, &definition(keys, Some("duration"), Some("pid != 6"), LOG2), &SWITCHES[1..]);
    }
}

/// The engine finds a missing switch when the next switch does not fit, and programs find it with witnesses. So this test
/// has no missing switches.
#[test]
fn waits_for_a_cpu_are_paired_and_added_up() {
    for (selector, keys, value) in [
        ("runqueue", &["comm", "pid"][..], Some("duration")),
        ("runqueue/min=1us/", &["pid", "prev_comm", "_tid", "_cpu"], None),
    ] {
        compare(selector, &definition(keys, value, None, Measure::Sum), &SWITCHES[1..]);
        compare(selector, &definition(keys, Some("duration"), Some("pid != 6"), LOG2), &SWITCHES[1..]);
    }
}

#[test]
fn spans_of_interrupts_are_paired_and_added_up() {
    let vectors: &[(&str, &[i64])] = &[("vec", &[0, 3, 9, 77]), ("irq", &[1, 2, 3])];
    compare("softirq", &definition(&["name", "vec"], Some("duration"), None, Measure::Sum), vectors);
    compare("irq", &definition(&["irq", "_cpu"], Some("duration"), Some("end.ret != 0"), LOG2), vectors);
}

#[test]
fn spans_of_work_are_paired_and_added_up() {
    // Addresses of the kernel are large unsigned numbers.
    let addresses: &[i64] = &[-0x7000, -0x6000, 0x10];
    let values: &[(&str, &[i64])] = &[("work", addresses), ("function", addresses)];
    compare("workqueue", &definition(&["function", "work"], Some("duration"), None, Measure::Sum), values);
    let keys = ["_cpu", "function", "begin.function"];
    compare("workqueue/min=10us/", &definition(&keys, None, None, Measure::Sum), values);
    let filter = Some("work != 16 && duration > 100");
    compare("workqueue", &definition(&["_event"], Some("duration"), filter, LOG2), values);
}

#[test]
fn spans_of_timers_are_paired_and_added_up() {
    let addresses: &[i64] = &[-0x7000, -0x6000, 0x10];
    let values: &[(&str, &[i64])] = &[("hrtimer", addresses), ("function", addresses)];
    compare("hrtimer", &definition(&["function", "timer"], Some("duration"), None, Measure::Sum), values);
    compare("hrtimer/min=10us/", &definition(&["_cpu", "begin.function"], None, None, Measure::Sum), values);
    compare("hrtimer", &definition(&["_event"], Some("duration"), Some("timer != 16"), LOG2), values);
}
