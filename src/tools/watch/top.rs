//! `perf-prof top`: counts events by keys, and prints a table with the largest counts first. For spans, it adds up
//! durations, and the longest total time comes first.

use anyhow::Result;
use perf_prof_events::{
    aggregate::{Align, Amount, Buckets, Definition, Groups, Key, KeyPart, Measure, Report},
    event::{EventType, Format},
};
use perf_prof_session::engine::ExitStatus;
use serde_json::{Map, Value as Json, json};

use super::{
    key_json::{key_members, shown_names},
    short_chains::is_stack,
    stack_width,
    tally::{KEYS, Period, TallyCommand, TallyPlan, run as tally},
};

/// The plan of `top`.
#[derive(Clone, Debug)]
pub struct TopPlan {
    /// The events, and how the counts are shown.
    pub tally: TallyPlan,
    /// The names of the fields whose values make a key. If there are none, events are counted by task, and several
    /// events also by their names.
    pub by: Vec<String>,
}

/// Counts the events.
pub fn run(plan: &TopPlan) -> Result<ExitStatus> {
    tally(&plan.tally, Top { by: plan.by.clone(), of: Of::Counts })
}

/// The table.
struct Top {
    by: Vec<String>,
    of: Of,
}

/// The values that are added up for each key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The events.
    Counts,
    /// The spans and their durations.
    Durations,
}

/// The default keys of built-in sources, by a field that the sources have. Most locks have no name, so they are counted
/// by their kind. Spans of other sources are counted by task.
const SUBJECTS: [(&str, &[&str]); 3] = [("kind", &["kind", "comm"]), ("name", &["name"]), ("function", &["function"])];

/// Returns the names of the default key of these events.
fn default_keys(events: &[EventType]) -> Vec<String> {
    let fields = |event: &EventType, name: &str| match &event.format {
        Format::Span(span) => span.is_source() && span.format.field(name).is_some(),
        _ => false,
    };
    let subject = SUBJECTS.into_iter().find(|(name, _)| events.iter().all(|event| fields(event, name)));
    let are_spans = events.iter().all(|event| matches!(event.format, Format::Span(_)));
    let task: &[&str] = if are_spans { &["comm"] } else { &["_comm"] };
    let event = (events.len() > 1).then_some("_event");
    event.iter().chain(subject.map_or(task, |(_, keys)| keys)).map(|&name| name.to_owned()).collect()
}

impl Top {
    /// Returns the keys that are shown, the largest first.
    fn largest(&self, groups: &Groups, rows: usize) -> Vec<(Key, Amount)> {
        match self.of {
            Of::Counts => groups.largest(Some(rows)),
            Of::Durations => groups.largest_by_sum(Some(rows)),
        }
    }

    /// Returns the titles of the columns behind the keys.
    fn titles(&self) -> &'static [&'static str] {
        match self.of {
            Of::Counts => &["count", "share", "per second"],
            Of::Durations => &["count", "total ms", "average ms", "max ms", "share", "per second"],
        }
    }

    /// Returns the cells of these columns. `all` is the amount of all keys.
    fn cells(&self, amount: &Amount, all: &Amount, period: &Period<'_>) -> Vec<String> {
        let (count, time) = (amount.weight(), time(amount));
        let rate = period.rate(count).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        match self.of {
            Of::Counts => vec![count.to_string(), share(count, all.weight()), rate],
            Of::Durations => {
                let times = [time, time / count.max(1), max(amount)].map(milliseconds);
                let share = share(time, self::time(all));
                [count.to_string()].into_iter().chain(times).chain([share, rate]).collect()
            }
        }
    }
}

/// Returns the sum of the durations in ns.
fn time(amount: &Amount) -> i128 {
    match amount {
        Amount::Sum(_) => 0,
        Amount::Distribution(of) => of.sum,
    }
}

/// Returns the longest duration in ns.
fn max(amount: &Amount) -> i128 {
    match amount {
        Amount::Sum(_) => 0,
        Amount::Distribution(of) => of.max.unwrap_or(0),
    }
}

