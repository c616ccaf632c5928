//! Tests of tables on records that the tests make.

use std::{collections::HashMap, sync::Arc};

use expect_test::{Expect, expect};
use perf_prof_format::{
    abi::{
        PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
    tracefs::{EventFormat, NoKernel},
};
use perf_prof_symbols::symbol::Slot;
use perf_prof_system::budget::Budget;
use proptest::prelude::*;

use super::*;
use crate::event::{
    Context, EventType, Format, Frame, Origin, Sample, SpanFormat, SpanPart, SpanSamples, SpanTask,
    reader::{Facts, Input, KeptFacts},
};

const FORMAT: &str = "name: made
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t pid;	offset:24;	size:4;	signed:1;
	field:unsigned long bytes;	offset:32;	size:8;	signed:0;

print fmt: \"\"
";

fn event(members: u64) -> EventType {
    let format = Format::Tracepoint(Arc::new(EventFormat::parse("s", FORMAT).unwrap()));
    let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW | members, 0);
    EventType { alias: None, format, layout, max_stack: None }
}

/// The values of an event's fields: comm, pid, bytes.
type Made = (&'static str, i32, u64);

fn record(event: &EventType, (comm, pid, bytes): Made, chain: &[u64]) -> Vec<u8> {
    let mut raw = vec![7, 0, 0, 0, 1, 0, 0, 0];
    let mut name = comm.as_bytes().to_vec();
    name.resize(16, 0);
    raw.extend(name);
    raw.extend(pid.to_ne_bytes());
    raw.extend([0; 4]);
    raw.extend(bytes.to_ne_bytes());
    let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    record.extend([0; 4]);
    record.extend([5i32, 6].map(i32::to_ne_bytes).concat());
    record.extend(1000u64.to_ne_bytes());
    record.extend(3u64.to_ne_bytes());
    if event.layout.format.sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
        record.extend((chain.len() as u64).to_ne_bytes());
        chain.iter().for_each(|address| record.extend(address.to_ne_bytes()));
    }
    record.extend((raw.len() as u32).to_ne_bytes());
    record.extend(raw);
    record
}

fn definition(keys: &[&str], value: Option<&str>) -> Definition {
    let keys = keys.iter().map(|&key| key.to_owned()).collect();
    Definition { keys, value: value.map(str::to_owned), filter: None, limit: 1_000_000, measure: Measure::Sum }
}

fn groups(definition: Definition, events: &[Made]) -> Groups {
    groups_within(definition, events, &Budget::unlimited())
}

fn groups_within(definition: Definition, events: &[Made], budget: &Budget) -> Groups {
    let event = event(0);
    let plan = Plan::new(&definition, &event).unwrap();
    let mut groups = Groups::new(definition);
    let context = Context::new(Box::new(NoKernel), 0).with_budget(budget.clone());
    let mut memo = Memo::default();
    for &made in events {
        let record = record(&event, made, &[]);
        let input = Input { sample: Sample { event: &event, record: &record }, facts: Facts::Run(&context) };
        groups.add(&plan, &input, &mut memo);
    }
    groups
}

const EVENTS: [Made; 5] = [("make", 7, 10), ("cc1", 8, 5), ("make", 7, 1), ("make", -1, 100), ("cc1", 8, 0)];

#[track_caller]
fn check(definition: Definition, expected: Expect) {
    expected.assert_eq(&groups(definition, &EVENTS).report(None, "count").text());
}

#[test]
fn a_full_table_can_keep_the_keys_that_it_has() {
    let mut groups = Groups::new(Definition { limit: 2, ..definition(&["k"], None) });
    groups.keep_first_keys();
    for key in [1, 2, 3, 3, 1, 4] {
        groups.add_amount(&[KeyPart::Number(key)], &Amount::Sum(1));
    }
    let rows: Vec<_> = groups.iter().map(|(key, amount)| (key[0].text().into_owned(), amount.weight())).collect();
    assert_eq!(rows, [("1".to_owned(), 2), ("2".to_owned(), 1)]);
    assert_eq!((groups.others().amount.weight(), groups.others().keys, groups.total().weight()), (3, 3, 6));
    let note = "others: 3 (there were more than limit=2 keys, so those that came later are added up here)";
    assert_eq!(groups.report(None, "count").notes, [note]);
}

