//! `perf-prof hist`: shows how the values of a field are distributed, with a row for each power of two.

use anyhow::{Result, bail};
use perf_prof_events::{
    aggregate::{Align, Amount, Buckets, Definition, Distribution, Groups, Key, Measure, Order, Report},
    event::{DURATION_FIELD, EventType},
};
use perf_prof_format::value::ValueType;
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::output::counted;
use serde_json::{Map, Value as Json, json};

use super::{
    difference::{self, Change, Side},
    key_json::Keys,
    tally::{KEYS, Period, TallyCommand, TallyPlan, run as tally},
};

/// The plan of `hist`.
#[derive(Clone, Debug)]
pub struct HistPlan {
    /// The events, and how the histograms are shown.
    pub tally: TallyPlan,
    /// The field whose values are counted. `None` for `duration`.
    pub value: Option<String>,
    /// The fields whose values make a key. Each key gets its own histogram.
    pub by: Vec<String>,
    /// The unit of the values.
    pub unit: Unit,
}

/// The unit in which values are shown. Times of events are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Times of spans are shown in microseconds, and all other values unchanged.
    #[default]
    OfValue,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// The percentiles that are shown.
const PERCENTILES: [f64; 3] = [50.0, 90.0, 99.0];

/// Counts the values.
pub fn run(plan: &HistPlan) -> Result<ExitStatus> {
    let value = plan.value.clone().unwrap_or_else(|| DURATION_FIELD.to_owned());
    let (keys, is_given) = (Keys::new(plan.by.clone(), &[]), plan.value.is_some());
    let hist = Hist { unit: plan.unit, keys, is_given, value, buckets: Buckets::log2(plan.unit.divisor()) };
    tally(&plan.tally, hist)
}

impl Unit {
    /// Returns the unit of the values of a field.
    fn of(self, field: &str, events: &[EventType]) -> Unit {
        match self {
            Unit::OfValue if field == DURATION_FIELD || events.iter().all(|event| event.is_time(field)) => {
                Unit::Microseconds
            }
            unit => unit,
        }
    }

    /// Returns the name of the unit; `None` for values that are shown unchanged.
    fn name(self) -> Option<&'static str> {
        match self {
            Unit::OfValue => None,
            Unit::Nanoseconds => Some("nsecs"),
            Unit::Microseconds => Some("usecs"),
            Unit::Milliseconds => Some("msecs"),
            Unit::Seconds => Some("secs"),
        }
    }

    fn divisor(self) -> u64 {
        match self {
            Unit::OfValue | Unit::Nanoseconds => 1,
            Unit::Microseconds => 1000,
            Unit::Milliseconds => 1_000_000,
            Unit::Seconds => 1_000_000_000,
        }
    }
}

/// The command's settings for its histograms.
#[derive(Clone)]
struct Hist {
    /// The unit in which values are shown. [`Hist::definition`] finds the unit of the value.
    unit: Unit,
    value: String,
    /// Whether the user named the field.
    is_given: bool,
    keys: Keys,
    /// The rows of a histogram, one for each power of two in the shown unit.
    buckets: Buckets,
}

