//! The cgroup of each task, as samples, forks and moves between cgroups show it.
//!
//! A sample contains the cgroup of the running task. A span may belong to another task, for example to the task that is
//! woken. So the cgroup of each task is remembered from the task's own samples. A new task starts in the cgroup of its
//! parent.

use rustc_hash::FxHashMap;

/// The maximum number of remembered threads, and of remembered processes that moved to another cgroup.
const MOST: usize = 1 << 18;

/// The current cgroup of each thread, as far as it is known.
#[derive(Debug, Default)]
pub struct Memberships {
    threads: FxHashMap<i32, Thread>,
    /// The cgroups of processes that moved with all their threads.
    processes: FxHashMap<i32, Place>,
    /// The number of changes so far, which is also the number of the last change.
    changes: u64,
    /// The end of the earlier part of the recording whose memberships [`Memberships::take`] took over, as a time in ns.
    since: u64,
}

/// A thread: its process, and its own cgroup.
#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: i32,
    own: Place,
}

/// A cgroup, and the number of the change that set it. If a thread and its process have different cgroups, the later change
/// is valid for the thread.
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
            // No machine runs this many tasks, so most of the remembered tasks have exited.
            self.threads.clear();
            self.processes.clear();
        }
        Place { cgroup, change: self.changes }
    }

    fn add(&mut self, cgroup: u64, pid: i32, tid: i32) {
        let own = self.place(cgroup);
        self.threads.insert(tid, Thread { pid, own });
    }

    /// Notes that the thread `parent` created `child`, a thread of the process `pid`. The child starts in its parent's
    /// cgroup.
    pub fn forked(&mut self, parent: i32, (pid, child): (i32, i32), time: u64) {
        if time <= self.since {
            return;
        }
        match self.of_task(parent) {
            Some(cgroup) => self.add(cgroup, pid, child),
            // Forget the cgroup of this id: the id may have belonged to another task.
            None => drop(self.threads.remove(&child)),
        }
    }

    /// Notes that a thread moved to a cgroup. The event does not say whether the whole process moved. If the thread is the
    /// main thread, the whole process counts as moved, because only threaded cgroups accept single threads.
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

    /// Takes over the memberships of an earlier part of a recording, which ended at the time `since`. Fork records from
    /// before `since` come again in this part, and are ignored.
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
        // The whole process moves. Then one thread moves. Then a sample of another thread comes.
        tasks.moved(10, 6);
        assert_eq!([10, 11, 20].map(|tid| tasks.of_task(tid)), [Some(6), Some(6), Some(5)]);
        tasks.moved(11, 7);
        assert_eq!([10, 11].map(|tid| tasks.of_task(tid)), [Some(6), Some(7)]);
        tasks.contains(8, 10, 10);
        assert_eq!([10, 11].map(|tid| tasks.of_task(tid)), [Some(8), Some(7)]);
        // A process that moved gets a new thread. A thread that was never seen moves. The id of an earlier thread is used
        // again.
        tasks.forked(11, (10, 12), 2);
        tasks.moved(40, 8);
        tasks.forked(99, (20, 20), 3);
        assert_eq!([12, 40, 20].map(|tid| tasks.of_task(tid)), [Some(7), Some(8), None]);
        tasks.contained(9, 40, 40);
        tasks.contained(9, 50, 50);
        assert_eq!([40, 50].map(|tid| tasks.of_task(tid)), [Some(8), Some(9)]);
    }

    /// Each part of a recording contains the records about tasks again.
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

    /// A recording may name any number of tasks.
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
