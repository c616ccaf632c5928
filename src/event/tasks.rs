//! Task names by thread id and time, from COMM, FORK and EXIT side-band and from what ran before.
//!
//! A thread's name changes (exec, prctl) and its id is used again, so a name holds from a time on. What is kept is
//! bounded: beyond [`MOST_TASKS`], the tasks that exited first are forgotten first.

use std::collections::{HashMap, VecDeque};

/// How many tasks are remembered.
const MOST_TASKS: usize = 1 << 16;

/// How many names of one task are remembered; the eldest goes first.
const MOST_NAMES: usize = 8;

/// A task's name: at most 15 bytes and a NUL in the kernel (TASK_COMM_LEN), any bytes but NUL.
type Comm = Box<[u8]>;

/// The names of tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Per thread, its names with the time from which each holds, eldest first.
    names: HashMap<i32, VecDeque<(u64, Comm)>>,
    /// Threads that exited, in that order.
    exited: VecDeque<i32>,
}

impl Tasks {
    /// A thread has this name from `time` on.
    pub fn named(&mut self, tid: i32, time: u64, comm: &[u8]) {
        let names = self.names.entry(tid).or_default();
        // Rings are read one after the other, so an elder name may come later.
        let at = names.iter().rposition(|&(since, _)| since <= time).map_or(0, |before| before + 1);
        // A task that is given its own name again and again must not drive out the names that it had.
        if at == 0 || *names[at - 1].1 != *comm {
            names.insert(at, (time, comm.into()));
        }
        if names.len() > MOST_NAMES {
            names.pop_front();
        }
        self.bound();
    }

    /// A thread has had this name since before the run; what is known better is left alone.
    pub fn found(&mut self, tid: i32, comm: &[u8]) {
        let names = self.names.entry(tid).or_default();
        if names.front().is_none_or(|&(since, _)| since != 0) {
            names.push_front((0, comm.into()));
        }
        self.bound();
    }

    /// `child` was created by `parent` and has its name.
    pub fn forked(&mut self, parent: i32, child: i32, time: u64) {
        if let Some(comm) = self.name(parent, time).map(<[u8]>::to_vec) {
            self.named(child, time, &comm);
        }
    }

    /// A thread exited; its names stay known for as long as there is room.
    pub fn exited(&mut self, tid: i32) {
        if self.names.contains_key(&tid) {
            self.exited.push_back(tid);
        }
        self.bound();
    }

    /// The name that the thread had at `time`; the idle task is `swapper`.
    pub fn name(&self, tid: i32, time: u64) -> Option<&[u8]> {
        if tid == 0 {
            return Some(b"swapper");
        }
        let names = self.names.get(&tid)?;
        let holding = names.iter().rev().find(|&&(since, _)| since <= time).or_else(|| names.front());
        holding.map(|(_, comm)| &**comm)
    }

    fn bound(&mut self) {
        while self.names.len() > MOST_TASKS {
            let Some(tid) = self.exited.pop_front().or_else(|| self.names.keys().next().copied()) else { break };
            self.names.remove(&tid);
        }
        // A thread id that was used again may stand here twice; that costs a name early, never memory.
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
        tasks.found(7, b"bash");
        tasks.forked(7, 8, 100);
        tasks.named(8, 110, b"ls");
        tasks.exited(8);
        assert_eq!(name(&tasks, 8, 105), "bash");
        assert_eq!(name(&tasks, 8, 110), "ls");
        assert_eq!(name(&tasks, 7, 50), "bash");
        assert_eq!(name(&tasks, 9, 50), "<...>");
        assert_eq!(name(&tasks, 0, 50), "swapper");
    }

    #[test]
    fn an_elder_name_that_comes_later_takes_its_place() {
        let mut tasks = Tasks::default();
        tasks.named(5, 200, b"new");
        tasks.named(5, 100, b"old");
        assert_eq!(name(&tasks, 5, 150), "old");
        assert_eq!(name(&tasks, 5, 250), "new");
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
    fn what_is_remembered_is_bounded() {
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