#[test]
fn events_are_counted_by_numbers_and_texts() {
    check(
        definition(&["comm", "pid"], None),
        expect![[r#"
            comm  pid  count  share
            make    7      2  40.0%
            cc1     8      2  40.0%
            make   -1      1  20.0%"#]],
    );
    check(
        definition(&["_event", "_cpu", "_tid"], None),
        expect![[r#"
            _event  _cpu  _tid  count   share
            s:made     3     6      5  100.0%"#]],
    );
    check(
        definition(&[], None),
        expect![[r#"
            count   share
                5  100.0%"#]],
    );
}

#[test]
fn values_are_added_up() {
    check(
        definition(&["comm"], Some("bytes")),
        expect![[r#"
            comm  count  share
            make    111  95.7%
            cc1       5   4.3%"#]],
    );
    check(
        definition(&[], Some("pid")),
        expect![[r#"
            count   share
               29  100.0%"#]],
    );
}

#[test]
fn a_filter_selects_events() {
    let filter = |text: &str| Definition { filter: Some(text.into()), ..definition(&["comm"], None) };
    check(
        filter("bytes >= 10 && comm == \"make\""),
        expect![[r#"
            comm  count   share
            make      2  100.0%"#]],
    );
}

#[test]
fn the_smallest_keys_are_folded() {
    let limited = Definition { limit: 4, ..definition(&["pid"], None) };
    let events: Vec<Made> = [1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 1].map(|pid| ("a", pid, 0)).to_vec();
    let groups = groups(limited, &events);
    expect![[r#"
        pid  count  share
          1      4  36.4%
          2      2  18.2%
          3      2  18.2%
          4      1   9.1%
        others: 2 (there were more than limit=4 keys, so the smallest were added to others 2 times; a key that came back may show too little)"#]]
    .assert_eq(&groups.report(None, "count").text());
    expect![[r#"
        pid  count  share
          1      4  36.4%
        (3 more keys, 5 together)
        others: 2 (there were more than limit=4 keys, so the smallest were added to others 2 times; a key that came back may show too little)"#]]
    .assert_eq(&groups.report(Some(1), "count").text());
    assert_eq!((groups.total(), groups.len()), (Amount::Sum(11), 4));
}

/// The largest key stays, whatever keys come after it.
#[test]
fn keys_that_take_too_much_memory_are_folded_and_nothing_is_lost() {
    let budget = Budget::new(1 << 20);
    let texts: Vec<String> = (0..50_000).map(|number| format!("task-{number}")).collect();
    let other = texts.iter().map(|text| (&*text.clone().leak(), 1, 3));
    let events: Vec<Made> = [("make", 1, 3); 100].into_iter().chain(other).collect();
    let linear = Measure::Distribution(self::linear(0, 5_000, 1, 1).unwrap());
    // A distribution stores a count for each range from its smallest to its largest value. The values here are 0 and 4,000,
    // so each key takes much memory.
    let wide = (0..10_000).map(|number| ("a", number % 100, (number as u64 / 100 % 2) * 4_000));
    let wide: Vec<Made> = [("a", 1, 0); 200].into_iter().chain(wide).collect();
    for (definition, events, total) in [
        (definition(&["comm", "_tid"], Some("bytes")), &events, 3 * 50_100),
        (definition(&["comm"], None), &events, 50_100),
        (Definition { measure: linear, ..definition(&["pid"], Some("bytes")) }, &wide, 10_200),
    ] {
        let groups = groups_within(definition, events, &budget);
        assert!(groups.others().keys > 0 && !groups.is_empty() && budget.held() <= budget.share(), "{}", groups.len());
        assert_eq!(groups.total().weight(), total);
        let largest = groups.largest(Some(1))[0].0[0].text().into_owned();
        assert!(["make", "1"].contains(&&*largest), "{largest}");
        let note = groups.notes(&[]).into_iter().find(|note| note.starts_with("others")).unwrap();
        assert!(
            note.contains("the keys took more than their share of --buffer, so the smallest were added to others"),
            "{note}"
        );
    }
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_cleared_table_counts_anew() {
    let mut all = groups(definition(&["comm"], None), &EVENTS);
    let before = all.clone();
    all.clear();
    assert!(all.is_empty() && all.total() == Amount::Sum(0));
    all.merge(&before);
    let text = |name: &str| KeyPart::Text(name.as_bytes().into());
    assert_eq!(all.get(&[text("make")]), Some(Amount::Sum(3)));
    assert_eq!(all.get(&[text("ld")]), None);
}

#[test]
fn a_record_that_ends_early_has_no_value() {
    let event = event(0);
    let by = definition(&["pid"], Some("bytes"));
    let plan = Plan::new(&by, &event).unwrap();
    let mut groups = Groups::new(by);
    let context = Context::new(Box::new(NoKernel), 0);
    let whole = record(&event, ("a", 1, 2), &[]);
    let input = |record| Input { sample: Sample { event: &event, record }, facts: Facts::Run(&context) };
    groups.add(&plan, &input(&whole[..whole.len() - 1]), &mut Memo::default());
    assert_eq!((groups.len(), groups.skipped()), (0, 1));
    let counted = definition(&["bytes"], None);
    let plan = Plan::new(&counted, &event).unwrap();
    let mut groups = Groups::new(counted);
    groups.add(&plan, &input(&whole[..whole.len() - 1]), &mut Memo::default());
    assert_eq!(groups.iter().next(), Some((vec![KeyPart::Missing], Amount::Sum(1))));
}

/// The table of events of which two have no known value.
fn with_unknown_values(measure: Measure) -> Groups {
    let text = FORMAT.replace("unsigned long bytes", "u64 __if_known bytes");
    let format = Format::Tracepoint(Arc::new(EventFormat::parse("s", &text).unwrap()));
    let event = EventType { format, ..event(0) };
    let definition = Definition { measure, ..definition(&["comm"], Some("bytes")) };
    let (plan, context) = (Plan::new(&definition, &event).unwrap(), Context::new(Box::new(NoKernel), 0));
    let (mut groups, mut memo) = (Groups::new(definition), Memo::default());
    for made in [("a", 1, 4), ("a", 1, u64::MAX), ("b", 1, u64::MAX), ("a", 1, 8)] {
        let record = record(&event, made, &[]);
        let input = Input { sample: Sample { event: &event, record: &record }, facts: Facts::Run(&context) };
        groups.add(&plan, &input, &mut memo);
    }
    groups
}

#[test]
fn a_value_that_is_not_known_is_in_no_sum_and_in_no_mean() {
    let sums = with_unknown_values(Measure::Sum);
    expect![[r#"
        comm  bytes   share
        a        12  100.0%
        2 events are not added up: their `bytes` is not known"#]]
    .assert_eq(&sums.report(None, "bytes").text());
    let mut tables = with_unknown_values(Measure::Distribution(Buckets::log2(1)));
    tables.merge(&with_unknown_values(Measure::Distribution(Buckets::log2(1))));
    expect![[r#"
        comm  count  mean  p50  p90  p99  max
        a         4   6.0    4    8    8    8
        b         0     -    -    -    -    -
        4 events are not added up: their `bytes` is not known"#]]
    .assert_eq(&tables.report(None, "").text());
    // The weight, by which tables are sorted, is the number of events.
    let rows: Vec<i128> = tables.iter().map(|(_, amount)| amount.weight()).collect();
    assert_eq!((rows, tables.total().weight()), (vec![6, 2], 8));
}

#[test]
fn names_that_an_event_does_not_have() {
    let errors = |definition: Definition| Plan::new(&definition, &event(0)).unwrap_err().to_string();
    expect!["s:made has no field or member `_com`; did you mean `_comm`?"]
        .assert_eq(&errors(definition(&["_com"], None)));
    expect!["s:made has no field or member `nothing`; its fields are comm, pid, bytes"]
        .assert_eq(&errors(definition(&[], Some("nothing"))));
    expect!["`comm` of s:made cannot be added up: it is text, not a number"]
        .assert_eq(&errors(definition(&[], Some("comm"))));
    expect!["s:made has no call chains for `_stack`: use -g, or write s:made//stack/; a recording must be made with one of them"]
        .assert_eq(&errors(definition(&["_stack"], None)));
    let filter = |text: &str| errors(Definition { filter: Some(text.into()), ..definition(&[], None) });
    expect![[r#"where="byte == 1": the event has no field `byte`; did you mean `bytes`?"#]]
        .assert_eq(&filter("byte == 1"));
}

fn frame(symbol: &str, line_of_python: Option<u32>) -> Arc<Frame> {
    let srcline = line_of_python.map(|line| ("/srv/app.py".into(), line));
    let origin = if line_of_python.is_some() { Origin::Python { pid: 1 } } else { Origin::User { pid: 1 } };
    let (symbol, dso, slot) = (symbol.into(), "made".into(), Slot::default());
    Arc::new(Frame { slot, addr: 1, symbol, offset: 0, origin, dso, dso_offset: 0, srcline })
}

#[test]
fn stacks_are_folded_with_and_without_lines() {
    let event = event(PERF_SAMPLE_CALLCHAIN);
    let by = definition(&["_stack", "_stack_lines"], None);
    let plan = Plan::new(&by, &event).unwrap();
    let (mut groups, mut memo) = (Groups::new(by), Memo::default());
    let record = record(&event, ("a", 1, 2), &[]);
    let [read, at_7, at_42] = [("read", None), ("load", Some(7)), ("load", Some(42))].map(|(of, line)| frame(of, line));
    for frames in [vec![&read, &at_42], vec![&read, &at_7], vec![&read, &at_7, &at_42], vec![&read, &at_42]] {
        let kept = KeptFacts { frames: frames.into_iter().cloned().collect(), ..KeptFacts::default() };
        let input = Input { sample: Sample { event: &event, record: &record }, facts: Facts::Kept(&kept) };
        groups.add(&plan, &input, &mut memo);
    }
    expect![[r#"
        _stack                            _stack_lines                                             count  share
        load_[python];read                load (app.py:42)_[python];read                               2  50.0%
        load_[python];read                load (app.py:7)_[python];read                                1  25.0%
        load_[python];load_[python];read  load (app.py:42)_[python];load (app.py:7)_[python];read      1  25.0%"#]]
    .assert_eq(&groups.report(None, "count").text());
}

#[test]
fn the_largest_events_are_kept_whole() {
    let event = Arc::new(event(0));
    let largest = Definition { limit: 2, ..definition(&[], Some("bytes")) };
    let plan = Plan::new(&largest, &event).unwrap();
    let mut top = Largest::new(largest);
    for made in EVENTS {
        let record = record(&event, made, &[]);
        let kept = KeptFacts { comm: Some(b"a".to_vec()), realtime: Some(1), ..KeptFacts::default() };
        let sample = Sample { event: &event, record: &record };
        top.add(&plan, &event, &Input { sample, facts: Facts::Kept(&kept) });
    }
    let values: Vec<i128> = top.entries().iter().map(|entry| entry.value).collect();
    assert_eq!((values, top.seen()), (vec![100, 10], 5));
    let Kept::Event { record: kept, .. } = &top.entries()[1].kept else { panic!("no event") };
    assert_eq!(**kept, *record(&event, EVENTS[0], &[]));
}

#[test]
fn of_events_without_room_the_largest_are_kept_and_the_others_counted() {
    const EVENTS: u64 = 10_000;
    let budget = Budget::new(1 << 20);
    let context = Context::new(Box::new(NoKernel), 0).with_budget(budget.clone());
    let event = Arc::new(event(PERF_SAMPLE_CALLCHAIN));
    let chain = vec![0; 1000];
    for keys in [&[][..], &["comm", "pid"]] {
        let largest = Definition { limit: 1_000_000, ..definition(keys, Some("bytes")) };
        let plan = Plan::new(&largest, &event).unwrap();
        let mut top = Largest::new(largest);
        for number in 0..EVENTS {
            let record = record(&event, ("make", 1, number * 7919 % EVENTS), &chain);
            let sample = Sample { event: &event, record: &record };
            top.add(&plan, &event, &Input { sample, facts: Facts::Run(&context) });
            assert!(budget.held() <= budget.share());
        }
        let kept = top.entries().len() as u64;
        assert!(kept > 10 && top.entries().iter().map(|entry| entry.value as u64).eq((EVENTS - kept..EVENTS).rev()));
        assert_eq!((kept + top.without_room(), top.seen()), (EVENTS, EVENTS));
    }
}

fn hist(buckets: Buckets) -> Definition {
    Definition { measure: Measure::Distribution(buckets), ..definition(&["comm"], Some("bytes")) }
}

#[test]
fn a_table_of_distributions() {
    check(
        hist(Buckets::log2(1)),
        expect![[r#"
            comm  count  mean count  p50 count  p90 count  p99 count  max count
            make      3        37.0         10        100        100        100
            cc1       2         2.5          0          5          5          5"#]],
    );
    let made = groups(hist(linear(0, 20, 6, 1).unwrap()), &EVENTS);
    let Amount::Distribution(total) = made.total() else { panic!() };
    expect![[r#"
          bytes : count     distribution
         0 -> 5 : 3        |****************************************|
        6 -> 11 : 1        |*************                           |
          >= 20 : 1        |*************                           |"#]]
    .assert_eq(&total.text("bytes", made.buckets()));
}

fn linear(low: i64, high: i64, step: i64, divisor: u64) -> Result<Buckets, LinearError> {
    Buckets::linear(LinearRanges { low, high, step }, divisor)
}

#[test]
fn only_what_is_shown_is_divided() {
    let events: [Made; 3] = [("cc1", 7, 999), ("cc1", 7, 1_500), ("cc1", 7, 41_740)];
    let made = groups(hist(Buckets::log2(1000)), &events);
    let Amount::Distribution(total) = made.total() else { panic!() };
    assert_eq!((total.sum, total.min, total.max), (44_239, Some(999), Some(41_740)));
    assert_eq!(total.rows(made.buckets()), [(Some(0), 2), (Some(32_000), 1)]);
    expect![[r#"
        comm  count  mean us  p50 us  p90 us  p99 us  max us
        cc1       3   14.746     1.6  41.740  41.740  41.740"#]]
    .assert_eq(&made.report(None, "us").text());
    let made = groups(hist(linear(0, 10, 1, 1000).unwrap()), &events);
    let Amount::Distribution(total) = made.total() else { panic!() };
    assert_eq!(total.rows(made.buckets()), [(Some(0), 1), (Some(1000), 1), (Some(10_000), 1)]);
    assert_eq!(made.buckets().as_linear(), Some(LinearRanges { low: 0, high: 10, step: 1 }));
    assert_eq!(linear(0, i64::MAX / 10, i64::MAX / 100, 1000), Err(LinearError::TooLarge(i64::MAX / 10)));
}

proptest! {
    #[test]
    fn every_value_is_in_its_range(value in any::<u64>(), shift in 0..64u32) {
        let value = i128::from(value >> shift);
        for divisor in [1, 1000, 1_000_000_000] {
            // All larger values share the last range.
            let value = if divisor == 1 { value } else { value.min(i128::from(u64::MAX) >> 1) };
            let (mut of, buckets) = (Distribution::default(), Buckets::log2(divisor));
            of.add(value, buckets);
            let ranges: Vec<_> = of.ranges().collect();
            let [(range, 1)] = ranges[..] else { panic!("{ranges:?}") };
            let (low, high) = buckets.bounds(range);
            prop_assert!(low <= value && value <= high, "{low} {value} {high}");
            prop_assert!((high - low) * 8 <= low.max(7));
            prop_assert_eq!(of.percentile(50.0, buckets), Some(value));
            let [(Some(row), 1)] = of.rows(buckets)[..] else { panic!() };
            let next = (2 * row).max(2 * i128::from(divisor));
            prop_assert!(row <= value && value < next, "{row} {value} {next}");
        }
    }

    #[test]
    fn a_percentile_is_close_to_the_value(
        mut values in prop::collection::vec(0..100_000u64, 1..200),
        percent in 1..100u32,
        divisor in prop::sample::select(vec![1, 1000, 1_000_000]),
    ) {
        let mut of = Distribution::default();
        let buckets = Buckets::log2(divisor);
        values.iter().for_each(|&value| of.add(value.into(), buckets));
        values.sort_unstable();
        let rank = (f64::from(percent) / 100.0 * values.len() as f64).ceil() as usize;
        let exact = values[rank.max(1) - 1] as f64;
        let found = of.percentile(percent.into(), buckets).unwrap() as f64;
        prop_assert!((found - exact).abs() <= exact / 8.0, "{found} {exact}");
    }

    #[test]
    fn any_division_of_the_events_gives_the_same_tables(
        events in prop::collection::vec((prop::sample::select(vec!["make", "cc1", "ld", "a"]), -2..9i32, 0..1000u64), 0..80),
        parts in prop::collection::vec(0..3usize, 80),
    ) {
        for definition in [definition(&["comm", "pid"], None), definition(&["pid"], Some("bytes")), hist(Buckets::log2(1))] {
            let whole = groups(definition.clone(), &events);
            let mut merged = Groups::new(definition.clone());
            for part in 0..3 {
                let own: Vec<Made> = events.iter().zip(&parts).filter(|(_, of)| **of == part).map(|(event, _)| *event).collect();
                merged.merge(&groups(definition.clone(), &own));
            }
            prop_assert_eq!(merged.iter().collect::<HashMap<_, _>>(), whole.iter().collect::<HashMap<_, _>>());
            prop_assert_eq!(merged.total(), whole.total());
        }
    }

    #[test]
    fn a_full_table_loses_nothing(pids in prop::collection::vec(0..40i32, 0..200), limit in 1..12usize) {
        let events: Vec<Made> = pids.iter().map(|&pid| ("a", pid, 3)).collect();
        let made = groups(Definition { limit, ..definition(&["pid"], Some("bytes")) }, &events);
        prop_assert!(made.len() <= limit);
        prop_assert_eq!(made.total(), Amount::Sum(3 * events.len() as i128));
        let mut counted = HashMap::new();
        pids.iter().for_each(|pid| *counted.entry(i128::from(*pid)).or_insert(0) += 3);
        for (key, amount) in made.iter() {
            let [KeyPart::Number(pid)] = key[..] else { panic!() };
            prop_assert!(amount.weight() <= counted[&pid]);
        }
    }
}

/// Returns the event type of spans. The event of these tests both begins and ends a span.
fn span_event() -> EventType {
    let inputs = vec![event(0), event(0)];
    let format = SpanFormat::new(("span", "x"), inputs, SpanPart::Begin, SpanTask::OfEnd, Vec::new()).unwrap();
    let layout = format.layout();
    EventType { alias: None, format: Format::Span(Arc::new(format)), layout, max_stack: None }
}

/// Adds up spans. Each span is given as its begin, its end and its duration.
fn span_groups(definition: Definition, spans: &[(Made, Option<Made>, u64)]) -> Groups {
    let (event, input) = (span_event(), event(0));
    let Format::Span(format) = &event.format else { panic!("no span") };
    let plan = Plan::new(&definition, &event).unwrap();
    let mut groups = Groups::new(definition);
    let (context, mut memo, mut out) = (Context::new(Box::new(NoKernel), 0), Memo::default(), Vec::new());
    for &(begin, end, duration) in spans {
        // The kernel pads records to a multiple of 8 bytes, and writes the size into the header.
        let whole = |made| {
            let mut bytes = record(&input, made, &[]);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let size = (bytes.len() as u16).to_ne_bytes();
            bytes[6..8].copy_from_slice(&size);
            bytes
        };
        let (begin, end) = (whole(begin), end.map(whole));
        let samples = SpanSamples {
            begin: (0, &begin),
            end: end.as_deref().map(|end| (1, end)),
            notes: &[],
            key: [0; 2],
            duration,
            ran: None,
        };
        format.write(&event.layout, &samples, None, &mut out);
        let sample = Sample { event: &event, record: &out };
        groups.add(&plan, &Input { sample, facts: Facts::Run(&context) }, &mut memo);
    }
    groups
}

const SPANS: [(Made, Option<Made>, u64); 4] = [
    (("make", 1, 10), Some(("cc1", 2, 3)), 100),
    (("make", 1, 20), Some(("ld", 2, 4)), 50),
    (("sh", 3, 30), Some(("ld", 4, 5)), 7),
    (("sh", 3, 40), None, 1000),
];

#[test]
fn keys_and_values_of_spans_are_those_of_both_events() {
    let mut of = definition(&["begin.comm", "end.comm", "begin._tid"], Some("end.bytes"));
    expect![[r#"
        begin.comm  end.comm  begin._tid  count  share
        sh          ld                 6      5  41.7%
        make        ld                 6      4  33.3%
        make        cc1                6      3  25.0%
        1 event is not added up: its `end.bytes` is not known"#]]
    .assert_eq(&span_groups(of.clone(), &SPANS).report(None, "count").text());
    of.keys = vec!["begin.pid".to_owned(), "open".to_owned()];
    of.value = Some("duration".to_owned());
    expect![[r#"
        begin.pid  open    ns  share
                3     1  1000  86.4%
                1     0   150  13.0%
                3     0     7   0.6%"#]]
    .assert_eq(&span_groups(of, &SPANS).report(None, "ns").text());
}

#[test]
fn filters_of_spans_compare_fields_of_both_events() {
    let count = |text: &str| {
        let of = Definition { filter: Some(text.to_owned()), ..definition(&[], None) };
        span_groups(of, &SPANS).total().weight()
    };
    let rows = [
        ("duration >= 50", 3),
        ("open == 1", 1),
        ("begin.bytes > 10", 3),
        ("end.bytes > 3", 2),
        ("bytes > 3", 2),
        ("begin.comm == \"sh\" || end.comm == \"cc1\"", 3),
        ("!(begin.pid == 1) && duration < 100", 1),
        ("end.bytes < 100", 3),
        ("end.bytes < 4 || open == 1", 2),
    ];
    for (text, expected) in rows {
        assert_eq!(count(text), expected, "{text}");
    }
}

#[test]
fn names_that_no_event_of_a_span_has_are_refused() {
    let error = |of: Definition| Plan::new(&of, &span_event()).unwrap_err().to_string();
    assert_eq!(
        error(definition(&["begin.pidd"], None)),
        "span:x has no field or member `begin.pidd`; did you mean `begin.pid`?"
    );
    assert_eq!(
        error(definition(&[], Some("end.comm"))),
        "`end.comm` of span:x cannot be added up: it is text, not a number"
    );
    let filter = |text: &str| Definition { filter: Some(text.to_owned()), ..definition(&[], None) };
    assert_eq!(
        error(filter("begin.bytess > 1")),
        "where=\"begin.bytess > 1\": the event has no field `begin.bytess`; did you mean `begin.bytes`?"
    );
    assert_eq!(
        error(filter("end.bytes ~ \"x\"")),
        "where=\"end.bytes ~ \\\"x\\\"\": `~` cannot be used with `bytes`, which holds a number"
    );
}

#[test]
fn distributions_are_sorted_by_their_counts_or_their_sums() {
    let measure = Measure::Distribution(Buckets::log2(1));
    let groups = groups(Definition { measure, ..definition(&["pid"], Some("bytes")) }, &EVENTS);
    let keys = |order, top| groups.in_order(order, top).map(|(key, _)| key[0].text().into_owned()).collect::<Vec<_>>();
    assert_eq!(keys(Order::Weight, Some(2)), ["7", "8"]);
    assert_eq!(keys(Order::Sum, None), ["-1", "7", "8"]);
}
