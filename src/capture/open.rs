//! Opens the events: which descriptors there are, which ring each writes into, which id belongs to which request.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::{
    CaptureError, EventAttr, EventRequest, Mappings, Options, PerfEvent, Presence, Target,
    attr::{self, Follow},
    close::Closing,
};
use crate::{
    abi::{PERF_FORMAT_ID, PERF_FORMAT_LOST},
    spec::CpuSet,
    sys::{
        CallError, limits,
        perf::{self, Attach},
        procfs,
        ring::Ring,
    },
};

/// One perf event descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub fd: OwnedFd,
    /// Which request it is of; `None` for a dummy.
    pub event: Option<usize>,
    /// The index of the ring that it writes into.
    pub ring: usize,
}

/// Everything that was opened.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Dummies come before the events of their attachment.
    pub descriptors: Vec<Descriptor>,
    pub rings: Vec<Ring>,
    /// The descriptor that owns each ring, by index.
    pub owners: Vec<usize>,
    /// Each ring's CPU; `None` for a thread's.
    pub ring_cpus: Vec<Option<u32>>,
    /// Perf id to request.
    pub ids: Vec<(u64, usize)>,
    /// The attr of each request, and last that of the dummies.
    pub attrs: Vec<EventAttr>,
    pub read_format: u64,
    /// The tasks whose end is the capture's end.
    pub tasks: Vec<u32>,
}

/// A thing that events are attached to, and the CPU of it.
#[derive(Clone, Copy)]
struct Attachment<'a> {
    to: To<'a>,
    cpu: Option<u32>,
}

#[derive(Clone, Copy)]
enum To<'a> {
    Cpu,
    Cgroup(BorrowedFd<'a>),
    Thread(u32),
}

/// What perf calls its event that counts nothing and follows tasks.
const DUMMY_NAME: &str = "dummy:HG";

/// How often a process that keeps creating threads is listed anew before it is taken as it is.
const LISTINGS: usize = 8;

/// Opens `events` on `target`; nothing is enabled yet.
pub(super) fn open(target: &Target, events: &[EventRequest], options: &Options) -> Result<Opened, CaptureError> {
    let online = procfs::online_cpus()?;
    let wanted = events.iter().filter_map(|event| event.cpus.as_ref());
    let wanted: Vec<&CpuSet> = wanted.chain(target.cpus()).collect();
    if let Some(cpu) = wanted.iter().flat_map(|cpus| cpus.iter()).find(|&cpu| !online.contains(cpu)) {
        return Err(CaptureError::NoSuchCpu { cpu, online });
    }
    let opener = Opener { events, options, online: &online, restricted: target.cpus() };
    match target {
        Target::SystemWide { .. } => {
            let on = opener.cpus().into_iter().map(|cpu| Attachment { to: To::Cpu, cpu: Some(cpu) });
            opener.open(on.collect(), Follow::Nothing)
        }
        Target::Cgroups(directories) => {
            let directories = directories
                .iter()
                .map(|path| File::open(path).map_err(|source| CaptureError::Cgroup { path: path.clone(), source }));
            let directories = directories.collect::<Result<Vec<File>, _>>()?;
            let mut on = Vec::new();
            for cpu in opener.cpus() {
                on.extend(directories.iter().map(|dir| Attachment { to: To::Cgroup(dir.as_fd()), cpu: Some(cpu) }));
            }
            opener.open(on, Follow::Nothing)
        }
        Target::Threads(tids) => {
            // A ring of a thread takes only what is not bound to a CPU (perf_event_set_output), so `cpus=` of an event
            // makes all of them go to the rings of CPUs.
            let by_cpu = events.iter().any(|event| event.cpus.is_some());
            all_exist("thread", tids)?;
            let mut opened = opener.open(opener.threads(tids, by_cpu), Follow::Nothing)?;
            opened.tasks = tids.clone();
            Ok(opened)
        }
        Target::Workload { pid } => {
            let mut opened = opener.open(opener.threads(&[*pid], true), Follow::ChildrenFromExec)?;
            opened.tasks = vec![*pid];
            Ok(opened)
        }
        Target::Processes(pids) => {
            all_exist("process", pids)?;
            opener.open_processes(pids)
        }
    }
}

struct Opener<'a> {
    events: &'a [EventRequest],
    options: &'a Options,
    online: &'a CpuSet,
    restricted: Option<&'a CpuSet>,
}

