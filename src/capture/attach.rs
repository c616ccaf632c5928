//! Lists what events are attached to: CPUs, cgroups or threads. Repeats this for processes that keep creating threads.
//! Opens no events itself.

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use perf_prof_format::spec::CpuSet;
use perf_prof_system::{perf::Attach, procfs};

use super::{CaptureError, EventRequest, Target, Writer, attr::Follow};

/// What an event is attached to: a target and a CPU.
#[derive(Clone, Copy)]
pub(super) struct Attachment<'a> {
    pub to: AttachTo<'a>,
    pub cpu: Option<u32>,
}

#[derive(Clone, Copy)]
pub(super) enum AttachTo<'a> {
    Cpu,
    /// The directory of a cgroup, and its index among the cgroups of the target.
    Cgroup(BorrowedFd<'a>, usize),
    Thread(u32),
}

impl<'a> Attachment<'a> {
    /// Returns the target in the form that perf_event_open takes.
    pub fn attach(&self) -> Attach<'a> {
        match (self.to, self.cpu) {
            (AttachTo::Cpu, cpu) => Attach::Cpu(cpu.unwrap_or(0)),
            (AttachTo::Cgroup(dir, _), cpu) => Attach::Cgroup(dir, cpu.unwrap_or(0)),
            (AttachTo::Thread(tid), cpu) => Attach::Thread(tid, cpu),
        }
    }

    /// Returns the index of the cgroup; `None` if the target is not a cgroup.
    pub fn cgroup(&self) -> Option<usize> {
        match self.to {
            AttachTo::Cgroup(_, index) => Some(index),
            AttachTo::Cpu | AttachTo::Thread(_) => None,
        }
    }

    /// Returns the same attachment on the CPU `cpu`.
    pub fn on_cpu(self, cpu: u32) -> Attachment<'a> {
        Attachment { cpu: Some(cpu), ..self }
    }
}

/// The CPUs on which the events of a task are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// One event on each CPU. Rings need this: the kernel maps no ring for an inherited event that is bound to no CPU.
    EachCpu,
    /// One event that counts on any CPU where the task runs.
    Anywhere,
}

/// The minimum number of attempts to attach to all threads of a process that keeps creating threads. After this many
/// attempts and after `PATIENCE`, perf-prof accepts an attempt although threads may be missing.
const LISTINGS: usize = 8;
/// The minimum duration of all attempts together. If the threads of a process live for 0.2 ms, one attempt in five sees no
/// new thread.
const PATIENCE: Duration = Duration::from_millis(500);

