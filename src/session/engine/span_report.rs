//! Messages on stderr about the spans of a run: which spans are missing, and which conditions no span met. A program
//! that uses perf-prof as a library reads the counts instead.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use perf_prof_events::event::{Context, EventType, Format, Shortfall, SpanCounts, Stats};
use perf_prof_system::output;

use crate::plan::Verbosity;

/// Whether a table on stdout names the tasks whose spans are incomplete.
static ARE_TASKS_NAMED: AtomicBool = AtomicBool::new(false);

/// Notes that a table on stdout names the tasks whose spans are incomplete.
pub fn note_named_tasks() {
    ARE_TASKS_NAMED.store(true, Relaxed);
}

/// Prints at the end of a run how many spans were dropped, and what else is missing.
pub fn print_missing(stats: &Stats, context: &Context) {
    missing(stats, context).iter().for_each(output::say_lost);
}

/// Returns whether spans are missing.
pub fn are_missing(stats: &Stats) -> bool {
    let is_incomplete =
        |span: &SpanCounts| span.lost() + span.without_room() + span.replaced() != 0 || span.incomplete().gaps() != 0;
    stats.spans().iter().any(|span| is_incomplete(span))
}

fn missing(stats: &Stats, context: &Context) -> Vec<String> {
    let sum = |number: fn(&SpanCounts) -> u64| stats.spans().iter().map(|span| number(span)).sum::<u64>();
    let mut lines = Vec::new();
    let (opened, lost) = (sum(SpanCounts::opened), sum(SpanCounts::lost));
    if lost != 0 {
        lines.push(dropped_text(lost, opened, stats));
    }
    let without_room = sum(SpanCounts::without_room);
    if without_room != 0 {
        lines.push(format!(
            "dropped {without_room} of {opened} spans: more than max-open spans were open, or open spans took more than a \
             quarter of --buffer"
        ));
    }
    let replaced = sum(SpanCounts::replaced);
    if replaced != 0 {
        lines.push(format!(
            "dropped {replaced} of {opened} spans: another span with the same key began before they ended"
        ));
    }
    let Some(shortfall) = Shortfall::of(stats, Some(context)) else { return lines };
    let are_tasks_named = ARE_TASKS_NAMED.load(Relaxed) && output::are_the_same();
    if shortfall.gaps != 0 && !are_tasks_named {
        lines.push(format!("spans are missing: {}", shortfall.tasks_text()));
    }
    if shortfall.unended != 0 {
        lines.push(format!(
            "{} of {opened} spans began, and their ends were not seen: an end may happen in an interrupt of an idle CPU, and \
             some kernels deliver no events of such interrupts; `perf-prof doctor` checks all CPUs",
            shortfall.unended
        ));
    }
    if shortfall.ambiguous != 0 {
        lines.push(format!(
            "dropped {} of {opened} spans: it is not known which request ended, because several equal requests or flushes may \
             have been under way, or the end of an earlier one was not seen",
            shortfall.ambiguous
        ));
    }
    if let Some(cpus) = shortfall.cpus_text() {
        lines.push(format!(
            "the kernel delivers no events of {cpus}, so switches to other tasks are missing there: keep these tasks on \
             other CPUs (`taskset`); `perf-prof doctor` checks all CPUs"
        ));
    }
    lines
}

/// Returns the line about spans that were dropped because they were open.
fn dropped_text(lost: u64, opened: u64, stats: &Stats) -> String {
    let was_in_kernel = stats.missed_by_tables() != 0 && stats.missed_by_tables() == stats.total_lost();
    let other = if was_in_kernel { "" } else { ", or when a ring was full" };
    format!("dropped {lost} of {opened} spans: they were open when events were lost{other}")
}

/// Prints, at the end of a run, each selected span that was never delivered, and the conditions that no span met.
pub fn print_unfulfilled(events: &[EventType], stats: &Stats, context: &Context, verbosity: Verbosity) {
    for (at, event) in events.iter().enumerate() {
        let (Format::Span(span), Some(counts)) = (&event.format, stats.span(at)) else { continue };
        if counts.delivered() == 0
            && verbosity >= Verbosity::Normal
            && let Some(why) = unfulfilled(&span.conditions, counts.ended(), context.selects_spans())
        {
            output::say_lost(format_args!("{}: {why}", event.shown_name()));
        }
    }
}

/// Returns the reason why no span was delivered, if the user limited the spans. `ended` is the number of spans that
/// ended. `selects_tasks` is true if spans of all tasks are made and only those of the selected tasks are delivered.
fn unfulfilled(conditions: &str, ended: u64, selects_tasks: bool) -> Option<String> {
    match (conditions, ended, selects_tasks) {
        ("", 0, _) | ("", _, false) => None,
        ("", ended, true) => Some(format!(
            "none of {ended} spans belongs to the selected tasks; the option `open` adds spans that began and have not ended"
        )),
        (conditions, 0, _) => Some(format!("there was no span for `{conditions}`")),
        (conditions, ended, false) => Some(format!("none of {ended} spans fulfils `{conditions}`")),
        (conditions, ended, true) => {
            Some(format!("none of {ended} spans belongs to the selected tasks and fulfils `{conditions}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_spans_names_what_none_fulfilled() {
        let rows = [
            (("", 0, true), ""),
            (("", 5, false), ""),
            (
                ("", 5, true),
                "none of 5 spans belongs to the selected tasks; the option `open` adds spans that began and have not ended",
            ),
            (("name=read", 0, false), "there was no span for `name=read`"),
            (("name=read, min=1s", 7, false), "none of 7 spans fulfils `name=read, min=1s`"),
            (("ret < 0", 7, true), "none of 7 spans belongs to the selected tasks and fulfils `ret < 0`"),
        ];
        for ((conditions, ended, selects_tasks), expected) in rows {
            assert_eq!(unfulfilled(conditions, ended, selects_tasks).unwrap_or_default(), expected);
        }
    }
}
