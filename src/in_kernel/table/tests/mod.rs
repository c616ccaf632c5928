//! Tests of the programs of tables.

mod declarations;
mod equal;
pub(crate) mod records;
mod since;

use expect_test::expect;
use perf_prof_events::aggregate::{Amount, Buckets, Definition, KeyPart, LinearRanges, Measure, Plan};
use proptest::prelude::*;

use self::records::{event, record, shipped};
use super::{range::Numbers, *};
use crate::{
    instruction::{Instruction, interpreter::Machine},
    lower::PidNamespace,
};

fn counts(keys: &[&str]) -> Definition {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    Definition { keys, value: None, filter: None, limit: 1000, measure: Measure::Sum }
}

/// Returns the code and the layout for an event of the shipped formats.
fn code_of(name: &str, definition: &Definition) -> Result<(Code, Shape), Unsuited> {
    let event = event(&shipped(name));
    let plan = Plan::new(definition, &event).unwrap();
    table_code((&plan, definition), &event, None, &Selection::EVERYTHING)
}

#[test]
fn a_count_by_a_field_is_a_look_up_and_an_addition() {
    let (code, shape) = code_of("sched:sched_wakeup", &counts(&["prio"])).unwrap();
    assert_eq!((shape.key_bytes, shape.value_bytes), (8, 16));
    expect![[r#"
            r6 = r1
            call 14
            r9 = r0
            r8 = 1
            r1 = u32[r6+28]
            r1 <<= 32
            r1 s>>= 32
            u64[fp-16] = r1
            u32[fp-8] = 0
            r1 = map Tables
            r2 = fp
            r2 += -8
            call 1
            if r0 == 0 goto 2
            r7 = r0
            r1 = r7
            r2 = fp
            r2 += -16
            call 1
            if r0 != 0 goto 4
            call 5
            u64[fp-32] = r0
            u64[fp-24] = 1
            r1 = r7
            r2 = fp
            r2 += -16
            r3 = fp
            r3 += -32
            r4 = 1
            call 2
            r1 = -17
            if r0 == r1 goto 5
            if r0 != 0 goto 2
            r1 = map Counters
            r2 = 1
            lock u64[r1+0] += r2
            goto 3
        5:
            r1 = r7
            r2 = fp
            r2 += -16
            call 1
            if r0 == 0 goto 2
        4:
            r7 = r0
            r1 = 1
            lock u64[r7+8] += r1
            goto 3
        2:
            r1 = map Counters
            r2 = 1
            lock u64[r1+8] += r2
            lock u64[r1+16] += r8
        3:
        1:
            r0 = 1
            exit
    "#]]
    .assert_eq(&code.to_string());
}

#[test]
fn a_row_that_another_cpu_adds_first_is_not_added_again() {
    let definition = counts(&["prio"]);
    let (code, shape) = code_of("sched:sched_wakeup", &definition).unwrap();
    let mut machine = Machine::new((shape.key_bytes, shape.value_bytes));
    let key = 120u64.to_ne_bytes().to_vec();
    machine.added_meanwhile.insert(key, vec![5, 10]);
    let mut data = [0; 64];
    let prio = shipped("sched:sched_wakeup").field("prio").unwrap().offset;
    data[prio..prio + 4].copy_from_slice(&120u32.to_ne_bytes());
    assert_eq!(machine.run(&code, &data), 1);
    let rows = machine.rows();
    let row = shape.row(&rows[0].0, &rows[0].1);
    assert_eq!(row, Row { key: vec![KeyPart::Number(120)], count: 11, amount: Amount::Sum(11), first: 5, chain: None });
    assert_eq!(Counters::from(machine.counters()), Counters::default());
}

#[test]
fn what_has_no_room_is_counted_with_its_sum() {
    let definition = Definition { value: Some("runtime".into()), ..counts(&["pid"]) };
    let (code, shape) = code_of("sched:sched_stat_runtime", &definition).unwrap();
    let event = event(&shipped("sched:sched_stat_runtime"));
    let field = |name: &str| event.format.tracepoint().unwrap().field(name).unwrap().offset;
    let mut machine = Machine::new((shape.key_bytes, shape.value_bytes));
    machine.table.limit = 1;
    for (pid, runtime) in [(1, 5), (2, u64::MAX), (1, 6), (3, 1)] {
        let mut data = [0; 64];
        data[field("pid")] = pid;
        data[field("runtime")..][..8].copy_from_slice(&runtime.to_ne_bytes());
        machine.run(&code, &data);
    }
    let counters = Counters::from(machine.counters());
    assert_eq!((counters.inserted, counters.refused, counters.own), (1, 2, 0));
    assert_eq!(shape.refused(&counters), Amount::Sum(1 << 64));
    let rows = machine.rows();
    assert_eq!(shape.row(&rows[0].0, &rows[0].1).amount, Amount::Sum(11));
}

#[test]
fn own_events_are_counted_after_the_selection_and_before_the_filter() {
    let definition = Definition { filter: Some("prio == 1".into()), ..counts(&[]) };
    let event = event(&shipped("sched:sched_wakeup"));
    let plan = Plan::new(&definition, &event).unwrap();
    let format = event.format.tracepoint().unwrap();
    let filter = Filter::parse("target_cpu == 0", format).unwrap();
    let own = crate::select::Own { process: Some(5), ..crate::select::Own::NOTHING };
    let selection = Selection { own, ..Selection::EVERYTHING };
    let (code, shape) = table_code((&plan, &definition), &event, Some(&filter), &selection).unwrap();
    let mut machine = Machine::new((shape.key_bytes, shape.value_bytes));
    let mut run = |process, cpu| {
        machine.ids = (process, process);
        let mut data = [0; 64];
        data[format.field("target_cpu").unwrap().offset] = cpu;
        data[format.field("prio").unwrap().offset] = 1;
        machine.run(&code, &data);
        (Counters::from(machine.counters()).own, machine.rows().len())
    };
    assert_eq!(run(5, 1), (0, 0));
    assert_eq!(run(5, 0), (1, 0));
    assert_eq!(run(6, 0), (1, 1));
    let outside = Selection { ids: PidNamespace::Other, ..selection };
    let refused = table_program(&plan, &definition, &event, None, &outside).map(|(program, _)| program);
    assert_eq!(refused, Err(Unsuited::PidNamespace));
}

/// Returns the range of a number, as the program finds it.
fn range(buckets: Buckets, number: u64, numbers: Numbers) -> Option<perf_prof_events::aggregate::Place> {
    let mut code = Code::new();
    code.set(ADDED, number);
    RangeOf::new(buckets).ok()?.write(&mut code, ADDED, numbers);
    code.push(Instruction::Exit);
    Some(range::place(Machine::new((8, 8)).run(&code, &[])))
}

proptest! {
    #[test]
    fn ranges_are_those_of_the_aggregator(
        number: u64,
        shift in 0u32..64,
        signed: bool,
        divisor in prop_oneof![Just(1u64), Just(1000), Just(1_000_000), Just(1_000_000_000), 1u64..5000, Just(1 << 20)],
        ends: (i32, i32),
        step in 1i64..1_000_000,
        linear: bool,
    ) {
        let number = if signed { (number as i64 >> shift) as u64 } else { number >> shift };
        let buckets = if linear {
            let ranges = LinearRanges { low: ends.0.min(ends.1).into(), high: ends.0.max(ends.1).into(), step };
            match Buckets::linear(ranges, divisor) {
                Ok(buckets) => buckets,
                Err(_) => return Ok(()),
            }
        } else {
            Buckets::log2(divisor)
        };
        let value = if signed { i128::from(number as i64) } else { number.into() };
        let numbers = Numbers { is_signed: signed, is_wide: true };
        prop_assert_eq!(range(buckets, number, numbers), Some(buckets.place(value)));
        if let Ok(narrow) = u32::try_from(value) {
            let numbers = Numbers { is_signed: false, is_wide: false };
            prop_assert_eq!(range(buckets, narrow.into(), numbers), Some(buckets.place(value)));
        }
    }
}
