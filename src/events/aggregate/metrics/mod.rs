//! Tables as metrics of Prometheus: their names, and their series in the text format and in the protobuf format.
//!
//! A table of sums is a counter, and a table of distributions a histogram. All folded keys share one series, whose
//! labels are all `[others]`.

mod histogram;
mod protobuf;
mod text;

use self::histogram::Scale;
use super::{Amount, Definition, Groups, KeyPart, Measure};
use crate::event::{DURATION_FIELD, OTHERS};

pub use histogram::{Bucket, ClassicHistogram};
pub use protobuf::write_protobuf;
pub use text::write_text;

/// The unit of a metric's values. The end of the metric's name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit: values do not change.
    Own,
    /// Seconds: nanoseconds are divided by 10^9.
    Seconds,
    /// Bytes: values do not change.
    Bytes,
}

impl Unit {
    /// Returns the unit of a table. `shown` is the `unit` that the user gave to a `Hist`.
    fn of(definition: &Definition, shown: &str) -> Unit {
        let is_time = match definition.measure {
            Measure::Distribution(buckets) => buckets.divisor() != 1 || shown == "ns",
            Measure::Sum => false,
        };
        match (is_time || definition.value.as_deref() == Some(DURATION_FIELD), shown) {
            (true, _) => Unit::Seconds,
            (false, "bytes" | "byte" | "B") => Unit::Bytes,
            (false, _) => Unit::Own,
        }
    }

    /// Returns the suffix of names of metrics with this unit.
    fn suffix(self) -> Option<&'static str> {
        match self {
            Unit::Own => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
        }
    }

    /// Converts a value to this unit.
    fn value(self, own: i128) -> f64 {
        match self {
            Unit::Seconds => own as f64 / 1e9,
            Unit::Own | Unit::Bytes => own as f64,
        }
    }
}

/// A metric without its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The full name, for example `perf_prof_runqueue_duration_seconds`.
    pub name: String,
    /// The help text.
    pub help: String,
    /// The names of the labels.
    pub labels: Vec<String>,
    /// The kind of the metric.
    pub kind: MetricKind,
    unit: Unit,
    scale: Scale,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that never decreases.
    Counter,
    /// A distribution of values.
    Histogram,
    /// A number that can decrease.
    Gauge,
}

impl MetricKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// A metric with its series.
#[derive(Clone, Debug)]
pub struct Family {
    /// The metric itself.
    pub metric: Metric,
    /// The values of the labels, and the amount, for each series.
    pub series: Vec<(Vec<String>, Amount)>,
}

impl Family {
    /// Returns the metric of a table. The metric's name starts with `prefix`. `name` is the table's name in the script,
    /// and `shown` is the heading of its amounts.
    pub fn of_table(prefix: &str, name: &str, shown: &str, help: &str, groups: &Groups) -> Family {
        let definition = groups.definition();
        let unit = Unit::of(definition, shown);
        let (kind, buckets) = match definition.measure {
            Measure::Sum => (MetricKind::Counter, None),
            Measure::Distribution(buckets) => (MetricKind::Histogram, Some(buckets)),
        };
        let mut parts = vec![clean(prefix), clean(name)];
        let value = definition.value.as_deref().map(clean);
        parts.extend(value.filter(|value| !parts[1].split('_').any(|part| part == value)));
        parts.extend(unit.suffix().filter(|unit| !parts.iter().any(|part| part.ends_with(unit))).map(str::to_owned));
        parts.extend((kind == MetricKind::Counter).then(|| "total".to_owned()));
        parts.retain(|part| !part.is_empty());
        let labels = label_names(&definition.keys);
        let texts = |key: &[KeyPart]| key.iter().map(|part| part.text().into_owned()).collect();
        let mut series: Vec<(Vec<String>, Amount)> = groups.iter().map(|(key, amount)| (texts(&key), amount)).collect();
        let others = groups.others();
        if others.keys != 0 {
            series.push((vec![OTHERS.to_owned(); labels.len()], others.amount.clone()));
        }
        let metric = Metric {
            name: parts.join("_"),
            help: help.to_owned(),
            labels,
            kind,
            unit,
            scale: Scale::of(buckets, unit),
        };
        Family { metric, series }
    }

    /// Returns a metric with one series and one number, about perf-prof itself.
    pub fn of_number(name: &str, help: &str, kind: MetricKind, labels: &[(&str, &str)], value: u64) -> Family {
        let (names, values) = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).unzip();
        let metric = Metric {
            name: name.to_owned(),
            help: help.to_owned(),
            labels: names,
            kind,
            unit: Unit::Own,
            scale: Scale::of(None, Unit::Own),
        };
        Family { metric, series: vec![(values, Amount::Sum(value.into()))] }
    }

    /// Converts a sum to the unit of the metric.
    pub fn value(&self, sum: i128) -> f64 {
        self.metric.unit.value(sum)
    }

    /// Returns the classic histogram of an amount; `None` if it is a sum.
    pub fn classic(&self, amount: &Amount) -> Option<ClassicHistogram> {
        match amount {
            Amount::Distribution(of) => Some(self.metric.scale.classic(of)),
            Amount::Sum(_) => None,
        }
    }
}

/// Makes a part of a metric's name from a text: replaces all characters other than letters and digits by `_`, and
/// removes each `_` at the ends.
fn clean(text: &str) -> String {
    let replaced: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    replaced.trim_matches('_').to_owned()
}

/// Returns a label name for each name of a key. A member of all events, such as `_comm`, loses its `_`. A name that is
/// taken gets `_2` appended. `le` is always taken, because it is the label for the ends of buckets.
fn label_names(keys: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for key in keys {
        let mut name = clean(key);
        while name == "le" || names.contains(&name) {
            name.push_str("_2");
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests;