impl<'a> Opener<'a> {
    /// The CPUs that need a ring: those that were asked for, or all, and those that single events ask for.
    fn cpus(&self) -> Vec<u32> {
        let base = self.restricted.unwrap_or(self.online);
        let asked = |cpu| self.events.iter().any(|event| event.cpus.as_ref().is_some_and(|cpus| cpus.contains(cpu)));
        self.online.iter().filter(|&cpu| base.contains(cpu) || asked(cpu)).collect()
    }

    fn threads(&self, tids: &[u32], by_cpu: bool) -> Vec<Attachment<'static>> {
        let cpus: Vec<Option<u32>> = if by_cpu { self.cpus().into_iter().map(Some).collect() } else { vec![None] };
        let on = tids.iter().flat_map(|&tid| cpus.iter().map(move |&cpu| Attachment { to: To::Thread(tid), cpu }));
        on.collect()
    }

    /// Attaches to all threads of processes, and to those that they create from now on.
    ///
    /// A thread that appears while this goes on may or may not have inherited the events of the thread that created it:
    /// attaching to it as well might count it twice, leaving it out might not count it at all. So the attempt is
    /// repeated until no thread appeared during it. The former attempt is closed only when the next one is open: the
    /// tracepoints stay in use, and closing the last user of a tracepoint is what is slow.
    fn open_processes(&self, pids: &[u32]) -> Result<Opened, CaptureError> {
        let list = || -> Vec<u32> { pids.iter().flat_map(|&pid| procfs::tasks(pid).unwrap_or_default()).collect() };
        let mut tids = list();
        let mut former = None;
        for attempt in 1.. {
            if tids.is_empty() {
                return Err(CaptureError::NoSuchTask { kind: "process", ids: pids.to_vec() });
            }
            let mut opened = match self.open(self.threads(&tids, true), Follow::Children) {
                Err(CaptureError::NoSuchTask { .. }) if attempt < LISTINGS => Opened::default(),
                opened => opened?,
            };
            let now = list();
            let complete = now.iter().all(|tid| tids.contains(tid)) && !opened.descriptors.is_empty();
            if complete || attempt >= LISTINGS {
                opened.tasks = pids.to_vec();
                return Ok(opened);
            }
            tids = now;
            former.replace(opened);
        }
        unreachable!("the last attempt is taken as it is")
    }

    fn open(&self, on: Vec<Attachment<'_>>, follow: Follow) -> Result<Opened, CaptureError> {
        let mut opened = Opened { read_format: PERF_FORMAT_ID | PERF_FORMAT_LOST, ..Opened::default() };
        let names = self.events.iter().map(|event| event.name.as_str()).chain([DUMMY_NAME]);
        opened.attrs = names.map(|name| EventAttr { name: name.to_owned(), ..EventAttr::default() }).collect();
        match self.open_into(&mut opened, on, follow) {
            Ok(()) => Ok(opened),
            Err(error) => {
                // The user must not wait for the message.
                Closing::of(self.events).close(opened.descriptors);
                Err(error)
            }
        }
    }

    fn open_into(&self, opened: &mut Opened, on: Vec<Attachment<'_>>, follow: Follow) -> Result<(), CaptureError> {
        let needed = on.len() * (self.events.len() + 1);
        let mut gone = Vec::new();
        for attachment in on {
            if let To::Thread(tid) = attachment.to {
                if gone.contains(&tid) {
                    continue;
                }
                match self.attach(opened, attachment, follow, needed) {
                    // The thread exited before we were done with it; what was opened on it is harmless.
                    Err(error) if is_no_such_task(&error) => gone.push(tid),
                    result => result?,
                }
            } else {
                self.attach(opened, attachment, follow, needed)?;
            }
        }
        if opened.rings.is_empty() {
            return Err(CaptureError::NoSuchTask { kind: "thread", ids: gone });
        }
        Ok(())
    }

    /// Opens the dummy and the events of one attachment.
    fn attach(
        &self,
        opened: &mut Opened,
        on: Attachment<'_>,
        follow: Follow,
        needed: usize,
    ) -> Result<(), CaptureError> {
        let attach = match (on.to, on.cpu) {
            (To::Cpu, cpu) => Attach::Cpu(cpu.unwrap_or(0)),
            (To::Cgroup(dir), cpu) => Attach::Cgroup(dir, cpu.unwrap_or(0)),
            (To::Thread(tid), cpu) => Attach::Thread(tid, cpu),
        };

        const DUMMY: &str = "task events";
        let common = attr::common_members(self.events, self.options.members);
        let mut attr = attr::dummy(self.options, follow, common, opened.read_format);
        let mut fd = open_event(&attr, attach);
        // PERF_FORMAT_LOST came with Linux 6.0, build ids with 5.12.
        if opened.owners.is_empty() && fd.as_ref().is_err_and(|error| error.errno() == libc::EINVAL) {
            opened.read_format &= !PERF_FORMAT_LOST;
            attr.read_format = opened.read_format;
            fd = open_event(&attr, attach);
        }
        if matches!(self.options.mappings, Mappings::Identified(_))
            && fd.as_ref().is_err_and(|e| [libc::EINVAL, libc::E2BIG].contains(&e.errno()))
        {
            attr.set_build_id(0);
            fd = open_event(&attr, attach);
        }
        let fd = fd.map_err(|error| match error.errno() {
            libc::EMFILE | libc::ENFILE => CaptureError::too_many_files(needed),
            _ => CaptureError::open(&EventRequest::new(DUMMY, PerfEvent::default()), error),
        })?;
        let owner = on.cpu.and_then(|cpu| opened.ring_cpus.iter().position(|&ring| ring == Some(cpu)));
        let ring = match owner {
            Some(ring) => {
                perf::set_output(fd.as_fd(), opened.descriptors[opened.owners[ring]].fd.as_fd())?;
                ring
            }
            None => {
                let ring = Ring::of(fd.as_fd(), self.options.ring_bytes).map_err(|error| self.unmapped(on, error))?;
                opened.rings.push(ring);
                opened.ring_cpus.push(on.cpu);
                opened.owners.push(opened.descriptors.len());
                opened.rings.len() - 1
            }
        };
        opened.attrs[self.events.len()].opened(attr, perf::id(fd.as_fd())?);
        opened.descriptors.push(Descriptor { fd, event: None, ring });

        for (index, event) in self.events.iter().enumerate() {
            let on_this_cpu = match (&event.cpus, on.cpu) {
                (Some(cpus), Some(cpu)) => cpus.contains(cpu),
                (None, Some(cpu)) => self.restricted.is_none_or(|cpus| cpus.contains(cpu)),
                (_, None) => true,
            };
            if !on_this_cpu {
                continue;
            }
            let samples = attr::samples(event, common, opened.read_format);
            let attr = attr::event(event, &samples, self.options, follow);
            let fd = match open_event(&attr, attach) {
                Err(error) if event.presence == Presence::IfAllowed && error.errno() == libc::EPERM => {
                    continue;
                }
                Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                    return Err(CaptureError::too_many_files(needed));
                }
                result => result.map_err(|error| CaptureError::open(event, error))?,
            };
            if let Some(filter) = &event.filter {
                set_filter(fd.as_fd(), &event.name, filter)?;
            }
            perf::set_output(fd.as_fd(), opened.descriptors[opened.owners[ring]].fd.as_fd())?;
            let id = perf::id(fd.as_fd())?;
            opened.ids.push((id, index));
            opened.attrs[index].opened(attr, id);
            opened.descriptors.push(Descriptor { fd, event: Some(index), ring });
        }
        Ok(())
    }

    fn unmapped(&self, on: Attachment<'_>, error: CallError) -> CaptureError {
        let place = match (on.cpu, on.to) {
            (Some(cpu), _) => format!("CPU {cpu}"),
            (None, To::Thread(tid)) => format!("thread {tid}"),
            (None, _) => "a thread".to_owned(),
        };
        let (kib, mlock_kb) = (self.options.ring_bytes / 1024, procfs::perf_event_mlock_kb());
        CaptureError::Mmap { kib, place, mlock_kb, source: error.source }
    }
}

/// A mistyped id must not go unnoticed beside others that exist.
fn all_exist(kind: &'static str, ids: &[u32]) -> Result<(), CaptureError> {
    let missing: Vec<u32> = ids.iter().copied().filter(|&id| procfs::comm(id).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(CaptureError::NoSuchTask { kind, ids: missing }) }
}

/// Opens an event; where descriptors run out, raises the soft limit once and tries again.
fn open_event(attr: &crate::abi::perf_event_attr, attach: Attach<'_>) -> Result<OwnedFd, CallError> {
    match perf::open(attr, attach) {
        Err(error) if error.errno() == libc::EMFILE && limits::raise_file_limit()? => perf::open(attr, attach),
        result => result,
    }
}

fn set_filter(fd: BorrowedFd<'_>, event: &str, filter: &str) -> Result<(), CaptureError> {
    let refused =
        |source: io::Error| CaptureError::Filter { event: event.to_owned(), filter: filter.to_owned(), source };
    let text = CString::new(filter).map_err(|error| refused(error.into()))?;
    perf::set_filter(fd, &text).map_err(|error| refused(error.source))
}

fn is_no_such_task(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Open { source, .. } if source.errno() == libc::ESRCH)
}
