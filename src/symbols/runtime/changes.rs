//! The times at which processes changed: were created, executed another program, or ended. The records of one CPU are
//! read in the order of their times, but the records of different CPUs are not: the record of a mapping that a process
//! made may be read before the record of the process's fork.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The maximum number of processes in each of the two maps of [`Changes`].
const MOST: usize = 1 << 14;
/// The maximum number of forks that wait until the parent's interpreter is known. Older forks are dropped.
const MOST_WAITING: usize = 1 << 10;

/// The latest changes of processes.
#[derive(Default)]
pub struct Changes {
    /// The time of the latest change of each process, in ns.
    recent: FxHashMap<u32, u64>,
    /// The previous contents of `recent`. When `recent` is full, it replaces `former`.
    former: FxHashMap<u32, u64>,
    waiting: VecDeque<Fork>,
}

/// A fork: the process `parent` created the process `child`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    pub parent: u32,
    pub child: u32,
    pub time: u64,
}

impl Changes {
    /// Returns the time at which a process last changed; 0 if it is not known.
    pub fn latest(&self, pid: u32) -> u64 {
        self.recent.get(&pid).or_else(|| self.former.get(&pid)).copied().unwrap_or(0)
    }

    /// Notes that a process changed at `time`. Returns [`Order::Late`] if a later change of the process is already
    /// known.
    pub fn note(&mut self, pid: u32, time: u64) -> Order {
        if time < self.latest(pid) {
            return Order::Late;
        }
        if self.recent.len() >= MOST {
            self.former = std::mem::take(&mut self.recent);
        }
        self.recent.insert(pid, time);
        Order::InTime
    }

    /// Keeps a fork whose parent has no known interpreter yet, until [`Changes::take_forks`] takes the fork.
    pub fn wait(&mut self, fork: Fork) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(fork);
    }

    /// Removes the kept forks of the process `parent`. Returns those forks whose child has not changed since.
    pub fn take_forks(&mut self, parent: u32) -> Vec<Fork> {
        let (taken, left): (VecDeque<Fork>, VecDeque<Fork>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|fork| fork.parent == parent);
        self.waiting = left;
        taken.into_iter().filter(|fork| self.latest(fork.child) == fork.time).collect()
    }
}

/// Whether a record of a process was read before all records of later changes of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    InTime,
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_changes_are_remembered() {
        let mut changes = Changes::default();
        assert_eq!((changes.note(7, 20), changes.note(7, 10), changes.latest(7)), (Order::InTime, Order::Late, 20));
        (100..100 + MOST as u32).for_each(|pid| _ = changes.note(pid, 30));
        assert_eq!((changes.latest(7), changes.note(7, 10)), (20, Order::Late));
        (100..100 + 2 * MOST as u32).for_each(|pid| _ = changes.note(pid, 40));
        assert_eq!(changes.latest(7), 0);
        assert!(changes.recent.len() <= MOST && changes.former.len() <= MOST);
    }

    #[test]
    fn forks_wait_for_their_parent_until_the_child_changes() {
        let mut changes = Changes::default();
        let forks = [(1, 2), (1, 3), (4, 5)].map(|(parent, child)| Fork { parent, child, time: 10 });
        for fork in forks {
            changes.note(fork.child, fork.time);
            changes.wait(fork);
        }
        changes.note(3, 11);
        assert_eq!((changes.take_forks(1), changes.take_forks(1)), (vec![forks[0]], vec![]));
        (0..MOST_WAITING).for_each(|_| changes.wait(forks[0]));
        assert_eq!((changes.take_forks(4), changes.take_forks(1).len()), (vec![], MOST_WAITING));
    }
}
