//! The tasks that `-p`, `-t`, `--cgroups` and `--exec` select in a run that traces all tasks.

use std::collections::HashSet;

use super::{Context, SelectedCgroups};

/// The tasks whose spans are delivered, if spans of all tasks are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpansOf {
    /// Only the selected tasks.
    #[default]
    SelectedTasks,
    /// All tasks. The script can check which of them are selected.
    AllTasks,
}

/// The selected tasks. The processes that a selected process creates during the run are selected too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The selected processes. `None` if processes do not limit the selection. The set may become empty during the run.
    processes: Option<HashSet<i32>>,
    /// The processes that the user named. Empty unless they may start during the run.
    named: HashSet<i32>,
    /// The selected threads. `None` if threads do not limit the selection.
    threads: Option<HashSet<i32>>,
    /// The selected cgroups. `None` if cgroups do not limit the selection.
    cgroups: Option<SelectedCgroups>,
    /// The threads that were not selected because their cgroups were not known.
    of_unknown_cgroups: HashSet<i32>,
}

/// The maximum number of threads of unknown cgroups that are counted.
const MOST_UNKNOWN: usize = 1 << 16;

impl Targets {
    /// Selects the threads that are among `tids` and belong to one of the processes `pids`, which are already running. An empty
    /// list does not limit the selection.
    pub fn running(pids: &[u32], tids: &[u32]) -> Targets {
        let ids = |ids: &[u32]| (!ids.is_empty()).then(|| ids.iter().map(|&id| id as i32).collect());
        let (named, of_unknown_cgroups) = (HashSet::new(), HashSet::new());
        Targets { processes: ids(pids), named, threads: ids(tids), cgroups: None, of_unknown_cgroups }
    }

    /// Limits the selection to threads in one of these cgroups, or below one of them. An empty list does not limit the
    /// selection.
    pub fn in_cgroups(self, names: &[String]) -> Targets {
        let cgroups = (!names.is_empty()).then(|| SelectedCgroups::new(names.iter().cloned()));
        Targets { cgroups, ..self }
    }

    /// Like `running`, but for a recording, whose processes may start during the run.
    pub fn recorded(pids: &[u32], tids: &[u32]) -> Targets {
        let targets = Targets::running(pids, tids);
        Targets { named: targets.processes.clone().unwrap_or_default(), ..targets }
    }

    /// Notes that the process `parent` created the process `child` during the run.
    pub fn forked(&mut self, parent: i32, child: i32) {
        let Some(processes) = &mut self.processes else { return };
        match processes.contains(&parent) {
            true => _ = processes.insert(child),
            // A process that is not selected got the id of a selected one, which must have ended.
            false if parent != child && !self.named.contains(&child) => _ = processes.remove(&child),
            false => {}
        }
    }

    /// Returns whether a thread is selected. `process` returns its process, if it is known.
    pub fn contains(&self, tid: i32, process: impl FnOnce() -> Option<i32>) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&tid))
            && self.processes.as_ref().is_none_or(|processes| process().is_some_and(|pid| processes.contains(&pid)))
    }

    /// Returns whether the cgroup of a thread is selected. `context` has the cgroups of threads and their names.
    pub fn has_cgroup_of(&mut self, tid: i32, context: &Context) -> bool {
        let Some(cgroups) = &mut self.cgroups else { return true };
        let id = context.cgroup_of_task(tid);
        if id == 0 && self.of_unknown_cgroups.len() < MOST_UNKNOWN {
            self.of_unknown_cgroups.insert(tid);
        }
        cgroups.contains(id, || context.cgroup_path(id))
    }

    /// Returns the number of threads that were not selected because their cgroups were not known.
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
        // A selected process gets a new thread, and an unselected process gets the id of a selected one.
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

    /// If a selection becomes empty, it does not select all tasks.
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
        // A child is selected until another process gets its id.
        targets.forked(3, 8);
        assert!(has(&targets, 7) && !has(&targets, 8));
    }
}
