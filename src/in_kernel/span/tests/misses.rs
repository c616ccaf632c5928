//! Tests of programs that miss events: no span is wrong, and open spans are dropped and counted.

use super::*;

/// Runs the programs, except for events for which `misses` returns true. Returns the number of spans for each key, the
/// number of missed events, and the counters.
fn with_misses(
    (prepared, codes): (&Prepared, &SpanCodes),
    all: &[Happened],
    mut misses: impl FnMut() -> bool,
) -> (HashMap<Vec<u8>, u64>, u64, SpanCounters) {
    let mut machine = Machine::new((codes.shape.key_bytes, codes.shape.value_bytes));
    machine.open = Hash::new(codes.open_bytes);
    let mut missed = 0;
    for Happened { input, data, running, time } in all {
        let Some(code) = codes.of(*input) else { continue };
        let Running { process, thread, cpu } = *running;
        (machine.ids, machine.cpu, machine.time) = ((process, thread), cpu, *time);
        let context = [&[0xff; 8][..], &data[8..]].concat();
        if misses() {
            missed += 1;
        } else {
            machine.run(code, &context);
        }
        machine.run(&witness::witness_code(*input), &[]);
    }
    let words: [u64; SpanCounters::ALL_WORDS] = machine.counters();
    assert_eq!(words[SpanCounters::GENERATION_WORD..][..2], [missed, missed], "{}", prepared.event.shown_name());
    let counts = <[u64; SpanCounters::WORDS]>::try_from(&words[Counters::WORDS..SpanCounters::GENERATION_WORD]);
    let count = |value: &[u8]| u64::from_ne_bytes(value[8..16].try_into().unwrap());
    (machine.rows().iter().map(|(key, value)| (key.clone(), count(value))).collect(), missed, counts.unwrap().into())
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Runs,
    Waits,
    Sleeps,
}

/// Makes events possible: only waiting tasks come to a CPU, and only sleeping tasks are woken.
fn possible(prepared: &Prepared, events: Vec<Happened>, seed: u64) -> Vec<Happened> {
    let chosen = &mut Chosen(seed);
    // Without wakeup events, a sleeping task can be switched to, so it counts as waiting.
    let has_wakeups = prepared.inputs.iter().any(|input| input.real_name().starts_with("sched:sched_wakeup"));
    let asleep = if has_wakeups { Doing::Sleeps } else { Doing::Waits };
    let (mut tasks, mut running) = ([asleep; 6], [0usize; 2]);
    let change = |mut event: Happened| -> Option<Happened> {
        let format = prepared.inputs[event.input].format.tracepoint()?;
        let mut set = |name: &str, value: u64| {
            let field = format.field(name).unwrap();
            event.data[field.offset..field.offset + field.size].copy_from_slice(&value.to_ne_bytes()[..field.size]);
        };
        let all_that = |tasks: &[Doing], what| (1..6).filter(|&task| tasks[task] == what).collect::<Vec<_>>();
        if &*format.name == "sched_switch" {
            let left = &mut running[event.running.cpu as usize];
            let next = *chosen.one(&[all_that(&tasks, Doing::Waits), vec![0]].concat());
            let state = *chosen.one(&[0, 0x100, 1, 2]);
            if next == *left {
                return None;
            }
            set("prev_pid", *left as u64);
            set("next_pid", next as u64);
            set("prev_state", state);
            tasks[*left] = if state & 0xff == 0 { Doing::Waits } else { asleep };
            tasks[next] = Doing::Runs;
            *left = next;
        } else if format.name.starts_with("sched_wakeup") {
            let sleeping = all_that(&tasks, Doing::Sleeps);
            let task = *sleeping.get(chosen.below(sleeping.len().max(1)))?;
            set("pid", task as u64);
            tasks[task] = Doing::Waits;
        }
        Some(event)
    };
    events.into_iter().filter_map(change).collect()
}

