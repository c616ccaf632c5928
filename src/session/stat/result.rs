//! From what descriptors counted to what is shown: sums, the share of time there was a counter, means of runs. Pure.

use std::time::Duration;

use super::metric::{self, Metric};
use crate::{
    abi::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE},
    capture::{Count, Excluded},
    sys::usage::CpuTime,
};

/// An event that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What it is called.
    pub name: String,
    /// `type` of its attr.
    pub kind: u32,
    /// `config` of its attr.
    pub config: u64,
    /// Where it does not count.
    pub excluded: Excluded,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How often it happened.
    Times,
    /// Nanoseconds.
    Nanoseconds,
}

impl Event {
    /// What its counts are in.
    pub fn unit(&self) -> Unit {
        let clocks = [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK];
        let is_clock = self.kind == PERF_TYPE_SOFTWARE && clocks.contains(&self.config);
        if is_clock { Unit::Nanoseconds } else { Unit::Times }
    }
}

/// What became of counting an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tally {
    /// The machine does not have it, or not for this target.
    NotSupported,
    /// There never was a counter for it.
    NotCounted,
    /// It was counted.
    Counted(Counted),
}

/// What was counted of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// How often, or how much: where there was not always a counter, as if there had been. Of several runs their mean.
    pub value: u64,
    /// How long it was to be counted, in nanoseconds, of all CPUs and tasks together.
    pub enabled: u64,
    /// How long of that there was a counter for it.
    pub running: u64,
    /// Of several runs, the standard error of the mean as a share of it.
    pub deviation: Option<f64>,
}

impl Tally {
    /// Sums up what descriptors of an event counted, none where there are none.
    ///
    /// CPUs and tasks differ, so each is scaled by the share of its own time that it had a counter for. What had none at
    /// all is taken for as busy as the others.
    pub fn of(counts: impl Iterator<Item = Count>) -> Tally {
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

    /// The mean of several runs. What was not counted in some of them is that of the others.
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

    /// The count.
    pub fn value(&self) -> Option<u64> {
        match self {
            Tally::Counted(counted) => Some(counted.value),
            Tally::NotSupported | Tally::NotCounted => None,
        }
    }
}

/// `value`, that was counted in `part` of the time `whole`; rounded.
fn scaled(value: u128, whole: u128, part: u128) -> u128 {
    // With 96 bits for the product of a count and a time there is no overflow in centuries; a torn reading saturates.
    if whole == part || part == 0 { value } else { value.saturating_mul(whole).saturating_add(part / 2) / part }
}

/// The mean of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Of several runs, the standard error of the mean as a share of it.
    pub deviation: Option<f64>,
}

impl Mean {
    /// The mean of these; 0 of none.
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

/// What was counted in some time, for whoever shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<'a> {
    /// What was counted, for people.
    pub subject: &'a str,
    /// Which time it is of.
    pub span: Span,
    /// How long that was, in seconds.
    pub elapsed: Mean,
    /// CPU time of the command, in seconds: in programs, in the kernel.
    pub cpu_time: Option<(Mean, Mean)>,
    /// How many runs there were.
    pub runs: usize,
    /// The counts, all CPUs of an event in a row.
    pub rows: Vec<Row<'a>>,
}

/// Which time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All of it.
    Whole,
    /// An interval that ended so long after the beginning.
    Interval(Duration),
}

/// The count of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// Which event.
    pub event: &'a Event,
    /// On which CPU; `None` for all.
    pub cpu: Option<u32>,
    /// Its count.
    pub tally: Tally,
    /// What it means.
    pub metric: Option<Metric>,
}

/// What one run was.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Event, CPU where they are counted apart, and count: the rows.
    pub tallies: Vec<(usize, Option<u32>, Tally)>,
    /// How long it took.
    pub elapsed: Duration,
    /// CPU time of the command.
    pub cpu_time: Option<CpuTime>,
}

impl<'a> Table<'a> {
    /// The table of runs, which all have counted the same.
    pub fn of(subject: &'a str, events: &'a [Event], span: Span, runs: &[Run]) -> Table<'a> {
        let seconds = |time: fn(&Run) -> Option<Duration>| -> Mean {
            Mean::of(runs.iter().filter_map(time).map(|time| time.as_secs_f64()))
        };
        let elapsed = seconds(|run| Some(run.elapsed));
        let has_cpu_time = runs.iter().any(|run| run.cpu_time.is_some());
        let cpu_time = has_cpu_time.then(|| {
            (seconds(|run| run.cpu_time.map(|time| time.user)), seconds(|run| run.cpu_time.map(|time| time.system)))
        });
        let mut rows = Vec::new();
        for (at, &(event, cpu, _)) in runs.first().iter().flat_map(|run| run.tallies.iter().enumerate()) {
            let tallies: Vec<Tally> =
                runs.iter().filter_map(|run| run.tallies.get(at)).map(|&(_, _, tally)| tally).collect();
            rows.push(Row { event: &events[event], cpu, tally: Tally::mean(&tallies), metric: None });
        }
        let metrics: Vec<Option<Metric>> = rows.iter().map(|row| metric::of(row, &rows, elapsed.value)).collect();
        rows.iter_mut().zip(metrics).for_each(|(row, metric)| row.metric = metric);
        Table { subject, span, elapsed, cpu_time, runs: runs.len(), rows }
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
        match Tally::of(counts.iter().copied()) {
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
        // The busy CPU had its counter in half of the time, the idle one always.
        check(&[count(1000, 100, 50), count(10, 100, 100)], Some((2010, 200, 150)));
        // One had none at all: it is taken for as busy as the other.
        check(&[count(10, 100, 100), count(0, 100, 0)], Some((20, 200, 100)));
        check(&[count(0, 100, 0)], None);
        check(&[count(0, 100, 0), count(0, 0, 0)], None);
        // What never ran has done nothing.
        check(&[count(0, 0, 0)], Some((0, 0, 0)));
        check(&[count(10, 100, 100), count(0, 0, 0)], Some((10, 100, 100)));
        // No count of a day on a thousand CPUs is too large.
        let day = 86_400_000_000_000u64;
        let most = count(5 * day, day, day / 3);
        check(&vec![most; 1000], Some((15_000 * day, 1000 * day, 1000 * (day / 3))));
        check(&[count(u64::MAX, u64::MAX, 1)], Some((u64::MAX, u64::MAX, 1)));
        assert_eq!(Tally::of([].into_iter()), Tally::NotSupported);
    }

    #[test]
    fn means_of_runs() {
        let counted = |value| Tally::Counted(Counted { value, enabled: 10, running: 10, deviation: None });
        let Tally::Counted(mean) = Tally::mean(&[counted(90), counted(110), counted(100)]) else { panic!() };
        assert_eq!((mean.value, mean.enabled), (100, 30));
        // The standard deviation is 10, that of the mean of three is 10 / sqrt(3).
        assert!((mean.deviation.unwrap() - 0.1 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(Tally::mean(&[counted(5)]), counted(5));
        assert_eq!(Tally::mean(&[Tally::NotCounted, counted(5)]), counted(5));
        assert_eq!(Tally::mean(&[Tally::NotSupported; 3]), Tally::NotSupported);
        assert_eq!(Mean::of([0.0, 0.0].into_iter()), Mean { value: 0.0, deviation: Some(0.0) });
        assert_eq!(Mean::of([].into_iter()), Mean::default());
    }
}
