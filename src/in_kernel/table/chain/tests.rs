//! Tests of call chains in keys: rows are added up by chain as the aggregator does.

use std::collections::{BTreeMap, HashSet};

use perf_prof_events::{
    aggregate::{Definition, Measure, Plan},
    event::{AddressChain, EventType},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_RAW, PERF_SAMPLE_TID},
    record::SampleLayout,
};

use super::{
    super::{
        table_code,
        tests::records::{Chosen, event, shipped},
    },
    *,
};
use crate::{instruction::interpreter::Machine, select::Selection, table::Shape};

const EVENT: &str = "sched:sched_wakeup";
const ALL: Chains = Chains { kernel: true, user: true, most: MOST_FRAMES };

fn code(keys: &[&str], chains: Option<Chains>, ids: PidNamespace) -> Result<(Code, Shape), Unsuited> {
    let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW, 0);
    let event = EventType { layout, ..event(&shipped(EVENT)) };
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let definition = Definition { keys, value: None, filter: None, limit: 1000, measure: Measure::Sum };
    let plan = Plan::new(&definition, &event).unwrap();
    table_code((&plan, &definition), &event, None, &Selection { chains, ids, ..Selection::EVERYTHING })
}

fn machine(shape: &Shape) -> Machine {
    let mut machine = Machine::new((shape.key_bytes, shape.value_bytes));
    machine.segments = crate::instruction::interpreter::Hash::new((KEY_BYTES, VALUE_BYTES));
    machine
}

/// Returns the chains of the rows and their counts. Each chain must occur once for each process and time.
fn rows(machine: &Machine, shape: &Shape) -> Vec<(AddressChain, u64)> {
    let mut segments = Segments::default();
    machine.segments().iter().for_each(|(key, value)| segments.add(key, value));
    let rows = machine.rows();
    let rows = rows.iter().map(|(key, value)| shape.row(key, value));
    rows.map(|row| (segments.chain(row.chain.unwrap().id).unwrap(), row.count)).collect()
}

/// Returns a part of a chain. Several parts often start or end with the same frames.
fn frames(chosen: &mut Chosen, start: u64) -> Vec<u64> {
    let length = *chosen.one(&[0, 1, 2, 13, 14, 15, 16, 29, 30, 31, 62, 126, 127, 128, 140]);
    let (same, zeros) = (chosen.below(length + 1), chosen.below(2) == 0);
    (0..length as u64)
        .map(|at| {
            if at < same as u64 {
                start + at
            } else if zeros {
                0
            } else {
                start - at
            }
        })
        .collect()
}

#[test]
fn each_chain_of_a_process_has_a_row() {
    for (seed, most) in [(1, MOST_FRAMES), (2, MOST_FRAMES), (3, 20), (4, 1)] {
        let chains = Chains { most, ..ALL };
        let (code, shape) = code(&["_stack", "prio"], Some(chains), PidNamespace::First).unwrap();
        let mut machine = machine(&shape);
        let mut chosen = Chosen(seed);
        let mut expected: BTreeMap<(u32, u64, Vec<u64>, Vec<u64>), u64> = BTreeMap::new();
        for _ in 0..400 {
            let process = *chosen.one(&[1, 2, 4_000_000]);
            let since = *chosen.one(&[None, Some(5), Some(u64::MAX)]);
            machine.since.clear();
            machine.since.extend(since.map(|since| (process, since)));
            (machine.ids, machine.cpu) = ((process, 77), chosen.below(3) as u32);
            machine.chain = (frames(&mut chosen, 1 << 63), frames(&mut chosen, 1 << 20));
            assert_eq!(machine.run(&code, &[0; 64]), 1);
            let (mut kernel, mut user) = machine.chain.clone();
            kernel.truncate(most.into());
            user.truncate(usize::from(most) - kernel.len());
            let of_process = if user.is_empty() { (0, 0) } else { (process, since.unwrap_or(0)) };
            *expected.entry((of_process.0, of_process.1, kernel, user)).or_default() += 1;
        }
        let mut found = rows(&machine, &shape);
        let chain = |((pid, _, kernel, user), count)| (AddressChain { pid, kernel, user }, count);
        let mut expected: Vec<(AddressChain, u64)> = expected.into_iter().map(chain).collect();
        let key = |(chain, count): &(AddressChain, u64)| (chain.pid, chain.kernel.clone(), chain.user.clone(), *count);
        found.sort_by_key(key);
        expected.sort_by_key(key);
        assert_eq!(found, expected, "{seed}");
        assert!(found.len() > 5, "{}", found.len());
        let ids: HashSet<_> = machine.segments().into_iter().map(|(_, value)| value).collect();
        assert_eq!(ids.len(), machine.segments.len());
        assert_eq!(Counters::from(machine.counters()).segments, ids.len() as u64);
    }
}

