//! `perf-prof top`: counts events by keys, and prints a table with the largest counts first. For spans, it adds up
//! durations, with the longest total time first. With `--sum`, it adds up fields.

use anyhow::Result;
use perf_prof_events::{
    aggregate::{Align, Amount, Buckets, Definition, Distribution, Key, KeyPart, Measure, Order, Report},
    event::{DURATION_FIELD, EventType, Format},
};
use perf_prof_session::engine::ExitStatus;
use serde_json::{Map, Value as Json, json};

use super::{
    difference::{self, Change, Side},
    key_json::Keys,
    short_chains::is_stack,
    stack_width::{self, LastColumn},
    tally::{KEYS, Period, TallyCommand, TallyPlan, run as tally},
};

/// The plan of `top`.
#[derive(Clone, Debug)]
pub struct TopPlan {
    /// The events, and how the counts are shown.
    pub tally: TallyPlan,
    /// The fields whose values make a key. If there are none, the default keys of the events are used.
    pub by: Vec<String>,
    /// The fields whose values are added up for each key. The key with the largest sum of the first field comes first.
    pub sums: Vec<String>,
}

/// Counts the events.
pub fn run(plan: &TopPlan) -> Result<ExitStatus> {
    tally(
        &plan.tally,
        Top { keys: Keys::new(plan.by.clone(), &[]), sums: plan.sums.clone(), units: Vec::new(), of: Of::Counts },
    )
}

/// The command's settings for its table.
#[derive(Clone)]
struct Top {
    keys: Keys,
    /// The fields that are added up.
    sums: Vec<String>,
    units: Vec<Unit>,
    of: Of,
}

/// The unit in which a sum is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// The unit of the field.
    OfField,
    /// Milliseconds, for times.
    Milliseconds,
}

/// The values that are added up for each key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The events.
    Counts,
    /// The spans and their durations.
    Durations,
    /// The events and some of their fields.
    Sums,
}

/// The default keys of built-in sources: for each field, the keys of a source that has the field. Most locks have no name,
/// so they are counted by their kind. Spans of other sources are counted by task.
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

impl Unit {
    /// Returns the unit of a field of these events.
    fn of_field(name: &str, events: &[EventType]) -> Unit {
        if events.iter().all(|event| event.is_time(name)) { Unit::Milliseconds } else { Unit::OfField }
    }

    fn title(self, name: &str) -> String {
        match self {
            Unit::OfField => format!("total {name}"),
            Unit::Milliseconds if name == DURATION_FIELD => "total ms".to_owned(),
            Unit::Milliseconds => format!("total {name} ms"),
        }
    }

    fn text(self, sum: i128) -> String {
        match self {
            Unit::OfField => sum.to_string(),
            Unit::Milliseconds => milliseconds(sum),
        }
    }

    /// Returns a rate of sums per second.
    fn rate(self, rate: f64) -> f64 {
        match self {
            Unit::OfField => rate,
            Unit::Milliseconds => rate / 1e6,
        }
    }
}

