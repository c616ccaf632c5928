//! Task names by thread id and time, and the processes of threads: from COMM, FORK and EXIT records, and from the tasks
//! that existed before the run.
//!
//! A thread's name can change (exec, prctl), and the kernel reuses thread ids. So each name is stored with the time
//! from which it is valid. At most [`MOST_TASKS`] tasks are stored. If there are more, the tasks that exited first are
//! dropped.

use std::collections::{HashMap, HashSet, VecDeque};

/// The maximum number of tasks that are remembered.
const MOST_TASKS: usize = 1 << 16;

/// The maximum number of names that are remembered for one task. The oldest name is dropped first.
const MOST_NAMES: usize = 8;

/// A task's name. The kernel stores at most 15 bytes and a NUL (TASK_COMM_LEN). The other bytes may have any value
/// except 0.
type Comm = Box<[u8]>;

/// The names of tasks, and the processes that threads belong to.
#[derive(Debug, Default)]
pub struct Tasks {
    /// The names of each thread, oldest first, each with the time from which it is valid.
    names: HashMap<i32, VecDeque<(u64, Comm)>>,
    /// The process of each thread that has a name.
    processes: HashMap<i32, i32>,
    /// The threads that have exited, in the order of their exits.
    exited: VecDeque<i32>,
    /// The threads without a name that are known not to exist. They are remembered so that procfs is not read for them
    /// again.
    gone: HashSet<i32>,
}

impl Tasks {
    /// Notes that a thread has the name `comm` from `time` on.
    pub fn named(&mut self, tid: i32, time: u64, comm: &[u8]) {
        self.gone.remove(&tid);
        let names = self.names.entry(tid).or_default();
        // The rings are read one after the other, so this name may be older than names that arrived before.
        let at = names.iter().rposition(|&(since, _)| since <= time).map_or(0, |before| before + 1);
        // Do not store a name that the task already has at this time: repeated names would displace earlier ones.
        if at == 0 || *names[at - 1].1 != *comm {
            names.insert(at, (time, comm.into()));
        }
        if names.len() > MOST_NAMES {
            names.pop_front();
        }
        self.drop_oldest();
    }

    /// Notes the name that a thread had at the start of the run. Does nothing if a name from before the run is already
    /// known.
    pub fn named_before_run(&mut self, tid: i32, comm: &[u8]) {
        let names = self.names.entry(tid).or_default();
        if names.front().is_none_or(|&(since, _)| since != 0) {
            names.push_front((0, comm.into()));
        }
        self.drop_oldest();
    }

    /// Notes that `parent` created `child`. The child gets the name of its parent.
    pub fn forked(&mut self, parent: i32, child: i32, time: u64) {
        if let Some(comm) = self.name(parent, time).map(<[u8]>::to_vec) {
            self.named(child, time, &comm);
        }
    }

    /// Notes that a thread belongs to the process `pid`. Does nothing for a thread without a name.
    pub fn belongs(&mut self, tid: i32, pid: i32) {
        if self.names.contains_key(&tid) {
            self.processes.insert(tid, pid);
        }
    }

    /// Returns the process of a thread, if it is known.
    pub fn process(&self, tid: i32) -> Option<i32> {
        self.processes.get(&tid).copied()
    }

    /// Notes that a thread exited. Its names are kept until their space is needed.
    pub fn exited(&mut self, tid: i32) {
        if self.names.contains_key(&tid) {
            self.exited.push_back(tid);
        }
        self.drop_oldest();
    }

    /// Notes that a thread does not exist. It has no name.
    pub fn note_gone(&mut self, tid: i32) {
        if self.gone.len() >= MOST_TASKS {
            self.gone.clear();
        }
        self.gone.insert(tid);
    }

    /// Returns whether a thread is known not to exist. A new thread with the same id gets a name, and so exists again.
    pub fn is_gone(&self, tid: i32) -> bool {
        self.gone.contains(&tid)
    }

