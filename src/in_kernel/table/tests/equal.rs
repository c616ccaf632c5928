//! Tests that a program and the aggregator make the same table of the same records.

use perf_prof_events::{
    aggregate::{Amount, Groups, Memo},
    event::{
        Sample,
        reader::{Facts, Input, KeptFacts},
    },
};

use super::{
    records::{self, Chosen, Running, data},
    *,
};

/// A record, and what a program sees when it happens: the task, the CPU and the comm.
struct Happened {
    record: Vec<u8>,
    data: Vec<u8>,
    running: Running,
    comm: &'static [u8],
}

/// The tasks of all records: the idle task, and others.
const TASKS: [(u32, u32, &[u8]); 4] =
    [(0, 0, b"swapper"), (100, 101, b"swapper/1"), (4_000_000, 4_000_001, b"fifteen letters"), (7, 7, b"bash")];

fn happened(format: &perf_prof_format::tracefs::EventFormat, time: u64, chosen: &mut Chosen) -> Happened {
    let &(process, thread, comm) = chosen.one(&TASKS);
    let running = Running { process, thread, cpu: chosen.below(4) as u32 };
    let data = data(format, thread, chosen);
    Happened { record: record(&data, running, time), data, running, comm }
}

/// Runs the program, adds its rows to `groups`, and returns its counters. The hash holds at most `limit` rows.
fn in_kernel(code: &Code, shape: &Shape, limit: usize, all: &[Happened], groups: &mut Groups) -> Counters {
    let mut machine = Machine::new((shape.key_bytes, shape.value_bytes));
    machine.table.limit = limit;
    for (time, event) in all.iter().enumerate() {
        let Running { process, thread, cpu } = event.running;
        let mut comm = [0; 16];
        comm[..event.comm.len()].copy_from_slice(event.comm);
        if thread == 0 {
            comm[7..9].copy_from_slice(&[b'/', b'0' + cpu as u8]);
        }
        (machine.ids, machine.cpu, machine.comm, machine.time) = ((process, thread), cpu, comm, time as u64);
        // In place of the common fields, a program gets a pointer of the kernel.
        let context = [&0xffff_8880_0123_4560u64.to_ne_bytes()[..], &event.data[8..]].concat();
        assert_eq!(machine.run(code, &context), 1);
    }
    let mut rows: Vec<Row> = machine.rows().iter().map(|(key, value)| shape.row(key, value)).collect();
    rows.sort_by_key(|row| row.first);
    rows.iter().for_each(|row| groups.add_amount(&row.key, &row.amount));
    Counters::from(machine.counters())
}

/// Compares the program and the aggregator for a random declaration and random records. Fails if the declaration cannot be
/// compiled.
fn compare(seed: u64) -> Result<(), Unsuited> {
    let mut chosen = Chosen(seed);
    let format = &records::any(&mut chosen);
    let event = event(format);
    let records: Vec<Happened> = (0..60).map(|time| happened(format, time, &mut chosen)).collect();
    let samples: Vec<Vec<u8>> = records.iter().map(|happened| happened.data.clone()).collect();
    let definition = declarations::definition(format, &samples, &mut chosen);
    let selected = declarations::filter(format, &samples, &mut chosen);
    let selected = selected.and_then(|text| Filter::parse(&text, format).ok());
    let Ok(plan) = Plan::new(&definition, &event) else { return Ok(()) };
    let selection = Selection { cpus: Some([0, 2, 3].into()), ..Selection::EVERYTHING };
    let (code, shape) = table_code((&plan, &definition), &event, selected.as_ref(), &selection)?;
    let (mut expected, mut memo) = (Groups::new(definition.clone()), Memo::default());
    for event_record in &records {
        let Running { cpu, .. } = event_record.running;
        let passes = selected.as_ref().is_none_or(|filter| filter.passes(&event_record.data, Some(cpu)));
        if cpu != 1 && passes {
            let kept = KeptFacts { comm: Some(event_record.comm.to_vec()), ..KeptFacts::default() };
            let sample = Sample { event: &event, record: &event_record.record };
            expected.add(&plan, &Input { sample, facts: Facts::Kept(&kept) }, &mut memo);
        }
    }
    let mut found = Groups::new(definition.clone());
    let counters = in_kernel(&code, &shape, usize::MAX, &records, &mut found);
    let said = || format!("seed {seed}: {} {definition:?} {selected:?}\n{code}", event.shown_name());
    assert_eq!(found.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>(), "{}", said());
    assert_eq!((counters.refused, counters.own, expected.skipped()), (0, 0, 0), "{}", said());
    // If the table is too small, the sums of the rows and of the refused events still add up to the sum of all events.
    let mut few = Groups::new(definition.clone());
    let counters = in_kernel(&code, &shape, 2, &records, &mut few);
    let refused = match (few.total(), shape.refused(&counters)) {
        (Amount::Sum(kept), Amount::Sum(refused)) => Amount::Sum(kept + refused),
        (kept, _) => kept,
    };
    if definition.measure == Measure::Sum {
        assert_eq!(refused, expected.total(), "{}", said());
    }
    assert_eq!(counters.inserted, counters.inserted.min(2));
    Ok(())
}

#[test]
fn programs_and_aggregators_give_the_same_tables() {
    let unsuited: Vec<Unsuited> = (0..300).filter_map(|seed| compare(seed).err()).collect();
    // Most declarations must compile, or the test would compare little.
    assert!(unsuited.len() < 150, "{}: {unsuited:?}", unsuited.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_declaration_gives_the_same_table(seed: u64) {
        let _ = compare(seed);
    }
}