fn milliseconds(time: i128) -> String {
    format!("{}.{:03}", time / 1_000_000, time / 1000 % 1000)
}

fn share(of: i128, all: i128) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1}%", of as f64 * 100.0 / all as f64) }
}

impl TallyCommand for Top {
    fn definition(&mut self, events: &[EventType]) -> Result<Definition> {
        if self.by.is_empty() {
            self.by = default_keys(events);
        }
        let are_spans = !events.is_empty() && events.iter().all(|event| matches!(event.format, Format::Span(_)));
        self.of = if are_spans { Of::Durations } else { Of::Counts };
        let (value, measure) = match self.of {
            Of::Counts => (None, Measure::Sum),
            Of::Durations => (Some("duration".to_owned()), Measure::Distribution(Buckets::log2(1))),
        };
        let definition = Definition { keys: self.by.clone(), value, filter: None, limit: KEYS, measure };
        definition.check()?;
        Ok(definition)
    }

    fn rows_that_fit(&self, lines: usize) -> usize {
        // The titles, and the line about the keys that are not shown.
        lines.saturating_sub(2)
    }

    fn lines(&self, period: &Period<'_>, rows: usize) -> Vec<String> {
        let largest = self.largest(period.groups, rows);
        let is_number = |at: usize| {
            let mut parts = largest.iter().filter_map(|(key, _)| key.get(at));
            !largest.is_empty() && parts.all(|part| matches!(part, KeyPart::Number(_)))
        };
        let side = |at| if is_number(at) { Align::Right } else { Align::Left };
        let names = shown_names(&self.by).into_iter().enumerate().map(|(at, name)| (name, side(at)));
        let since_start = match self.of {
            Of::Counts => "since start",
            Of::Durations => "ms since start",
        };
        let titles = self.titles().iter().copied().chain(period.whole.map(|_| since_start));
        let columns = names.chain(titles.map(|name| (name.to_owned(), Align::Right))).collect();
        let total = period.groups.total();
        let row = |(key, amount): &(Key, Amount)| {
            let whole = period.whole.map(|whole| {
                let whole = whole.get(key).unwrap_or_else(|| amount.clone());
                match self.of {
                    Of::Counts => whole.weight().to_string(),
                    Of::Durations => milliseconds(time(&whole)),
                }
            });
            // A text is empty if it is not known, for example the waker of a task that was preempted.
            let keys = key.iter().map(|part| match part.text() {
                text if text.is_empty() => "-".to_owned(),
                text => text.into_owned(),
            });
            keys.chain(self.cells(amount, &total, period)).chain(whole).collect::<Vec<String>>()
        };
        let table: Vec<Vec<String>> = largest.iter().map(row).collect();
        let notes = period.groups.notes(&largest);
        let mut report = Report { columns, rows: table, notes };
        let stacks: Vec<usize> = (0..self.by.len()).filter(|&at| is_stack(&self.by[at])).collect();
        stack_width::fit(&mut report, &stacks);
        report.text().lines().map(str::to_owned).collect()
    }

    fn json(&self, period: &Period<'_>, rows: usize) -> Vec<Json> {
        let total = period.groups.total();
        let ratio = |of: i128, all: i128| json!(of as f64 / all as f64);
        let row = |(key, amount): (Key, Amount)| {
            let count = amount.weight();
            let mut object: Map<String, Json> = key_members(&self.by, &key);
            object.insert("count".into(), json!(count as u64));
            match self.of {
                Of::Counts => {
                    object.insert("share".into(), ratio(count, total.weight()));
                }
                Of::Durations => {
                    let sum = time(&amount);
                    object.insert("total".into(), json!(sum as u64));
                    object.insert("average".into(), json!((sum / count.max(1)) as u64));
                    object.insert("max".into(), json!(max(&amount) as u64));
                    object.insert("share".into(), ratio(sum, time(&total)));
                }
            }
            object.insert("per_second".into(), json!(period.rate(count)));
            Json::Object(object)
        };
        self.largest(period.groups, rows).into_iter().map(row).collect()
    }
}
