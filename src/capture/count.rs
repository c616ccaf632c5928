//! Counts events: opens events without rings and reads their values.
//!
//! Events are turned on when they are opened. When all of them are open, their values are read. Counting starts from
//! these values, without an ioctl. If an event is on when it is opened, it is also on in every task that inherits it.
//! So no new task is missed. (With an ioctl, new tasks can be missed: see `StartTrigger::EnableAgain`.) The events of a
//! command are an exception: the command's exec turns them on, and nothing else can inherit them before.
//!
//! Sampled events are enabled several times, because of new tasks. Here this is not needed. In 300 attachments to a process
//! that only created threads, each call was counted once. Each call was also counted once in 180 attachments to chains of
//! threads that live for 0.2 ms.

use std::{
    os::fd::{AsFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use perf_prof_format::abi::{PERF_TYPE_BREAKPOINT, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT};
use perf_prof_system::{CallError, epoll::Epoll, eventfd, perf, probe_definition::DefinedProbe};

use super::{
    CaptureError, ChildEvents, CommonMembers, EventRequest, Target,
    attach::{self, AttachTo, Attachment, Binding},
    attr::{self, Follow},
    close::Closing,
    context::{self, KeepUntil, KeptContexts},
    define, group,
    open::{open_event, set_filter},
    refusal::Purpose,
    tasks::{Kind, Tasks},
};

/// The count of one descriptor, and for how long it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The count. Its unit depends on the event.
    pub value: u64,
    /// How long the event was enabled, in nanoseconds. For an event of a task, only the time in which the task ran
    /// counts.
    pub enabled: u64,
    /// How long the event had a hardware counter, in nanoseconds. At most `enabled`.
    pub running: u64,
}

impl Count {
    /// Returns this count minus `before`, an earlier count of the same event.
    pub fn since(self, before: Count) -> Count {
        Count {
            value: self.value.wrapping_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }
}

/// The count of one descriptor, with its event, CPU and cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReading {
    /// The index of the event's request.
    pub event: usize,
    /// The CPU that the descriptor counts on; `None` for an event of a task that counts on any CPU.
    pub cpu: Option<u32>,
    /// The index of the cgroup among the cgroups of the target; `None` if the target is not a cgroup.
    pub cgroup: Option<usize>,
    /// The count since [`Counters::begin`].
    pub count: Count,
}

/// What ends the counting, if the caller does not end it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// The exit of all tasks that the events are attached to.
    WithTasks,
    /// The exit of this process, for example the process of a command.
    WithProcess(u32),
    /// Nothing: only the caller ends the counting.
    Never,
}

/// Why [`Counters::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The timeout passed.
    Timeout,
    /// The eventfd was readable. It was drained.
    Woken,
    /// The tasks that end the counting have exited.
    TasksExited,
}

/// Open events that are counted and not sampled.
pub struct Counters {
    descriptors: Vec<Descriptor>,
    /// For each request, the error if this machine cannot count the event; `None` if it can.
    unsupported: Vec<Option<CallError>>,
    closing: Closing,
    /// Prevents the kernel from swapping the contexts of tasks.
    contexts: KeptContexts,
    /// The probes that were defined in tracefs for these events. Dropped after the descriptors, because a definition
    /// can be removed only after its event is closed.
    definitions: Vec<DefinedProbe>,
    epoll: Epoll,
    wake: RawFd,
    tasks: Option<Tasks>,
}

struct Descriptor {
    fd: OwnedFd,
    event: usize,
    cpu: Option<u32>,
    cgroup: Option<usize>,
    missing: NotRunning,
    /// The count at the start of the counting. It is subtracted from later counts.
    before: Count,
}

/// Why `running` of a descriptor may be smaller than `enabled`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NotRunning {
    /// The event had to wait for a hardware counter.
    Waited,
    /// Nothing: the kernel counts the event in software, so the two times are always equal.
    Nothing,
    /// The task ran on a CPU that the event is not bound to. There the event is enabled but does not run.
    Elsewhere,
}

/// The interval in which tasks without a pidfd are checked for their exit.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

// The token of the eventfd. The token of a task is its descriptor plus TASK.
const WAKE: u64 = 0;
const TASK: u64 = 1 << 32;

impl Counters {
    /// Opens the events on the target. Counting starts with [`Counters::begin`], or with a command's exec.
    pub fn open(
        target: &Target,
        events: &[EventRequest],
        ends: EndCondition,
        wake: RawFd,
    ) -> Result<Counters, CaptureError> {
        let (events, definitions) = define::tracepoints(target, events, CommonMembers::Lean)?;
        let events = &*group::complete(events)?;
        let closing = Closing::for_events(events);
        let open = |on: &[Attachment<'_>], follow| open(target, events, &closing, on, follow);
        let (OpenCounters { descriptors, unsupported, contexts, .. }, tasks) =
            attach::attach(target, events, Binding::Anywhere, open)?;
        let epoll = Epoll::new()?;
        epoll.add(wake, WAKE)?;
        let tasks = match ends {
            EndCondition::WithProcess(pid) => Some(Tasks::watch(&[pid], Kind::Process)),
            EndCondition::Never => None,
            EndCondition::WithTasks if tasks.is_empty() => None,
            EndCondition::WithTasks if target.ends_with_threads() => Some(Tasks::watch(&tasks, Kind::Thread)),
            EndCondition::WithTasks => Some(Tasks::watch(&tasks, Kind::Process)),
        };
        for fd in tasks.iter().flat_map(Tasks::descriptors) {
            epoll.add(fd, TASK + fd as u64)?;
        }
        Ok(Counters { descriptors, unsupported, closing, contexts, definitions, epoll, wake, tasks })
    }

    /// Starts the counting from the current values. The events of a command start by themselves, when the command calls
    /// exec.
    pub fn begin(&mut self) -> Result<(), CallError> {
        self.descriptors.iter_mut().try_for_each(|descriptor| {
            descriptor.before = read(descriptor)?;
            Ok(())
        })
    }

    /// Reads the counts of all descriptors, in the same order each time.
    pub fn read(&self) -> Result<Vec<CounterReading>, CallError> {
        let reading = |descriptor: &Descriptor| {
            let Descriptor { event, cpu, cgroup, before, .. } = *descriptor;
            Ok(CounterReading { event, cpu, cgroup, count: read(descriptor)?.since(before) })
        };
        self.descriptors.iter().map(reading).collect()
    }

    /// Returns the error if the request `event` cannot be counted: either the machine does not have the event, or it
    /// cannot count the event for this target. Returns `None` if the event can be counted.
    pub fn unsupported(&self, event: usize) -> Option<&CallError> {
        self.unsupported[event].as_ref()
    }

    /// Returns whether the counts contain all events of tasks that are created during the counting.
    pub fn of_children(&self) -> ChildEvents {
        self.contexts.of_children
    }

    /// Returns the number of open descriptors.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.len()
    }

