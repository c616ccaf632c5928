//! Detects that a CPU went offline. The kernel then removes the events of this CPU. It does not restore them when the
//! CPU comes online again (`perf_event_exit_cpu()` in kernel/events/core.c).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_format::spec::CpuSet;
use perf_prof_system::{mutex::Mutex, procfs};

use super::Target;

/// How often the kernel's list of online CPUs is read.
const EVERY: Duration = Duration::from_secs(1);

/// The CPUs that went offline and have not been reported yet.
#[derive(Clone, Debug, Default)]
pub(super) struct OfflineCpus(Arc<Mutex<Vec<u32>>>);

impl OfflineCpus {
    /// Returns the CPUs, and removes them from this list.
    pub fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock())
    }

    fn add(&self, cpus: Vec<u32>) {
        self.0.lock().extend(cpus);
    }
}

/// Compares the CPUs of the events with the CPUs that are online.
#[derive(Debug)]
pub(super) struct OfflineCheck {
    /// The CPUs of the events, without those that have gone offline by the last check.
    cpus: CpuSet,
    next: Instant,
    found: OfflineCpus,
}

impl OfflineCheck {
    /// Returns the check for the CPUs of the events; `None` if the events belong to tasks. The kernel keeps events of tasks
    /// when their CPU goes offline.
    pub fn of_target(target: &Target, cpus: Option<CpuSet>, found: &OfflineCpus) -> Option<OfflineCheck> {
        let is_of_cpus = matches!(target, Target::SystemWide { .. } | Target::Cgroups(_));
        cpus.filter(|_| is_of_cpus).map(|cpus| OfflineCheck::new(cpus, found.clone()))
    }

    /// Creates a check of `cpus`. The check adds CPUs that go offline to `found`.
    pub fn new(cpus: CpuSet, found: OfflineCpus) -> OfflineCheck {
        OfflineCheck { cpus, next: Instant::now() + EVERY, found }
    }

    /// Reads the list of online CPUs if `EVERY` has passed since the last time. Returns whether a CPU went offline.
    pub fn is_any_offline(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + EVERY;
        procfs::online_cpus().is_ok_and(|online| self.compare(&online))
    }

    /// Notes that the kernel has hung up the events of a CPU. Returns whether this was not known yet. The CPU may be
    /// online again already.
    pub fn hung_up(&mut self, cpu: u32) -> bool {
        let others = self.cpus.iter().filter(|&other| other != cpu).collect();
        self.compare(&others)
    }

    fn compare(&mut self, online: &CpuSet) -> bool {
        let (left, gone): (Vec<u32>, Vec<u32>) = self.cpus.iter().partition(|&cpu| online.contains(cpu));
        let any = !gone.is_empty();
        if any {
            self.cpus = left.into_iter().collect();
            self.found.add(gone);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_that_goes_offline_is_told_once_even_if_it_comes_back() {
        let found = OfflineCpus::default();
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let mut check = OfflineCheck::new(set("0-3"), found.clone());
        assert!(!check.compare(&set("0-7")));
        assert!(check.compare(&set("0,2-3")));
        assert!(!check.compare(&set("0-3")));
        assert!(check.hung_up(3) && !check.hung_up(1));
        assert_eq!((found.take(), found.take()), (vec![1, 3], vec![]));
    }
}
