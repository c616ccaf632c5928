//! Counting: events that are opened without rings, and their values. Knows nothing of what is made of them.
//!
//! What a target's events count begins with the values that they have when all of them are open, not with an ioctl: an event
//! that is on from its opening is on in every task that inherits it, so there is no moment at which a fork could miss it
//! (`Start::EnableAgain` tells of the other way). A command's events are the exception: its exec turns them on.

use std::{
    os::fd::{AsFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use super::{
    CaptureError, EventRequest, Members, OfChildren, Target,
    attach::{self, Attachment, Binding, To},
    attr::{self, Follow},
    close::Closing,
    context::{self, Kept, Until},
    define, group,
    open::{open_event, set_filter},
    refusal::Use,
    tasks::{Kind, Tasks},
};
use crate::{
    abi::{PERF_TYPE_BREAKPOINT, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT},
    sys::{CallError, definition::Defined, epoll::Epoll, eventfd, perf},
};

/// What a descriptor has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How often, or how much.
    pub value: u64,
    /// How long it was to be counted, in nanoseconds: for a task's event, how long the task ran.
    pub enabled: u64,
    /// How long of that there was a counter for it.
    pub running: u64,
}

impl Count {
    /// What came between `before` and this.
    pub fn since(self, before: Count) -> Count {
        Count {
            value: self.value.wrapping_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }
}

/// What was read of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which request it is of.
    pub event: usize,
    /// The CPU that it counts on; `None` for a task's, wherever that runs.
    pub cpu: Option<u32>,
    /// What it has counted since the beginning.
    pub count: Count,
}

/// What ends the counting, beside the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The end of the tasks that it is attached to.
    WithTasks,
    /// Nothing.
    Never,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It took as long as it was to.
    Timeout,
    /// The eventfd became readable; it is drained.
    Woken,
    /// All tasks have exited.
    TasksExited,
}

/// Events that are counted.
pub struct Counters {
    descriptors: Vec<Descriptor>,
    /// By request, why it cannot be counted here.
    unsupported: Vec<Option<CallError>>,
    closing: Closing,
    /// What keeps the tasks' contexts their own.
    contexts: Kept,
    /// Dropped after the descriptors are closed.
    definitions: Vec<Defined>,
    epoll: Epoll,
    wake: RawFd,
    tasks: Option<Tasks>,
}

struct Descriptor {
    fd: OwnedFd,
    event: usize,
    cpu: Option<u32>,
    missing: Missing,
    /// What it had counted when the counting began.
    before: Count,
}

/// What the time that a descriptor did not run says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// That it had to wait for a counter.
    Waited,
    /// Nothing: the kernel itself counts it, all the time.
    Nothing,
    /// That the task was on another CPU than the one it is counted on: there it is enabled too, but never runs.
    Elsewhere,
}

/// Every so often tasks are looked at that no descriptor tells the end of.
const LOOK: Duration = Duration::from_millis(100);

// The token of the eventfd; those of tasks are their descriptors above TASK.
const WAKE: u64 = 0;
const TASK: u64 = 1 << 32;

impl Counters {
    /// Opens the events on the target. What they count begins with [`Counters::begin`], or with a command's exec.
    pub fn open(target: &Target, events: &[EventRequest], ends: Ends, wake: RawFd) -> Result<Counters, CaptureError> {
        let (events, definitions) = define::tracepoints(target, events, Members::Lean)?;
        let events = &*group::complete(events)?;
        let closing = Closing::of(events);
        let open = |on: &[Attachment<'_>], follow| open(target, events, &closing, on, follow);
        let (Opened { descriptors, unsupported, contexts, .. }, tasks) =
            attach::attach(target, events, Binding::Anywhere, open)?;
        let epoll = Epoll::new()?;
        epoll.add(wake, WAKE)?;
        let kind = if matches!(target, Target::Threads(_)) { Kind::Thread } else { Kind::Process };
        let tasks = (ends == Ends::WithTasks && !tasks.is_empty()).then(|| Tasks::watch(&tasks, kind));
        for fd in tasks.iter().flat_map(Tasks::descriptors) {
            epoll.add(fd, TASK + fd as u64)?;
        }
        Ok(Counters { descriptors, unsupported, closing, contexts, definitions, epoll, wake, tasks })
    }

    /// From now on it counts. A command's events begin by themselves, when it calls exec.
    pub fn begin(&mut self) -> Result<(), CallError> {
        self.descriptors.iter_mut().try_for_each(|descriptor| {
            descriptor.before = read(descriptor)?;
            Ok(())
        })
    }

    /// What has been counted, by descriptor, each time in the same order.
    pub fn read(&self) -> Result<Vec<Reading>, CallError> {
        let reading = |descriptor: &Descriptor| {
            let Descriptor { event, cpu, before, .. } = *descriptor;
            Ok(Reading { event, cpu, count: read(descriptor)?.since(before) })
        };
        self.descriptors.iter().map(reading).collect()
    }

    /// Why a request cannot be counted here: the machine does not have the event, or not for this target.
    pub fn unsupported(&self, event: usize) -> Option<&CallError> {
        self.unsupported[event].as_ref()
    }

    /// What is known of the calls of tasks that are created meanwhile.
    pub fn of_children(&self) -> OfChildren {
        self.contexts.of_children
    }

    /// How many descriptors are open.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.len()
    }

