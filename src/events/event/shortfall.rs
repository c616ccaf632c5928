//! Reports what is missing in the events and spans of a run: how much, of which tasks, and why.

use std::cmp::Reverse;

use perf_prof_system::output::counted;
use rustc_hash::FxHashMap;

use super::{Context, Incomplete, SpanCounts, Stats, TaskGaps};

/// The maximum number of tasks that a text names. Of other tasks, the text says only how many there are.
const NAMED: usize = 3;

/// The text about spans that left no trace, because their begins and their ends were lost.
const UNKNOWN_SPANS: &str =
    ", and those that began and ended while events were lost: how many, and for how long, is not known";

/// What is missing in the events and spans of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The number of events that were lost.
    pub lost: u64,
    /// How many of the lost events BPF programs missed. Some of them may not be selected.
    pub missed: u64,
    /// Whether some of the lost events may not be in the part of the recording that is read.
    pub of_part: bool,
    /// The number of samples whose event is unknown.
    pub unattributed: u64,
    /// How often the kernel throttled sampling.
    pub throttled: u64,
    /// Whether the recording is damaged or truncated. The number of missing events is then unknown.
    pub damaged: bool,
    /// A table in the kernel could not be read at the end, so the number of missing events is unknown.
    pub unread: bool,
    /// The recording lacks the events of other tasks, which a source needs, so the number of missing spans is unknown.
    pub of_some_tasks: bool,
    /// The recording lacks events, because they did not pass a filter when they were recorded, or because they were sampled.
    pub filtered: bool,
    /// The number of scheduler events that were not delivered, although no loss was reported.
    pub unseen: u64,
    /// The number of spans, of all tasks, whose end was not seen, although no loss was reported.
    pub unended: u64,
    /// The number of spans, of all tasks, whose end cannot be distinguished from the end of another span.
    pub ambiguous: u64,
    /// The number of spans, of the selected tasks, that were left out because the filter reads a path that is not known.
    pub undecided: u64,
    /// The number of spans that were left out because tasks are selected, and the task of these spans is not known.
    pub without_task: u64,
    /// The number of spans that were dropped because memory was short.
    pub without_room: u64,
    /// The number of spans, of the selected tasks, whose begins or whose ends are missing in the recording.
    pub unpaired: u64,
    /// The number of spans that are counted although they had not ended. They lasted longer.
    pub unfinished: u64,
    /// The number of gaps of the selected tasks. A gap is an event that was not delivered, or a dropped span. Spans that
    /// were dropped because memory was short are not gaps.
    pub gaps: u64,
    /// The maximum total duration, in ns, of spans that were dropped because events were lost.
    pub missing: u64,
    /// The tasks with missing spans, those with the most missing time or gaps first.
    pub tasks: Vec<IncompleteTask>,
    /// The CPUs that delivered no event of their idle task.
    pub cpus_without_idle_events: Vec<u32>,
}

/// A task with missing spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteTask {
    /// Its thread id.
    pub tid: i32,
    /// Its name; empty if it is unknown.
    pub comm: String,
    /// The number of its gaps: dropped spans, and events that were not delivered.
    pub gaps: u64,
    /// The maximum total duration, in ns, of its spans that were dropped because events were lost.
    pub missing: u64,
}

impl Shortfall {
    /// Returns what is missing so far in events and spans; `None` if nothing is. `context` knows the names of tasks.
    pub fn of(stats: &Stats, context: Option<&Context>) -> Option<Shortfall> {
        let mut all = Incomplete::default();
        stats.spans().iter().for_each(|span| all.add_all(&span.gaps_so_far()));
        let overdue: u64 = stats.spans().iter().map(|span| span.overdue().gaps()).sum();
        let sum = |number: fn(&SpanCounts) -> u64| stats.spans().iter().map(|span| number(span)).sum();
        let (without_room, undecided) = (sum(SpanCounts::without_room), sum(SpanCounts::undecided));
        let without_task = sum(SpanCounts::without_task);
        let of_events = Shortfall::of_events(stats);
        if of_events.is_none() && (without_room, undecided, without_task, all.gaps()) == (0, 0, 0, 0) {
            return None;
        }
        Some(Shortfall {
            unseen: sum(SpanCounts::unseen),
            unended: sum(SpanCounts::unended) + overdue,
            ambiguous: sum(SpanCounts::ambiguous),
            undecided,
            without_task,
            unpaired: sum(SpanCounts::unpaired),
            without_room,
            gaps: all.gaps(),
            missing: all.missing(),
            tasks: IncompleteTask::list(&all, context),
            cpus_without_idle_events: all.cpus_without_idle_events(),
            ..of_events.unwrap_or_default()
        })
    }