impl Hist {
    /// Returns the keys to show: the keys with the most values, or for durations the keys with the longest total time.
    fn largest<'g>(&self, groups: &'g Groups, rows: usize) -> impl Iterator<Item = (Key, Amount)> + 'g {
        groups.in_order(if self.value == DURATION_FIELD { Order::Sum } else { Order::Weight }, Some(rows))
    }

    /// Returns the title of the column of values: the unit, or the name of the field.
    fn title(&self) -> &str {
        self.unit.name().unwrap_or(&self.value)
    }

    /// Returns the unit behind the name of a figure; empty if the values have none.
    fn behind(&self) -> String {
        self.unit.name().map_or_else(String::new, |unit| format!(" {unit}"))
    }

    /// Returns a table of percentiles with one line per key. Without keys, the table has no lines, because a line of the
    /// histogram shows the percentiles.
    fn table(&self, groups: &Groups, rows: usize) -> Vec<String> {
        if self.keys.names.is_empty() {
            return Vec::new();
        }
        let unit = self.behind();
        let names = ["mean".to_owned()].into_iter().chain(PERCENTILES.iter().map(|percent| format!("p{percent}")));
        let amounts = names.chain(["max".to_owned()]).map(|name| (format!("{name}{unit}"), Align::Right));
        let keys =
            self.keys.names.iter().map(|name| (name.clone(), Align::Left)).chain([("count".to_owned(), Align::Right)]);
        let row = |(key, amount): (Key, Amount)| {
            let mut cells: Vec<String> = self.keys.texts(&key);
            if let Amount::Distribution(of) = amount {
                let shown = |value: Option<i128>| value.map_or("-".to_owned(), |value| self.buckets.shown(value));
                let percentiles = PERCENTILES.iter().map(|&percent| self.buckets.shown_percentile(&of, percent));
                cells.extend([of.count.to_string(), self.buckets.shown_mean(&of)]);
                cells.extend(percentiles.chain([shown(of.max)]));
            }
            cells
        };
        let rows = self.largest(groups, rows).map(row).collect();
        let report = Report { columns: keys.chain(amounts).collect(), rows, notes: Vec::new() };
        report.text().lines().map(str::to_owned).collect()
    }
}

impl Hist {
    /// Returns the changes of all keys, the largest change of the median first.
    fn changes(&self, sides: [&Side<'_>; 2]) -> Vec<Change> {
        let median = |amount: Option<&Amount>| match amount {
            Some(Amount::Distribution(of)) => {
                of.percentile(50.0, self.buckets).unwrap_or(0) as f64 / self.buckets.divisor() as f64
            }
            _ => 0.0,
        };
        Change::all(sides, |before, after| median(after) - median(before))
    }

    /// Returns the number of values, the percentiles and the largest value, as texts.
    fn figures(&self, amount: Option<&Amount>) -> Vec<String> {
        let Some(Amount::Distribution(of)) = amount else {
            return vec!["-".to_owned(); PERCENTILES.len() + 2];
        };
        let shown = |value: Option<i128>| value.map_or("-".to_owned(), |value| self.buckets.shown(value));
        let percentiles = PERCENTILES.iter().map(|&percent| self.buckets.shown_percentile(of, percent));
        [of.count.to_string()].into_iter().chain(percentiles).chain([shown(of.max)]).collect()
    }
}

impl TallyCommand for Hist {
    fn definition(&mut self, events: &[EventType]) -> Result<Definition> {
        let without =
            events.iter().find(|event| event.format.tracepoint().is_none_or(|of| of.field(DURATION_FIELD).is_none()));
        if let (false, Some(event)) = (self.is_given, without) {
            let fields = event.format.tracepoint().map(|format| format.fields()).unwrap_or_default();
            let numbers: Vec<&str> = fields
                .iter()
                .filter(|field| field.kind.value_type() == ValueType::Int)
                .map(|field| &*field.name)
                .collect();
            bail!(
                "{} has no field `{DURATION_FIELD}`: select a value with --value; its fields that are numbers: {}",
                event.shown_name(),
                if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") }
            );
        }
        self.unit = self.unit.of(&self.value, events);
        self.buckets = Buckets::log2(self.unit.divisor());
        let measure = Measure::Distribution(self.buckets);
        self.keys = Keys::new(self.keys.names.clone(), events);
        let (keys, value) = (self.keys.names.clone(), Some(self.value.clone()));
        let definition = Definition { keys, value, filter: None, limit: KEYS, measure };
        definition.check()?;
        Ok(definition)
    }

    fn rows_that_fit(&self, lines: usize) -> usize {
        // A histogram takes about twelve lines: titles, and about ten rows.
        (lines / 12).max(1)
    }

