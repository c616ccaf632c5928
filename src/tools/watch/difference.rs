//! The sums of two recordings, or of two parts of a recording, in one table. Each row contains the amounts of a key
//! before and after. The largest change comes first.

use std::{collections::BTreeSet, time::Duration};

use perf_prof_events::aggregate::{Align, Amount, Groups, Key, KeyPart, Report};
use serde_json::{Map, Value as Json, json};

use super::key_json::Keys;

/// The sums of one of the recordings.
pub struct Side<'a> {
    /// The sums.
    pub groups: &'a Groups,
    /// The length of the recording, or of its selected part.
    pub length: Duration,
}

/// A key, and its amounts before and after. An amount is `None` if the key did not occur.
pub struct Change {
    pub key: Key,
    pub before: Option<Amount>,
    pub after: Option<Amount>,
    /// The size of the change. The changes with the largest absolute values come first.
    pub by: f64,
}

impl Side<'_> {
    /// Returns `number` per second. If the length is 0, for example with a single event, returns `number`.
    pub fn per_second(&self, number: f64) -> f64 {
        if self.length.is_zero() { number } else { number / self.length.as_secs_f64() }
    }
}

impl Change {
    /// Returns the changes of all keys, the largest first. `change` returns the size of a change.
    pub fn all(
        [before, after]: [&Side<'_>; 2],
        change: impl Fn(Option<&Amount>, Option<&Amount>) -> f64,
    ) -> Vec<Change> {
        let keys: BTreeSet<Key> = before.groups.iter().chain(after.groups.iter()).map(|(key, _)| key).collect();
        let of_key = |key: Key| {
            let (before, after) = (before.groups.get(&key), after.groups.get(&key));
            let by = change(before.as_ref(), after.as_ref());
            Change { key, before, after, by }
        };
        let mut changes: Vec<Change> = keys.into_iter().map(of_key).collect();
        // The sort is stable: keys with equal changes stay in their order.
        changes.sort_by(|one, other| other.by.abs().total_cmp(&one.by.abs()));
        changes
    }

    /// Returns the amounts before and after.
    pub fn amounts(&self) -> [Option<&Amount>; 2] {
        [self.before.as_ref(), self.after.as_ref()]
    }
}

/// Returns the lines of a table of changes. `titles` are the titles of the columns after the keys. `cells` returns the
/// cells of these columns.
pub fn table(
    keys: &Keys,
    titles: &[String],
    changes: &[Change],
    rows: usize,
    cells: impl Fn(&Change) -> Vec<String>,
) -> Vec<String> {
    let is_number = |at: usize| changes.iter().all(|change| matches!(change.key.get(at), Some(KeyPart::Number(_))));
    let side = |at| if !changes.is_empty() && is_number(at) { Align::Right } else { Align::Left };
    let names = keys.titles().enumerate().map(|(at, name)| (name, side(at)));
    let columns = names.chain(titles.iter().map(|title| (title.clone(), Align::Right))).collect();
    let row = |change: &Change| {
        let texts = keys.texts(&change.key).into_iter();
        texts.map(|text| if text.is_empty() { "-".to_owned() } else { text }).chain(cells(change)).collect()
    };
    let more = changes.len().saturating_sub(rows);
    let notes = if more == 0 { Vec::new() } else { vec![format!("({more} more keys with smaller changes)")] };
    let report = Report { columns, rows: changes.iter().take(rows).map(row).collect(), notes };
    report.text().lines().map(str::to_owned).collect()
}

/// Returns a change as a JSON object. `members` returns the members for an amount. The first argument of `members` is 0 for
/// the amount before, and 1 for the amount after.
pub fn object(keys: &Keys, change: &Change, members: impl Fn(usize, &Amount) -> Map<String, Json>) -> Json {
    let mut object = keys.members(&change.key);
    for (at, (name, amount)) in ["before", "after"].into_iter().zip(change.amounts()).enumerate() {
        object.insert(name.into(), amount.map_or(Json::Null, |amount| Json::Object(members(at, amount))));
    }
    object.insert("change".into(), json!(change.by));
    Json::Object(object)
}
