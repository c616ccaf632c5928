//! Messages on stderr about the spans of a run: which spans are missing, and which conditions no span met. A program
//! that uses perf-prof as a library reads the counts instead.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use perf_prof_events::event::{Context, EventType, Format, Shortfall, SpanCounts, Stats};
use perf_prof_format::spec::OpenAtEnd;
use perf_prof_system::output;

use crate::plan::Verbosity;

/// Whether a table on stdout names the tasks whose spans are incomplete.
static ARE_TASKS_NAMED: AtomicBool = AtomicBool::new(false);

/// The text about a hang that is older than the events.
pub const BEGAN_BEFORE: &str = "a call or a wait that began before the first event has no event until it ends; \
                                `cat /proc/PID/stack` shows where a task waits";

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
    let is_incomplete = |span: &SpanCounts| {
        let dropped = span.lost() + span.without_room() + span.replaced();
        let left_out = span.without_task() + span.begun_before() + span.begun_before_events();
        dropped + left_out != 0 || span.incomplete().gaps() != 0
    };
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
    let (begun_before, time) = (sum(SpanCounts::begun_before), sum(SpanCounts::time_before));
    if begun_before != 0 {
        let of = if context.is_recording() { "recording" } else { "run" };
        lines.push(begun_before_text(begun_before, time, of));
    }
    let events = sum(SpanCounts::begun_before_events);
    if events != 0 {
        lines.push(resent_before_text(events, sum(SpanCounts::begun_before_open), context.selects_spans()));
    }
    let Some(shortfall) = Shortfall::of(stats, Some(context)) else { return lines };
    let are_tasks_named = ARE_TASKS_NAMED.load(Relaxed) && output::are_the_same();
    if shortfall.gaps != 0 && !are_tasks_named {
        lines.push(shortfall.spans_text());
    }
    if shortfall.unended != 0 {
        lines.push(format!(
            "{} of {opened} spans began, and their ends were not seen: an end may happen in an interrupt of an idle CPU, and \
             some kernels deliver no events of such interrupts; `perf-prof doctor` checks all CPUs",
            shortfall.unended
        ));
    }
    if shortfall.undecided != 0 {
        lines.push(shortfall.undecided_text());
    }
    if shortfall.without_task != 0 {
        lines.push(format!(
            "{}; without a selection of tasks (-p), a filter selects them: `tcp/sport == PORT/`",
            shortfall.without_task_text()
        ));
    }
    if shortfall.unpaired != 0 {
        lines.push(unpaired_text(shortfall.unpaired));
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
    const OPEN: &str = "spans: they were open ";
    let mut causes = Vec::new();
    if stats.has_holes() {
        causes.push("spans: they were open at the end of a range of --time");
    }
    if stats.was_off() {
        causes.push("spans: they were open when the events were turned off");
    }
    if causes.is_empty() || stats.total_lost() != 0 || stats.is_damaged() {
        causes.push("spans: they were open when events were lost");
        if stats.missed_by_tables() == 0 || stats.missed_by_tables() != stats.total_lost() {
            causes.push("when a ring was full");
        }
    }
    let rest = if stats.has_holes() && causes.len() == 1 { ", and what follows it is not read" } else { "" };
    let other = causes.iter().skip(1).map(|cause| format!(", or {}", cause.trim_start_matches(OPEN)));
    let causes: String = causes.iter().take(1).map(|&cause| cause.to_owned()).chain(other).collect();
    format!("dropped {lost} of {opened} {causes}{rest}")
}

/// Returns the line about spans whose begins or whose ends are missing in a recording.
fn unpaired_text(number: u64) -> String {
    match number {
        1 => {
            "1 span lacks its begin or its end in the recording: it may be damaged, or a filter left it out".to_owned()
        }
        _ => format!(
            "{number} spans lack their begins or their ends in the recording: it may be damaged, or a filter left them out"
        ),
    }
}

/// Returns the line about spans that began before a run or a recording (`of`) and ended in it. `time` is the time in ns that they lasted at
/// least; 0 if it is not known when the recording began.
fn begun_before_text(number: u64, time: u64, of: &str) -> String {
    let what = match number {
        1 => format!("1 span ended that began before the {of}: it is not counted"),
        _ => format!("{number} spans ended that began before the {of}: they are not counted"),
    };
    if time == 0 {
        return what;
    }
    let together = if number == 1 { "" } else { " together" };
    format!("{what}, and lasted at least {}.{:03} ms{together}", time / 1_000_000, time / 1000 % 1000)
}

/// Returns the line about packets that were sent again in connections whose begins were not seen. `selects_tasks` is true if only the
/// spans of some tasks are delivered: it is not known whether these connections are theirs.
fn resent_before_text(packets: u64, connections: u64, selects_tasks: bool) -> String {
    let were = if packets == 1 { "packet was" } else { "packets were" };
    let (of, they) = if connections == 1 { ("connection", "it") } else { ("connections", "they") };
    let tasks = if selects_tasks { ", of any task" } else { "" };
    format!(
        "{packets} {were} sent again in {connections} {of} whose begin was not seen{tasks} ({they} began before, as a rule): \
         `perf-prof top 'tcp:tcp_retransmit_skb/err == 0/' --by saddr_v6,sport,daddr_v6,dport` shows in which"
    )
}