    fn lines(&self, period: &Period<'_>, rows: usize) -> Vec<String> {
        // A screen shows the histograms of the whole run, because an interval may contain too few values for a
        // distribution.
        let groups = period.whole.unwrap_or(period.groups);
        let mut lines = self.table(groups, rows);
        let largest: Vec<(Key, Amount)> = self.largest(groups, rows).collect();
        for (key, amount) in &largest {
            let Amount::Distribution(of) = amount else { continue };
            let percentiles =
                PERCENTILES.iter().map(|&percent| format!("p{percent} {}", self.buckets.shown_percentile(of, percent)));
            let max = of.max.map(|max| format!("max {}", self.buckets.shown(max)));
            let figures: Vec<String> = percentiles.chain(max).collect();
            let key = self.keys.line(key);
            let separator = if key.is_empty() { "" } else { ": " };
            let values = format!("{key}{separator}{}", counted(of.count, "value", "values"));
            if of.count == 0 {
                lines.push(values);
                continue;
            }
            lines.push(format!("{values}, {}", figures.join(", ")));
            lines.extend(of.text(self.title(), self.buckets).lines().map(str::to_owned));
        }
        lines.extend(groups.notes(&largest));
        lines
    }

    fn json(&self, period: &Period<'_>, rows: usize, row: &mut dyn FnMut(Json)) {
        let object_of = |(key, amount): (Key, Amount)| {
            let mut object: Map<String, Json> = self.keys.members(&key);
            if let Amount::Distribution(of) = amount {
                object.extend(members(&of, self.unit, self.buckets));
            }
            Json::Object(object)
        };
        self.largest(period.groups, rows).map(object_of).for_each(row);
    }

    fn difference(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<String> {
        let unit = self.behind();
        let percentiles = PERCENTILES.iter().map(|percent| format!("p{percent}{unit}"));
        let names = ["count".to_owned()].into_iter().chain(percentiles).chain([format!("max{unit}")]);
        let titles: Vec<String> =
            names.flat_map(|name| ["before", "after"].map(|when| format!("{name} {when}"))).collect();
        let cells = |change: &Change| {
            let [before, after] = change.amounts().map(|amount| self.figures(amount));
            before.into_iter().zip(after).flat_map(|(before, after)| [before, after]).collect()
        };
        difference::table(&self.keys, &titles, &self.changes(sides), rows, cells)
    }

    fn difference_json(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<Json> {
        let members = |_: usize, amount: &Amount| match amount {
            Amount::Distribution(of) => members(of, self.unit, self.buckets),
            Amount::Sum(_) => Map::new(),
        };
        let changes = self.changes(sides);
        changes.iter().take(rows).map(|change| difference::object(&self.keys, change, members)).collect()
    }
}

/// Returns a distribution as members of a JSON object, with values in `unit`. Each row has the smallest value and the
/// count.
fn members(of: &Distribution, unit: Unit, buckets: Buckets) -> Map<String, Json> {
    let divisor = buckets.divisor();
    let number = |number: Option<i128>| match number.map(|number| (i64::try_from(number), number)) {
        Some((Ok(number), _)) if divisor == 1 => json!(number),
        Some((_, number)) => json!(number as f64 / divisor as f64),
        None => Json::Null,
    };
    // The smallest value of each row is a whole number in the shown unit, so the division is exact.
    let start = |start: Option<i128>| start.and_then(|start| i64::try_from(start / i128::from(divisor)).ok());
    let rows = of.rows(buckets).into_iter();
    let rows: Vec<Json> = rows.map(|(from, count)| json!({ "from": start(from), "count": count })).collect();
    let mut object = Map::new();
    object.insert("unit".into(), json!(unit.name()));
    object.insert("count".into(), json!(of.count));
    object.insert("sum".into(), number(Some(of.sum)));
    object.insert("min".into(), number(of.min));
    for percent in PERCENTILES {
        object.insert(format!("p{percent}"), number(of.percentile(percent, buckets)));
    }
    object.insert("max".into(), number(of.max));
    object.insert("histogram".into(), Json::Array(rows));
    object
}