/// Calls `open` with all attachments of `target`. Returns the result of `open`, and the ids of the tasks whose exit
/// ends the capture.
pub(super) fn attach<T>(
    target: &Target,
    events: &[EventRequest],
    binding: Binding,
    mut open: impl FnMut(&[Attachment<'_>], Follow) -> Result<T, CaptureError>,
) -> Result<(T, Vec<u32>), CaptureError> {
    let online = procfs::online_cpus()?;
    let wanted = events.iter().filter_map(|event| event.cpus.as_ref());
    let wanted: Vec<&CpuSet> = wanted.chain(target.cpus()).collect();
    // A list of CPUs may contain CPUs that this machine does not have, as in taskset. But at least one CPU of each list
    // must be online.
    if let Some(cpus) = wanted.iter().find(|cpus| !cpus.iter().any(|cpu| online.contains(cpu))) {
        return Err(CaptureError::NoSuchCpu { cpus: (*cpus).clone(), online });
    }
    // Events are opened on the CPUs of the target, and on the CPUs of `cpus=` of each event. A target without a list
    // means all online CPUs.
    let base = target.cpus().unwrap_or(&online);
    let asked = |cpu| events.iter().any(|event| event.cpus.as_ref().is_some_and(|cpus| cpus.contains(cpu)));
    let cpus: Vec<u32> = online.iter().filter(|&cpu| base.contains(cpu) || asked(cpu)).collect();
    let threads = |tids: &[u32], binding: Binding| -> Vec<Attachment<'static>> {
        let cpus: Vec<Option<u32>> = match binding {
            Binding::EachCpu => cpus.iter().copied().map(Some).collect(),
            Binding::Anywhere => vec![None],
        };
        let on =
            tids.iter().flat_map(|&tid| cpus.iter().map(move |&cpu| Attachment { to: AttachTo::Thread(tid), cpu }));
        on.collect()
    };
    match target {
        Target::SystemWide { .. } | Target::UntilExit(_) => {
            let on: Vec<_> = cpus.iter().map(|&cpu| Attachment { to: AttachTo::Cpu, cpu: Some(cpu) }).collect();
            let ends_with = if let Target::UntilExit(tasks) = target { existing_tasks(tasks)? } else { Vec::new() };
            Ok((open(&on, Follow::Nothing)?, ends_with))
        }
        Target::Cgroups(directories) => {
            let directories = directories
                .iter()
                .map(|path| File::open(path).map_err(|source| CaptureError::Cgroup { path: path.clone(), source }));
            let directories = directories.collect::<Result<Vec<File>, _>>()?;
            let mut on = Vec::new();
            for &cpu in &cpus {
                let to = directories.iter().enumerate().map(|(index, dir)| AttachTo::Cgroup(dir.as_fd(), index));
                on.extend(to.map(|to| Attachment { to, cpu: Some(cpu) }));
            }
            Ok((open(&on, Follow::Nothing)?, Vec::new()))
        }
        Target::Threads(tids) => {
            all_exist("thread", tids)?;
            // An event that is bound to a CPU cannot write into a thread's ring (perf_event_set_output). So if any
            // event has `cpus=` or is written by a BPF program, all events use one ring per CPU.
            let is_of_cpus = |event: &EventRequest| event.cpus.is_some() || event.writer == Writer::Program;
            let by_cpu = binding == Binding::EachCpu && events.iter().any(is_of_cpus);
            let binding = if by_cpu { Binding::EachCpu } else { Binding::Anywhere };
            Ok((open(&threads(tids, binding), Follow::Nothing)?, tids.clone()))
        }
        Target::Workload { pid } => Ok((open(&threads(&[*pid], binding), Follow::ChildrenFromExec)?, vec![*pid])),
        Target::Processes(pids) => {
            all_exist("process", pids)?;
            Ok((to_processes(pids, |tids| open(&threads(tids, binding), Follow::Children))?, pids.clone()))
        }
    }
}

/// Returns the online CPUs that are not among `on`, if the target is a list of CPUs.
pub(super) fn other_cpus(target: &Target, on: &[Attachment<'_>]) -> Result<Vec<Attachment<'static>>, CaptureError> {
    if target.cpus().is_none() {
        return Ok(Vec::new());
    }
    let online = procfs::online_cpus()?;
    let others = online.iter().filter(|&cpu| on.iter().all(|attachment| attachment.cpu != Some(cpu)));
    Ok(others.map(|cpu| Attachment { to: AttachTo::Cpu, cpu: Some(cpu) }).collect())
}

/// Returns the ids of the tasks of a target. Fails if any of the tasks is missing.
fn existing_tasks(target: &Target) -> Result<Vec<u32>, CaptureError> {
    match target {
        Target::Processes(pids) => all_exist("process", pids).map(|()| pids.clone()),
        Target::Threads(tids) => all_exist("thread", tids).map(|()| tids.clone()),
        Target::Workload { pid } => Ok(vec![*pid]),
        Target::SystemWide { .. } | Target::Cgroups(_) | Target::UntilExit(_) => Ok(Vec::new()),
    }
}

/// Attaches to all threads of the processes, and to the threads that these threads create later.
///
/// A thread that appears during the attempt may or may not have inherited events already. If perf-prof attaches to this
/// thread too, the thread may be counted twice. If perf-prof does not, the thread may not be counted at all. So
/// perf-prof repeats the attempt until no thread appears during it. The previous attempt is closed only after the next
/// one is open, so that the tracepoints stay in use: the kernel needs a long time to close the last event of a
/// tracepoint.
fn to_processes<T>(pids: &[u32], mut open: impl FnMut(&[u32]) -> Result<T, CaptureError>) -> Result<T, CaptureError> {
    let list = || -> Vec<u32> { pids.iter().flat_map(|&pid| procfs::tasks(pid).unwrap_or_default()).collect() };
    let none_but = |tids: &[u32]| {
        let mut gone_or_known = pids.iter().map(|&pid| match procfs::all_tasks_of(pid) {
            Some(now) => now.iter().all(|tid| tids.contains(tid)),
            None => procfs::comm(pid).is_none(),
        });
        gone_or_known.all(|known| known)
    };
    let mut former = None;
    let begun = Instant::now();
    for attempt in 1.. {
        let tids = list();
        if tids.is_empty() {
            return Err(CaptureError::NoSuchTask { kind: "process", ids: pids.to_vec() });
        }
        let is_last = attempt >= LISTINGS && begun.elapsed() > PATIENCE;
        let opened = match open(&tids) {
            Err(CaptureError::NoSuchTask { .. }) if !is_last => None,
            // The descriptors do not suffice for two attempts at the same time, so the previous attempt is closed first.
            Err(CaptureError::TooManyFiles { .. }) if former.is_some() => {
                former = None;
                None
            }
            opened => Some(opened?),
        };
        match opened {
            Some(opened) if is_last || none_but(&tids) => return Ok(opened),
            opened => former = opened.or(former),
        }
    }
    unreachable!("the last attempt is always accepted")
}

/// Calls `attach` for each attachment. Returns the threads that exited before all of their events were opened. The
/// descriptors that are already open on such a thread are kept, because they do no harm.
pub(super) fn to_each<'a>(
    on: &[Attachment<'a>],
    mut attach: impl FnMut(Attachment<'a>) -> Result<(), CaptureError>,
) -> Result<Vec<u32>, CaptureError> {
    let mut gone = Vec::new();
    for &attachment in on {
        match attachment.to {
            AttachTo::Thread(tid) if gone.contains(&tid) => {}
            AttachTo::Thread(tid) => match attach(attachment) {
                Err(error) if is_no_such_task(&error) => gone.push(tid),
                result => result?,
            },
            AttachTo::Cpu | AttachTo::Cgroup(..) => attach(attachment)?,
        }
    }
    Ok(gone)
}

/// Returns whether `event` has to be opened on the CPU and the cgroup of `on`.
pub(super) fn is_wanted(event: &EventRequest, target: &Target, on: &Attachment<'_>) -> bool {
    let is_of_cpu = match (&event.cpus, on.cpu) {
        (Some(cpus), Some(cpu)) => cpus.contains(cpu),
        (None, Some(cpu)) => target.cpus().is_none_or(|cpus| cpus.contains(cpu)),
        (_, None) => true,
    };
    is_of_cpu && (event.cgroup.is_none() || event.cgroup == on.cgroup())
}

/// Fails if any of the tasks is missing. So a mistyped id is reported even if the other ids exist.
fn all_exist(kind: &'static str, ids: &[u32]) -> Result<(), CaptureError> {
    let missing: Vec<u32> = ids.iter().copied().filter(|&id| procfs::comm(id).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(CaptureError::NoSuchTask { kind, ids: missing }) }
}

fn is_no_such_task(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Open { source, .. } if source.errno() == libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::mpsc};

    use super::*;

    /// The previous attempt is kept until the next one is open. If the descriptors do not suffice for two attempts, the
    /// next attempt must not fail.
    #[test]
    fn an_attempt_without_enough_descriptors_is_repeated_without_the_previous_one() {
        struct Attempt<'a>(&'a Cell<usize>);
        impl Drop for Attempt<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let (open, attempts) = (Cell::new(0), Cell::new(0));
        let (mut end, mut threads) = (Vec::new(), Vec::new());
        let attached = to_processes(&[std::process::id()], |_| {
            attempts.set(attempts.get() + 1);
            if open.get() > 0 {
                return Err(CaptureError::TooManyFiles { needed: 2, others: 1, limit: 2, hard: 2 });
            }
            open.set(1);
            if attempts.get() < 4 {
                // This thread was created after the attempt listed the threads.
                let (sender, receiver) = mpsc::channel::<()>();
                end.push(sender);
                threads.push(std::thread::spawn(move || receiver.recv()));
            }
            Ok(Attempt(&open))
        });
        assert!(attached.is_ok() && attempts.get() > 4, "{} attempts", attempts.get());
        drop((attached, end));
        assert_eq!(open.get(), 0);
    }
}
