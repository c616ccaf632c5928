//! `perf-prof top`: counts events by keys, as a table with the largest counts first.

use anyhow::Result;
use serde_json::{Map, Value as Json, json};

use super::{
    key_json::{key_members, shown_names},
    tally::{KEYS, Look, Period, TallyPlan, run as tally},
};
use crate::{
    aggregate::{Align, Amount, Definition, Key, KeyPart, Measure, Report},
    engine::ExitStatus,
    event::EventType,
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
    tally(&plan.tally, Top { by: plan.by.clone() })
}

/// The table.
struct Top {
    by: Vec<String>,
}

impl Look for Top {
    fn definition(&mut self, events: &[EventType]) -> Result<Definition> {
        if self.by.is_empty() {
            let event = (events.len() > 1).then_some("_event");
            self.by = event.into_iter().chain(["_comm"]).map(str::to_owned).collect();
        }
        let keys = self.by.clone();
        let definition = Definition { keys, value: None, filter: None, limit: KEYS, measure: Measure::Sum };
        definition.check()?;
        Ok(definition)
    }

    fn rows_that_fit(&self, lines: usize) -> usize {
        // The titles, and the line about the keys that are not shown.
        lines.saturating_sub(2)
    }

    fn lines(&self, period: &Period<'_>, rows: usize) -> Vec<String> {
        let largest = period.groups.largest(Some(rows));
        let is_number = |at: usize| {
            let mut parts = largest.iter().filter_map(|(key, _)| key.get(at));
            !largest.is_empty() && parts.all(|part| matches!(part, KeyPart::Number(_)))
        };
        let side = |at| if is_number(at) { Align::Right } else { Align::Left };
        let names = shown_names(&self.by).into_iter().enumerate().map(|(at, name)| (name, side(at)));
        let counts = ["count", "share", "per second"].into_iter().chain(period.whole.map(|_| "since start"));
        let columns = names.chain(counts.map(|name| (name.to_owned(), Align::Right))).collect();
        let total = period.groups.total().weight();
        let row = |(key, amount): &(Key, Amount)| {
            let count = amount.weight();
            let share = format!("{:.1}%", count as f64 * 100.0 / total as f64);
            let rate = period.rate(count).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
            let whole = period.whole.map(|whole| whole.get(key).map_or(count, |amount| amount.weight()).to_string());
            let keys = key.iter().map(|part| part.text().into_owned());
            keys.chain([count.to_string(), share, rate]).chain(whole).collect::<Vec<String>>()
        };
        let table: Vec<Vec<String>> = largest.iter().map(row).collect();
        // The report of the table knows what to say about keys that are not shown.
        let notes = period.groups.report(Some(rows), "").notes;
        Report { columns, rows: table, notes }.text().lines().map(str::to_owned).collect()
    }

    fn json(&self, period: &Period<'_>, rows: usize) -> Vec<Json> {
        let total = period.groups.total().weight();
        let row = |(key, amount): (Key, Amount)| {
            let count = amount.weight();
            let mut object: Map<String, Json> = key_members(&self.by, &key);
            object.insert("count".into(), json!(count as u64));
            object.insert("share".into(), json!(count as f64 / total as f64));
            object.insert("per_second".into(), json!(period.rate(count)));
            Json::Object(object)
        };
        period.groups.largest(Some(rows)).into_iter().map(row).collect()
    }
}
