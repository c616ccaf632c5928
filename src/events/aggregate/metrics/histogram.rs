//! The ranges of a distribution as the buckets of Prometheus: classic ones, whose ends are the same for all series and at all
//! times, and native ones.

use super::{
    super::{Buckets, Distribution},
    Unit,
};

/// The largest number of classic buckets, without the last one, which has no end.
const MAX_BUCKETS: u32 = 100;

/// The ends of classic buckets for times: from a microsecond to a minute. Values in between keep their order in the first and
/// the last bucket only, but the native buckets have all of them.
const TIMES: std::ops::RangeInclusive<i128> = 900..=70_000_000_000;

/// The largest end of a classic bucket for other values.
const LARGEST: i128 = (1 << 40) - 1;

/// The number of ranges from a power of two to the next one.
const STEPS: u32 = 8;

/// The resolution of native buckets: each is 2**(1/8) times as large as the one before, as fine as the ranges are.
pub const SCHEMA: i32 = 3;

/// Values up to this one count as zero in native buckets: 2**-128, as the libraries of Prometheus have it.
pub const ZERO: f64 = 2.938_735_877_055_719e-39;

/// How ranges become buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    unit: Unit,
    buckets: Option<Buckets>,
    /// For each bucket of the classic histogram: the index of the last range of values in it, and its largest value (`le`).
    ends: Vec<(u32, f64)>,
}

/// A bucket of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The largest value in the bucket.
    pub end: f64,
    /// The number of values up to the end.
    pub count: u64,
}

/// A classic histogram. The bucket without an end is left out: it has `count` values.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassicHistogram {
    /// The buckets, with rising ends.
    pub buckets: Vec<Bucket>,
    /// The number of values.
    pub count: u64,
    /// Their sum, in the unit of the metric.
    pub sum: f64,
}

/// A native histogram: the counts of its buckets by number, without empty ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeHistogram {
    /// The number of values that count as zero.
    pub zero: u64,
    /// The number of each bucket, and its count.
    pub buckets: Vec<(i32, u64)>,
}

impl Scale {
    pub fn of(buckets: Option<Buckets>, unit: Unit) -> Scale {
        let ends = buckets.map_or_else(Vec::new, |buckets| ends(buckets, unit));
        Scale { unit, buckets, ends }
    }

    /// Returns the classic histogram of a distribution. An end belongs to its bucket, as Prometheus wants it: values are whole
    /// numbers, so the end of a range of 4096 to 8191 is 8191.
    pub fn classic(&self, of: &Distribution) -> ClassicHistogram {
        let (mut ranges, mut count) = (of.ranges().peekable(), of.below);
        let mut buckets = Vec::with_capacity(self.ends.len());
        for &(last, end) in &self.ends {
            while let Some((_, more)) = ranges.next_if(|&(range, _)| range <= last) {
                count += more;
            }
            buckets.push(Bucket { end, count });
        }
        ClassicHistogram { buckets, count: of.count, sum: self.unit.value(of.sum) }
    }

    /// Returns the native histogram of a distribution. The values of a range are counted in the bucket of the range's middle.
    /// So a value may be counted in the bucket next to its own, but equal values are always counted in the same bucket.
    pub fn native(&self, of: &Distribution) -> NativeHistogram {
        let Some(buckets) = self.buckets else { return NativeHistogram::default() };
        // The distribution does not say how far outside its ranges a value is. No value may be lost from the buckets. So
        // values above the ranges are counted in the bucket at the end of the ranges, however large they are.
        let end = buckets.as_linear().filter(|_| of.above != 0).map(|linear| i128::from(linear.high));
        let above = end.map(|end| (end, of.above));
        let middles = of.ranges().map(|(range, count)| {
            let (low, high) = buckets.bounds(range);
            (low + (high - low) / 2, count)
        });
        // Values that the kernel's table had no room for have a count and a sum only.
        let known = of.below + of.above + of.ranges().map(|(_, count)| count).sum::<u64>();
        let mut native = NativeHistogram { zero: of.below + of.count.saturating_sub(known), buckets: Vec::new() };
        for (middle, count) in middles.chain(above) {
            let value = self.unit.value(middle);
            if value <= ZERO {
                native.zero += count;
                continue;
            }
            let number = (value.log2() * f64::from(1 << SCHEMA)).ceil() as i32;
            match native.buckets.last_mut() {
                Some((last, counted)) if *last == number => *counted += count,
                _ => native.buckets.push((number, count)),
            }
        }
        native
    }
}

/// Returns the last range of each classic bucket with the largest value in it.
fn ends(buckets: Buckets, unit: Unit) -> Vec<(u32, f64)> {
    let end = |range: u32| (range, buckets.bounds(range).1);
    let ends: Vec<(u32, i128)> = match buckets.as_linear() {
        Some(linear) => {
            let ranges = (linear.high.abs_diff(linear.low)).div_ceil(linear.step.unsigned_abs());
            let ranges = u32::try_from(ranges).unwrap_or(u32::MAX).min(Buckets::MAX_RANGE);
            let width = ranges.div_ceil(MAX_BUCKETS).max(1);
            (1..=ranges / width).map(|bucket| end(bucket * width - 1)).collect()
        }
        None => {
            let wanted = if unit == Unit::Seconds { TIMES } else { 0..=LARGEST };
            let powers = (0..u64::BITS).map(|power| end(power * STEPS + STEPS - 1));
            powers.filter(|(_, end)| wanted.contains(end)).collect()
        }
    };
    ends.into_iter().map(|(range, end)| (range, unit.value(end))).collect()
}
