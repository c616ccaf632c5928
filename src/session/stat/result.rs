//! Turns the counts of descriptors into the rows that are shown: adds up counts, scales them to the whole time, and
//! computes the mean of several runs. Pure: no I/O.
//!
//! The count of each descriptor is scaled by its own share of the time, and then the counts are summed. The shares
//! differ, because other users may occupy the counters of one CPU only, or count one task only.
//!
//! There is one exception: an event that is opened for a task on one CPU is not scaled. The kernel treats such an event as
//! enabled while the task runs on other CPUs, where the event is never counted.

use std::time::Duration;

use perf_prof_capture::{Count, CounterReading, Excluded};
use perf_prof_format::spec::NamedEvent;
use perf_prof_system::usage::CpuTime;

use super::metric::{self, Metric};

/// An event that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The name that is shown.
    pub name: String,
    /// The `type` of the event's attr.
    pub kind: u32,
    /// The `config` of the event's attr.
    pub config: u64,
    /// The contexts that are excluded from counting, such as the kernel.
    pub excluded: Excluded,
}

/// The unit of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of occurrences.
    Times,
    /// Nanoseconds.
    Nanoseconds,
}

impl Event {
    /// Returns the unit of the event's counts.
    pub fn unit(&self) -> Unit {
        let Event { kind, config, .. } = *self;
        if (NamedEvent { kind, config }).is_clock() { Unit::Nanoseconds } else { Unit::Times }
    }
}

/// The result of counting an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tally {
    /// The machine does not have the event, or does not have it for this target.
    NotSupported,
    /// The event never had a counter, because other events used all of them.
    NotCounted,
    /// The event was counted.
    Counted(Counted),
}

/// The count of an event, and the times during which the event was enabled and had a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// The count, in the unit of the event. If the event did not have a counter all the time, the count is scaled up to
    /// the whole time. If there are several runs, this is the mean of their counts.
    pub value: u64,
    /// The time during which the event was enabled, in nanoseconds, summed over all CPUs and tasks.
    pub enabled: u64,
    /// The part of that time during which the event had a counter, in nanoseconds.
    pub running: u64,
    /// The standard error of the mean, divided by the mean. `None` if there was only one run.
    pub deviation: Option<f64>,
}

impl Tally {
    /// Adds up the counts of an event's descriptors. If there is no descriptor, the event is not supported.
    ///
    /// Each count is scaled separately, because descriptors had counters for different shares of the time. A descriptor
    /// that never had a counter is assumed to have the same rate of events as the other descriptors.
    pub fn sum(counts: impl Iterator<Item = Count>) -> Tally {
        let (mut any, mut seen, mut unseen) = (false, 0u128, 0u128);
        let mut sum = Counted::default();
        let mut value = 0u128;
        for Count { value: own, enabled, running } in counts {
            any = true;
            sum.enabled = sum.enabled.saturating_add(enabled);
            sum.running = sum.running.saturating_add(running);
            match (enabled, running) {
                (1.., 0) => unseen += u128::from(enabled),
                _ => {
                    value += scaled(own.into(), enabled.into(), running.into());
                    seen += u128::from(enabled);
                }
            }
        }
        match (any, seen, unseen) {
            (false, ..) => Tally::NotSupported,
            (true, 0, 1..) => Tally::NotCounted,
            _ => {
                let value = scaled(value, seen + unseen, seen);
                Tally::Counted(Counted { value: u64::try_from(value).unwrap_or(u64::MAX), ..sum })
            }
        }
    }

    /// Returns the mean of several runs. Runs in which the event was not counted are ignored.
    pub fn mean(runs: &[Tally]) -> Tally {
        let counted = runs.iter().filter_map(|tally| match tally {
            Tally::Counted(counted) => Some(counted),
            Tally::NotSupported | Tally::NotCounted => None,
        });
        let counted: Vec<&Counted> = counted.collect();
        match counted[..] {
            [] => runs.first().copied().unwrap_or(Tally::NotSupported),
            [only] => Tally::Counted(*only),
            _ => {
                let Mean { value, deviation } = Mean::of(counted.iter().map(|counted| counted.value as f64));
                let (enabled, running) = counted
                    .iter()
                    .fold((0, 0), |(enabled, running), counted| (enabled + counted.enabled, running + counted.running));
                Tally::Counted(Counted { value: value.round() as u64, enabled, running, deviation })
            }
        }
    }

    /// Returns the count, if the event was counted.
    pub fn value(&self) -> Option<u64> {
        match self {
            Tally::Counted(counted) => Some(counted.value),
            Tally::NotSupported | Tally::NotCounted => None,
        }
    }
}

