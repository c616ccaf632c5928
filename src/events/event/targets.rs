//! The tasks that `-p`, `-t` and `--exec` select in a run that traces all tasks.

use std::collections::HashSet;

/// The selected tasks. The processes that a selected process creates during the run are selected too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The selected processes. `None` if processes do not limit the selection. The set may become empty during the run.
    processes: Option<HashSet<i32>>,
    /// The processes that the user named, if they may start during the run.
    named: HashSet<i32>,
    /// The selected threads. `None` if threads do not limit the selection.
    threads: Option<HashSet<i32>>,
}

impl Targets {
    /// Selects the threads that are among `tids` and belong to one of the processes `pids`, which run already. An empty
    /// list does not limit the selection.
    pub fn running(pids: &[u32], tids: &[u32]) -> Targets {
        let ids = |ids: &[u32]| (!ids.is_empty()).then(|| ids.iter().map(|&id| id as i32).collect());
        Targets { processes: ids(pids), named: HashSet::new(), threads: ids(tids) }
    }

    /// Like `running`, for a recording: the processes may start during the run.
    pub fn recorded(pids: &[u32], tids: &[u32]) -> Targets {
        let targets = Targets::running(pids, tids);
        Targets { named: targets.processes.clone().unwrap_or_default(), ..targets }
    }

    /// Notes that the process `parent` created the process `child` during the run.
    pub fn forked(&mut self, parent: i32, child: i32) {
        let Some(processes) = &mut self.processes else { return };
        match processes.contains(&parent) {
            true => _ = processes.insert(child),
            // The id of a selected process was used again.
            false if parent != child && !self.named.contains(&child) => _ = processes.remove(&child),
            false => {}
        }
    }

    /// Returns whether a thread is selected. `process` returns its process, if it is known.
    pub fn contains(&self, tid: i32, process: impl FnOnce() -> Option<i32>) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&tid))
            && self.processes.as_ref().is_none_or(|processes| process().is_some_and(|pid| processes.contains(&pid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_selected_processes_are_selected() {
        let mut targets = Targets::running(&[7], &[]);
        targets.forked(7, 8);
        targets.forked(8, 9);
        targets.forked(3, 4);
        let has = |targets: &Targets, pid| targets.contains(100, || pid);
        assert!([7, 8, 9].iter().all(|&pid| has(&targets, Some(pid))));
        assert!(!has(&targets, Some(4)) && !has(&targets, None));
        // A new thread of a selected process, and an id that another process has now.
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

    /// A selection that has become empty is not a selection of all tasks.
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
        // A child is selected until its number belongs to another process.
        targets.forked(3, 8);
        assert!(has(&targets, 7) && !has(&targets, 8));
    }
}