/// The test recognizes a span by its key and its duration: no two spans have the same key and the same duration.
#[test]
fn no_span_is_made_of_two_events_between_which_one_was_missed() {
    for (selector, key) in [
        ("offcpu", "pid"),
        ("oncpu", "pid"),
        ("runqueue", "pid"),
        ("softirq", "vec"),
        ("irq", "irq"),
        ("span:r=sched:sched_switch..sched:sched_switch//key=prev_pid:next_pid/", "prev_pid"),
    ] {
        let prepared = prepare(selector);
        let definition = definition(&[key, "duration"], None, None, Measure::Sum);
        let plan = Plan::new(&definition, &prepared.event).unwrap();
        let codes = prepared.codes((&plan, &definition), &SpanTasks::ALL).unwrap();
        let keys: Vec<_> = SWITCHES[1..].iter().chain(&[("vec", &[3, 9][..]), ("irq", &[1, 2])]).copied().collect();
        let (mut made, mut lost, mut all_missed) = (0, 0, 0);
        for seed in 0..20 {
            let all = possible(&prepared, happened(&prepared, &keys, seed), seed);
            let (truth, none, _) = with_misses((&prepared, &codes), &all, || false);
            assert_eq!(none, 0);
            let (rare, chosen) = (2 + (seed as usize % 4) * 5, &mut Chosen(seed + 1000));
            let (found, missed, counts) = with_misses((&prepared, &codes), &all, || chosen.below(rare) == 0);
            all_missed += missed;
            for (key, count) in &found {
                assert!(truth.get(key) >= Some(count), "{selector} seed {seed}: {key:?}");
            }
            made += found.values().sum::<u64>();
            lost += counts.lost;
        }
        assert!(made > 50 && lost > 50 && all_missed > 50, "{selector}: {made} made, {lost} lost");
    }
}

/// No program is called for some switches of a CPU. The next switch shows that they are missing.
#[test]
fn switches_that_do_not_follow_on_each_other_count_as_unseen() {
    let prepared = prepare("offcpu");
    let definition = definition(&["pid"], None, None, Measure::Sum);
    let plan = Plan::new(&definition, &prepared.event).unwrap();
    let selected = SpanTasks { are_selected: true, ..SpanTasks::ALL };
    for (tasks, known) in [(SpanTasks::ALL, 1..6u64), (selected, 2..4)] {
        let codes = prepared.codes((&plan, &definition), &tasks).unwrap();
        let mut all_gaps = 0;
        for seed in 0..10 {
            let mut machine = Machine::new((codes.shape.key_bytes, codes.shape.value_bytes));
            machine.open = Hash::new(codes.open_bytes);
            machine.tasks = known.clone().map(|task| task as u32).collect();
            let (mut last, mut expected) = ([None; 2], HashMap::<u64, u64>::new());
            let chosen = &mut Chosen(seed);
            for event in possible(&prepared, happened(&prepared, &SWITCHES[1..], seed), seed) {
                let format = prepared.inputs[event.input].format.tracepoint().unwrap();
                let Some(code) = codes.of(event.input).filter(|_| chosen.below(4) != 0) else { continue };
                let task = |name: &str| {
                    let at = format.field(name).unwrap().offset;
                    u64::from(u32::from_ne_bytes(event.data[at..at + 4].try_into().unwrap()))
                };
                let (left, came) = (task("prev_pid"), task("next_pid"));
                let cpu = event.running.cpu;
                let before = last[cpu as usize].replace(came);
                let gaps = before.filter(|before| *before != left).map(|before| [before, left]);
                for task in gaps.into_iter().flatten().filter(|task| known.contains(task)) {
                    *expected.entry(task).or_default() += 1;
                }
                machine.cpu = cpu;
                machine.run(code, &[&[0xff; 8][..], &event.data[8..]].concat());
                machine.run(&witness::witness_code(event.input), &[]);
            }
            assert_eq!(machine.gaps(), expected, "seed {seed}");
            let words: [u64; SpanCounters::ALL_WORDS] = machine.counters();
            assert_eq!(
                words[SpanCounters::MISSED_WORD..=SpanCounters::UNSEEN_WORD],
                [0, expected.values().sum()],
                "seed {seed}"
            );
            all_gaps += expected.len();
        }
        assert!(all_gaps > 10);
    }
}