/// Returns the CPUs that went offline: the CPUs whose events were enabled for less than `elapsed`. The kernel does not
/// enable their events again (`perf_event_exit_cpu()` in kernel/events/core.c). `elapsed` is the time from the start of
/// the counting until just before the readings.
pub fn cpus_cut_off(readings: &[CounterReading], elapsed: Duration) -> Vec<u32> {
    // The descriptors are read one after the other, and the clocks of two CPUs may differ a little.
    const TOLERANCE: Duration = Duration::from_millis(20);
    let least = elapsed.saturating_sub(elapsed / 100 + TOLERANCE).as_nanos();
    let cut_off = readings.iter().filter(|reading| u128::from(reading.count.enabled) < least);
    let mut cpus: Vec<u32> = cut_off.filter_map(|reading| reading.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Scales `value`, which was counted during `part` of the time, to the time `whole`. Rounds the result.
fn scaled(value: u128, whole: u128, part: u128) -> u128 {
    // A count times a time fits in 96 bits for centuries, so there is no overflow. For inconsistent readings, the
    // result saturates.
    if whole == part || part == 0 { value } else { value.saturating_mul(whole).saturating_add(part / 2) / part }
}

/// The mean of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// The standard error of the mean, divided by the mean. `None` if there was only one run.
    pub deviation: Option<f64>,
}

impl Mean {
    /// Returns the mean of `values`, or 0 if there are no values.
    pub fn of(values: impl Iterator<Item = f64>) -> Mean {
        let values: Vec<f64> = values.collect();
        let count = values.len().max(1) as f64;
        let value = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|one| (one - value) * (one - value)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let deviation = (values.len() > 1).then(|| if value == 0.0 { 0.0 } else { error / value });
        Mean { value, deviation }
    }
}

/// The counts of a period of time, as they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<'a> {
    /// What was counted, such as `CPUs 0-3` or the command line.
    pub subject: &'a str,
    /// The period of time: all of it, or an interval.
    pub span: Span,
    /// The length of the period, in seconds.
    pub elapsed: Mean,
    /// The CPU time of the command in user space and in the kernel, in seconds.
    pub cpu_time: Option<(Mean, Mean)>,
    /// The number of runs.
    pub runs: usize,
    /// The counts, in the order of the events. If CPUs are shown separately, the rows of an event are next to each
    /// other.
    pub rows: Vec<Row<'a>>,
}

/// The period of time of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The whole time of counting.
    Whole,
    /// An interval that ended this long after the start of counting.
    Interval(Duration),
}

/// The count of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// The event.
    pub event: &'a Event,
    /// The path of the cgroup, if cgroups are shown separately.
    pub cgroup: Option<&'a str>,
    /// The CPU; `None` for all CPUs together.
    pub cpu: Option<u32>,
    /// The count.
    pub tally: Tally,
    /// The metric that is computed from the count.
    pub metric: Option<Metric>,
}

/// The count of a row in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowTally {
    /// The index of the event.
    pub event: usize,
    /// The index of the cgroup, if cgroups are shown separately.
    pub cgroup: Option<usize>,
    /// The CPU, if CPUs are shown separately.
    pub cpu: Option<u32>,
    /// The count.
    pub tally: Tally,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The target, such as `CPUs 0-3` or the command line.
    pub name: &'a str,
    /// The events.
    pub events: &'a [Event],
    /// The paths of the cgroups, if they are shown separately.
    pub cgroups: &'a [String],
}

/// The counts and times of one run, or of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The count of each row.
    pub tallies: Vec<RowTally>,
    /// How long the run took.
    pub elapsed: Duration,
    /// The CPU time of the command.
    pub cpu_time: Option<CpuTime>,
}

