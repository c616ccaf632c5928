//! The protobuf format of Prometheus, which has native histograms. The messages and field numbers are those of
//! `io/prometheus/client/metrics.proto`, without the fields that perf-prof never writes.

use prost::{Message, Oneof};

use super::{
    Family, MetricKind,
    histogram::{NativeHistogram, SCHEMA, ZERO},
};
use crate::aggregate::{Amount, Distribution};

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Series {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    #[prost(oneof = "Value", tags = "2, 3, 7")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(message, tag = "2")]
    Gauge(Number),
    #[prost(message, tag = "3")]
    Counter(Number),
    #[prost(message, tag = "7")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<ClassicBucket>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClassicBucket {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Buckets with consecutive numbers. `offset` counts the empty buckets after the previous span. For the first span, `offset`
/// is the number of its first bucket.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}

/// Appends a metric and its series as one message, preceded by the message's length.
pub fn write_protobuf(family: &Family, to: &mut Vec<u8>) {
    to.extend(message(family).encode_length_delimited_to_vec());
}

pub(super) fn message(family: &Family) -> MetricFamily {
    let of = &family.metric;
    let series = |(values, amount): &(Vec<String>, Amount)| {
        let label =
            |(name, value): (&String, &String)| LabelPair { name: Some(name.clone()), value: Some(value.clone()) };
        let number = |sum: i128| Number { value: Some(family.value(sum)) };
        let value = match (amount, of.kind) {
            (Amount::Sum(sum), MetricKind::Gauge) => Value::Gauge(number(*sum)),
            (Amount::Sum(sum), _) => Value::Counter(number(*sum)),
            (Amount::Distribution(distribution), _) => Value::Histogram(histogram(family, distribution)),
        };
        Series { label: of.labels.iter().zip(values).map(label).collect(), value: Some(value) }
    };
    let kind = match of.kind {
        MetricKind::Counter => 0,
        MetricKind::Gauge => 1,
        MetricKind::Histogram => 4,
    };
    MetricFamily {
        name: Some(of.name.clone()),
        help: Some(of.help.clone()),
        r#type: Some(kind),
        metric: family.series.iter().map(series).collect(),
    }
}

fn histogram(family: &Family, distribution: &Distribution) -> Histogram {
    let scale = &family.metric.scale;
    let (classic, NativeHistogram { zero, buckets }) = (scale.classic(distribution), scale.native(distribution));
    let bucket =
        |bucket: &super::Bucket| ClassicBucket { cumulative_count: Some(bucket.count), upper_bound: Some(bucket.end) };
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (number, count) in buckets {
        match spans.last_mut() {
            Some(span) if number == next => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan { offset: Some(number - next), length: Some(1) }),
        }
        next = number + 1;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        before = count;
    }
    Histogram {
        sample_count: Some(classic.count),
        sample_sum: Some(classic.sum),
        bucket: classic.buckets.iter().map(bucket).collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(ZERO),
        zero_count: Some(zero),
        positive_span: spans,
        positive_delta: deltas,
    }
}
