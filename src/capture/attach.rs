//! What events are attached to: CPUs, cgroups or threads, also of processes that create threads meanwhile. Opens no event
//! itself.

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::{CaptureError, EventRequest, Target, attr::Follow};
use crate::{
    spec::CpuSet,
    sys::{perf::Attach, procfs},
};

/// A thing that events are attached to, and the CPU of it.
#[derive(Clone, Copy)]
pub(super) struct Attachment<'a> {
    pub to: To<'a>,
    pub cpu: Option<u32>,
}

#[derive(Clone, Copy)]
pub(super) enum To<'a> {
    Cpu,
    Cgroup(BorrowedFd<'a>),
    Thread(u32),
}

impl<'a> Attachment<'a> {
    /// As perf_event_open takes it.
    pub fn attach(&self) -> Attach<'a> {
        match (self.to, self.cpu) {
            (To::Cpu, cpu) => Attach::Cpu(cpu.unwrap_or(0)),
            (To::Cgroup(dir), cpu) => Attach::Cgroup(dir, cpu.unwrap_or(0)),
            (To::Thread(tid), cpu) => Attach::Thread(tid, cpu),
        }
    }

    /// The same on a CPU.
    pub fn on(self, cpu: u32) -> Attachment<'a> {
        Attachment { cpu: Some(cpu), ..self }
    }
}

/// Where events of tasks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// On each CPU one, as rings need it: the kernel maps none of an inherited event that is bound to no CPU.
    EachCpu,
    /// Wherever the task runs.
    Anywhere,
}

/// How often a process that keeps creating threads is listed anew at least, before it is taken as it is.
const LISTINGS: usize = 8;
/// How long at least: of a process whose threads live for 0.2 ms, one attempt in five meets a moment without a new one.
const PATIENCE: Duration = Duration::from_millis(500);

/// Calls `open` with all attachments of `target`, and gives what it gives, and the tasks whose end is the end of it all.
pub(super) fn attach<T>(
    target: &Target,
    events: &[EventRequest],
    binding: Binding,
    mut open: impl FnMut(&[Attachment<'_>], Follow) -> Result<T, CaptureError>,
) -> Result<(T, Vec<u32>), CaptureError> {
    let online = procfs::online_cpus()?;
    let wanted = events.iter().filter_map(|event| event.cpus.as_ref());
    let wanted: Vec<&CpuSet> = wanted.chain(target.cpus()).collect();
    if let Some(cpu) = wanted.iter().flat_map(|cpus| cpus.iter()).find(|&cpu| !online.contains(cpu)) {
        return Err(CaptureError::NoSuchCpu { cpu, online });
    }
    // The CPUs that something is to be opened on: those that were asked for, or all, and those that single events ask for.
    let base = target.cpus().unwrap_or(&online);
    let asked = |cpu| events.iter().any(|event| event.cpus.as_ref().is_some_and(|cpus| cpus.contains(cpu)));
    let cpus: Vec<u32> = online.iter().filter(|&cpu| base.contains(cpu) || asked(cpu)).collect();
    let threads = |tids: &[u32], binding: Binding| -> Vec<Attachment<'static>> {
        let cpus: Vec<Option<u32>> = match binding {
            Binding::EachCpu => cpus.iter().copied().map(Some).collect(),
            Binding::Anywhere => vec![None],
        };
        let on = tids.iter().flat_map(|&tid| cpus.iter().map(move |&cpu| Attachment { to: To::Thread(tid), cpu }));
        on.collect()
    };
    match target {
        Target::SystemWide { .. } => {
            let on: Vec<_> = cpus.iter().map(|&cpu| Attachment { to: To::Cpu, cpu: Some(cpu) }).collect();
            Ok((open(&on, Follow::Nothing)?, Vec::new()))
        }
        Target::Cgroups(directories) => {
            let directories = directories
                .iter()
                .map(|path| File::open(path).map_err(|source| CaptureError::Cgroup { path: path.clone(), source }));
            let directories = directories.collect::<Result<Vec<File>, _>>()?;
            let mut on = Vec::new();
            for &cpu in &cpus {
                on.extend(directories.iter().map(|dir| Attachment { to: To::Cgroup(dir.as_fd()), cpu: Some(cpu) }));
            }
            Ok((open(&on, Follow::Nothing)?, Vec::new()))
        }
        Target::Threads(tids) => {
            all_exist("thread", tids)?;
            // A ring of a thread takes only what is not bound to a CPU (perf_event_set_output), so `cpus=` of an event
            // makes all of them go to the rings of CPUs.
            let by_cpu = binding == Binding::EachCpu && events.iter().any(|event| event.cpus.is_some());
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

/// Attaches to all threads of processes, and to those that they create from now on.
///
/// A thread that appears while this goes on may or may not have inherited the events of the thread that created it:
/// attaching to it as well might count it twice, leaving it out might not count it at all. So the attempt is
/// repeated until no thread appeared during it. The former attempt is closed only when the next one is open: the
/// tracepoints stay in use, and closing the last user of a tracepoint is what is slow.
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
            opened => Some(opened?),
        };
        match opened {
            Some(opened) if is_last || none_but(&tids) => return Ok(opened),
            opened => former = opened.or(former),
        }
    }
    unreachable!("the last attempt is taken as it is")
}

/// Calls `attach` for each attachment, and gives the threads that exited before it was done with them: what was opened on
/// them is harmless.
pub(super) fn to_each<'a>(
    on: &[Attachment<'a>],
    mut attach: impl FnMut(Attachment<'a>) -> Result<(), CaptureError>,
) -> Result<Vec<u32>, CaptureError> {
    let mut gone = Vec::new();
    for &attachment in on {
        match attachment.to {
            To::Thread(tid) if gone.contains(&tid) => {}
            To::Thread(tid) => match attach(attachment) {
                Err(error) if is_no_such_task(&error) => gone.push(tid),
                result => result?,
            },
            To::Cpu | To::Cgroup(_) => attach(attachment)?,
        }
    }
    Ok(gone)
}

/// Whether an event is to be opened on this CPU.
pub(super) fn is_wanted(event: &EventRequest, target: &Target, cpu: Option<u32>) -> bool {
    match (&event.cpus, cpu) {
        (Some(cpus), Some(cpu)) => cpus.contains(cpu),
        (None, Some(cpu)) => target.cpus().is_none_or(|cpus| cpus.contains(cpu)),
        (_, None) => true,
    }
}

/// A mistyped id must not go unnoticed beside others that exist.
fn all_exist(kind: &'static str, ids: &[u32]) -> Result<(), CaptureError> {
    let missing: Vec<u32> = ids.iter().copied().filter(|&id| procfs::comm(id).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(CaptureError::NoSuchTask { kind, ids: missing }) }
}

fn is_no_such_task(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Open { source, .. } if source.errno() == libc::ESRCH)
}
