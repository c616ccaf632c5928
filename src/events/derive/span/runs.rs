//! The tasks that ran on each CPU. A wait for a CPU is charged to the tasks that ran during the wait.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::event::Ran;

/// The maximum number of remembered runs of a CPU. If more tasks ran during a wait, the first part of the wait is charged to
/// no task.
const MOST: usize = 4096;

/// The maximum number of remembered runs of all CPUs together. A recording may name any number of CPUs. At this number, all
/// runs are forgotten.
const MOST_OF_ALL: usize = 1 << 20;

/// The maximum size of a task's name, in bytes. Names of the kernel have 16 (TASK_COMM_LEN), but a recording may claim more.
const COMM: usize = 64;

/// The last runs of each CPU.
#[derive(Debug, Default)]
pub(super) struct Runs {
    of_cpus: FxHashMap<u32, VecDeque<Run>>,
    len: usize,
}

/// A task that runs from `start` until the next run on the CPU starts.
#[derive(Debug)]
struct Run {
    start: u64,
    comm: Box<[u8]>,
    tid: i64,
}

impl Runs {
    /// Notes that a task starts to run on a CPU.
    pub fn switch(&mut self, cpu: u32, time: u64, comm: &[u8], tid: i64) {
        if self.len == MOST_OF_ALL {
            self.clear();
        }
        let runs = self.of_cpus.entry(cpu).or_default();
        if runs.len() == MOST {
            runs.pop_front();
            self.len -= 1;
        }
        runs.push_back(Run { start: time, comm: comm[..comm.len().min(COMM)].into(), tid });
        self.len += 1;
    }

    /// Forgets all runs, because events were lost.
    pub fn clear(&mut self) {
        *self = Runs::default();
    }

    /// Returns the threads that ran on a CPU between two times, the longest time first.
    pub fn between(&self, cpu: u32, begin: u64, end: u64) -> Vec<Ran> {
        let mut charged: Vec<Ran> = Vec::new();
        let mut until = end;
        for run in self.of_cpus.get(&cpu).into_iter().flatten().rev() {
            let start = run.start.max(begin);
            if start < until {
                let time = until - start;
                match charged.iter_mut().find(|ran| (&ran.comm, ran.tid) == (&run.comm, run.tid)) {
                    Some(ran) => ran.time += time,
                    None => charged.push(Ran { comm: run.comm.clone(), tid: run.tid, time }),
                }
                until = start;
            }
            if run.start <= begin {
                break;
            }
        }
        charged.sort_by_key(|ran| std::cmp::Reverse(ran.time));
        charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ran: &[Ran]) -> String {
        let texts = ran.iter().map(|ran| format!("{} {} {}", String::from_utf8_lossy(&ran.comm), ran.tid, ran.time));
        texts.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_wait_is_charged_to_the_tasks_that_ran_meanwhile() {
        let mut runs = Runs::default();
        for (cpu, time, comm, tid) in [
            (0, 100, "a", 1),
            (0, 150, "b", 2),
            (1, 160, "x", 9),
            (0, 200, "a", 1),
            (0, 230, "b", 3),
            (0, 231, "waiter", 4),
        ] {
            runs.switch(cpu, time, comm.as_bytes(), tid);
        }
        let between = |cpu, begin, end| text(&runs.between(cpu, begin, end));
        assert_eq!(between(0, 100, 231), "a 1 80, b 2 50, b 3 1");
        assert_eq!(between(0, 160, 210), "b 2 40, a 1 10");
        assert_eq!(between(0, 210, 215), "a 1 5");
        // Nobody knows which task ran before the first switch, or on a CPU without switches.
        assert_eq!((between(0, 20, 120), between(2, 0, 500)), ("a 1 20".to_owned(), String::new()));
        runs.clear();
        assert_eq!(runs.between(0, 100, 231), []);
    }

    #[test]
    fn the_runs_of_a_cpu_are_bounded() {
        let mut runs = Runs::default();
        for time in 0..3 * MOST as u64 {
            runs.switch(0, time, b"a", 1);
        }
        assert_eq!(text(&runs.between(0, 0, 3 * MOST as u64)), format!("a 1 {MOST}"));
        for cpu in 0..2 * MOST_OF_ALL as u32 {
            runs.switch(cpu, 1, &[b'a'; 60_000], 1);
            assert!(runs.len <= MOST_OF_ALL && runs.of_cpus.len() <= MOST_OF_ALL);
        }
        assert!(runs.of_cpus.values().flatten().all(|run| run.comm.len() == COMM));
    }
}