impl Top {
    /// Returns the keys to show, the largest first. Keys with only dropped spans come last.
    fn largest<'g>(&self, period: &Period<'g>, rows: usize) -> Box<dyn Iterator<Item = (Key, Amount)> + 'g> {
        let groups = period.groups;
        let order = match self.of {
            Of::Counts => Order::Weight,
            Of::Durations | Of::Sums => Order::Sum,
        };
        let missing = period.missing.into_iter().flat_map(move |missing| missing.in_order(Order::Weight, Some(rows)));
        let only_missing = missing.filter(|(key, _)| groups.get(key).is_none());
        let nothing = |(key, _)| (key, Amount::Distribution(Distribution::default()));
        Box::new(groups.in_order(order, Some(rows)).chain(only_missing.map(nothing)).take(rows))
    }

    /// Returns the titles of the columns after the keys.
    fn titles(&self) -> Vec<String> {
        let words: &[&str] = match self.of {
            Of::Counts => &["count", "share", "per second"],
            Of::Durations => &["count", "total ms", "average ms", "max ms", "share", "per second"],
            Of::Sums => {
                let sums = self.sums.iter().zip(&self.units).map(|(name, unit)| unit.title(name));
                let behind = ["share", "per second"].map(str::to_owned);
                return ["count".to_owned()].into_iter().chain(sums).chain(behind).collect();
            }
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Returns the cells of the columns after the keys. `all` is the amount of all keys together.
    fn cells(&self, key: &Key, amount: &Amount, all: &Amount, period: &Period<'_>) -> Vec<String> {
        let (count, sum) = (amount.weight(), sum(amount));
        let of_rate = |rate: Option<f64>| rate.map_or_else(none, |rate| format!("{rate:.1}"));
        let rate = of_rate(period.rate(count));
        match self.of {
            Of::Counts => vec![count.to_string(), share(count, all.weight()), rate],
            Of::Durations => {
                let times =
                    [Some(sum), average(amount), longest(amount)].map(|time| time.map_or_else(none, milliseconds));
                let share = share(sum, self::sum(all));
                [count.to_string()].into_iter().chain(times).chain([share, rate]).collect()
            }
            Of::Sums => {
                let sums = self.sums_of(key, amount, period).into_iter().zip(&self.units);
                let sums = sums.map(|(sum, unit)| sum.map_or_else(none, |sum| unit.text(sum)));
                let first = known_sum(amount);
                let rate = first.and_then(|sum| period.rate(sum));
                let rate = rate.zip(self.units.first()).map(|(rate, unit)| unit.rate(rate));
                let share = first.map_or_else(none, |sum| share(sum, self::sum(all)));
                [count.to_string()].into_iter().chain(sums).chain([share, of_rate(rate)]).collect()
            }
        }
    }

    /// Returns the sums of a key in the order of the fields. A sum is `None` if no event of the key has a known value of
    /// the field, or if there was no room for the key in the field's table. The kernel's tables are not read at the same
    /// moment. So a table may lack an event at the end of an interval. The total at the end of the run contains this event.
    fn sums_of(&self, key: &Key, amount: &Amount, period: &Period<'_>) -> Vec<Option<i128>> {
        let more = period.more_sums.iter().map(|groups| match groups.get(key) {
            Some(amount) => Some(sum(&amount)),
            None => (groups.others().keys == 0 && groups.skipped() == 0).then_some(0),
        });
        [known_sum(amount)].into_iter().chain(more).collect()
    }

    /// Returns the notes below the table: the number of keys that are not shown, and what is not counted.
    fn notes(&self, period: &Period<'_>, shown: &[(Key, Amount)]) -> Vec<String> {
        let mut notes = period.groups.notes(shown);
        notes.extend(period.more_sums.iter().filter_map(|groups| groups.note_of_skipped()));
        // Each further field has its own table. If there are too many keys, the tables may keep different keys.
        if period.more_sums.iter().any(|groups| groups.others().keys != 0) && period.groups.others().keys == 0 {
            notes.push("too many keys: some sums are incomplete, and the true values may be larger".to_owned());
        }
        if period.missing.is_some() {
            let note = "(missing ms: the dropped spans, whose begins are known, lasted at most this long, up to the end of \
                        the run)";
            notes.push(note.to_owned());
        }
        notes
    }
}

impl Top {
    /// Returns the number whose rates are compared. For spans, the total of the durations in ms.
    fn compared(&self, amount: &Amount) -> f64 {
        match self.of {
            Of::Counts => amount.weight() as f64,
            Of::Durations => sum(amount) as f64 / 1e6,
            Of::Sums => self.units.first().map_or(0.0, |unit| unit.rate(sum(amount) as f64)),
        }
    }

    /// Returns the changes of all keys, the largest change per second first.
    fn changes(&self, [before, after]: [&Side<'_>; 2]) -> Vec<Change> {
        let rate = |side: &Side<'_>, amount: Option<&Amount>| {
            amount.map_or(0.0, |amount| side.per_second(self.compared(amount)))
        };
        Change::all([before, after], |was, is| rate(after, is) - rate(before, was))
    }
}

/// Returns the sum of the values. For spans, the total of the durations in ns.
fn sum(amount: &Amount) -> i128 {
    match amount {
        Amount::Sum(sum) => *sum,
        Amount::Distribution(of) => of.sum,
    }
}

/// Returns the sum of the values; `None` if no value is known.
fn known_sum(amount: &Amount) -> Option<i128> {
    match amount {
        Amount::Sum(sum) => Some(*sum),
        Amount::Distribution(of) => (of.count != 0).then_some(of.sum),
    }
}

/// Returns the longest duration, in ns. `None` for a key of which all spans were dropped.
fn longest(amount: &Amount) -> Option<i128> {
    match amount {
        Amount::Sum(_) => None,
        Amount::Distribution(of) => of.max,
    }
}

/// Returns the average duration, in ns. `None` for a key of which all spans were dropped.
fn average(amount: &Amount) -> Option<i128> {
    sum(amount).checked_div(amount.weight())
}

/// Returns the cell of a number that is not known, or does not exist.
fn none() -> String {
    "-".to_owned()
}

/// Returns the maximum total duration of the dropped spans of a key, in ns. `None` if none of the key were dropped.
fn missing_of(key: &Key, period: &Period<'_>) -> Option<i128> {
    period.missing?.get(key).map(|missing| sum(&missing))
}

fn milliseconds(time: i128) -> String {
    format!("{}.{:03}", time / 1_000_000, time / 1000 % 1000)
}

/// Returns a sum as a JSON number. Sums of more than 64 bits lose digits.
fn number(sum: i128) -> Json {
    match (i64::try_from(sum), u64::try_from(sum)) {
        (Ok(sum), _) => json!(sum),
        (_, Ok(sum)) => json!(sum),
        _ => json!(sum as f64),
    }
}

fn share(of: i128, all: i128) -> String {
    if all == 0 { none() } else { format!("{:.1}%", of as f64 * 100.0 / all as f64) }
}

impl TallyCommand for Top {
    fn definition(&mut self, events: &[EventType]) -> Result<Definition> {
        let is_default = self.keys.names.is_empty();
        let by = if is_default { default_keys(events) } else { self.keys.names.clone() };
        self.keys = Keys::new(by.clone(), events);
        let are_spans = !events.is_empty() && events.iter().all(|event| matches!(event.format, Format::Span(_)));
        self.of = match are_spans {
            _ if !self.sums.is_empty() => Of::Sums,
            true => Of::Durations,
            false => Of::Counts,
        };
        self.units = self.sums.iter().map(|name| Unit::of_field(name, events)).collect();
        let (value, measure) = match self.of {
            Of::Counts => (None, Measure::Sum),
            Of::Durations => (Some(DURATION_FIELD.to_owned()), Measure::Distribution(Buckets::log2(1))),
            // Unlike a sum, a distribution also counts the events.
            Of::Sums => (self.sums.first().cloned(), Measure::Distribution(Buckets::log2(1))),
        };
        let definition = Definition { keys: by, value, filter: None, limit: KEYS, measure };
        definition.check()?;
        Ok(definition)
    }

    fn counts_missing(&self) -> bool {
        self.of == Of::Durations
    }

    fn more_sums(&self) -> &[String] {
        self.sums.get(1..).unwrap_or_default()
    }

    fn rows_that_fit(&self, lines: usize) -> usize {
        // Two lines are for the titles, and for the note about keys that are not shown.
        lines.saturating_sub(2)
    }

    fn lines(&self, period: &Period<'_>, rows: usize) -> Vec<String> {
        let largest: Vec<(Key, Amount)> = self.largest(period, rows).collect();
        let is_number = |at: usize| {
            let mut parts = largest.iter().filter_map(|(key, _)| key.get(at));
            !largest.is_empty() && parts.all(|part| matches!(part, KeyPart::Number(_)))
        };
        let side = |at| if is_number(at) { Align::Right } else { Align::Left };
        let names = self.keys.titles().enumerate().map(|(at, name)| (name, side(at)));
        let since_start = match self.of {
            Of::Counts => "since start",
            Of::Durations => "ms since start",
            Of::Sums => "sum since start",
        };
        let missing = period.missing.map(|_| "missing ms".to_owned());
        let titles = self.titles().into_iter().chain(missing).chain(period.whole.map(|_| since_start.to_owned()));
        let columns = names.chain(titles.map(|name| (name, Align::Right))).collect();
        let total = period.groups.total();
        let row = |(key, amount): &(Key, Amount)| {
            let whole = period.whole.map(|whole| {
                let whole = whole.get(key).unwrap_or_else(|| amount.clone());
                match self.of {
                    Of::Counts => whole.weight().to_string(),
                    Of::Durations => milliseconds(sum(&whole)),
                    Of::Sums => {
                        let sum = known_sum(&whole).zip(self.units.first());
                        sum.map_or_else(none, |(sum, unit)| unit.text(sum))
                    }
                }
            });
            // A text is empty if it is not known, for example the comm of the waker of a preempted task.
            let keys = self.keys.texts(key).into_iter().map(|text| if text.is_empty() { none() } else { text });
            let missing = period.missing.map(|_| missing_of(key, period).map_or_else(none, milliseconds));
            keys.chain(self.cells(key, amount, &total, period)).chain(missing).chain(whole).collect::<Vec<String>>()
        };
        let table: Vec<Vec<String>> = largest.iter().map(row).collect();
        let notes = self.notes(period, &largest);
        let mut report = Report { columns, rows: table, notes };
        let stacks: Vec<usize> = (0..self.keys.names.len()).filter(|&at| is_stack(&self.keys.names[at])).collect();
        let last = if period.whole.is_some() { LastColumn::Optional } else { LastColumn::Needed };
        stack_width::fit(&mut report, &stacks, last);
        report.text().lines().map(str::to_owned).collect()
    }

    fn json(&self, period: &Period<'_>, rows: usize, row: &mut dyn FnMut(Json)) {
        let total = period.groups.total();
        let ratio = |of: i128, all: i128| json!(of as f64 / all as f64);
        let object = |(key, amount): (Key, Amount)| {
            let count = amount.weight();
            let mut object: Map<String, Json> = self.keys.members(&key);
            object.insert("count".into(), json!(count as u64));
            match self.of {
                Of::Counts => {
                    object.insert("share".into(), ratio(count, total.weight()));
                }
                Of::Durations => {
                    let sum = sum(&amount);
                    object.insert("total".into(), json!(sum as u64));
                    object.insert("average".into(), json!(average(&amount).map(number)));
                    object.insert("max".into(), json!(longest(&amount).map(number)));
                    object.insert("share".into(), ratio(sum, self::sum(&total)));
                }
                Of::Sums => {
                    let sums = self.sums_of(&key, &amount, period).into_iter().map(|sum| sum.map(number));
                    let sums: Map<String, Json> = self.sums.iter().cloned().zip(sums.map(|sum| json!(sum))).collect();
                    object.insert("sums".into(), Json::Object(sums));
                    object.insert("share".into(), json!(known_sum(&amount).map(|of| ratio(of, sum(&total)))));
                }
            }
            let rate = if self.of == Of::Sums { known_sum(&amount) } else { Some(count) };
            object.insert("per_second".into(), json!(rate.and_then(|rate| period.rate(rate))));
            let missing = period.missing.map(|_| number(missing_of(&key, period).unwrap_or(0)));
            object.extend(missing.map(|missing| ("missing_time".to_owned(), missing)));
            Json::Object(object)
        };
        self.largest(period, rows).map(object).for_each(row);
    }

    fn difference(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<String> {
        let what = match self.of {
            Of::Counts => "per second".to_owned(),
            Of::Durations => "ms per second".to_owned(),
            Of::Sums => format!("{} per second", self.sums.first().map_or("", String::as_str)),
        };
        let counts = ["count before".to_owned(), "count after".to_owned()];
        let rates = [format!("{what} before"), format!("{what} after"), "change".to_owned()];
        let averages = ["average ms before".to_owned(), "average ms after".to_owned()];
        let averages = if self.of == Of::Durations { &averages[..] } else { &[] };
        let titles: Vec<String> = counts.into_iter().chain(rates).chain(averages.iter().cloned()).collect();
        let cells = |change: &Change| {
            let amounts = change.amounts();
            let rate = |at: usize| amounts[at].map_or(0.0, |amount| sides[at].per_second(self.compared(amount)));
            let counts = amounts.map(|amount| amount.map_or(0, Amount::weight).to_string());
            let rates = [format!("{:.3}", rate(0)), format!("{:.3}", rate(1)), format!("{:+.3}", change.by)];
            let averages = amounts.map(|amount| amount.and_then(average).map_or_else(none, milliseconds));
            let averages = averages.into_iter().filter(|_| self.of == Of::Durations);
            counts.into_iter().chain(rates).chain(averages).collect()
        };
        difference::table(&self.keys, &titles, &self.changes(sides), rows, cells)
    }

    fn difference_json(&self, sides: [&Side<'_>; 2], rows: usize) -> Vec<Json> {
        let members = |at: usize, amount: &Amount| {
            let mut members = Map::new();
            members.insert("count".into(), json!(amount.weight() as u64));
            if self.of != Of::Counts {
                members.insert("total".into(), number(sum(amount)));
            }
            if self.of == Of::Durations {
                members.insert("average".into(), json!(average(amount).map(number)));
                members.insert("max".into(), json!(longest(amount).map(number)));
            }
            members.insert("per_second".into(), json!(sides[at].per_second(self.compared(amount))));
            members
        };
        let changes = self.changes(sides);
        changes.iter().take(rows).map(|change| difference::object(&self.keys, change, members)).collect()
    }
}
