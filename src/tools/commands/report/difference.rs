//! The report as the difference of two recordings, or of two parts of a recording. It contains a table for each event,
//! with the shares before and after, and the largest change first.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use perf_prof_events::event::Shares;
use perf_prof_system::output;
use serde_json::json;

use super::{Added, Before, CANNOT_BE_READ, Form, Missing, ReportPlan, json::keys, table};

/// A line of the table: the keys, and the weight of their samples in each recording.
struct Change {
    keys: Vec<String>,
    before: Weight,
    after: Weight,
}

/// The weight of the samples with equal keys in one recording.
#[derive(Clone, Copy, Default)]
struct Weight {
    period: u64,
    samples: u64,
    /// The share of the event's total, in percent.
    percent: f64,
}

impl Change {
    /// Returns the change of the share in percentage points.
    fn points(&self) -> f64 {
        self.after.percent - self.before.percent
    }
}

/// Warns if the recordings have no event in common, because shares of different events cannot be compared. The warning
/// is printed even with `-q`, because the result does not show the problem.
pub(super) fn warn_of_other_events(before: &Before, events: &[String], events_before: &[String]) {
    if shares_no_event(events, events_before) {
        output::say(format_args!(
            "warning: the recordings have no event in common, so they cannot be compared: {} has {}, the other has {}",
            before.name,
            events_before.join(", "),
            events.join(", ")
        ));
    }
}

/// The events whose samples have call chains in only one of two recordings. Their functions have callers only there.
#[derive(Default)]
pub(super) struct ChainsApart {
    /// The later recording's names of the events whose earlier samples have none.
    pub lacking_before: Vec<String>,
    /// Those whose later samples have none.
    pub lacking_after: Vec<String>,
}

impl ChainsApart {
    pub fn of(before: &Added, after: &Added) -> ChainsApart {
        let has_chains = |of: &Added, name: &str| {
            let mut sampled = of
                .names
                .iter()
                .zip(&of.sums.shares)
                .zip(&of.sums.has_chains)
                .filter(|((_, shares), _)| shares.samples() != 0);
            let same = sampled.clone().find(|((other, _), _)| *other == name);
            let same =
                same.or_else(|| sampled.find(|((other, _), _)| without_modifiers(other) == without_modifiers(name)));
            same.map(|(_, &has_chains)| has_chains)
        };
        let mut apart = ChainsApart::default();
        for name in &after.names {
            match (has_chains(before, name), has_chains(after, name)) {
                (Some(false), Some(true)) => apart.lacking_before.push(name.clone()),
                (Some(true), Some(false)) => apart.lacking_after.push(name.clone()),
                _ => {}
            }
        }
        apart
    }

    /// Returns a line for each recording that lacks call chains. `name` is that of the earlier one.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let sides = [(name, &self.lacking_before), ("the later recording", &self.lacking_after)];
        let lacking = sides.iter().filter(|(_, events)| !events.is_empty());
        let line = |(of, events): &(&str, &Vec<String>)| {
            format!("{of} has no call chains of {}, so functions cannot be compared", events.join(", "))
        };
        lacking.map(line).collect()
    }
}

/// Prints the difference.
pub(super) fn print(
    plan: &ReportPlan,
    of: &Before,
    before: &Added,
    after: &Added,
    form: Form,
    out: &mut impl Write,
) -> io::Result<()> {
    let shares_before = |name: &str| {
        let same = |other: &String| without_modifiers(other) == without_modifiers(name);
        before.names.iter().position(same).and_then(|at| before.sums.shares.get(at))
    };
    let none = Shares::new(&plan.by, plan.callers, after.sums.context.budget());
    let is_after = |name: &str| after.names.iter().any(|other| without_modifiers(other) == without_modifiers(name));
    let of_after = after.names.iter().zip(&after.sums.shares);
    let of_after = of_after.map(|(name, shares)| (name, shares_before(name).unwrap_or(&none), shares));
    let of_before = before.names.iter().zip(&before.sums.shares).filter(|(name, _)| !is_after(name));
    let pairs: Vec<_> = of_after.chain(of_before.map(|(name, shares)| (name, shares, &none))).collect();
    match form {
        Form::Text => {
            writeln!(out, "# Total Lost Samples: {} before, {} after", before.missing.lost, after.missing.lost)?;
            for (side, _) in sides(before, after).iter().filter(|(_, missing)| missing.damaged) {
                writeln!(out, "# Partial {side}: {CANNOT_BE_READ}")?;
            }
            writeln!(out, "#")?;
            let is_shown = |pair: &&(&String, &Shares, &Shares)| pair.1.samples() + pair.2.samples() > 0;
            let any = pairs.iter().any(|pair| is_shown(&pair));
            pairs.iter().filter(|pair| !any || is_shown(pair)).try_for_each(|&(name, before, after)| {
                writeln!(out, "# Event '{name}': before is {}", of.name)?;
                print_table(plan, before, after, out)
            })
        }
        Form::Json => {
            let events: Vec<_> =
                pairs.iter().map(|(name, before, after)| of_event(plan, name, before, after)).collect();
            let lost = json!({ "before": before.missing.lost, "after": after.missing.lost });
            let damaged = json!({ "before": before.missing.damaged, "after": after.missing.damaged });
            let partial = before.missing.any() || after.missing.any();
            let object = json!({
                "before": of.name, "partial": partial, "lost": lost, "damaged": damaged, "events": events
            });
            writeln!(out, "{}", serde_json::to_string_pretty(&object)?)
        }
    }
}

