//! Reads the names and the cgroups of the tasks that exist when a live run begins.

use perf_prof_system::{cgroup, clock, procfs};

use super::Context;

impl Context {
    /// Reads the names of all tasks, so that they are known even after a task has exited. If the run follows the cgroups of
    /// tasks, also reads their cgroups.
    pub fn find_tasks(&self) {
        let are_followed = self.with_cgroups(|cgroups| cgroups.tasks.is_some());
        for pid in procfs::processes() {
            let cgroup = if are_followed { cgroup::of_task(pid) } else { None };
            for tid in procfs::tasks(pid).unwrap_or_default() {
                if let Some(cgroup) = cgroup {
                    self.with_memberships(|tasks| tasks.contained(cgroup, pid as i32, tid as i32));
                }
                if let Some(comm) = procfs::comm(tid) {
                    self.with_tasks(|tasks| {
                        tasks.named_before_run(tid as i32, &comm);
                        tasks.belongs(tid as i32, pid as i32);
                    });
                }
            }
        }
    }

    /// Reads the names of all tasks once more. Called when the events are on: a task may have changed its name after
    /// [`Context::find_tasks`] read it, and before records told of changes.
    pub fn find_changed_names(&self) {
        for pid in procfs::processes() {
            for tid in procfs::tasks(pid).unwrap_or_default() {
                // If a record tells of the change too, its time is earlier, and counts.
                let time = self.time_of_realtime(clock::realtime());
                if let Some(comm) = procfs::comm(tid) {
                    self.with_tasks(|tasks| {
                        tasks.named(tid as i32, time, &comm);
                        tasks.belongs(tid as i32, pid as i32);
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::tracefs::NoKernel;

    use super::*;

    #[test]
    fn a_name_that_changed_before_records_tell_of_changes_is_known() {
        let context = Context::new(Box::new(NoKernel), 0);
        let own = std::process::id() as i32;
        context.with_tasks(|tasks| tasks.named_before_run(own, b"before"));
        let record = clock::realtime() as u64;
        context.find_changed_names();
        let name = procfs::comm(own as u32).unwrap();
        let comm = |time| context.comm(own, time).unwrap();
        assert_eq!((comm(record), comm(u64::MAX)), (b"before".to_vec(), name.clone()));
        // A record of the change that comes later tells the time of the change.
        context.with_tasks(|tasks| tasks.named(own, record, &name));
        assert_eq!((comm(record - 1), comm(record)), (b"before".to_vec(), name));
    }
}