    /// Returns the name that the thread had at `time`. The idle task is `swapper`.
    pub fn name(&self, tid: i32, time: u64) -> Option<&[u8]> {
        if tid == 0 {
            return Some(b"swapper");
        }
        let names = self.names.get(&tid)?;
        let holding = names.iter().rev().find(|&&(since, _)| since <= time).or_else(|| names.front());
        holding.map(|(_, comm)| &**comm)
    }

    /// Returns the time at which another name replaced the one that the thread had at `time`; `u64::MAX` if none did.
    pub fn replaced(&self, tid: i32, time: u64) -> u64 {
        let names = self.names.get(&tid).filter(|_| tid != 0);
        let next = names.and_then(|names| names.iter().find(|&&(since, _)| since > time && since != names[0].0));
        // The first name is also valid before its time, so its time is not that of a change.
        next.map_or(u64::MAX, |&(since, _)| since)
    }

    fn drop_oldest(&mut self) {
        while self.names.len() > MOST_TASKS {
            let Some(tid) = self.exited.pop_front().or_else(|| self.names.keys().next().copied()) else { break };
            self.names.remove(&tid);
            self.processes.remove(&tid);
        }
        // If a thread id was used again, it may be in this list twice. Its names may be dropped too early in this case,
        // but the memory stays limited.
        while self.exited.len() > MOST_TASKS {
            self.exited.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tasks: &Tasks, tid: i32, time: u64) -> String {
        tasks.name(tid, time).map_or("<...>".into(), |comm| String::from_utf8_lossy(comm).into_owned())
    }

    #[test]
    fn a_name_holds_from_its_time_on() {
        let mut tasks = Tasks::default();
        tasks.named_before_run(7, b"bash");
        tasks.forked(7, 8, 100);
        tasks.named(8, 110, b"ls");
        tasks.exited(8);
        assert_eq!(name(&tasks, 8, 105), "bash");
        assert_eq!(name(&tasks, 8, 110), "ls");
        assert_eq!([105, 110].map(|time| tasks.replaced(8, time)), [110, u64::MAX]);
        assert_eq!([7, 9, 0].map(|tid| tasks.replaced(tid, 50)), [u64::MAX; 3]);
        assert_eq!(name(&tasks, 7, 50), "bash");
        assert_eq!(name(&tasks, 9, 50), "<...>");
        assert_eq!(name(&tasks, 0, 50), "swapper");
    }

    #[test]
    fn a_name_that_arrives_late_is_sorted_by_its_time() {
        let mut tasks = Tasks::default();
        tasks.named(5, 200, b"new");
        tasks.named(5, 100, b"old");
        assert_eq!(name(&tasks, 5, 150), "old");
        assert_eq!(name(&tasks, 5, 250), "new");
    }

    #[test]
    fn a_thread_that_is_gone_is_looked_up_again_when_its_id_is_reused() {
        let mut tasks = Tasks::default();
        tasks.note_gone(5);
        assert!(tasks.is_gone(5) && !tasks.is_gone(6));
        tasks.named(5, 200, b"new");
        assert!(!tasks.is_gone(5));
        for tid in 0..2 * MOST_TASKS as i32 {
            tasks.note_gone(tid);
        }
        assert!(tasks.gone.len() <= MOST_TASKS);
    }

    #[test]
    fn the_same_name_given_again_does_not_drive_out_the_ones_before() {
        let mut tasks = Tasks::default();
        tasks.named(5, 10, b"first");
        for time in 20..100 {
            tasks.named(5, time, b"second");
        }
        assert_eq!(name(&tasks, 5, 15), "first");
        assert_eq!(name(&tasks, 5, 99), "second");
    }

    #[test]
    fn the_number_of_remembered_tasks_is_limited() {
        let mut tasks = Tasks::default();
        for tid in 1..=(2 * MOST_TASKS as i32) {
            tasks.named(tid, 1, b"x");
            tasks.exited(tid);
        }
        assert_eq!(tasks.names.len(), MOST_TASKS);
        assert!(tasks.exited.len() <= MOST_TASKS);
        for time in 0..100 {
            tasks.named(-1, time, time.to_string().as_bytes());
        }
        assert_eq!(tasks.names[&-1].len(), MOST_NAMES);
    }
}
