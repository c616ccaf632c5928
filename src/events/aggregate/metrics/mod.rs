//! Tables as metrics of Prometheus: their names, and their series in the text format and in that of protobuf.
//!
//! A table of sums is a counter, a table of distributions a histogram. The series of a key that was folded is the one whose
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

/// The values of a metric, in the unit of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// As they are.
    Own,
    /// Nanoseconds become seconds.
    Seconds,
    /// As they are.
    Bytes,
}

impl Unit {
    /// Returns the unit of a table. `shown` is the unit of a `Hist`, as the user wrote it.
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

    /// Returns the end of the names of metrics with this unit.
    fn suffix(self) -> Option<&'static str> {
        match self {
            Unit::Own => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
        }
    }

    /// Returns a value in this unit.
    fn value(self, own: i128) -> f64 {
        match self {
            Unit::Seconds => own as f64 / 1e9,
            Unit::Own | Unit::Bytes => own as f64,
        }
    }
}

/// A metric: what is said about a table, besides its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The whole name, for example `perf_prof_runqueue_duration_seconds`.
    pub name: String,
    /// The text for people.
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
    /// A sum that grows.
    Counter,
    /// How values are distributed.
    Histogram,
    /// A number that says something else.
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
    /// What is said about the metric.
    pub metric: Metric,
    /// The values of the labels, and the amount, of each series.
    pub series: Vec<(Vec<String>, Amount)>,
}

impl Family {
    /// Returns the metric of a table. `prefix` is the start of its name, `name` what the script calls the table, and `shown` the
    /// heading of its amounts.
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

    /// Returns a metric of one number about perf-prof itself, with labels that do not change.
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

    /// Returns a sum in the unit of the metric.
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

/// Returns a text as a part of the name of a metric. Characters other than letters and digits become `_`, and each `_` at the
/// ends is removed.
fn clean(text: &str) -> String {
    let replaced: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    replaced.trim_matches('_').to_owned()
}

/// Returns the names of labels for the names of a key. A member of all events such as `_comm` loses its `_`. All labels have
/// different names, and none has the name of the label for the ends of buckets.
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