/// Returns what each of two recordings lacks.
fn sides(before: &Added, after: &Added) -> [(&'static str, Missing); 2] {
    [("before", before.missing), ("after", after.missing)]
}

/// Returns the lines, the largest change first.
fn changes(before: &Shares, after: &Shares) -> Vec<Change> {
    let mut changes: HashMap<Vec<String>, (Weight, Weight)> = HashMap::new();
    let weight = |period, samples, of: &Shares| Weight { period, samples, percent: table::percent(period, of.total()) };
    for line in before.lines() {
        changes.entry(line.keys).or_default().0 = weight(line.own, line.samples, before);
    }
    for line in after.lines() {
        changes.entry(line.keys).or_default().1 = weight(line.own, line.samples, after);
    }
    let mut changes: Vec<Change> =
        changes.into_iter().map(|(keys, (before, after))| Change { keys, before, after }).collect();
    changes.sort_by(|a, b| b.points().abs().total_cmp(&a.points().abs()).then_with(|| a.keys.cmp(&b.keys)));
    changes
}

fn print_table(plan: &ReportPlan, before: &Shares, after: &Shares, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# Samples: {} before, {} after", before.samples(), after.samples())?;
    writeln!(out, "# Event count (approx.): {} before, {} after\n#", before.total(), after.total())?;
    let changes = changes(before, after);
    let screen = output::terminal_width();
    let columns = table::Columns::new(plan, changes.iter().map(|change| &change.keys[..]), screen);
    columns.print_titles(&["  Before", "   After", "  Change"], out)?;
    for change in &changes {
        let shares =
            format!(" {:6.2}%  {:7.2}%  {:+7.2}", change.before.percent, change.after.percent, change.points());
        columns.print_line(&shares, &change.keys, out)?;
    }
    writeln!(out, "\n")
}

fn of_event(plan: &ReportPlan, name: &str, before: &Shares, after: &Shares) -> serde_json::Value {
    let weight = |of: &Weight| json!({ "period": of.period, "samples": of.samples, "percent": of.percent });
    let lines = changes(before, after).into_iter().map(|change| {
        let mut object = keys(plan, &change.keys);
        object.insert("before".into(), weight(&change.before));
        object.insert("after".into(), weight(&change.after));
        object.insert("change".into(), json!(change.points()));
        serde_json::Value::Object(object)
    });
    let sums = |of: &Shares| json!({ "samples": of.samples(), "period": of.total() });
    json!({ "name": name, "before": sums(before), "after": sums(after), "lines": lines.collect::<Vec<_>>() })
}

/// Returns whether the two lists have no event in common. Modifiers do not count: `cycles:u` is `cycles`.
pub(super) fn shares_no_event(events: &[String], before: &[String]) -> bool {
    let has = |event: &String| before.iter().any(|other| without_modifiers(other) == without_modifiers(event));
    !events.is_empty() && !before.is_empty() && !events.iter().any(has)
}

/// Returns the name of an event without perf's modifiers.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers)) if modifiers.chars().all(|letter| "ukhGHpPSDWeIbR".contains(letter)) => event,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_with_other_modifiers_can_be_compared() {
        let no_common = |events: &[&str], before: &[&str]| {
            let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            shares_no_event(&names(events), &names(before))
        };
        assert!(no_common(&["sched:sched_switch"], &["cpu-clock", "sched:sched_wakeup"]));
        assert!(!no_common(&["cycles:u", "sched:sched_switch"], &["cycles:P"]));
        assert!(!no_common(&["sched:sched_switch"], &["cpu-clock", "sched:sched_switch"]));
        assert!(!no_common(&["cpu-clock"], &[]));
    }
}