    /// Waits until something happens.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<Waited, CallError> {
        let mut ready = Vec::new();
        loop {
            if self.tasks.as_mut().is_some_and(Tasks::all_exited) {
                return Ok(Waited::TasksExited);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Waited::Timeout);
            }
            let look = self.tasks.as_ref().is_some_and(Tasks::are_polled).then_some(LOOK);
            self.epoll.wait(left.into_iter().chain(look).min(), &mut ready)?;
            for event in &ready {
                if event.token == WAKE {
                    eventfd::drain(self.wake);
                    return Ok(Waited::Woken);
                }
                let fd = (event.token - TASK) as RawFd;
                self.epoll.remove(fd);
                if let Some(tasks) = &mut self.tasks {
                    tasks.exited(fd);
                }
            }
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let descriptors = std::mem::take(&mut self.descriptors);
        self.closing.close(descriptors.into_iter().map(Descriptor::into_parts));
        self.definitions.clear();
    }
}

/// The value and the two times, in the order of `perf_read_one()` of kernel/events/core.c.
fn read(descriptor: &Descriptor) -> Result<Count, CallError> {
    let mut values = [0; 3];
    perf::read(descriptor.fd.as_fd(), &mut values)?;
    let [value, enabled, running] = values;
    Ok(match descriptor.missing {
        Missing::Waited => Count { value, enabled, running },
        Missing::Nothing => Count { value, enabled, running: enabled },
        Missing::Elsewhere => Count { value, enabled: running, running },
    })
}

/// What was opened on all attachments.
struct Opened {
    descriptors: Vec<Descriptor>,
    unsupported: Vec<Option<CallError>>,
    /// Where the descriptors of the attachment begin that is being opened.
    attachment: usize,
    /// What keeps the tasks' contexts their own.
    contexts: Kept,
}

fn open(
    target: &Target,
    events: &[EventRequest],
    closing: &Closing,
    on: &[Attachment<'_>],
    follow: Follow,
) -> Result<Opened, CaptureError> {
    let needed = on.len() * events.len();
    let mut opened = Opened {
        descriptors: Vec::new(),
        unsupported: events.iter().map(|_| None).collect(),
        attachment: 0,
        contexts: context::keep(events, on, follow, Until::Opened),
    };
    let attach = |on: Attachment<'_>| {
        opened.attachment = opened.descriptors.len();
        let mut wanted = events.iter().enumerate().filter(|(_, event)| attach::is_wanted(event, target, on.cpu));
        wanted.try_for_each(|(index, event)| match (&event.cpus, on.cpu) {
            (Some(cpus), None) => cpus.iter().try_for_each(|cpu| opened.add(index, events, on.on(cpu), follow, needed)),
            _ => opened.add(index, events, on, follow, needed),
        })
    };
    let error = match attach::to_each(on, attach) {
        Ok(gone) if opened.descriptors.is_empty() && !gone.is_empty() => {
            CaptureError::NoSuchTask { kind: "thread", ids: gone }
        }
        Ok(_) => return Ok(opened),
        Err(error) => error,
    };
    // The user must not wait for the message.
    closing.close(opened.descriptors.into_iter().map(Descriptor::into_parts));
    Err(error)
}

impl Opened {
    fn add(
        &mut self,
        index: usize,
        events: &[EventRequest],
        on: Attachment<'_>,
        follow: Follow,
        needed: usize,
    ) -> Result<(), CaptureError> {
        let event = &events[index];
        let mut attr = attr::counter(event, follow);
        // Without its leader, which the machine may lack, it is counted alone.
        let leader = group::leader_of(events, index).and_then(|leader| {
            self.descriptors[self.attachment..].iter().find(|d| d.event == leader && d.cpu == on.cpu)
        });
        if leader.is_some() {
            attr::start_with_leader(&mut attr);
        }
        let fd = match open_event(&attr, on.attach(), leader.map(|leader| leader.fd.as_fd())) {
            Ok(fd) => fd,
            Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                return Err(CaptureError::too_many_files(needed));
            }
            Err(error) => {
                return match CaptureError::open(event, Use::Counted, Some(on.to), error) {
                    CaptureError::Unsupported { source, .. } if may_lack(event) => {
                        self.unsupported[index] = Some(source);
                        Ok(())
                    }
                    error => Err(error),
                };
            }
        };
        // It is on already; what it counted without its filter is taken off with the rest from before the beginning.
        if let Some(filter) = &event.filter {
            set_filter(fd.as_fd(), &event.name, filter)?;
        }
        let missing = match (on.to, on.cpu) {
            (To::Thread(_), Some(_)) => Missing::Elsewhere,
            _ if group::of(events, index).iter().all(is_of_kernel) => Missing::Nothing,
            _ => Missing::Waited,
        };
        self.descriptors.push(Descriptor { fd, event: index, cpu: on.cpu, missing, before: Count::default() });
        Ok(())
    }
}

impl Descriptor {
    fn into_parts(self) -> (Option<usize>, OwnedFd) {
        (Some(self.event), self.fd)
    }
}

/// Whether the kernel itself counts it, so that it need not wait for a counter unless others of its group have to.
fn is_of_kernel(event: &EventRequest) -> bool {
    [PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT].contains(&event.event.kind)
}

/// Whether it is no mistake to ask for an event that the machine does not have. Breakpoints and probes name a place; one
/// that cannot be there is a mistake.
fn may_lack(event: &EventRequest) -> bool {
    event.event.kind != PERF_TYPE_BREAKPOINT && event.definition.is_none()
}
