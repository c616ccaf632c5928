//! The tasks that `-p`, `-t`, `--cgroups` and `--exec` select in a run that receives the events of all tasks.

use std::collections::HashSet;

use super::{Context, SelectedCgroups};

/// Whose spans are delivered, if spans of all tasks are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpansOf {
    /// Spans of the selected tasks.
    #[default]
    SelectedTasks,
    /// Spans of all tasks. The script can check which tasks are selected.
    AllTasks,
}

/// The selected tasks. A process that a selected process creates during the run is selected too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The selected processes, a set that may become empty. `None` if the user selected no processes.
    processes: Option<HashSet<i32>>,
    /// The processes that the user named, if they may start during the run. Otherwise empty.
    named: HashSet<i32>,
    /// The selected threads. `None` if the user selected no threads.
    threads: Option<HashSet<i32>>,
    /// The selected cgroups. `None` if the user selected no cgroups.
    cgroups: Option<SelectedCgroups>,
    /// The threads that were not selected because their cgroup was unknown.
    of_unknown_cgroups: HashSet<i32>,
}

/// The maximum number of counted threads in unknown cgroups.
const MOST_UNKNOWN: usize = 1 << 16;

impl Targets {
    /// Selects running threads: those in `tids` that belong to a process in `pids`. An empty list selects all processes or
    /// threads.
    pub fn running(pids: &[u32], tids: &[u32]) -> Targets {
        let ids = |ids: &[u32]| (!ids.is_empty()).then(|| ids.iter().map(|&id| id as i32).collect());
        let (named, of_unknown_cgroups) = (HashSet::new(), HashSet::new());
        Targets { processes: ids(pids), named, threads: ids(tids), cgroups: None, of_unknown_cgroups }
    }

    /// Limits the selection to threads in the cgroups `names`, and in the cgroups below. An empty list does not limit it.
    pub fn in_cgroups(self, names: &[String]) -> Targets {
        let cgroups = (!names.is_empty()).then(|| SelectedCgroups::new(names.iter().cloned()));
        Targets { cgroups, ..self }
    }

    /// Like `running`, but for a recording, in which the processes may start during the run.
    pub fn recorded(pids: &[u32], tids: &[u32]) -> Targets {
        let targets = Targets::running(pids, tids);
        Targets { named: targets.processes.clone().unwrap_or_default(), ..targets }
    }

    /// Notes that the process `parent` created the process `child` during the run.
    pub fn forked(&mut self, parent: i32, child: i32) {
        let Some(processes) = &mut self.processes else { return };
        match processes.contains(&parent) {
            true => _ = processes.insert(child),
            // A process that is not selected got the id of a selected process, so the selected process has exited.
            false if parent != child && !self.named.contains(&child) => _ = processes.remove(&child),
            false => {}
        }
    }

    /// Returns whether a thread is selected. `process` returns its process; `None` if it is unknown.
    pub fn contains(&self, tid: i32, process: impl FnOnce() -> Option<i32>) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&tid))
            && self.processes.as_ref().is_none_or(|processes| process().is_some_and(|pid| processes.contains(&pid)))
    }

    /// Returns whether the cgroup of a thread is selected. `context` knows the cgroups of threads and their names.
    pub fn has_cgroup_of(&mut self, tid: i32, context: &Context) -> bool {
        let Some(cgroups) = &mut self.cgroups else { return true };
        let id = context.cgroup_of_task(tid);
        if id == 0 && self.of_unknown_cgroups.len() < MOST_UNKNOWN {
            self.of_unknown_cgroups.insert(tid);
        }
        cgroups.contains(id, || context.cgroup_path(id))
    }

    /// Returns the number of threads that were not selected because their cgroup was unknown.
    pub fn of_unknown_cgroups(&self) -> usize {
        self.of_unknown_cgroups.len()
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::tracefs::NoKernel;

    use super::*;
    use crate::event::Processes;

    #[test]
    fn children_of_selected_processes_are_selected() {
        let mut targets = Targets::running(&[7], &[]);
        targets.forked(7, 8);
        targets.forked(8, 9);
        targets.forked(3, 4);
        let has = |targets: &Targets, pid| targets.contains(100, || pid);
        assert!([7, 8, 9].iter().all(|&pid| has(&targets, Some(pid))));
        assert!(!has(&targets, Some(4)) && !has(&targets, None));
        // A selected process creates a thread. Then an unselected process creates a process with the id of a selected one.
        targets.forked(7, 7);
        targets.forked(3, 9);
        assert!(has(&targets, Some(7)) && !has(&targets, Some(9)));
    }

    #[test]
    fn selected_threads_are_selected_without_their_processes() {
        let mut targets = Targets::running(&[], &[7]);
        targets.forked(7, 8);
        let has = |tid, pid| targets.contains(tid, || Some(pid));
        assert!(has(7, 7) && has(7, 5) && !has(8, 8) && !has(9, 7));
    }

    #[test]
    fn threads_in_and_below_the_selected_cgroups_are_selected_and_those_of_unknown_ones_are_counted() {
        let context = Context::new(Box::new(NoKernel), 0);
        let context = context.with_symbol_options(Default::default(), Processes::Recorded(Default::default()));
        context.with_cgroups(|cgroups| {
            for (id, path) in [(1, "/"), (2, "/a"), (3, "/a/b"), (4, "/c")] {
                cgroups.named(id, path.as_bytes());
            }
            cgroups.follow_tasks();
        });
        context.with_memberships(|tasks| (1..=4).for_each(|id| tasks.contains(id as u64, 10 * id, 10 * id)));
        let mut targets = Targets::recorded(&[], &[]).in_cgroups(&["a".to_owned()]);
        assert_eq!(
            [10, 20, 30, 40, 50, 50].map(|tid| targets.has_cgroup_of(tid, &context)),
            [false, true, true, false, false, false]
        );
        assert_eq!(targets.of_unknown_cgroups(), 1);
        assert!(Targets::recorded(&[], &[]).in_cgroups(&[]).has_cgroup_of(50, &context));
    }

    /// A selection that becomes empty selects no task, not all tasks.
    #[test]
    fn a_process_that_another_one_replaced_leaves_nothing_selected() {
        let mut targets = Targets::running(&[7], &[]);
        targets.forked(3, 7);
        assert!(!targets.contains(7, || Some(7)) && !targets.contains(9, || Some(9)) && !targets.contains(9, || None));
    }

    #[test]
    fn a_recorded_process_may_start_during_the_recording() {
        let mut targets = Targets::recorded(&[7], &[]);
        targets.forked(3, 7);
        targets.forked(7, 8);
        targets.forked(3, 9);
        let has = |targets: &Targets, pid| targets.contains(100, || Some(pid));
        assert!(has(&targets, 7) && has(&targets, 8) && !has(&targets, 9) && !has(&targets, 3));
        // A child stays selected until an unselected process creates a process with its id.
        targets.forked(3, 8);
        assert!(has(&targets, 7) && !has(&targets, 8));
    }
}
