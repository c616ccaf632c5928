//! The rows for threads and for their comms (names).

use pyo3::prelude::*;

use super::{
    super::Raised,
    Export, MACHINE,
    tables::{Cell, Table, number},
    tasks::{Origin, ThreadIndex},
};

/// The ids of a thread and of its comm (its name), for a row that refers to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub thread: u64,
    pub comm: u64,
}

impl Export {
    /// Passes the rows of a task in a context switch. If the name of the task is not known, passes nothing and returns
    /// 0 for both ids.
    pub(super) fn named_task(&mut self, py: Python<'_>, ids: Option<(i32, i32)>) -> Result<Task, Raised> {
        let Some((pid, tid)) = ids else { return Ok(Task::default()) };
        let found = if self.run.context.is_recording() { self.tasks.find(tid) } else { Some(self.thread(pid, tid, 0)) };
        match found {
            Some(thread) if self.tasks.thread(thread).is_named => self.task(py, thread),
            _ => Ok(Task::default()),
        }
    }

    /// Returns the thread with these ids. In a live run, also looks up the name of a task that existed before the run.
    /// A recording contains the names of all tasks in its records.
    pub(super) fn thread(&mut self, pid: i32, tid: i32, time: u64) -> ThreadIndex {
        let thread = self.tasks.find_or_create(pid, tid);
        if !self.run.context.is_recording() {
            for (at, tid) in [(thread, tid), (self.tasks.find_or_create(pid, pid), pid)] {
                if !self.tasks.thread(at).is_named
                    && let Some(name) = self.run.context.comm(tid, time)
                {
                    self.tasks.named(pid, tid, &name, 0, Origin::Other);
                }
            }
        }
        thread
    }

    /// Passes the rows of a thread, of the main thread of its process, and of their comms, if they were not passed yet.
    /// Returns the ids.
    pub(super) fn task(&mut self, py: Python<'_>, thread: ThreadIndex) -> Result<Task, Raised> {
        let mut of_process = None;
        if let Some(main) = self.tasks.main_thread(thread) {
            self.thread_row(py, main, Some(main))?;
            let comm = self.tasks.exec_comm(main);
            if self.comm_row(py, main, comm)? {
                self.comm_thread_row(py, main, comm, main)?;
            }
            of_process = Some((main, comm));
            if main != thread {
                let is_new = self.thread_row(py, thread, Some(main))?;
                if is_new {
                    self.comm_thread_row(py, main, comm, thread)?;
                }
            }
        } else {
            self.thread_row(py, thread, None)?;
        }
        let current = self.tasks.current_comm(thread);
        self.comm_row(py, thread, current)?;
        let comm = of_process.map_or(0, |(main, comm)| self.tasks.thread(main).comms[comm].id);
        Ok(Task { thread: self.tasks.thread(thread).id, comm })
    }

    /// Passes the row of a thread, if it was not passed yet. Returns whether this call passed it.
    fn thread_row(&mut self, py: Python<'_>, of: ThreadIndex, main: Option<ThreadIndex>) -> Result<bool, Raised> {
        if self.tasks.thread(of).id != 0 {
            return Ok(false);
        }
        let id = self.tables.next(Table::Thread);
        self.tasks.thread(of).id = id;
        let main = main.map_or(0, |main| self.tasks.thread(main).id);
        let (pid, tid) = (self.tasks.thread(of).pid, self.tasks.thread(of).tid);
        let row = [number(id), number(MACHINE), number(main), Cell::Number(pid.into()), Cell::Number(tid.into())];
        self.tables.add(py, Table::Thread, &row)?;
        Ok(true)
    }

    /// Passes the row of a thread's comm, if it was not passed yet. Returns whether this call passed it.
    fn comm_row(&mut self, py: Python<'_>, of: ThreadIndex, at: usize) -> Result<bool, Raised> {
        if self.tasks.thread(of).comms[at].id != 0 {
            return Ok(false);
        }
        let id = self.tables.next(Table::Comm);
        let thread = self.tasks.thread(of);
        let thread_id = thread.id;
        let comm = &mut thread.comms[at];
        comm.id = id;
        let is_exec = i64::from(comm.origin == Origin::Exec);
        let row = [number(id), Cell::Text(&comm.name), number(thread_id), number(comm.start), Cell::Number(is_exec)];
        self.tables.add(py, Table::Comm, &row)?;
        Ok(true)
    }

    /// Passes the row that links a thread to the comm of its process.
    fn comm_thread_row(
        &mut self,
        py: Python<'_>,
        process: ThreadIndex,
        comm: usize,
        thread: ThreadIndex,
    ) -> Result<(), Raised> {
        let comm = self.tasks.thread(process).comms[comm].id;
        let (id, thread) = (self.tables.next(Table::CommThread), self.tasks.thread(thread).id);
        self.tables.add(py, Table::CommThread, &[number(id), number(comm), number(thread)])
    }
}