    /// Waits until the eventfd is readable, until the tasks that end the counting have exited, or until the time
    /// `until`.
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
            let look = self.tasks.as_ref().is_some_and(Tasks::are_polled).then_some(POLL_INTERVAL);
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

/// Reads the value, the enabled time and the running time. `perf_read_one()` in kernel/events/core.c writes them in
/// this order.
fn read(descriptor: &Descriptor) -> Result<Count, CallError> {
    let mut values = [0; 3];
    perf::read(descriptor.fd.as_fd(), &mut values)?;
    let [value, enabled, running] = values;
    Ok(match descriptor.missing {
        NotRunning::Waited => Count { value, enabled, running },
        NotRunning::Nothing => Count { value, enabled, running: enabled },
        NotRunning::Elsewhere => Count { value, enabled: running, running },
    })
}

/// The counters that are open so far.
struct OpenCounters {
    descriptors: Vec<Descriptor>,
    unsupported: Vec<Option<CallError>>,
    /// The index in `descriptors` of the first descriptor of the attachment that is being opened.
    attachment: usize,
    /// Prevents the kernel from swapping the contexts of tasks.
    contexts: KeptContexts,
}

fn open(
    target: &Target,
    events: &[EventRequest],
    closing: &Closing,
    on: &[Attachment<'_>],
    follow: Follow,
) -> Result<OpenCounters, CaptureError> {
    let needed = on.len() * events.len();
    let mut opened = OpenCounters {
        descriptors: Vec::new(),
        unsupported: events.iter().map(|_| None).collect(),
        attachment: 0,
        contexts: context::keep(events, on, follow, KeepUntil::Opened),
    };
    let attach = |on: Attachment<'_>| {
        opened.attachment = opened.descriptors.len();
        let mut wanted = events.iter().enumerate().filter(|(_, event)| attach::is_wanted(event, target, &on));
        wanted.try_for_each(|(index, event)| match (&event.cpus, on.cpu) {
            (Some(cpus), None) => {
                cpus.iter().try_for_each(|cpu| opened.add(index, events, on.on_cpu(cpu), follow, needed))
            }
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
    // The tracepoints are closed in a child process, so that the error message does not have to wait.
    closing.close(opened.descriptors.into_iter().map(Descriptor::into_parts));
    Err(error)
}

impl OpenCounters {
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
        // If the machine does not have the leader's event, the group member is counted alone.
        let leader = group::leader_of(events, index).and_then(|leader| {
            self.descriptors[self.attachment..].iter().find(|opened| opened.event == leader && opened.cpu == on.cpu)
        });
        if leader.is_some() {
            attr::start_with_leader(&mut attr);
        }
        let fd = match open_event(&attr, on.attach(), leader.map(|leader| leader.fd.as_fd())) {
            Ok(fd) => fd,
            Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                return Err(CaptureError::too_many_files(&error, needed, self.descriptors.len()));
            }
            Err(error) => {
                return match CaptureError::open(event, Purpose::Counted, Some(on.to), error) {
                    CaptureError::Unsupported { source, .. } if may_lack(event) => {
                        self.unsupported[index] = Some(source);
                        Ok(())
                    }
                    error => Err(error),
                };
            }
        };
        // The event is already on, and has counted without its filter so far. This does no harm: the counting starts
        // later, and all earlier counts are subtracted.
        if let Some(filter) = &event.filter {
            set_filter(fd.as_fd(), &event.name, filter)?;
        }
        let missing = match (on.to, on.cpu) {
            (AttachTo::Thread(_), Some(_)) => NotRunning::Elsewhere,
            _ if group::requests_of_group(events, index).iter().all(is_of_kernel) => NotRunning::Nothing,
            _ => NotRunning::Waited,
        };
        let (cpu, cgroup, before) = (on.cpu, on.cgroup(), Count::default());
        self.descriptors.push(Descriptor { fd, event: index, cpu, cgroup, missing, before });
        Ok(())
    }
}

impl Descriptor {
    fn into_parts(self) -> (Option<usize>, OwnedFd) {
        (Some(self.event), self.fd)
    }
}

/// Returns whether the kernel counts the event in software. Such an event waits for a hardware counter only if another
/// event of its group waits.
fn is_of_kernel(event: &EventRequest) -> bool {
    [PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT].contains(&event.event.kind)
}

/// Returns whether counting goes on without the event if the machine does not have it. Breakpoints and probes are
/// always required: if the kernel refuses one, its address is wrong.
fn may_lack(event: &EventRequest) -> bool {
    event.event.kind != PERF_TYPE_BREAKPOINT && event.definition.is_none()
}
