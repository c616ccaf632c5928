//! Checks what the second of two readings returns if programs go on adding to the rows.

use perf_prof_events::aggregate::{Amount, Buckets, Definition, Measure};
use proptest::prelude::*;

use super::{super::Row, Shape, code_of, counts};

fn shape(measure: Measure) -> Shape {
    let definition = Definition { value: Some("runtime".into()), measure, ..counts(&[]) };
    code_of("sched:sched_stat_runtime", &definition).unwrap().1
}

/// Returns the value of a row to which the numbers `complete` were added. Of the number in `partial`, only the words that
/// its flags name were added.
fn value(shape: &Shape, complete: &[u64], partial: Option<(u64, [bool; 3])>) -> Vec<u8> {
    let (last, [has_count, has_sum, has_high]) = partial.unwrap_or((0, [false; 3]));
    let added = |is_there: bool, number: u64| if is_there { number } else { 0 };
    let mut words = vec![0; shape.value_bytes / 8];
    let at = |offset: Option<i16>| offset.unwrap() as usize / 8;
    words[at(Some(Shape::FIRST))] = 7;
    words[at(Some(Shape::COUNT))] = complete.len() as u64 + added(has_count, 1);
    words[at(shape.sum())] = complete.iter().fold(added(has_sum, last), |sum: u64, number| sum.wrapping_add(*number));
    words[at(shape.high())] = complete.iter().map(|number| number >> 32).sum::<u64>() + added(has_high, last >> 32);
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

fn sum(row: &Row) -> i128 {
    match &row.amount {
        Amount::Sum(sum) => *sum,
        Amount::Distribution(of) => of.sum,
    }
}

fn whole(numbers: &[u64]) -> i128 {
    numbers.iter().map(|&number| i128::from(number)).sum()
}

proptest! {
    /// A program adds to the words of a value one after the other, and a reading may see them in between.
    #[test]
    fn two_readings_have_each_number_once(
        numbers in prop::collection::vec(0u64..1 << 62, 1..40),
        before in 0usize..40,
        seen: [bool; 3],
        is_histogram: bool,
    ) {
        let shape = shape(if is_histogram { Measure::Distribution(Buckets::log2(1)) } else { Measure::Sum });
        let key = vec![0; shape.key_bytes];
        let (complete, later) = numbers.split_at(before.min(numbers.len() - 1));
        let read = value(&shape, complete, Some((later[0], seen)));
        let last = value(&shape, &numbers, None);
        let first = shape.row(&key, &read);
        prop_assert_eq!(sum(&first), whole(complete) + if seen[1] { later[0].into() } else { 0 });
        let second = shape.row_since(&key, &last, &read);
        prop_assert_eq!(first.count + second.as_ref().map_or(0, |row| row.count), numbers.len() as u64);
        prop_assert_eq!(sum(&first) + second.as_ref().map_or(0, sum), whole(&numbers));
    }
}

#[test]
fn a_row_to_which_nothing_was_added_is_left_out() {
    let shape = shape(Measure::Sum);
    let (key, value) = (vec![0; shape.key_bytes], value(&shape, &[5, 6], None));
    assert_eq!(shape.row_since(&key, &value, &value), None);
}