#[test]
fn a_stack_that_cannot_be_followed_has_no_frames() {
    let (code, shape) = code(&["_stack"], Some(ALL), PidNamespace::First).unwrap();
    let mut machine = machine(&shape);
    machine.ids = (3, 3);
    // For these frames, the machine returns -EFAULT.
    let failing = vec![u64::MAX];
    for chain in [(failing.clone(), failing.clone()), (vec![1], failing), (vec![], vec![]), (vec![], vec![0])] {
        machine.chain = chain;
        machine.run(&code, &[0; 64]);
    }
    let mut found = rows(&machine, &shape);
    found.sort_by_key(|(chain, _)| (chain.kernel.len(), chain.user.len()));
    let chain = |pid, kernel: &[u64], user: &[u64]| AddressChain { pid, kernel: kernel.to_vec(), user: user.to_vec() };
    assert_eq!(found, [(chain(0, &[], &[]), 2), (chain(3, &[], &[0]), 1), (chain(0, &[1], &[]), 1)]);
}

#[test]
fn an_event_whose_chain_has_no_room_is_counted() {
    let (code, shape) = code(&["_stack"], Some(ALL), PidNamespace::First).unwrap();
    let mut machine = machine(&shape);
    machine.segments.limit = 2;
    for frames in [1, 20, 2, 1] {
        machine.chain = ((0..frames).collect(), Vec::new());
        machine.run(&code, &[0; 64]);
    }
    let counters = Counters::from(machine.counters());
    assert_eq!((counters.inserted, counters.refused, counters.segments), (1, 2, 2));
    assert_eq!(rows(&machine, &shape).iter().map(|(_, count)| *count).sum::<u64>(), 2);
}

#[test]
fn only_the_frames_that_are_asked_for_are_taken() {
    for (kernel, user) in [(true, false), (false, true)] {
        let (code, shape) = code(&["_stack"], Some(Chains { kernel, user, ..ALL }), PidNamespace::First).unwrap();
        let mut machine = machine(&shape);
        (machine.ids, machine.chain) = ((9, 9), (vec![1, 2], vec![3]));
        machine.run(&code, &[0; 64]);
        let (pid, frames) = if kernel { (0, (vec![1, 2], vec![])) } else { (9, (vec![], vec![3])) };
        assert_eq!(rows(&machine, &shape), [(AddressChain { pid, kernel: frames.0, user: frames.1 }, 1)]);
    }
}

#[test]
fn chains_that_programs_cannot_take_stay_in_perf_prof() {
    let refused = |chains, ids| code(&["_stack"], chains, ids).unwrap_err();
    assert_eq!(refused(None, PidNamespace::First), Unsuited::Unwound);
    assert_eq!(refused(Some(ALL), PidNamespace::Other), Unsuited::PidNamespace);
    assert_eq!(refused(Some(Chains { most: 128, ..ALL }), PidNamespace::First), Unsuited::DeepChain(128));
    assert!(code(&["_stack"], Some(Chains { user: false, ..ALL }), PidNamespace::Other).is_ok());
    assert_eq!(code(&["_stack", "_stack"], Some(ALL), PidNamespace::First).unwrap_err(), Unsuited::ChainTwice);
}

#[test]
fn a_process_has_other_mappings_after_a_fork_or_an_exec() {
    let fork = programs::renew_code(&shipped("sched:sched_process_fork"), Some("child_pid")).unwrap();
    let exec = programs::renew_code(&shipped("sched:sched_process_exec"), None).unwrap();
    let mut machine = Machine::new((8, 8));
    (machine.ids, machine.time) = ((5, 6), 100);
    machine.run(&exec, &[0; 64]);
    machine.time = 200;
    let mut record = [0; 64];
    record[shipped("sched:sched_process_fork").field("child_pid").unwrap().offset] = 7;
    machine.run(&fork, &record);
    assert_eq!(machine.since, [(5, 100), (7, 200)].into());
    // A full map keeps the new time of a process that it has. A process that it does not have is counted.
    (machine.tasks_are_full, machine.time) = (true, 300);
    assert_eq!(machine.run(&exec, &[0; 64]), 1);
    assert_eq!(machine.counters(), [0]);
    machine.ids = (8, 8);
    assert_eq!(machine.run(&exec, &[0; 64]), 1);
    assert_eq!(machine.counters(), [1]);
    assert_eq!(machine.since, [(5, 300), (7, 200)].into());
}