    /// Like [`Shortfall::of`], for sums of durations: what had not ended lasted longer.
    pub fn of_sums(stats: &Stats, context: Option<&Context>) -> Option<Shortfall> {
        let (unfinished, missing) =
            (stats.spans().iter().map(|span| span.unfinished()).sum(), Self::of(stats, context));
        if unfinished == 0 { missing } else { Some(Shortfall { unfinished, ..missing.unwrap_or_default() }) }
    }

    /// Returns what is missing so far in events; `None` if nothing is.
    pub fn of_events(stats: &Stats) -> Option<Shortfall> {
        let (lost, unattributed, throttled) = (stats.total_lost(), stats.total_unattributed(), stats.total_throttled());
        let (missed, damaged, unread) = (stats.total_missed_in_kernel(), stats.is_damaged(), stats.has_unread());
        let of_part = stats.is_of_part();
        let (of_some_tasks, filtered) = (stats.is_of_some_tasks(), stats.is_filtered());
        let is_complete = (lost, unattributed, throttled) == (0, 0, 0) && !stats.lacks_events();
        let of_events = Shortfall { lost, missed, of_part, unattributed, throttled, ..Shortfall::default() };
        (!is_complete).then_some(Shortfall { damaged, unread, of_some_tasks, filtered, ..of_events })
    }

    /// Returns what is missing since `then`; `None` if nothing is. If the recording is damaged or lacks tasks, records may be
    /// missing at any time, so they count as missing since `then` too.
    pub fn since(&self, then: &Shortfall) -> Option<Shortfall> {
        // Saturate: the kernel's counts replace the counts in records, and may be lower.
        let more = |of: fn(&Shortfall) -> u64| of(self).saturating_sub(of(then));
        let since = Shortfall {
            lost: more(|of| of.lost),
            missed: more(|of| of.missed),
            of_part: self.of_part,
            unattributed: more(|of| of.unattributed),
            throttled: more(|of| of.throttled),
            damaged: self.damaged,
            unread: self.unread,
            of_some_tasks: self.of_some_tasks,
            filtered: self.filtered,
            unseen: more(|of| of.unseen),
            unended: more(|of| of.unended),
            ambiguous: more(|of| of.ambiguous),
            undecided: more(|of| of.undecided),
            without_task: more(|of| of.without_task),
            without_room: more(|of| of.without_room),
            unpaired: more(|of| of.unpaired),
            unfinished: more(|of| of.unfinished),
            gaps: more(|of| of.gaps),
            missing: more(|of| of.missing),
            tasks: IncompleteTask::since(&self.tasks, &then.tasks),
            cpus_without_idle_events: self.cpus_without_idle_events.clone(),
        };
        let counts = [
            since.lost,
            since.unattributed,
            since.throttled,
            since.without_room,
            since.gaps,
            since.unfinished,
            since.undecided,
            since.without_task,
        ];
        let is_unknown = since.damaged || since.unread || since.of_some_tasks || since.filtered;
        (is_unknown || counts.iter().any(|&count| count != 0)).then_some(since)
    }

    /// Returns a text of the tasks with the most missing time or gaps, and the number of other tasks: `spans are missing: 40
    /// of make/12 (at most 7.250 ms in all), 3 of cc1/17, 20 of 12 others`. Where events were lost, there may be spans that
    /// left no trace, so the numbers and times are not those of all missing spans.
    pub fn spans_text(&self) -> String {
        let named = self.tasks.iter().take(NAMED);
        let mut text: Vec<String> = named.clone().map(IncompleteTask::text).collect();
        let rest = self.gaps.saturating_sub(named.clone().map(|task| task.gaps).sum());
        if rest != 0 {
            let others = self.tasks.len().saturating_sub(NAMED);
            let missing = self.missing.saturating_sub(named.map(|task| task.missing).sum());
            text.push(format!("{rest} of {others} others{}", at_most(missing)));
        }
        let are_all = self.lost == 0 && !self.damaged && !self.unread;
        let rest = if are_all { "" } else { UNKNOWN_SPANS };
        format!("spans are missing: {}{rest}", text.join(", "))
    }

