//! Names of tasks by thread id and time, and the processes of threads. They come from COMM, FORK and EXIT records, and from
//! the tasks that existed before the run.
//!
//! A thread can change its name (exec, prctl), and the kernel reuses thread ids. So each name is stored with the time from
//! which it is valid. At most [`MOST_TASKS`] tasks are stored. If there are more, the tasks that exited first are dropped.

use std::collections::{HashMap, HashSet, VecDeque};

/// The maximum number of remembered tasks.
const MOST_TASKS: usize = 1 << 16;

/// The maximum number of remembered names of a task. The oldest name is dropped first.
const MOST_NAMES: usize = 8;

/// The name of a task. The kernel stores at most 15 bytes and a NUL (TASK_COMM_LEN). The bytes before the NUL may have any
/// value.
type Comm = Box<[u8]>;

/// The names of tasks, and the processes of threads.
#[derive(Debug, Default)]
pub struct Tasks {
    /// The names of each thread, the oldest first, each with the time from which it is valid.
    names: HashMap<i32, VecDeque<(u64, Comm)>>,
    /// The process of each thread with a name.
    processes: HashMap<i32, i32>,
    /// The threads that exited, in the order of their exits.
    exited: VecDeque<i32>,
    /// Threads without a name that do not exist. procfs is not read for them again.
    gone: HashSet<i32>,
}

impl Tasks {
    /// Notes that a thread got the name `comm` at `time`.
    pub fn named(&mut self, tid: i32, time: u64, comm: &[u8]) {
        self.gone.remove(&tid);
        let names = self.names.entry(tid).or_default();
        // Rings are read one after another, so this name may be older than names that arrived before.
        let at = names.iter().rposition(|&(since, _)| since <= time).map_or(0, |before| before + 1);
        // Do not store the name again that the task has at this time: repeated names would displace earlier ones.
        if at == 0 || *names[at - 1].1 != *comm {
            names.insert(at, (time, comm.into()));
        }
        if names.len() > MOST_NAMES {
            names.pop_front();
        }
        self.drop_oldest();
    }

    /// Notes the name that a thread had at the start of the run. Does nothing if such a name is known.
    pub fn named_before_run(&mut self, tid: i32, comm: &[u8]) {
        let names = self.names.entry(tid).or_default();
        if names.front().is_none_or(|&(since, _)| since != 0) {
            names.push_front((0, comm.into()));
        }
        self.drop_oldest();
    }

    /// Returns whether a thread existed before the run or the recording began. False if that is not known.
    pub fn existed_before(&self, tid: i32) -> bool {
        self.names.get(&tid).and_then(VecDeque::front).is_some_and(|&(since, _)| since == 0)
    }

    /// Notes that `parent` created `child`, which gets the name of its parent.
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

    /// Notes that a thread exited. Its names are kept until their memory is needed.
    pub fn exited(&mut self, tid: i32) {
        if self.names.contains_key(&tid) {
            self.exited.push_back(tid);
        }
        self.drop_oldest();
    }

    /// Notes that a thread without a name does not exist.
    pub fn note_gone(&mut self, tid: i32) {
        if self.gone.len() >= MOST_TASKS {
            self.gone.clear();
        }
        self.gone.insert(tid);
    }

    /// Returns whether a thread does not exist. When a new thread gets the same id, it also gets a name, and exists again.
    pub fn is_gone(&self, tid: i32) -> bool {
        self.gone.contains(&tid)
    }

    /// Returns the name that a thread had at `time`. The idle task is called `swapper`.
    pub fn name(&self, tid: i32, time: u64) -> Option<&[u8]> {
        if tid == 0 {
            return Some(b"swapper");
        }
        let names = self.names.get(&tid)?;
        let holding = names.iter().rev().find(|&&(since, _)| since <= time).or_else(|| names.front());
        holding.map(|(_, comm)| &**comm)
    }

    /// Returns when the name that the thread had at `time` was replaced; `u64::MAX` if it was not.
    pub fn replaced(&self, tid: i32, time: u64) -> u64 {
        let names = self.names.get(&tid).filter(|_| tid != 0);
        let next = names.and_then(|names| names.iter().find(|&&(since, _)| since > time && since != names[0].0));
        // The first name counts for all earlier times too, so its own time is not that of a change.
        next.map_or(u64::MAX, |&(since, _)| since)
    }

    fn drop_oldest(&mut self) {
        while self.names.len() > MOST_TASKS {
            let Some(tid) = self.exited.pop_front().or_else(|| self.names.keys().next().copied()) else { break };
            self.names.remove(&tid);
            self.processes.remove(&tid);
        }
        // A reused thread id may be in this list twice. Its names may then be dropped too early, but the memory stays
        // limited.
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
