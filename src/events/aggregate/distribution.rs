//! The distribution of a key's values: how many are in each range, and their number, sum, minimum and maximum.

use thiserror::Error;

/// The number of ranges from one power of two to the next. With eight ranges, a percentile is at most an eighth away from the
/// value: both are in the same range.
const STEPS: u64 = 8;
/// The largest number of ranges of equal width.
const MAX_RANGES: i128 = Buckets::MAX_RANGE as i128;

/// Divides values into ranges; the values of a range are counted together. Ranges, sums and percentiles are in the unit
/// of the values. `divisor` converts them to the shown unit when they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    ranges: Ranges,
    /// A value divided by this number is in the shown unit. At least 1.
    divisor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranges {
    /// Eight ranges from each power of two to the next one, in the shown unit. Powers of two below 1 have ranges too,
    /// and the smallest values have fewer than eight. A printed row contains all ranges from one power of two to the
    /// next.
    Log2,
    /// Ranges of the width `step`, in the unit of the values. The first range starts at `low`, and the last one ends
    /// before `high`.
    Linear { low: i64, high: i64, step: i64 },
}

/// Ranges of the same width, in the unit in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearRanges {
    /// The start of the first range.
    pub low: i64,
    /// The end of the last range (exclusive).
    pub high: i64,
    /// The width of a range.
    pub step: i64,
}

/// Why ranges are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LinearError {
    /// `low` is not less than `high`, or `step` is not positive.
    #[error("linear=(low, high, step): low has to be less than high, and step more than 0")]
    Empty,
    /// There are more ranges than `Buckets::MAX_RANGE`.
    #[error("linear=(low, high, step): there are {0} ranges, more than {MAX_RANGES}; give a larger step")]
    TooMany(i128),
    /// A bound is too large for an `i64` after it is multiplied by the divisor.
    #[error("linear=(low, high, step): {0} is too large for this unit; give a smaller number")]
    TooLarge(i64),
}

impl Buckets {
    /// The largest index of a range, and the maximum number of ranges of equal width.
    pub const MAX_RANGE: u32 = 100_000;

    /// Returns ranges for a histogram with one row for each power of two.
    pub const fn log2(divisor: u64) -> Buckets {
        Buckets { ranges: Ranges::Log2, divisor }
    }

    /// Returns ranges of equal width.
    pub fn linear(LinearRanges { low, high, step }: LinearRanges, divisor: u64) -> Result<Buckets, LinearError> {
        if low >= high || step <= 0 {
            return Err(LinearError::Empty);
        }
        let ranges = (i128::from(high) - i128::from(low) + i128::from(step) - 1) / i128::from(step);
        if ranges > MAX_RANGES {
            return Err(LinearError::TooMany(ranges));
        }
        let own = |shown: i64| {
            i64::try_from(i128::from(shown) * i128::from(divisor)).map_err(|_| LinearError::TooLarge(shown))
        };
        Ok(Buckets { ranges: Ranges::Linear { low: own(low)?, high: own(high)?, step: own(step)? }, divisor })
    }

    /// Returns the number by which shown values are divided.
    pub fn divisor(self) -> u64 {
        self.divisor
    }

    /// Returns the ranges of equal width in the shown unit; `None` for powers of two.
    pub fn as_linear(self) -> Option<LinearRanges> {
        // This division is exact, because `Buckets::linear` has multiplied the numbers by the divisor.
        let [low, high, step] = match self.ranges {
            Ranges::Log2 => return None,
            Ranges::Linear { low, high, step } => {
                [low, high, step].map(|own| (i128::from(own) / i128::from(self.divisor)) as i64)
            }
        };
        Some(LinearRanges { low, high, step })
    }

    /// Returns where a value is counted.
    #[inline]
    pub fn place(self, value: i128) -> Place {
        match self.ranges {
            Ranges::Log2 if value < 0 => Place::Below,
            Ranges::Log2 => match self.scaled(value) {
                value if value < STEPS => Place::Range(value as u32),
                value => {
                    let power = u64::from(63 - value.leading_zeros());
                    Place::Range(((power - 2) * STEPS + ((value >> (power - 3)) & (STEPS - 1))) as u32)
                }
            },
            Ranges::Linear { low, high, .. } if value < low.into() || value >= high.into() => {
                if value < low.into() {
                    Place::Below
                } else {
                    Place::Above
                }
            }
            Ranges::Linear { low, step, .. } => Place::Range(((value - i128::from(low)) / i128::from(step)) as u32),
        }
    }

    /// Converts a value to the unit of the `Log2` ranges: the shown unit divided by the smallest power of two that is
    /// at least `divisor`. In this unit, each range belongs to one printed row. The unit is never coarser than that of
    /// the values, so small values have narrow ranges too.
    #[inline]
    fn scaled(self, value: i128) -> u64 {
        let scaled = if self.divisor == 1 { value } else { (value << self.shift()) / i128::from(self.divisor) };
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn shift(self) -> u32 {
        self.divisor.next_power_of_two().trailing_zeros()
    }

    /// Returns the smallest and the largest whole number of a range, in the unit of the values.
    pub fn bounds(self, range: u32) -> (i128, i128) {
        match self.ranges {
            Ranges::Log2 => {
                let start = |range: u64| {
                    let (scale, round_up) = (i128::from(self.divisor), (1 << self.shift()) - 1);
                    (scaled_start(range) * scale + round_up) >> self.shift()
                };
                (start(range.into()), start(u64::from(range) + 1) - 1)
            }
            Ranges::Linear { low, high, step } => {
                let start = i128::from(low) + i128::from(range) * i128::from(step);
                (start, (start + i128::from(step)).min(high.into()) - 1)
            }
        }
    }

    /// Returns the smallest value above all ranges, in the unit of the values; `None` if no value is above them.
    pub fn end(self) -> Option<i128> {
        match self.ranges {
            Ranges::Log2 => None,
            Ranges::Linear { high, .. } => Some(high.into()),
        }
    }

    /// Returns the smallest value of a `Log2` range in the shown unit, rounded down.
    pub(super) fn shown_start(self, range: u32) -> u64 {
        u64::try_from(scaled_start(range.into()) >> self.shift()).unwrap_or(u64::MAX)
    }
}

/// Returns the smallest value of a `Log2` range, in the unit of [`Buckets::scaled`].
fn scaled_start(range: u64) -> i128 {
    let (power, step) = (range / STEPS + 2, range % STEPS);
    if range < STEPS { range.into() } else { i128::from(STEPS + step) << (power - 3) }
}

/// Where a value is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below the first range.
    Below,
    /// In the range with this number.
    Range(u32),
    /// Above the last range.
    Above,
}

