//! The tasks that ran on each CPU. The time of a wait for a CPU is charged to the tasks that ran meanwhile.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The maximum number of runs that are kept for each CPU. If there were more during a wait, the start of the wait is
/// charged to no task.
const MOST: usize = 4096;

/// The last runs of each CPU.
#[derive(Debug, Default)]
pub(super) struct Runs(FxHashMap<u32, VecDeque<Run>>);

/// A task that ran, until the next one.
#[derive(Debug)]
struct Run {
    start: u64,
    comm: Box<[u8]>,
}

impl Runs {
    /// Notes that a task runs on a CPU from this time on.
    pub fn switch(&mut self, cpu: u32, time: u64, comm: &[u8]) {
        let runs = self.0.entry(cpu).or_default();
        if runs.len() == MOST {
            runs.pop_front();
        }
        runs.push_back(Run { start: time, comm: comm.into() });
    }

    /// Forgets all runs, because events were lost.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the names of the tasks that ran on a CPU between two times, each with its time in ns, the longest first:
    /// `make 1500000, cc1 20000`.
    pub fn between(&self, cpu: u32, begin: u64, end: u64) -> Vec<u8> {
        let mut charged: Vec<(&[u8], u64)> = Vec::new();
        let mut until = end;
        for run in self.0.get(&cpu).into_iter().flatten().rev() {
            let start = run.start.max(begin);
            if start < until {
                match charged.iter_mut().find(|(comm, _)| **comm == *run.comm) {
                    Some((_, time)) => *time += until - start,
                    None => charged.push((&run.comm, until - start)),
                }
                until = start;
            }
            if run.start <= begin {
                break;
            }
        }
        charged.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
        let mut text = Vec::new();
        for (comm, time) in charged {
            let separator: &[u8] = if text.is_empty() { b"" } else { b", " };
            text.extend([separator, comm, format!(" {time}").as_bytes()].concat());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_charged_to_the_tasks_that_ran_meanwhile() {
        let mut runs = Runs::default();
        for (cpu, time, comm) in
            [(0, 100, "a"), (0, 150, "b"), (1, 160, "x"), (0, 200, "a"), (0, 230, "b"), (0, 231, "waiter")]
        {
            runs.switch(cpu, time, comm.as_bytes());
        }
        let between = |cpu, begin, end| String::from_utf8(runs.between(cpu, begin, end)).unwrap();
        assert_eq!(between(0, 100, 231), "a 80, b 51");
        assert_eq!(between(0, 160, 210), "b 40, a 10");
        assert_eq!(between(0, 210, 215), "a 5");
        // The task before the first switch is not known, and neither are the tasks of a CPU without switches.
        assert_eq!((between(0, 20, 120), between(2, 0, 500)), ("a 20".to_owned(), String::new()));
        runs.clear();
        assert_eq!(runs.between(0, 100, 231), b"");
    }

    #[test]
    fn the_runs_of_a_cpu_are_bounded() {
        let mut runs = Runs::default();
        for time in 0..3 * MOST as u64 {
            runs.switch(0, time, b"a");
        }
        assert_eq!(runs.between(0, 0, 3 * MOST as u64), format!("a {MOST}").as_bytes());
    }
}
