//! Opens the events, assigns each descriptor to a ring and maps each id to its request.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use perf_prof_format::{
    abi::{PERF_FORMAT_ID, PERF_FORMAT_LOST, perf_event_attr},
    record::EventAttr,
    spec::CpuSet,
};
use perf_prof_system::{
    CallError, limits,
    perf::{self, Attach},
    procfs,
    ring::Ring,
};

use super::{
    CaptureError, EventRequest, Options, PerfEvent, Presence, Samples, SideBand, SideBandRecords, Switching, Target,
    Writer,
    attach::{self, AttachTo, Attachment, Binding},
    attr::{self, Follow},
    close::Closing,
    context::{self, KeepUntil, KeptContexts},
    group,
    overwritten::OverwrittenRings,
    refusal::{self, Purpose},
};

/// The descriptor of one perf event.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub fd: OwnedFd,
    /// The index of the event's request; `None` for a dummy event.
    pub event: Option<usize>,
    /// The index of the ring that the event writes into.
    pub ring: usize,
    /// Who writes the event's samples.
    pub writer: Writer,
}

impl Descriptor {
    /// Returns whether this is a dummy event. Only dummies write side-band records.
    pub fn is_dummy(&self) -> bool {
        self.event.is_none()
    }

    /// Returns whether a BPF program writes the samples.
    pub fn is_of_program(&self) -> bool {
        self.writer == Writer::Program
    }

    /// Returns the index of the request and the fd, as [`Closing::close`] needs them.
    pub fn into_parts(self) -> (Option<usize>, OwnedFd) {
        (self.event, self.fd)
    }
}

/// Everything that was opened.
#[derive(Debug, Default)]
pub(super) struct OpenRings {
    /// The dummy event of an attachment comes before the other events of this attachment.
    pub descriptors: Vec<Descriptor>,
    pub rings: Vec<Ring>,
    /// The rings for samples that stay in a ring until they are copied. Empty if samples are delivered.
    pub overwritten: OverwrittenRings,
    /// For each ring, the index of the descriptor that owns it.
    pub owners: Vec<usize>,
    /// The CPU of each ring; `None` for the ring of a thread.
    pub ring_cpus: Vec<Option<u32>>,
    /// The perf id of each ring's owner.
    pub ring_ids: Vec<u64>,
    /// Pairs of a perf id and the index of its request.
    pub ids: Vec<(u64, usize)>,
    /// One attr for each request, followed by the attr of the dummy events.
    pub attrs: Vec<EventAttr>,
    pub read_format: u64,
    /// The tasks that end the capture when all of them have exited.
    pub tasks: Vec<u32>,
    /// Prevents the kernel from swapping the contexts of tasks.
    pub contexts: KeptContexts,
}

impl OpenRings {
    /// Adds an open event that writes into a ring.
    fn add(
        &mut self,
        fd: OwnedFd,
        attr: perf_event_attr,
        (event, ring): (usize, usize),
        (writer, samples): (Writer, Samples),
    ) -> Result<(), CallError> {
        match samples {
            Samples::Delivered => perf::set_output(fd.as_fd(), self.descriptors[self.owners[ring]].fd.as_fd())?,
            Samples::Kept { ring_bytes } => {
                self.overwritten.add(&fd, (ring, self.descriptors.len()), ring_bytes, &self.descriptors)?;
            }
        }
        let id = perf::id(fd.as_fd())?;
        self.ids.push((id, event));
        self.attrs[event].add_descriptor(attr, id);
        self.descriptors.push(Descriptor { fd, event: Some(event), ring, writer });
        Ok(())
    }
}

/// Returns the CPUs that have events; `None` if an event writes into the ring of a thread.
pub(super) fn cpus_of_events(descriptors: &[Descriptor], ring_cpus: &[Option<u32>]) -> Option<CpuSet> {
    descriptors
        .iter()
        .filter(|descriptor| !descriptor.is_dummy())
        .map(|descriptor| ring_cpus[descriptor.ring])
        .collect()
}

/// perf's name for the dummy event.
const DUMMY_NAME: &str = "dummy:HG";

/// The name of the dummy event in messages.
const DUMMY: &str = "task events";

/// The largest size in bytes of the ring of a CPU without events.
const SIDE_BAND_RING: usize = 256 << 10;

