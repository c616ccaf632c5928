//! Opens the events: which descriptors there are, which ring each writes into, which id belongs to which request.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::{
    CaptureError, EventAttr, EventRequest, Options, PerfEvent, Presence, Switching, Target, Telling,
    attach::{self, Attachment, Binding, To},
    attr::{self, Follow},
    close::Closing,
    context::{self, Kept, Until},
    group,
    refusal::{self, Use},
};
use crate::{
    abi::{PERF_FORMAT_ID, PERF_FORMAT_LOST, perf_event_attr},
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

impl Descriptor {
    /// What closing it takes.
    pub fn into_parts(self) -> (Option<usize>, OwnedFd) {
        (self.event, self.fd)
    }
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
    /// The perf id of each ring's owner.
    pub ring_ids: Vec<u64>,
    /// Perf id to request.
    pub ids: Vec<(u64, usize)>,
    /// The attr of each request, and last that of the dummies.
    pub attrs: Vec<EventAttr>,
    pub read_format: u64,
    /// The tasks whose end is the capture's end.
    pub tasks: Vec<u32>,
    /// What keeps the tasks' contexts their own.
    pub contexts: Kept,
}

/// What perf calls its event that counts nothing and follows tasks.
const DUMMY_NAME: &str = "dummy:HG";

/// What messages call it.
const DUMMY: &str = "task events";

/// Opens `events` on `target`; nothing is enabled yet.
pub(super) fn open(target: &Target, events: &[EventRequest], options: &Options) -> Result<Opened, CaptureError> {
    let opener = Opener { target, events, options };
    let (opened, tasks) = attach::attach(target, events, Binding::EachCpu, |on, follow| opener.open(on, follow))?;
    Ok(Opened { tasks, ..opened })
}

struct Opener<'a> {
    target: &'a Target,
    events: &'a [EventRequest],
    options: &'a Options,
}

