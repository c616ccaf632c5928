//! Formats counts as JSON for programs. Each table is an object on one line.

use serde::Serialize;

use perf_prof_session::stat::{Mean, Row, Span, Table, Tally, Unit};

#[derive(Serialize)]
struct Object<'a> {
    subject: &'a str,
    /// The end of the interval, in seconds since counting started. `None` for the counts of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<f64>,
    elapsed: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_deviation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sys: Option<f64>,
    runs: usize,
    events: Vec<Event<'a>>,
}

#[derive(Serialize)]
struct Event<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    status: &'static str,
    /// The count; `None` (`null` in JSON) if the event was not counted.
    value: Option<u64>,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deviation: Option<f64>,
    enabled: u64,
    running: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_unit: Option<&'a str>,
}

/// Returns a table as one line that ends with a newline.
pub fn line(table: &Table<'_>) -> serde_json::Result<String> {
    let of = |which: fn(&(Mean, Mean)) -> Mean| table.cpu_time.as_ref().map(|times| which(times).value);
    let object = Object {
        subject: table.subject,
        time: match table.span {
            Span::Whole => None,
            Span::Interval(end) => Some(end.as_secs_f64()),
        },
        elapsed: table.elapsed.value,
        elapsed_deviation: table.elapsed.deviation,
        user: of(|times| times.0),
        sys: of(|times| times.1),
        runs: table.runs,
        events: table.rows.iter().map(event).collect(),
    };
    Ok(serde_json::to_string(&object)? + "\n")
}

fn event<'a>(row: &'a Row<'_>) -> Event<'a> {
    let (status, counted) = match row.tally {
        Tally::NotSupported => ("not supported", None),
        Tally::NotCounted => ("not counted", None),
        Tally::Counted(counted) => ("counted", Some(counted)),
    };
    Event {
        event: &row.event.name,
        cgroup: row.cgroup,
        cpu: row.cpu,
        status,
        value: counted.map(|counted| counted.value),
        unit: match row.event.unit() {
            Unit::Nanoseconds => "ns",
            Unit::Times => "",
        },
        deviation: counted.and_then(|counted| counted.deviation),
        enabled: counted.map_or(0, |counted| counted.enabled),
        running: counted.map_or(0, |counted| counted.running),
        metric: row.metric.as_ref().map(|metric| metric.value),
        metric_unit: row.metric.as_ref().map(|metric| metric.unit.as_str()),
    }
}