/// Prints, at the end of a run, each selected span that was never delivered, and the conditions that no span met.
pub fn print_unfulfilled(events: &[EventType], stats: &Stats, context: &Context, verbosity: Verbosity) {
    for (at, event) in events.iter().enumerate() {
        let (Format::Span(span), Some(counts)) = (&event.format, stats.span(at)) else { continue };
        if counts.delivered() == 0
            && verbosity >= Verbosity::Normal
            && let Some(why) = unfulfilled(
                &span.conditions,
                [counts.ended(), counts.without_task(), counts.open()],
                context.selects_spans(),
                span.at_end,
            )
        {
            let missing = match counts.incomplete().gaps() {
                0 => String::new(),
                1 => "; 1 span is missing".to_owned(),
                missing => format!("; {missing} spans are missing"),
            };
            output::say_lost(format_args!("{}: {why}{missing}", event.shown_name()));
        }
    }
}

/// Returns the reason why no span was delivered, if the user limited the spans. `ended` is the number of spans that
/// ended, `without_task` the number of those whose task is not known, and `open` the number of spans that had not ended: one of
/// them, such as a call that hangs, may be what the user looks for. `selects_tasks` is true if spans of all tasks are made and only
/// those of the selected tasks are delivered.
fn unfulfilled(
    conditions: &str,
    [ended, without_task, open]: [u64; 3],
    selects_tasks: bool,
    at_end: OpenAtEnd,
) -> Option<String> {
    const OPEN: &str = "; the option `open` adds spans that began and have not ended";
    let may_be_open = if open != 0 && without_task == 0 && at_end == OpenAtEnd::Counted { OPEN } else { "" };
    match (conditions, ended, selects_tasks) {
        ("", 0, _) | ("", _, false) => None,
        ("", ended, true) => {
            // Spans whose task is not known may be what the user looks for. The option `open` does not add them.
            let hint = match (without_task, at_end) {
                (0, OpenAtEnd::Counted) => OPEN.to_owned(),
                (0, OpenAtEnd::Delivered) => format!("; {BEGAN_BEFORE}"),
                _ => ", as far as their tasks are known".to_owned(),
            };
            Some(format!("none of {ended} spans belongs to the selected tasks{hint}"))
        }
        (conditions, 0, _) => Some(format!("there was no span for `{conditions}`{may_be_open}")),
        (conditions, ended, false) => Some(format!("none of {ended} spans fulfils `{conditions}`{may_be_open}")),
        (conditions, ended, true) => {
            Some(format!("none of {ended} spans belongs to the selected tasks and fulfils `{conditions}`{may_be_open}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_spans_without_a_begin_agree_in_number_and_leave_an_unknown_time_out() {
        let before = |number, time| begun_before_text(number, time, "recording");
        let lines =
            [before(1, 0), before(2, 0), before(2, 1_234_567), begun_before_text(2, 0, "run"), unpaired_text(1)];
        let expected = [
            "1 span ended that began before the recording: it is not counted",
            "2 spans ended that began before the recording: they are not counted",
            "2 spans ended that began before the recording: they are not counted, and lasted at least 1.234 ms together",
            "2 spans ended that began before the run: they are not counted",
            "1 span lacks its begin or its end in the recording: it may be damaged, or a filter left it out",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_line_about_packets_that_were_sent_again_agrees_in_number() {
        let shown =
            " `perf-prof top 'tcp:tcp_retransmit_skb/err == 0/' --by saddr_v6,sport,daddr_v6,dport` shows in which";
        let rows = [
            (
                [1, 1],
                false,
                "1 packet was sent again in 1 connection whose begin was not seen (it began before, as a rule):",
            ),
            (
                [24, 4],
                true,
                "24 packets were sent again in 4 connections whose begin was not seen, of any task (they began before, as a rule):",
            ),
        ];
        for ([packets, connections], selects_tasks, expected) in rows {
            assert_eq!(resent_before_text(packets, connections, selects_tasks), format!("{expected}{shown}"));
        }
    }

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
            let text = unfulfilled(conditions, [ended, 0, 0], selects_tasks, OpenAtEnd::Counted);
            assert_eq!(text.unwrap_or_default(), expected);
        }
        // Who gave `open` is not told to give it.
        let text = |of, at_end| unfulfilled("", of, true, at_end).unwrap();
        let delivered = text([5, 0, 0], OpenAtEnd::Delivered);
        assert_eq!(delivered, format!("none of 5 spans belongs to the selected tasks; {BEGAN_BEFORE}"));
        // The option `open` does not add spans whose task is not known.
        for at_end in [OpenAtEnd::Counted, OpenAtEnd::Delivered] {
            let expected = "none of 5 spans belongs to the selected tasks, as far as their tasks are known";
            assert_eq!(text([5, 2, 0], at_end), expected);
        }
    }

    #[test]
    fn who_looks_for_calls_that_hang_is_told_of_the_option_open() {
        let hint = "; the option `open` adds spans that began and have not ended";
        let text = |of, at_end| unfulfilled("min=1s", of, false, at_end).unwrap();
        assert_eq!(text([7, 0, 2], OpenAtEnd::Counted), format!("none of 7 spans fulfils `min=1s`{hint}"));
        assert_eq!(text([0, 0, 2], OpenAtEnd::Counted), format!("there was no span for `min=1s`{hint}"));
        for (of, at_end) in
            [([7, 0, 0], OpenAtEnd::Counted), ([7, 0, 2], OpenAtEnd::Delivered), ([7, 1, 2], OpenAtEnd::Counted)]
        {
            assert_eq!(text(of, at_end), "none of 7 spans fulfils `min=1s`");
        }
    }
}
