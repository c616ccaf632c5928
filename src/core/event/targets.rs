//! The tasks that `-p`, `-t` and `--exec` select in a run that traces all tasks.

use std::collections::HashSet;

/// The selected tasks. The processes that a selected process creates during the run are selected too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    processes: HashSet<i32>,
    threads: HashSet<i32>,
}

impl Targets {
    /// Selects the threads that are among `tids` and belong to one of the processes `pids`. An empty list does not limit
    /// the selection.
    pub fn new(pids: &[u32], tids: &[u32]) -> Targets {
        let ids = |ids: &[u32]| ids.iter().map(|&id| id as i32).collect();
        Targets { processes: ids(pids), threads: ids(tids) }
    }

    /// Notes that the process `parent` created the process `child` during the run.
    pub fn forked(&mut self, parent: i32, child: i32) {
        match self.processes.contains(&parent) {
            true => _ = self.processes.insert(child),
            // The id of a selected process was used again.
            false if parent != child => _ = self.processes.remove(&child),
            false => {}
        }
    }

    /// Returns whether a thread is selected. `process` returns its process, if it is known.
    pub fn contains(&self, tid: i32, process: impl FnOnce() -> Option<i32>) -> bool {
        (self.threads.is_empty() || self.threads.contains(&tid))
            && (self.processes.is_empty() || process().is_some_and(|pid| self.processes.contains(&pid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_selected_processes_are_selected() {
        let mut targets = Targets::new(&[7], &[]);
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
        let mut targets = Targets::new(&[], &[7]);
        targets.forked(7, 8);
        let has = |tid, pid| targets.contains(tid, || Some(pid));
        assert!(has(7, 7) && has(7, 5) && !has(8, 8) && !has(9, 7));
    }
}