    /// Returns a text of the calls that a filter could not decide on.
    pub fn undecided_text(&self) -> String {
        let what = counted(self.undecided, "call has a path that is not known", "calls have a path that is not known");
        format!("{what}, so the filter left out what it may select")
    }

    /// Returns a text of the spans whose task is not known.
    pub fn without_task_text(&self) -> String {
        counted(
            self.without_task,
            "span whose task is not known is left out",
            "spans whose task is not known are left out",
        )
    }

    /// Returns a text of the CPUs that delivered no event of their idle task: `the idle tasks of CPUs 1,3`. `None` if there
    /// are none.
    pub fn cpus_text(&self) -> Option<String> {
        let cpus: Vec<String> = self.cpus_without_idle_events.iter().map(u32::to_string).collect();
        match cpus.as_slice() {
            [] => None,
            [cpu] => Some(format!("the idle task of CPU {cpu}")),
            cpus => Some(format!("the idle tasks of CPUs {}", cpus.join(","))),
        }
    }

    /// Returns the maximum total duration, in ns, of the missing spans; `None` if it is not known of any of them.
    pub fn missing_time(&self) -> Option<u64> {
        let counts = [self.lost, self.unattributed, self.without_room, self.gaps];
        let is_unknown = self.damaged || self.unread || self.of_some_tasks || self.filtered;
        let are_missing = is_unknown || counts.iter().any(|&count| count != 0);
        (self.missing != 0 || !are_missing).then_some(self.missing)
    }

    /// Returns the note below a table whose numbers are too low.
    pub fn note(&self) -> String {
        format!("(at least: {})", self.reasons())
    }

    /// Returns why the numbers of a table may be too low.
    pub fn reasons(&self) -> String {
        let mut reasons = Vec::new();
        if self.lost != 0 {
            let up_to = if self.missed != 0 || self.of_part { "up to " } else { "" };
            reasons.push(format!("{up_to}{}", counted(self.lost, "event was lost", "events were lost")));
        }
        if self.unattributed != 0 {
            reasons.push(counted(self.unattributed, "event was not delivered", "events were not delivered"));
        }
        if self.throttled != 0 {
            reasons.push(format!("the kernel throttled sampling {}", counted(self.throttled, "time", "times")));
        }
        if self.damaged {
            reasons.push("a part of the recording cannot be read".to_owned());
        }
        if self.unread {
            reasons.push("a table in the kernel cannot be read".to_owned());
        }
        if self.of_some_tasks {
            reasons.push("the events of other tasks were not recorded".to_owned());
        }
        if self.filtered {
            reasons.push("events that did not pass a filter, or were not sampled, were not recorded".to_owned());
        }
        if self.without_room != 0 {
            reasons.push(counted(
                self.without_room,
                "span was dropped, because `max-open` or --buffer allowed no more",
                "spans were dropped, because `max-open` or --buffer allowed no more",
            ));
        }
        if self.gaps != 0 {
            reasons.push(self.spans_text());
        }
        if self.unended != 0 {
            reasons.push(counted(
                self.unended,
                "span began, and its end was not seen",
                "spans began, and their ends were not seen",
            ));
        }
        if self.unpaired != 0 {
            reasons.push(counted(
                self.unpaired,
                "span lacks its begin or its end in the recording",
                "spans lack their begins or their ends in the recording",
            ));
        }
        if self.unfinished != 0 {
            reasons.push(counted(
                self.unfinished,
                "span had not ended at the end, and lasts longer",
                "spans had not ended at the end, and last longer",
            ));
        }
        if self.ambiguous != 0 {
            reasons.push(counted(
                self.ambiguous,
                "span has an end that cannot be distinguished from the end of another span",
                "spans have ends that cannot be distinguished from the ends of other spans",
            ));
        }
        reasons.extend((self.undecided != 0).then(|| self.undecided_text()));
        reasons.extend((self.without_task != 0).then(|| self.without_task_text()));
        if let Some(cpus) = self.cpus_text() {
            reasons.push(format!("the kernel delivers no events of {cpus}"));
        }
        reasons.join("; ")
    }
}

impl IncompleteTask {
    /// Returns the tasks with missing spans and their names, those with the most missing time or gaps first.
    pub fn list(incomplete: &Incomplete, context: Option<&Context>) -> Vec<IncompleteTask> {
        let task = |(tid, gaps): (i32, TaskGaps)| {
            let comm = gaps.name.get().or_else(|| context?.comm(tid, gaps.time)).unwrap_or_default();
            let comm = String::from_utf8_lossy(&comm).into_owned();
            IncompleteTask { tid, comm, gaps: gaps.count, missing: gaps.missing }
        };
        incomplete.tasks().into_iter().map(task).collect()
    }