/// Values that are all counted in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InOnePlace {
    /// Where the values are counted.
    pub place: Place,
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: i128,
    /// The smallest value.
    pub min: i128,
    /// The largest value.
    pub max: i128,
}

/// The distribution of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// The number of events without a value. No other number of the distribution includes them.
    pub without_value: u64,
    /// The sum of the values.
    pub sum: i128,
    /// The smallest value; `None` if there are no values.
    pub min: Option<i128>,
    /// The largest value; `None` if there are no values.
    pub max: Option<i128>,
    /// The number of values below the first range.
    pub below: u64,
    /// The number of values above the last range.
    pub above: u64,
    /// The index of the range whose count is `ranges[0]`.
    first: u32,
    /// The counts of the ranges from the first one with a value to the last one.
    ranges: Vec<u64>,
}

impl From<InOnePlace> for Distribution {
    fn from(InOnePlace { place, count, sum, min, max }: InOnePlace) -> Distribution {
        let mut distribution = Distribution { count, sum, min: Some(min), max: Some(max), ..Distribution::default() };
        match place {
            Place::Below => distribution.below = count,
            Place::Range(range) => distribution.add_to_range(range, count),
            Place::Above => distribution.above = count,
        }
        distribution
    }
}

impl Distribution {
    /// Returns the distribution of one event without a value.
    pub fn of_unknown() -> Distribution {
        Distribution { without_value: 1, ..Distribution::default() }
    }

    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: i128, buckets: Buckets) {
        self.count += 1;
        self.sum += value;
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        match buckets.place(value) {
            Place::Below => self.below += 1,
            Place::Range(range) => *self.range(range) += 1,
            Place::Above => self.above += 1,
        }
    }

    /// Returns the number of events, with and without a value.
    pub fn events(&self) -> u64 {
        self.count + self.without_value
    }

    /// Returns the memory of the ranges' counts, in bytes. Counts the spare capacity of the `Vec` too.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        2 * size_of::<u64>() * self.ranges.len()
    }

    /// Adds the values of another distribution. Both distributions must have the same ranges.
    pub fn merge(&mut self, other: &Distribution) {
        self.count += other.count;
        self.without_value += other.without_value;
        self.sum += other.sum;
        self.min = [self.min, other.min].into_iter().flatten().min();
        self.max = [self.max, other.max].into_iter().flatten().max();
        self.below += other.below;
        self.above += other.above;
        for (range, count) in other.ranges() {
            self.add_to_range(range, count);
        }
    }

    /// Adds to the count of one range. The `count`, `sum`, `min` and `max` of the distribution do not change.
    pub fn add_to_range(&mut self, range: u32, count: u64) {
        *self.range(range) += count;
    }

    #[inline]
    fn range(&mut self, range: u32) -> &mut u64 {
        let at = range.wrapping_sub(self.first) as usize;
        if range < self.first || at >= self.ranges.len() {
            return self.new_range(range);
        }
        &mut self.ranges[at]
    }

    #[cold]
    fn new_range(&mut self, range: u32) -> &mut u64 {
        if self.ranges.is_empty() {
            self.first = range;
        }
        if range < self.first {
            self.ranges.splice(0..0, (range..self.first).map(|_| 0));
            self.first = range;
        }
        let at = (range - self.first) as usize;
        if at >= self.ranges.len() {
            self.ranges.resize(at + 1, 0);
        }
        &mut self.ranges[at]
    }

    /// Returns the ranges that have a value, with their counts.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (self.first..).zip(self.ranges.iter().copied()).filter(|&(_, count)| count != 0)
    }

    /// Returns the smallest value that at least `percent` of all values do not exceed, estimated within its range.
    /// Returns `None` if there are no values.
    pub fn percentile(&self, percent: f64, buckets: Buckets) -> Option<i128> {
        self.percentile_within(percent, buckets).map(|(value, _)| value)
    }

    /// Like [`Distribution::percentile`], but also returns between which values the exact one is.
    pub(super) fn percentile_within(&self, percent: f64, buckets: Buckets) -> Option<(i128, (i128, i128))> {
        let (min, max) = self.min.zip(self.max)?;
        let exact = |value| Some((value, (value, value)));
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count);
        if rank == self.count {
            return exact(max);
        }
        let mut before = self.below;
        if rank <= before {
            return exact(min);
        }
        for (range, count) in self.ranges() {
            if rank <= before + count {
                let (low, high) = buckets.bounds(range);
                let (low, high) = (low.max(min), high.min(max));
                return Some((low + (high - low) * i128::from(rank - before) / i128::from(count), (low, high)));
            }
            before += count;
        }
        exact(max)
    }
}
