//! When processes changed. Records of processes come in the order of their times only within a CPU: a process can map its interpreter
//! before the record of its fork is read.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The most processes whose latest change is remembered, twice.
const MOST: usize = 1 << 14;
/// The most forks that wait for the interpreter of the parent. It comes after as many forks at most.
const MOST_WAITING: usize = 1 << 10;

/// The latest changes of processes.
#[derive(Default)]
pub struct Changes {
    /// When each process was last created, executed another program, or ended.
    recent: FxHashMap<u32, u64>,
    /// The same for processes that changed before all those in `recent` came.
    former: FxHashMap<u32, u64>,
    waiting: VecDeque<Fork>,
}

/// A process created another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    pub parent: u32,
    pub child: u32,
    pub time: u64,
}

impl Changes {
    /// Returns when a process last changed; 0 if that is not known.
    pub fn latest(&self, pid: u32) -> u64 {
        self.recent.get(&pid).or_else(|| self.former.get(&pid)).copied().unwrap_or(0)
    }

    /// Notes that a process changed. Returns [`Order::Late`] if it has changed again since, as earlier records said.
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

    /// Notes a fork of a process that has no interpreter yet.
    pub fn wait(&mut self, fork: Fork) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(fork);
    }

    /// Removes and returns the forks of a process whose children have not changed since.
    pub fn take_forks(&mut self, parent: u32) -> Vec<Fork> {
        let (taken, left): (VecDeque<Fork>, VecDeque<Fork>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|fork| fork.parent == parent);
        self.waiting = left;
        taken.into_iter().filter(|fork| self.latest(fork.child) == fork.time).collect()
    }
}

/// Whether a record says something new.
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
