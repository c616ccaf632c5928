//! Threads and their comms (names), as perf keeps them. Each time a thread gets a name, it gets a new comm, even if the
//! name is the same. Each comm has its own id in the database.
//!
//! Follows `tools/perf/util/thread.c` and `machine.c`. A forked thread gets the name of its parent. The name of a
//! process is the name that the process got by exec.

use std::collections::HashMap;

/// The index of a thread in [`Tasks`].
pub type ThreadIndex = usize;

/// A comm: a name that a thread got at some time.
#[derive(Clone, Debug, Default)]
pub struct Comm {
    /// The id in the database; 0 if no row was passed for the comm yet.
    pub id: u64,
    pub name: Box<[u8]>,
    /// The time in ns at which the thread got the name; 0 if the thread existed before the recording.
    pub start: u64,
    /// How the thread got the name.
    pub origin: Origin,
}

/// How a thread got its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The thread got the name by exec.
    Exec,
    /// The thread got the name in another way.
    #[default]
    Other,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The id in the database; 0 if no row was passed for the thread yet.
    pub id: u64,
    pub pid: i32,
    pub tid: i32,
    /// The comms, oldest first. If the name of a thread is not known, the name is `:TID`.
    pub comms: Vec<Comm>,
    /// True if the name is known.
    pub is_named: bool,
}

/// The threads of a machine.
#[derive(Debug, Default)]
pub struct Tasks {
    threads: Vec<Thread>,
    by_tid: HashMap<i32, ThreadIndex>,
    /// The indices of threads that have ended. New threads reuse them.
    ended: Vec<ThreadIndex>,
}

impl Tasks {
    /// Creates the threads of a machine: at first only the idle task.
    pub fn new() -> Tasks {
        let mut tasks = Tasks::default();
        tasks.named(0, 0, b"swapper", 0, Origin::Other);
        tasks
    }

    /// Returns the thread with this index.
    pub fn thread(&mut self, at: ThreadIndex) -> &mut Thread {
        &mut self.threads[at]
    }

    /// Returns the index of the thread with this id; `None` if no such thread is known.
    pub fn find(&self, tid: i32) -> Option<ThreadIndex> {
        self.by_tid.get(&tid).copied()
    }

    /// Returns the index of the thread with this id. If no such thread is known, creates it, and also the main thread
    /// of its process.
    pub fn find_or_create(&mut self, pid: i32, tid: i32) -> ThreadIndex {
        if let Some(at) = self.find(tid) {
            if self.threads[at].pid == -1 {
                self.threads[at].pid = pid;
            }
            return at;
        }
        if pid != tid && pid != -1 {
            self.find_or_create(pid, pid);
        }
        let name = format!(":{tid}").into_bytes().into();
        let thread = Thread { id: 0, pid, tid, comms: vec![Comm { name, ..Comm::default() }], is_named: false };
        let at = match self.ended.pop() {
            Some(at) => {
                self.threads[at] = thread;
                at
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        };
        self.by_tid.insert(tid, at);
        at
    }

    /// Returns the index of the main thread in the process of a thread; `None` if it is not known.
    pub fn main_thread(&self, of: ThreadIndex) -> Option<ThreadIndex> {
        let Thread { pid, tid, .. } = self.threads[of];
        if pid == tid { Some(of) } else { self.find(pid) }
    }

    /// Returns the index of the thread's current comm in `comms`.
    pub fn current_comm(&self, of: ThreadIndex) -> usize {
        self.threads[of].comms.len() - 1
    }

    /// Returns the index in `comms` of the comm that the thread got by exec.
    pub fn exec_comm(&self, of: ThreadIndex) -> usize {
        let Thread { comms, pid, tid, .. } = &self.threads[of];
        if let Some(executed) = comms.iter().rposition(|comm| comm.origin == Origin::Exec) {
            return executed;
        }
        // If the process existed before the recording, its first name may be the name of its parent.
        usize::from(comms.len() > 1 && comms[0].start == 0 && pid == tid)
    }

    /// Notes that a thread got a name.
    pub fn named(&mut self, pid: i32, tid: i32, name: &[u8], start: u64, origin: Origin) {
        let at = self.find_or_create(pid, tid);
        let thread = &mut self.threads[at];
        if !thread.is_named {
            thread.is_named = true;
            // The first known name replaces `:TID`.
            thread.comms[0].name = name.into();
            thread.comms[0].start = start;
            thread.comms[0].origin = origin;
        } else {
            thread.comms.push(Comm { id: 0, name: name.into(), start, origin });
        }
    }

    fn remove(&mut self, tid: i32) {
        self.ended.extend(self.by_tid.remove(&tid));
    }

    /// Notes that `parent` created `child`. `parent` and `child` are pairs (process id, thread id).
    pub fn forked(&mut self, parent: (i32, i32), child: (i32, i32), time: u64) {
        let ((ppid, ptid), (pid, tid)) = (parent, child);
        let mut from = self.find_or_create(ppid, ptid);
        if self.threads[from].pid != ppid {
            // Another process had a thread with this id, so that thread has ended.
            self.remove(ptid);
            from = self.find_or_create(ppid, ptid);
        }
        self.remove(tid);
        self.find_or_create(pid, tid);
        let Thread { comms, is_named, .. } = &self.threads[from];
        if let Some(comm) = comms.last().filter(|_| *is_named) {
            let name = comm.name.clone();
            self.named(pid, tid, &name, time, Origin::Other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tasks: &mut Tasks, at: ThreadIndex, comm: usize) -> String {
        String::from_utf8(tasks.thread(at).comms[comm].name.to_vec()).unwrap()
    }

    #[test]
    fn a_thread_has_all_its_names_and_the_one_of_its_exec() {
        let mut tasks = Tasks::new();
        let shell = tasks.find_or_create(5, 5);
        assert_eq!(name(&mut tasks, shell, 0), ":5");
        tasks.named(5, 5, b"sh", 10, Origin::Other);
        tasks.forked((5, 5), (6, 6), 20);
        tasks.named(6, 6, b"ls", 30, Origin::Exec);
        tasks.named(6, 6, b"worker", 40, Origin::Other);
        let child = tasks.find(6).unwrap();
        let (executed, current) = (tasks.exec_comm(child), tasks.current_comm(child));
        assert_eq!([name(&mut tasks, child, executed), name(&mut tasks, child, current)], ["ls", "worker"]);
        assert_eq!(tasks.thread(child).comms.len(), 3);
        tasks.forked((6, 6), (6, 7), 50);
        let thread = tasks.find(7).unwrap();
        assert_eq!(tasks.main_thread(thread), Some(child));
        tasks.thread(child).id = 3;
        // The new task has the id of a task that has ended.
        tasks.forked((5, 5), (6, 6), 60);
        let again = tasks.find(6).unwrap();
        assert_eq!((tasks.thread(again).id, name(&mut tasks, again, 0)), (0, "sh".to_owned()));
    }

    #[test]
    fn the_name_of_the_parent_is_not_that_of_a_process_from_before_the_recording() {
        let mut tasks = Tasks::new();
        tasks.named(5, 5, b"perf", 0, Origin::Other);
        tasks.forked((5, 5), (6, 6), 0);
        tasks.named(6, 6, b"perf-exec", 0, Origin::Other);
        tasks.named(6, 6, b"perf-exec", 0, Origin::Other);
        let child = tasks.find(6).unwrap();
        assert_eq!((tasks.exec_comm(child), tasks.current_comm(child)), (1, 2));
    }
}