/// Opens `events` on `target` without enabling them.
pub(super) fn open(target: &Target, events: &[EventRequest], options: &Options) -> Result<OpenRings, CaptureError> {
    let opener = Opener { target, events, options };
    let (opened, tasks) = attach::attach(target, events, Binding::EachCpu, |on, follow| opener.open(on, follow))?;
    Ok(OpenRings { tasks, ..opened })
}

struct Opener<'a> {
    target: &'a Target,
    events: &'a [EventRequest],
    options: &'a Options,
}

impl Opener<'_> {
    fn open(&self, on: &[Attachment<'_>], follow: Follow) -> Result<OpenRings, CaptureError> {
        let read_format = PERF_FORMAT_ID | PERF_FORMAT_LOST;
        let mut opened = OpenRings { read_format, ..OpenRings::default() };
        let names = self.events.iter().map(|event| event.name.as_str()).chain([DUMMY_NAME]);
        opened.attrs = names.map(|name| EventAttr { name: name.to_owned(), ..EventAttr::default() }).collect();
        opened.attrs.iter_mut().zip(self.events).for_each(|(attr, event)| attr.grouping = event.grouping);
        match self.open_into(&mut opened, on, follow) {
            Ok(()) => Ok(opened),
            Err(error) => {
                // The tracepoints are closed in a child process, so that the error message does not have to wait.
                Closing::for_events(self.events).close(opened.descriptors.into_iter().map(Descriptor::into_parts));
                Err(error)
            }
        }
    }

    fn open_into(&self, opened: &mut OpenRings, on: &[Attachment<'_>], follow: Follow) -> Result<(), CaptureError> {
        let needed = on.len() * (self.events.len() + 1);
        let until = match (follow, self.options.switching) {
            (_, Switching::Repeated) => KeepUntil::Closed,
            (Follow::Children, Switching::Once) => KeepUntil::Enabled,
            (Follow::ChildrenFromExec | Follow::Nothing, Switching::Once) => KeepUntil::Opened,
        };
        opened.contexts = context::keep(self.events, on, follow, until);
        let gone = attach::to_each(on, |attachment| self.attach(opened, attachment, follow, needed))?;
        self.open_outputs(opened)?;
        self.follow_tasks_of_other_cpus(opened, on)?;
        // A thread may exit after its dummy event was opened. No event can then be opened on this thread, and the
        // reason is not a missing permission.
        if opened.rings.is_empty() || opened.ids.is_empty() && !gone.is_empty() {
            return Err(CaptureError::NoSuchTask { kind: "thread", ids: gone });
        }
        Ok(())
    }

    /// Opens dummy events on the CPUs that `-C` leaves out. A task may start, get its name or map a file there, and then
    /// move to a selected CPU.
    fn follow_tasks_of_other_cpus(&self, opened: &mut OpenRings, on: &[Attachment<'_>]) -> Result<(), CaptureError> {
        let others = attach::other_cpus(self.target, on)?;
        let Some(dummy) = opened.attrs.last().filter(|_| !others.is_empty()).map(|dummy| dummy.attr) else {
            return Ok(());
        };
        let side_band = SideBand { switches: SideBandRecords::Ignored, ..self.options.side_band };
        let ring_bytes = self.options.ring_bytes.min(SIDE_BAND_RING);
        let options = Options { ring_bytes, side_band, ..self.options.clone() };
        let opener = Opener { options: &options, ..*self };
        let needed = on.len() * (self.events.len() + 1) + others.len();
        for attachment in others {
            opener.attach(opened, attachment, Follow::Nothing, needed)?;
        }
        // A recording states one attr for all dummy events, which is that of the selected CPUs.
        opened.attrs[self.events.len()].attr = dummy;
        Ok(())
    }

    /// Opens the dummy event and the events of one attachment.
    fn attach(
        &self,
        opened: &mut OpenRings,
        on: Attachment<'_>,
        follow: Follow,
        needed: usize,
    ) -> Result<(), CaptureError> {
        let attach = on.attach();
        let common = attr::common_members(self.events, self.options.members);
        let dummy = |read_format: u64| attr::dummy(self.options, follow, common, read_format);
        // The first dummy event shows which `read_format` this kernel supports.
        let otherwise = opened.owners.is_empty().then_some(opened.read_format & !PERF_FORMAT_LOST);
        let open = |attr: &_| open_event(attr, attach, None);
        let (attr, fd) = open_supported_dummy(opened.read_format, otherwise, dummy, open);
        opened.read_format = attr.read_format;
        let fd = fd.map_err(|error| self.dummy_error(on, error, needed, opened.descriptors.len()))?;
        let owner = on.cpu.and_then(|cpu| opened.ring_cpus.iter().position(|&ring| ring == Some(cpu)));
        let id = perf::id(fd.as_fd())?;
        let ring = match owner {
            Some(ring) => {
                perf::set_output(fd.as_fd(), opened.descriptors[opened.owners[ring]].fd.as_fd())?;
                ring
            }
            None => {
                let ring =
                    Ring::map(fd.as_fd(), self.options.ring_bytes).map_err(|error| self.ring_error(on, error))?;
                opened.rings.push(ring);
                opened.ring_cpus.push(on.cpu);
                opened.ring_ids.push(id);
                opened.owners.push(opened.descriptors.len());
                opened.rings.len() - 1
            }
        };
        opened.attrs[self.events.len()].add_descriptor(attr, id);
        opened.descriptors.push(Descriptor { fd, event: None, ring, writer: Writer::Kernel });

        let mine = opened.descriptors.len();
        for (index, event) in self.events.iter().enumerate() {
            if event.writer != Writer::Kernel || !attach::is_wanted(event, self.target, &on) {
                continue;
            }
            let leader = group::leader_of(self.events, index);
            let leader =
                leader.and_then(|leader| opened.descriptors[mine..].iter().find(|opened| opened.event == Some(leader)));
            let leader = leader.map(|leader| leader.fd.as_fd());
            let samples = attr::samples(event, common, opened.read_format);
            let attr = attr::event(event, &samples, self.options, follow);
            let fd = match open_event(&attr, attach, leader) {
                Err(error) if event.presence == Presence::IfAllowed && error.errno() == libc::EPERM => {
                    continue;
                }
                Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                    return Err(CaptureError::too_many_files(&error, needed, opened.descriptors.len()));
                }
                result => result.map_err(|error| CaptureError::open(event, Purpose::Sampled, Some(on.to), error))?,
            };
            if let Some(filter) = &event.filter {
                set_filter(fd.as_fd(), &event.name, filter)?;
            }
            self.add(opened, fd, attr, (index, ring), on)?;
        }
        Ok(())
    }

    /// Adds an open event to `opened`.
    fn add(
        &self,
        opened: &mut OpenRings,
        fd: OwnedFd,
        attr: perf_event_attr,
        (event, ring): (usize, usize),
        on: Attachment<'_>,
    ) -> Result<(), CaptureError> {
        let how = (self.events[event].writer, self.options.samples);
        opened.add(fd, attr, (event, ring), how).map_err(|error| match &*error.call {
            "mmap" => self.ring_error(on, error),
            _ => error.into(),
        })
    }

    /// Opens the events to which BPF programs write samples, one on each CPU.
    fn open_outputs(&self, opened: &mut OpenRings) -> Result<(), CaptureError> {
        let common = attr::common_members(self.events, self.options.members);
        for (index, event) in self.events.iter().enumerate().filter(|(_, event)| event.writer == Writer::Program) {
            for ring in 0..opened.rings.len() {
                let Some(cpu) = opened.ring_cpus[ring] else { continue };
                let on = Attachment { to: AttachTo::Cpu, cpu: Some(cpu) };
                if !attach::is_wanted(event, self.target, &on) {
                    continue;
                }
                let samples = attr::samples(event, common, opened.read_format);
                let attr = attr::event(event, &samples, self.options, Follow::Nothing);
                let fd = open_event(&attr::output(attr), on.attach(), None)
                    .map_err(|error| CaptureError::open(event, Purpose::Sampled, Some(on.to), error))?;
                self.add(opened, fd, attr, (index, ring), on)?;
            }
        }
        Ok(())
    }

    /// Returns the error for a dummy event that the kernel refused. A dummy event needs fewer rights than any other
    /// event. So a user who may not open a dummy event may open no event, and the error of the first event is returned.
    /// Namespace and cgroup records are exceptions: the dummy event delivers them, so they can be the reason.
    fn dummy_error(&self, on: Attachment<'_>, error: CallError, needed: usize, open: usize) -> CaptureError {
        if let (libc::EINVAL, SideBandRecords::Delivered) = (error.errno(), self.options.side_band.cgroups) {
            return CaptureError::no_cgroups(error);
        }
        let of_namespaces = refusal::of_namespaces(&self.options.side_band);
        match (error.errno(), of_namespaces, self.events.first()) {
            (libc::EMFILE | libc::ENFILE, ..) => CaptureError::too_many_files(&error, needed, open),
            (libc::EACCES | libc::EPERM, Some(refusal), _) => {
                CaptureError::Permission { event: "namespaces of tasks".to_owned(), refusal }
            }
            (libc::EACCES | libc::EPERM, None, Some(event)) => {
                CaptureError::open(event, Purpose::Sampled, Some(on.to), error)
            }
            _ => CaptureError::open(
                &EventRequest::new(DUMMY, PerfEvent::default()),
                Purpose::Sampled,
                Some(on.to),
                error,
            ),
        }
    }

    fn ring_error(&self, on: Attachment<'_>, error: CallError) -> CaptureError {
        let place = match (on.cpu, on.to) {
            (Some(cpu), _) => format!("CPU {cpu}"),
            (None, AttachTo::Thread(tid)) => format!("thread {tid}"),
            (None, _) => "a thread".to_owned(),
        };
        let kept = match self.options.samples {
            Samples::Delivered => 0,
            Samples::Kept { ring_bytes } => ring_bytes,
        };
        let (kib, mlock_kb) = (self.options.ring_bytes.max(kept) / 1024, procfs::perf_event_mlock_kb());
        CaptureError::Mmap { kib, place, mlock_kb, source: error.source }
    }
}

/// Opens a dummy event with the features that this kernel supports. Returns its attr and the result of the open. Linux
/// has PERF_FORMAT_LOST since 6.0, and build ids since 5.12. If the kernel refuses `read_format`, a new attr with the
/// format `otherwise` is used. The new attr omits everything that kernels without PERF_FORMAT_LOST may not know. So all
/// dummy events deliver the same records.
fn open_supported_dummy<T>(
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

/// Opens an event, in the group of `leader` if there is one. If descriptors run out, raises the soft limit once and
/// tries again.
pub(super) fn open_event(
    attr: &perf_event_attr,
    attach: Attach<'_>,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, CallError> {
    let open = || perf::open_in_group(attr, attach, leader);
    match open() {
        Err(error) if error.errno() == libc::EMFILE && limits::raise_file_limit()? => open(),
        // If the leader's task has exited, newer kernels refuse the group member with ENODEV. An event without a leader
        // is then refused with ESRCH, which names the real reason.
        Err(error) if error.errno() == libc::ENODEV && leader.is_some() => match perf::open(attr, attach) {
            Err(alone) if alone.errno() == libc::ESRCH => Err(alone),
            _ => Err(error),
        },
        result => result,
    }
}

/// Sets a tracepoint's filter.
pub(super) fn set_filter(fd: BorrowedFd<'_>, event: &str, filter: &str) -> Result<(), CaptureError> {
    let refused =
        |source: io::Error| CaptureError::Filter { event: event.to_owned(), filter: filter.to_owned(), source };
    let text = CString::new(filter).map_err(|error| refused(error.into()))?;
    perf::set_filter(fd, &text).map_err(|error| refused(error.source))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use perf_prof_system::budget::Budget;

    use super::*;
    use crate::{
        Clock, CommonMembers, EventStart, IdleRounds, MappingScope, Mappings, OwnThreads, SideBand, Switching,
    };

    fn check(otherwise: Option<u64>, knows: impl Fn(&perf_event_attr) -> bool) -> (perf_event_attr, usize) {
        let side_band = SideBand::default();
        let options = Options {
            ring_bytes: 4096,
            samples: Samples::Delivered,
            buffer: Budget::new(0),
            watermark_percent: 25,
            clock: Clock::Monotonic,
            order: None,
            mappings: Mappings::Identified(MappingScope::Code),
            side_band,
            members: CommonMembers::Recording,
            begin: EventStart::AtOnce,
            switching: Switching::Once,
            sampling_limit: None,
            own_threads: OwnThreads::Included,
            ends_with: None,
            ends_with_cgroups: Vec::new(),
            idle: IdleRounds::Rare,
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
        let (attr, opened) = open_supported_dummy(read_format, otherwise, dummy, open);
        assert!(opened.is_ok());
        (attr, tries.get())
    }

    /// Before Linux 5.1 the dummy event must not request ksymbol records. Before 6.0 all dummy events have to request
    /// the same records.
    #[test]
    fn dummies_request_only_what_the_kernel_supports() {
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