    /// Returns the gaps that came since `then`, for each task.
    fn since(now: &[IncompleteTask], then: &[IncompleteTask]) -> Vec<IncompleteTask> {
        let then: FxHashMap<i32, &IncompleteTask> = then.iter().map(|task| (task.tid, task)).collect();
        let more = |task: &IncompleteTask| {
            let (gaps, missing) = then.get(&task.tid).map_or((0, 0), |then| (then.gaps, then.missing));
            let (gaps, missing) = (task.gaps.saturating_sub(gaps), task.missing.saturating_sub(missing));
            ((gaps, missing) != (0, 0)).then(|| IncompleteTask { gaps, missing, ..task.clone() })
        };
        let mut tasks: Vec<IncompleteTask> = now.iter().filter_map(more).collect();
        tasks.sort_by_key(|task| Reverse((task.missing, task.gaps)));
        tasks
    }

    fn text(&self) -> String {
        let IncompleteTask { tid, comm, gaps, missing } = self;
        let task = match (&**comm, tid) {
            (_, -1) => "tasks that are not known".to_owned(),
            ("", tid) => tid.to_string(),
            (comm, tid) => format!("{comm}/{tid}"),
        };
        format!("{gaps} of {task}{}", at_most(*missing))
    }
}

/// Returns the maximum missing time in parentheses; empty if no time is missing.
fn at_most(missing: u64) -> String {
    match missing {
        0 => String::new(),
        ns => format!(" (at most {}.{:03} ms in all)", ns / 1_000_000, ns / 1000 % 1000),
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{record::LossCounts, tracefs::NoKernel};

    use super::*;
    use crate::event::IdleEvents;

    fn context() -> Context {
        let context = Context::new(Box::new(NoKernel), 0);
        context.with_tasks(|tasks| tasks.named_before_run(1 << 30, b"napper"));
        context
    }

    #[test]
    fn complete_spans_have_no_shortfall() {
        let stats = Stats::new(3, 1).with_spans(1);
        stats.spans()[0].add_opened(5);
        // Nothing is missing if only tasks that are not selected lack spans.
        stats.spans()[0].add_unseen(5);
        assert_eq!(Shortfall::of(&stats, Some(&context())), None);
    }

    #[test]
    fn events_that_were_lost_or_not_delivered_are_missing_without_spans_too() {
        let stats = Stats::new(1, 1);
        assert_eq!(Shortfall::of_events(&stats), None);
        stats.count_lost(0, 7);
        let note = |stats: &Stats| Shortfall::of_events(stats).unwrap().note();
        assert_eq!(note(&stats), "(at least: 7 events were lost)");
        assert_eq!(Shortfall::of(&stats, None), Shortfall::of_events(&stats));
        (0..2).for_each(|_| stats.count_throttled());
        stats.count_unattributed();
        let all = "(at least: 7 events were lost; 1 event was not delivered; the kernel throttled sampling 2 times)";
        assert_eq!(note(&stats), all);
    }

    #[test]
    fn events_that_programs_missed_may_not_be_selected() {
        let stats = Stats::new(2, 1);
        stats.count_lost(0, 7);
        let then = Shortfall::of_events(&stats).unwrap();
        stats.set_missed_in_kernel(1, 2);
        let now = Shortfall::of_events(&stats).unwrap();
        assert_eq!(now.note(), "(at least: up to 9 events were lost)");
        assert_eq!(now.since(&then).unwrap().note(), "(at least: up to 2 events were lost)");
        stats.count_lost(0, 1);
        assert_eq!(Shortfall::of_events(&stats).unwrap().since(&now).unwrap().note(), "(at least: 1 event was lost)");
    }

    #[test]
    fn the_missing_time_is_unknown_where_nothing_shows_it() {
        let shortfall = |lost, missing| Shortfall { lost, missing, ..Shortfall::default() };
        assert_eq!(
            [(0, 0), (7, 0), (7, 5)].map(|(lost, missing)| shortfall(lost, missing).missing_time()),
            [Some(0), None, Some(5)]
        );
        assert_eq!(Shortfall { filtered: true, ..Shortfall::default() }.missing_time(), None);
    }

    #[test]
    fn events_of_a_damaged_recording_are_missing_whichever_reader_finds_the_damage() {
        let part = Stats::new(1, 1);
        part.note_damage();
        part.note_damage();
        let whole = Stats::new(1, 1);
        assert_eq!(Shortfall::of(&whole, None), None);
        (0..2).for_each(|_| whole.add(&part.counts()));
        let note = Shortfall::of(&whole, None).unwrap().note();
        assert_eq!(note, "(at least: a part of the recording cannot be read)");
    }

    #[test]
    fn what_was_missing_before_is_not_missing_since_then() {
        let stats = Stats::new(1, 1).with_spans(1);
        let now = || Shortfall::of(&stats, None).unwrap();
        let lack = |task: i32, missing: u64| {
            stats.spans()[0].incomplete().add(task, 5);
            stats.spans()[0].incomplete().add_time(task, missing);
        };
        stats.count_lost(0, 7);
        [(-1, 9_000_000), (-2, 8_000_000)].into_iter().for_each(|(task, missing)| lack(task, missing));
        let then = now();
        assert_eq!((then.since(&Shortfall::default()), then.since(&then)), (Some(then.clone()), None));
        stats.count_lost(0, 3);
        [(-2, 1_000_000), (-3, 2_000_000)].into_iter().for_each(|(task, missing)| lack(task, missing));
        let since = now().since(&then).unwrap();
        let note = "(at least: 3 events were lost; spans are missing: 1 of -3 (at most 2.000 ms in all), 1 of -2 (at \
                     most 1.000 ms in all), and those that began and ended while events were lost: how many, and for \
                     how long, is not known)";
        assert_eq!((since.note().as_str(), since.gaps, since.missing), (note, 2, 3_000_000));
        // The kernel's counts are lower than those in records.
        stats.set_kernel_counts(Some(LossCounts { per_event: vec![4], ..LossCounts::default() }));
        assert_eq!(now().since(&then).unwrap().lost, 0);
        // It is unknown at which time records are missing.
        stats.note_damage();
        let damaged = now();
        assert!(damaged.since(&damaged).unwrap().damaged);
    }

    #[test]
    fn the_longest_times_of_dropped_spans_are_named_with_their_tasks() {
        let stats = Stats::new(4, 1).with_spans(1);
        let times = [(-1, 1_500_000), (-2, 70_000_000), (-3, 2000), (-4, 1000), (-5, 3000)];
        for (task, missing) in times {
            stats.spans()[0].incomplete().add(task, 5);
            stats.spans()[0].incomplete().add_time(task, missing);
        }
        let shortfall = Shortfall::of(&stats, None).unwrap();
        let text = "spans are missing: 1 of -2 (at most 70.000 ms in all), 1 of tasks that are not known (at most 1.500 ms in all), 1 of \
                    -5 (at most 0.003 ms in all), 2 of 2 others (at most 0.003 ms in all)";
        assert_eq!((shortfall.spans_text().as_str(), shortfall.missing), (text, 71_506_000));
    }

    #[test]
    fn the_largest_gaps_are_named_and_the_others_are_counted() {
        let stats = Stats::new(4, 1).with_spans(2);
        // No task of this machine has a negative id, so those tasks have no names.
        let tasks = [-1, -1, -1, 1 << 30, 1 << 30, -2, -2, -5, -6];
        tasks.into_iter().for_each(|tid| stats.spans()[0].incomplete().add(tid, 5));
        (0..4).for_each(|_| stats.spans()[1].incomplete().add(1 << 30, 9));
        (0..9).for_each(|_| stats.spans()[1].incomplete().add_idle(1, IdleEvents::Missing));
        let shortfall = Shortfall::of(&stats, Some(&context())).unwrap();
        let text = "spans are missing: 6 of napper/1073741824, 3 of tasks that are not known, 2 of -2, 2 of 2 others";
        assert_eq!(shortfall.spans_text(), text);
        let note = "(at least: spans are missing: 6 of napper/1073741824, 3 of tasks that are not known, 2 of -2, 2 of 2 others; the \
                    kernel delivers no events of the idle task of CPU 1)";
        assert_eq!(shortfall.note(), note);
        let lost = LossCounts { per_event: vec![3, 4], ..LossCounts::default() };
        stats.set_kernel_counts(Some(lost));
        assert!(
            Shortfall::of(&stats, Some(&context()))
                .unwrap()
                .note()
                .starts_with("(at least: 7 events were lost; spans are")
        );
    }
}
