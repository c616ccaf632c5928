//! The CPUs, tasks, cgroups or command that the user selected. They become the target of live events.

use std::ffi::OsString;

use perf_prof_format::spec::CpuSet;

use super::{PlanError, RunOption, Target};

/// The target of live events, or the selected samples of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Whether all CPUs are selected.
    pub all_cpus: AllCpus,
    /// The selected CPUs.
    pub cpus: Option<CpuSet>,
    /// The selected processes.
    pub pids: Option<Vec<u32>>,
    /// The selected threads.
    pub tids: Option<Vec<u32>>,
    /// The selected cgroups: paths or glob patterns.
    pub cgroups: Vec<String>,
    /// A command that is the target.
    pub exec: Option<Vec<OsString>>,
    /// A command after the options, as in perf; empty for none. It is the target if no other target is selected.
    /// Otherwise the run ends when the command exits.
    pub command: Vec<OsString>,
}

/// What the selection of all CPUs means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllCpus {
    /// All CPUs are not selected.
    #[default]
    NotSelected,
    /// All CPUs are the target, as in perf. A list of CPUs, tasks or cgroups overrides this target.
    Target,
    /// The events of all tasks are delivered, even if tasks are selected. The script can check which tasks are
    /// selected.
    BesideTasks,
}

impl Selection {
    /// Returns the option that selects tasks.
    pub fn tasks(&self) -> Option<RunOption> {
        let of_threads = self.tids.is_some().then_some(RunOption::Tids);
        if self.pids.is_some() { Some(RunOption::Pids) } else { of_threads }
    }

    /// Returns the target of the events. Also returns a command that is not traced itself, if there is one: the run ends
    /// when this command exits.
    pub fn target(self) -> Result<(Target, Option<Vec<OsString>>), PlanError> {
        let is_of_all = self.all_cpus == AllCpus::Target;
        let given = [
            (RunOption::AllCpus, is_of_all && self.tasks().is_none() && self.cgroups.is_empty()),
            (RunOption::Cpus, self.cpus.is_some()),
            (RunOption::Pids, self.pids.is_some()),
            (RunOption::Tids, self.tids.is_some()),
            (RunOption::Cgroups, !self.cgroups.is_empty()),
            (RunOption::Exec, self.exec.is_some()),
        ];
        let given: Vec<RunOption> = given.into_iter().filter_map(|(option, given)| given.then_some(option)).collect();
        match given[..] {
            // The events of a cgroup are opened on each CPU, so they can also be opened on some CPUs only.
            [RunOption::Cpus, RunOption::Cgroups] if self.all_cpus != AllCpus::BesideTasks => {}
            [RunOption::AllCpus, RunOption::Cpus] | [] | [_] => {}
            [first, second, ..] => return Err(PlanError::TwoTargets(first, second)),
        }
        let Selection { cpus, cgroups, .. } = self;
        let command = Some(self.command).filter(|command| !command.is_empty());
        Ok(match (self.pids, self.tids, self.exec, cpus) {
            (Some(pids), ..) => (Target::Processes(pids), command),
            (_, Some(tids), ..) => (Target::Threads(tids), command),
            (_, _, Some(exec), _) => (Target::Workload(exec), command),
            (.., cpus) if !cgroups.is_empty() => (Target::Cgroups { cgroups, cpus }, command),
            (.., Some(cpus)) => (Target::Cpus(cpus), command),
            (.., None) => match command {
                Some(command) if !is_of_all => (Target::Workload(command), None),
                command => (Target::AllCpus, command),
            },
        })
    }

    /// Returns the target of the events that are delivered. Also returns the selected tasks, if the target contains
    /// other tasks too.
    pub fn target_and_selected_tasks(self) -> Result<(Target, Option<Target>), PlanError> {
        let all_cpus = self.all_cpus;
        match self.target()? {
            (Target::AllCpus, Some(command)) => Ok((Target::AllCpus, Some(Target::Workload(command)))),
            (_, Some(_)) => Err(PlanError::CommandBesideTarget),
            (
                tasks @ (Target::Processes(_) | Target::Threads(_) | Target::Workload(_) | Target::Cgroups { .. }),
                None,
            ) if all_cpus == AllCpus::BesideTasks => Ok((Target::AllCpus, Some(tasks))),
            (target, None) => Ok((target, None)),
        }
    }

    /// Fails if some CPUs are selected, but all are needed.
    pub(super) fn refuse_some_cpus(&self) -> Result<(), PlanError> {
        let is_some_of_all = self.all_cpus == AllCpus::BesideTasks && self.cpus.is_some();
        if is_some_of_all { Err(PlanError::SomeOfAllCpus) } else { Ok(()) }
    }

    /// Fails if an idle task is selected. A recording may contain samples of idle tasks, but no events can be attached
    /// to them.
    pub(super) fn refuse_idle_tasks(&self) -> Result<(), PlanError> {
        let has_idle = |ids: &Option<Vec<u32>>| ids.as_ref().is_some_and(|ids| ids.contains(&0));
        match (has_idle(&self.pids), has_idle(&self.tids)) {
            (true, _) => Err(PlanError::IdleTaskId(RunOption::Pids)),
            (_, true) => Err(PlanError::IdleTaskId(RunOption::Tids)),
            _ => Ok(()),
        }
    }
}