impl<'a> Table<'a> {
    /// Makes the table of several runs. All runs must have counted the same events.
    pub fn from_runs(subject: Subject<'a>, span: Span, runs: &[Run]) -> Table<'a> {
        let seconds = |time: fn(&Run) -> Option<Duration>| -> Mean {
            Mean::of(runs.iter().filter_map(time).map(|time| time.as_secs_f64()))
        };
        let elapsed = seconds(|run| Some(run.elapsed));
        let has_cpu_time = runs.iter().any(|run| run.cpu_time.is_some());
        let cpu_time = has_cpu_time.then(|| {
            (seconds(|run| run.cpu_time.map(|time| time.user)), seconds(|run| run.cpu_time.map(|time| time.system)))
        });
        let mut rows = Vec::new();
        for (at, &RowTally { event, cgroup, cpu, .. }) in
            runs.first().iter().flat_map(|run| run.tallies.iter().enumerate())
        {
            let tallies: Vec<Tally> = runs.iter().filter_map(|run| run.tallies.get(at)).map(|row| row.tally).collect();
            let cgroup = cgroup.and_then(|index| subject.cgroups.get(index)).map(String::as_str);
            rows.push(Row { event: &subject.events[event], cgroup, cpu, tally: Tally::mean(&tallies), metric: None });
        }
        let metrics: Vec<Option<Metric>> =
            rows.iter().map(|row| metric::metric_of_row(row, &rows, elapsed.value)).collect();
        rows.iter_mut().zip(metrics).for_each(|(row, metric)| row.metric = metric);
        Table { subject: subject.name, span, elapsed, cpu_time, runs: runs.len(), rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: u64, enabled: u64, running: u64) -> Count {
        Count { value, enabled, running }
    }

    #[track_caller]
    fn check(counts: &[Count], expected: Option<(u64, u64, u64)>) {
        match Tally::sum(counts.iter().copied()) {
            Tally::Counted(Counted { value, enabled, running, deviation: None }) => {
                assert_eq!(Some((value, enabled, running)), expected);
            }
            tally => assert_eq!((tally, expected), (Tally::NotCounted, None)),
        }
    }

    #[test]
    fn each_cpu_is_scaled_by_its_own_share() {
        check(&[count(10, 100, 100)], Some((10, 100, 100)));
        check(&[count(10, 300, 200)], Some((15, 300, 200)));
        check(&[count(1, 3, 2)], Some((2, 3, 2)));
        // The first CPU is busy and had a counter half of the time. The second CPU is idle and had a counter all the
        // time.
        check(&[count(1000, 100, 50), count(10, 100, 100)], Some((2010, 200, 150)));
        // The second CPU never had a counter, so its count is assumed to be the same as on the first CPU.
        check(&[count(10, 100, 100), count(0, 100, 0)], Some((20, 200, 100)));
        check(&[count(0, 100, 0)], None);
        check(&[count(0, 100, 0), count(0, 0, 0)], None);
        // A descriptor that was never enabled has counted nothing.
        check(&[count(0, 0, 0)], Some((0, 0, 0)));
        check(&[count(10, 100, 100), count(0, 0, 0)], Some((10, 100, 100)));
        // The counts of a whole day on a thousand CPUs do not overflow.
        let day = 86_400_000_000_000u64;
        let most = count(5 * day, day, day / 3);
        check(&vec![most; 1000], Some((15_000 * day, 1000 * day, 1000 * (day / 3))));
        check(&[count(u64::MAX, u64::MAX, 1)], Some((u64::MAX, u64::MAX, 1)));
        assert_eq!(Tally::sum([].into_iter()), Tally::NotSupported);
    }

    #[test]
    fn a_cpu_whose_events_were_enabled_for_less_time_than_passed_went_offline() {
        let second = Duration::from_secs(1);
        let enabled = |cpu, ms: u64| {
            let count = Count { value: 1, enabled: ms * 1_000_000, running: 0 };
            CounterReading { event: 0, cpu, cgroup: None, count }
        };
        let readings = [enabled(Some(0), 1000), enabled(Some(3), 400), enabled(Some(1), 975), enabled(Some(3), 400)];
        assert_eq!(cpus_cut_off(&readings, second), [3]);
        assert_eq!(cpus_cut_off(&readings[..1], 2 * second), [0]);
        // An event of a task is enabled only while the task runs, so it says nothing about its CPU. A short run is not
        // judged.
        assert!(cpus_cut_off(&[enabled(None, 0)], second).is_empty());
        assert!(cpus_cut_off(&[enabled(Some(0), 0)], Duration::from_millis(15)).is_empty());
    }

    #[test]
    fn means_of_runs() {
        let counted = |value| Tally::Counted(Counted { value, enabled: 10, running: 10, deviation: None });
        let Tally::Counted(mean) = Tally::mean(&[counted(90), counted(110), counted(100)]) else { panic!() };
        assert_eq!((mean.value, mean.enabled), (100, 30));
        // The standard deviation is 10, so the standard error of the mean of three is 10 / sqrt(3).
        assert!((mean.deviation.unwrap() - 0.1 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(Tally::mean(&[counted(5)]), counted(5));
        assert_eq!(Tally::mean(&[Tally::NotCounted, counted(5)]), counted(5));
        assert_eq!(Tally::mean(&[Tally::NotSupported; 3]), Tally::NotSupported);
        assert_eq!(Mean::of([0.0, 0.0].into_iter()), Mean { value: 0.0, deviation: Some(0.0) });
        assert_eq!(Mean::of([].into_iter()), Mean::default());
    }
}
