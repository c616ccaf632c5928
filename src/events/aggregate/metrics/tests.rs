//! Tests of metrics.

use expect_test::expect;
use proptest::prelude::*;

use super::{
    super::{Buckets, Definition, Distribution, LinearRanges},
    protobuf::{BucketSpan, Value, message},
    *,
};

fn definition(keys: &[&str], value: Option<&str>, measure: Measure) -> Definition {
    let keys = keys.iter().map(|key| key.to_string()).collect();
    Definition { keys, value: value.map(str::to_owned), filter: None, limit: 1000, measure }
}

fn text_key(text: &str) -> KeyPart {
    KeyPart::Text(text.as_bytes().into())
}

fn written(family: &Family) -> String {
    let mut text = String::new();
    write_text(family, &mut text);
    text
}

fn distribution(values: &[i128], buckets: Buckets) -> Amount {
    let mut of = Distribution::default();
    values.iter().for_each(|&value| of.add(value, buckets));
    Amount::Distribution(of)
}

#[test]
fn counts_are_counters_with_the_names_of_the_key_as_labels() {
    let mut groups = Groups::new(definition(&["_comm", "end.ret"], None, Measure::Sum));
    groups.add_amount(&[text_key("a\"\\"), KeyPart::Number(-2)], &Amount::Sum(7));
    groups.add_others(&super::super::Others { keys: 3, amount: Amount::Sum(5) });
    let family = Family::of_table("perf_prof", "failed", "count", "syscalls:*\n", &groups);
    expect![[r#"
        # HELP perf_prof_failed_total syscalls:*\n
        # TYPE perf_prof_failed_total counter
        perf_prof_failed_total{comm="a\"\\",end_ret="-2"} 7
        perf_prof_failed_total{comm="[others]",end_ret="[others]"} 5
    "#]]
    .assert_eq(&written(&family));
}

#[test]
fn names_follow_the_rules() {
    let name = |name: &str, value: Option<&str>, measure: Measure, shown: &str| {
        Family::of_table("perf_prof", name, shown, "", &Groups::new(definition(&[], value, measure))).metric.name
    };
    let times = Measure::Distribution(Buckets::log2(1000));
    assert_eq!(name("runqueue", Some("duration"), times, "us"), "perf_prof_runqueue_duration_seconds");
    assert_eq!(name("wait_duration", Some("duration"), times, "us"), "perf_prof_wait_duration_seconds");
    assert_eq!(name("io", Some("duration"), Measure::Sum, "sum of duration"), "perf_prof_io_duration_seconds_total");
    let sizes = Measure::Distribution(Buckets::log2(1));
    assert_eq!(name("reads", Some("end.ret"), sizes, "bytes"), "perf_prof_reads_end_ret_bytes");
    assert_eq!(name("__sample__", None, Measure::Sum, "count"), "perf_prof_sample_total");
}

#[test]
fn labels_of_a_field_and_of_a_member_with_one_name_differ() {
    let keys = ["comm", "_comm", "le"].map(str::to_owned);
    assert_eq!(label_names(&keys), ["comm", "comm_2", "le_2"]);
}

#[test]
fn the_end_of_a_classic_bucket_belongs_to_it() {
    let buckets = Buckets::log2(1);
    let mut groups = Groups::new(definition(&[], Some("size"), Measure::Distribution(buckets)));
    groups.add_amount(&[], &distribution(&[0, 4095, 4096, -1], buckets));
    let family = Family::of_table("p", "x", "bytes", "", &groups);
    let text = written(&family);
    let line = |end: &str| text.lines().find(|line| line.contains(&format!("le=\"{end}\""))).unwrap().to_owned();
    assert_eq!(line("7"), "p_x_size_bytes_bucket{le=\"7\"} 2");
    assert_eq!(line("4095"), "p_x_size_bytes_bucket{le=\"4095\"} 3");
    assert_eq!(line("8191"), "p_x_size_bytes_bucket{le=\"8191\"} 4");
    assert!(text.ends_with("le=\"+Inf\"} 4\np_x_size_bytes_sum 8190\np_x_size_bytes_count 4\n"), "{text}");
}

#[test]
fn times_are_seconds_and_all_series_have_the_same_buckets() {
    let buckets = Buckets::log2(1000);
    let mut groups = Groups::new(definition(&["cpu"], Some("duration"), Measure::Distribution(buckets)));
    groups.add_amount(&[KeyPart::Number(0)], &distribution(&[1500], buckets));
    groups.add_amount(&[KeyPart::Number(1)], &distribution(&[100, 2_000_000_000], buckets));
    let family = Family::of_table("p", "x", "us", "", &groups);
    let all: Vec<ClassicHistogram> = family.series.iter().map(|(_, amount)| family.classic(amount).unwrap()).collect();
    let ends = |of: &ClassicHistogram| of.buckets.iter().map(|bucket| bucket.end).collect::<Vec<_>>();
    assert_eq!(ends(&all[0]), ends(&all[1]));
    assert_eq!((ends(&all[0])[0], ends(&all[0])[1], ends(&all[0]).len()), (9.99e-7, 1.999e-6, 27));
    assert_eq!((all[1].buckets[0].count, all[1].sum, all[0].buckets[1].count), (1, 2.0000001, 1));
}

#[test]
fn many_linear_ranges_are_few_buckets() {
    let buckets = Buckets::linear(LinearRanges { low: 0, high: 1000, step: 1 }, 1).unwrap();
    let mut groups = Groups::new(definition(&[], Some("x"), Measure::Distribution(buckets)));
    groups.add_amount(&[], &distribution(&[9, 10, 2000], buckets));
    let family = Family::of_table("p", "x", "x", "", &groups);
    let classic = family.classic(&family.series[0].1).unwrap();
    assert_eq!((classic.buckets.len(), classic.buckets[0], classic.count), (100, Bucket { end: 9.0, count: 1 }, 3));
}

#[test]
fn native_buckets_hold_all_values_near_their_own() {
    let buckets = Buckets::log2(1_000_000_000);
    let values: Vec<i128> = (0..200).map(|step| (1000.0 * 1.1f64.powi(step)) as i128).chain([0]).collect();
    let mut groups = Groups::new(definition(&[], Some("duration"), Measure::Distribution(buckets)));
    groups.add_amount(&[], &distribution(&values, buckets));
    let family = Family::of_table("p", "x", "s", "", &groups);
    let Some(Value::Histogram(histogram)) = message(&family).metric[0].value.clone() else { panic!() };
    let (mut number, mut count, mut deltas, mut found) = (0, 0, histogram.positive_delta.iter(), Vec::new());
    for BucketSpan { offset, length } in &histogram.positive_span {
        number += offset.unwrap();
        for _ in 0..length.unwrap() {
            count += deltas.next().unwrap();
            found.extend((0..count).map(|_| number));
            number += 1;
        }
    }
    assert_eq!((histogram.zero_count, histogram.sample_count), (Some(1), Some(201)));
    let own = values[..200].iter().map(|&ns| ((ns as f64 / 1e9).log2() * 8.0).ceil() as i32);
    assert!(own.zip(&found).all(|(own, &found)| (own - found).abs() <= 1), "{found:?}");
}

#[test]
fn no_native_bucket_loses_values_and_those_without_a_range_are_counted() {
    let buckets = Buckets::linear(LinearRanges { low: 0, high: 100, step: 10 }, 1).unwrap();
    let of = |values: &[i128]| {
        let mut of = Distribution::default();
        values.iter().for_each(|&value| of.add(value, buckets));
        of
    };
    let native = |of: &Distribution| histogram::Scale::of(Some(buckets), Unit::Own).native(of);
    let (before, after) = (native(&of(&[5, 1000])), native(&of(&[5, 1000, 1_000_000])));
    assert_eq!(
        before.buckets.iter().map(|(number, _)| number).collect::<Vec<_>>(),
        after.buckets.iter().map(|(number, _)| number).collect::<Vec<_>>()
    );
    // Values that the full table in the kernel counted without their ranges.
    let mut refused = Distribution::default();
    refused.count = 7;
    let refused = native(&refused);
    assert_eq!((refused.zero, refused.buckets.len()), (7, 0));
}

/// Any ranges: powers of two or of equal width, in values that are divided by 1, by 1000, and so on when they are shown.
fn any_buckets() -> impl Strategy<Value = Buckets> {
    let divisor = prop_oneof![Just(1), Just(1000), Just(1_000_000), Just(1_000_000_000)];
    let linear = (-100_i64..100, 1_i64..1000, 1_i64..50);
    (divisor, prop::option::of(linear)).prop_map(|(divisor, linear)| match linear {
        None => Buckets::log2(divisor),
        Some((low, width, step)) => Buckets::linear(LinearRanges { low, high: low + width, step }, divisor).unwrap(),
    })
}

/// Small and large values, and those of about the size of the ranges.
fn any_value() -> impl Strategy<Value = i128> {
    let small = -200_i128..2000;
    prop_oneof![
        small.clone(),
        (small, prop_oneof![Just(1000), Just(1_000_000), Just(1_000_000_000)]).prop_map(|(value, unit)| value * unit),
        any::<i64>().prop_map(i128::from),
    ]
}

proptest! {
    /// Prometheus refuses a whole page if one of its histograms does not fulfil this.
    #[test]
    fn native_buckets_are_in_order_and_count_all_values(
        buckets in any_buckets(),
        unit in prop_oneof![Just("s"), Just("bytes")],
        values in prop::collection::vec(any_value(), 0..60),
    ) {
        let mut groups = Groups::new(definition(&[], Some("x"), Measure::Distribution(buckets)));
        groups.add_amount(&[], &distribution(&values, buckets));
        let family = Family::of_table("p", "x", unit, "", &groups);
        let Some(Value::Histogram(histogram)) = message(&family).metric[0].value.clone() else { panic!() };
        let later = histogram.positive_span.iter().skip(1);
        prop_assert!(later.clone().all(|span| span.offset.unwrap() > 0), "{:?}", histogram.positive_span);
        let lengths: u32 = histogram.positive_span.iter().map(|span| span.length.unwrap()).sum();
        prop_assert_eq!(lengths as usize, histogram.positive_delta.len());
        let (mut count, mut all) = (0, histogram.zero_count.unwrap());
        for delta in &histogram.positive_delta {
            count += delta;
            prop_assert!(count > 0);
            all += count as u64;
        }
        prop_assert_eq!(Some(all), histogram.sample_count);
        prop_assert_eq!(all, values.len() as u64);
        let classic = family.classic(&family.series[0].1).unwrap().buckets;
        prop_assert!(classic.windows(2).all(|pair| pair[0].end < pair[1].end && pair[0].count <= pair[1].count));
    }
}
