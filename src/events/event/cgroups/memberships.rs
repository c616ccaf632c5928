//! The cgroup of each task: from its samples, from forks and from moves.
//!
//! A sample contains the cgroup of the task that runs. A span may belong to another task, for example to one that is woken. So
//! the cgroup of each task is remembered from its own samples, and a new task starts in the cgroup of the task that creates it.

use rustc_hash::FxHashMap;

/// The maximum number of remembered threads, and of remembered processes that moved.
const MOST: usize = 1 << 18;

/// In which cgroup each thread is now, as far as is known.
#[derive(Debug, Default)]
pub struct Memberships {
    threads: FxHashMap<i32, Thread>,
    /// The cgroups of processes that moved as a whole.
    processes: FxHashMap<i32, Place>,
    /// The number of changes so far.
    changes: u64,
    /// The end of the earlier part of the recording from which memberships were taken over, in ns.
    since: u64,
}

/// A thread: its process, and its own cgroup.
#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: i32,
    own: Place,
}

/// A cgroup, and the number of the change that set it. If a thread and its process have different cgroups, the cgroup
/// with the higher number is valid for the thread.
#[derive(Clone, Copy, Debug)]
struct Place {
    cgroup: u64,
    change: u64,
}

impl Memberships {
    /// Notes that a thread is now in this cgroup.
    #[inline]
    pub fn contains(&mut self, cgroup: u64, pid: i32, tid: i32) {
        let is_known = self.threads.get(&tid).is_some_and(|thread| thread.pid == pid);
        if !is_known || self.of_task(tid) != Some(cgroup) {
            self.add(cgroup, pid, tid);
        }
    }

    /// Notes that a thread was in this cgroup before the run. Does nothing if its cgroup is already known.
    pub fn contained(&mut self, cgroup: u64, pid: i32, tid: i32) {
        if self.of_task(tid).is_none() {
            self.add(cgroup, pid, tid);
        }
    }

    fn place(&mut self, cgroup: u64) -> Place {
        self.changes += 1;
        if self.threads.len().max(self.processes.len()) >= MOST {
            // No machine runs this many tasks, so most of the remembered tasks have ended.
            self.threads.clear();
            self.processes.clear();
        }
        Place { cgroup, change: self.changes }
    }

    fn add(&mut self, cgroup: u64, pid: i32, tid: i32) {
        let own = self.place(cgroup);
        self.threads.insert(tid, Thread { pid, own });
    }

    /// Notes that `parent` created `child`, a thread of the process `pid`. The child starts in the cgroup of its parent.
    pub fn forked(&mut self, parent: i32, (pid, child): (i32, i32), time: u64) {
        if time <= self.since {
            return;
        }
        match self.of_task(parent) {
            Some(cgroup) => self.add(cgroup, pid, child),
            // Forget the child's cgroup, because the id may have belonged to another task.
            None => drop(self.threads.remove(&child)),
        }
    }

    /// Notes that a thread moved to a cgroup. The event does not say whether only the thread or its whole process moved. If it
    /// is the first thread of its process, the whole process counts as moved, because only threaded cgroups take single
    /// threads.
    pub fn moved(&mut self, tid: i32, cgroup: u64) {
        match self.threads.get(&tid) {
            Some(&Thread { pid, .. }) if pid != tid => self.add(cgroup, pid, tid),
            _ => {
                let place = self.place(cgroup);
                self.processes.insert(tid, place);
                self.threads.insert(tid, Thread { pid: tid, own: place });
            }
        }
    }

    /// Returns the id of a thread's cgroup, if it is known.
    #[inline]
    pub fn of_task(&self, tid: i32) -> Option<u64> {
        let &Thread { pid, own } = self.threads.get(&tid)?;
        let of_process = self.processes.get(&pid).filter(|place| place.change > own.change);
        Some(of_process.unwrap_or(&own).cgroup)
    }

    /// Takes over the memberships of an earlier part of a recording, which ended at the time `since`. This part of the
    /// recording also has the fork records from before `since`, and they are ignored.
    pub fn take(&mut self, from: &mut Memberships, since: u64) {
        *self = Memberships { since, ..std::mem::take(from) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_in_the_cgroup_of_its_last_sample_of_its_parent_or_of_its_last_move() {
        let mut tasks = Memberships::default();
        tasks.contains(5, 10, 10);
        tasks.contains(5, 10, 11);
        tasks.forked(11, (20, 20), 1);
        assert_eq!([10, 11, 20, 30].map(|tid| tasks.of_task(tid)), [Some(5), Some(5), Some(5), None]);
        // First the whole process moves, then one thread moves, and then a sample of another thread comes.
        tasks.moved(10, 6);
        assert_eq!([10, 11, 20].map(|tid| tasks.of_task(tid)), [Some(6), Some(6), Some(5)]);
        tasks.moved(11, 7);
        assert_eq!([10, 11].map(|tid| tasks.of_task(tid)), [Some(6), Some(7)]);
        tasks.contains(8, 10, 10);
        assert_eq!([10, 11].map(|tid| tasks.of_task(tid)), [Some(8), Some(7)]);
        // Three cases: a process that moved gets a new thread; a thread moves that was never seen; the id of an earlier
        // thread is used again.
        tasks.forked(11, (10, 12), 2);
        tasks.moved(40, 8);
        tasks.forked(99, (20, 20), 3);
        assert_eq!([12, 40, 20].map(|tid| tasks.of_task(tid)), [Some(7), Some(8), None]);
        tasks.contained(9, 40, 40);
        tasks.contained(9, 50, 50);
        assert_eq!([40, 50].map(|tid| tasks.of_task(tid)), [Some(8), Some(9)]);
    }

    /// The records about tasks come again in each part of a recording.
    #[test]
    fn a_task_that_moved_before_a_part_is_not_moved_back() {
        let (mut before, mut part) = (Memberships::default(), Memberships::default());
        before.contains(5, 10, 10);
        before.forked(10, (20, 20), 3);
        before.moved(20, 6);
        part.take(&mut before, 4);
        part.forked(10, (20, 20), 3);
        assert_eq!(part.of_task(20), Some(6));
        part.forked(10, (21, 21), 5);
        assert_eq!(part.of_task(21), Some(5));
    }

    /// A recording may claim any number of tasks.
    #[test]
    fn the_number_of_remembered_tasks_is_limited() {
        let mut tasks = Memberships::default();
        for tid in 0..MOST as i32 + 10 {
            tasks.moved(tid, 1);
        }
        assert!(tasks.threads.len() <= MOST && tasks.processes.len() <= MOST);
        assert_eq!(tasks.of_task(MOST as i32 + 9), Some(1));
    }
}