impl Opener<'_> {
    fn open(&self, on: &[Attachment<'_>], follow: Follow) -> Result<Opened, CaptureError> {
        let mut opened = Opened { read_format: PERF_FORMAT_ID | PERF_FORMAT_LOST, ..Opened::default() };
        let names = self.events.iter().map(|event| event.name.as_str()).chain([DUMMY_NAME]);
        opened.attrs = names.map(|name| EventAttr { name: name.to_owned(), ..EventAttr::default() }).collect();
        opened.attrs.iter_mut().zip(self.events).for_each(|(attr, event)| attr.grouping = event.grouping);
        match self.open_into(&mut opened, on, follow) {
            Ok(()) => Ok(opened),
            Err(error) => {
                // The user must not wait for the message.
                Closing::of(self.events).close(opened.descriptors.into_iter().map(Descriptor::into_parts));
                Err(error)
            }
        }
    }

    fn open_into(&self, opened: &mut Opened, on: &[Attachment<'_>], follow: Follow) -> Result<(), CaptureError> {
        let needed = on.len() * (self.events.len() + 1);
        let until = match (follow, self.options.switching) {
            (_, Switching::Repeated) => Until::Closed,
            (Follow::Children, Switching::Once) => Until::Enabled,
            (Follow::ChildrenFromExec | Follow::Nothing, Switching::Once) => Until::Opened,
        };
        opened.contexts = context::keep(self.events, on, follow, until);
        let gone = attach::to_each(on, |attachment| self.attach(opened, attachment, follow, needed))?;
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
        let attach = on.attach();
        let common = attr::common_members(self.events, self.options.members);
        let dummy = |read_format: u64| attr::dummy(self.options, follow, common, read_format);
        // The first one finds out.
        let otherwise = opened.owners.is_empty().then_some(opened.read_format & !PERF_FORMAT_LOST);
        let open = |attr: &_| open_event(attr, attach, None);
        let (attr, fd) = as_the_kernel_knows(opened.read_format, otherwise, dummy, open);
        opened.read_format = attr.read_format;
        let fd = fd.map_err(|error| self.without_dummy(on, error, needed))?;
        let owner = on.cpu.and_then(|cpu| opened.ring_cpus.iter().position(|&ring| ring == Some(cpu)));
        let id = perf::id(fd.as_fd())?;
        let ring = match owner {
            Some(ring) => {
                perf::set_output(fd.as_fd(), opened.descriptors[opened.owners[ring]].fd.as_fd())?;
                ring
            }
            None => {
                let ring = Ring::of(fd.as_fd(), self.options.ring_bytes).map_err(|error| self.unmapped(on, error))?;
                opened.rings.push(ring);
                opened.ring_cpus.push(on.cpu);
                opened.ring_ids.push(id);
                opened.owners.push(opened.descriptors.len());
                opened.rings.len() - 1
            }
        };
        opened.attrs[self.events.len()].opened(attr, id);
        opened.descriptors.push(Descriptor { fd, event: None, ring });

        let mine = opened.descriptors.len();
        for (index, event) in self.events.iter().enumerate() {
            if !attach::is_wanted(event, self.target, on.cpu) {
                continue;
            }
            let samples = attr::samples(event, common, opened.read_format);
            let attr = attr::event(event, &samples, self.options, follow);
            let leader = group::leader_of(self.events, index);
            let leader = leader.and_then(|leader| opened.descriptors[mine..].iter().find(|d| d.event == Some(leader)));
            let fd = match open_event(&attr, attach, leader.map(|leader| leader.fd.as_fd())) {
                Err(error) if event.presence == Presence::IfAllowed && error.errno() == libc::EPERM => {
                    continue;
                }
                Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                    return Err(CaptureError::too_many_files(needed));
                }
                result => result.map_err(|error| CaptureError::open(event, Use::Sampled, Some(on.to), error))?,
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

    /// Why the dummy was refused. It asks for less than any event, so whoever may not have it may have none; but for what is
    /// told beside them.
    fn without_dummy(&self, on: Attachment<'_>, error: CallError, needed: usize) -> CaptureError {
        if let (libc::EINVAL, Telling::Told) = (error.errno(), self.options.side_band.cgroups) {
            return CaptureError::no_cgroups(error);
        }
        let of_namespaces = refusal::of_namespaces(&self.options.side_band);
        match (error.errno(), of_namespaces, self.events.first()) {
            (libc::EMFILE | libc::ENFILE, ..) => CaptureError::too_many_files(needed),
            (libc::EACCES | libc::EPERM, Some(refusal), _) => {
                CaptureError::Permission { event: "namespaces of tasks".to_owned(), refusal }
            }
            (libc::EACCES | libc::EPERM, None, Some(event)) => {
                CaptureError::open(event, Use::Sampled, Some(on.to), error)
            }
            _ => CaptureError::open(&EventRequest::new(DUMMY, PerfEvent::default()), Use::Sampled, Some(on.to), error),
        }
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

/// Opens a dummy as this kernel knows it, and gives it with what came of it: PERF_FORMAT_LOST came with Linux 6.0, build ids
/// with 5.12. One of another `read_format` is made anew, without all that kernels without it may not know, so that all dummies
/// tell the same.
fn as_the_kernel_knows<T>(
    read_format: u64,
    otherwise: Option<u64>,
    dummy: impl Fn(u64) -> perf_event_attr,
    open: impl Fn(&perf_event_attr) -> Result<T, CallError>,
) -> (perf_event_attr, Result<T, CallError>) {
    let is_refused = |opened: &Result<T, CallError>, errnos: &[i32]| {
        opened.as_ref().is_err_and(|error| errnos.contains(&error.errno()))
    };
    let mut attr = dummy(read_format);
    let mut opened = open(&attr);
    if let (Some(read_format), true) = (otherwise, is_refused(&opened, &[libc::EINVAL])) {
        attr = dummy(read_format);
        opened = open(&attr);
    }
    if attr.build_id() == 1 && is_refused(&opened, &[libc::EINVAL, libc::E2BIG]) {
        attr.set_build_id(0);
        opened = open(&attr);
    }
    (attr, opened)
}

/// Opens an event, in the group of `leader` if there is one; where descriptors run out, raises the soft limit once and tries
/// again.
pub(super) fn open_event(
    attr: &perf_event_attr,
    attach: Attach<'_>,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, CallError> {
    let open = || perf::open_in_group(attr, attach, leader);
    match open() {
        Err(error) if error.errno() == libc::EMFILE && limits::raise_file_limit()? => open(),
        // So newer kernels refuse a leader whose task has exited since it was opened; alone they would refuse the task.
        Err(error) if error.errno() == libc::ENODEV && leader.is_some() => match perf::open(attr, attach) {
            Err(alone) if alone.errno() == libc::ESRCH => Err(alone),
            _ => Err(error),
        },
        result => result,
    }
}

/// Lets a tracepoint's filter choose.
pub(super) fn set_filter(fd: BorrowedFd<'_>, event: &str, filter: &str) -> Result<(), CaptureError> {
    let refused =
        |source: io::Error| CaptureError::Filter { event: event.to_owned(), filter: filter.to_owned(), source };
    let text = CString::new(filter).map_err(|error| refused(error.into()))?;
    perf::set_filter(fd, &text).map_err(|error| refused(error.source))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::capture::{Begin, Clock, Mapped, Mappings, Members, SideBand, Switching};

    fn check(otherwise: Option<u64>, knows: impl Fn(&perf_event_attr) -> bool) -> (perf_event_attr, usize) {
        let side_band = SideBand::default();
        let options = Options {
            ring_bytes: 4096,
            buffer: 0,
            watermark_percent: 25,
            clock: Clock::Monotonic,
            order: None,
            mappings: Mappings::Identified(Mapped::Code),
            side_band,
            members: Members::Recorded,
            begin: Begin::AtOnce,
            switching: Switching::Once,
            sampling_limit: None,
            wake: None,
        };
        let tries = Cell::new(0);
        let open = |attr: &perf_event_attr| {
            tries.set(tries.get() + 1);
            let refused = || CallError::new("perf_event_open", io::Error::from_raw_os_error(libc::EINVAL));
            knows(attr).then_some(()).ok_or_else(refused)
        };
        let dummy = |read_format| attr::dummy(&options, Follow::Nothing, 0, read_format);
        let read_format = otherwise.map_or(PERF_FORMAT_ID, |otherwise| otherwise | PERF_FORMAT_LOST);
        let (attr, opened) = as_the_kernel_knows(read_format, otherwise, dummy, open);
        assert!(opened.is_ok());
        (attr, tries.get())
    }

    /// Before Linux 5.1 no dummy could be opened at all, and before 6.0 the first one told of symbols and the others did not.
    #[test]
    fn dummies_of_older_kernels_are_asked_for_nothing_that_these_do_not_know() {
        let has_lost = |attr: &perf_event_attr| attr.read_format & PERF_FORMAT_LOST != 0;
        let of_5_0 = |attr: &perf_event_attr| {
            !has_lost(attr) && attr.ksymbol() == 0 && attr.bpf_event() == 0 && attr.build_id() == 0
        };
        let of_5_19 = |attr: &perf_event_attr| !has_lost(attr);
        let told = |attr: perf_event_attr| (attr.ksymbol(), attr.bpf_event(), attr.build_id(), has_lost(&attr));
        for (knows, build_id, tries) in [(&of_5_0 as &dyn Fn(&_) -> bool, 0, [3, 2]), (&of_5_19, 1, [2, 1])] {
            for (otherwise, tries) in [(Some(PERF_FORMAT_ID), tries[0]), (None, tries[1])] {
                let (attr, tried) = check(otherwise, knows);
                assert_eq!((told(attr), tried), ((0, 0, build_id, false), tries));
            }
        }
        let (attr, tried) = check(Some(PERF_FORMAT_ID), |_| true);
        assert_eq!((told(attr), tried), ((1, 1, 1, true), 1));
    }
}
