//! The ranges of a distribution as buckets of Prometheus histograms. Classic buckets have the same ends for all series
//! and at all times. Native buckets have no fixed ends.

use super::{
    super::{Buckets, Distribution},
    Unit,
};

/// The maximum number of classic buckets, without the `+Inf` bucket.
const MAX_BUCKETS: u32 = 100;

/// The ends of classic buckets for times in ns: from a microsecond to a minute. Shorter and longer times share the
/// first and the last bucket. Native buckets tell them apart.
const TIMES: std::ops::RangeInclusive<i128> = 900..=70_000_000_000;

/// The largest end of a classic bucket, for values that are not times.
const LARGEST: i128 = (1 << 40) - 1;

/// The number of ranges from one power of two to the next.
const STEPS: u32 = 8;

/// The resolution of native buckets. Each bucket is 2**(1/8) times as large as the bucket before. The buckets are as fine
/// as the ranges of a distribution.
pub const SCHEMA: i32 = 3;

/// The zero bucket of native histograms contains values up to `ZERO`: 2**-128, the default of Prometheus' client libraries.
pub const ZERO: f64 = 2.938_735_877_055_719e-39;

/// Converts the ranges of a distribution to buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    unit: Unit,
    buckets: Option<Buckets>,
    /// For each classic bucket: the index of its last range, and its largest value (`le`).
    ends: Vec<(u32, f64)>,
}

/// A bucket of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The largest value in the bucket.
    pub end: f64,
    /// The number of values that are at most `end`, as Prometheus counts: smaller buckets are included.
    pub count: u64,
}

/// A classic histogram, without the `+Inf` bucket, whose count would be `count`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassicHistogram {
    /// The buckets, the smallest end first.
    pub buckets: Vec<Bucket>,
    /// The number of values.
    pub count: u64,
    /// The sum of the values, in the unit of the metric.
    pub sum: f64,
}

/// A native histogram. Empty buckets are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeHistogram {
    /// The count of the zero bucket.
    pub zero: u64,
    /// The number and the count of each bucket.
    pub buckets: Vec<(i32, u64)>,
}

impl Scale {
    pub fn of(buckets: Option<Buckets>, unit: Unit) -> Scale {
        let ends = buckets.map_or_else(Vec::new, |buckets| ends(buckets, unit));
        Scale { unit, buckets, ends }
    }

    /// Returns the classic histogram of a distribution. In Prometheus, a bucket includes its end. Values are whole
    /// numbers, so the bucket for the range from 4096 to 8191 ends at 8191.
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

    /// Returns the native histogram of a distribution. A bucket counts all values of the ranges whose middle is in the
    /// bucket. A value can thus be counted in the bucket next to its own, but equal values always share a bucket.
    pub fn native(&self, of: &Distribution) -> NativeHistogram {
        let Some(buckets) = self.buckets else { return NativeHistogram::default() };
        // The distribution does not say how far a value is outside the ranges, but the buckets must count it. So the
        // bucket at the end of the ranges counts all values above them.
        let above = buckets.end().filter(|_| of.above != 0).map(|end| (end, of.above));
        let middles = of.ranges().map(|(range, count)| {
            let (low, high) = buckets.bounds(range);
            (low + (high - low) / 2, count)
        });
        // If the table in the kernel was full, it counted a value and its sum, but no range.
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

/// Returns the last range and the largest value of each classic bucket.
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
