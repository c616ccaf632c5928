//! Live capture: open, ring, reader thread, loss accounting. Knows nothing of Python.
//!
//! On each CPU (or for each thread) a dummy event owns a ring, and all events there write into it. One reader
//! thread moves what the rings hold into bounded memory; the consumer takes it from there with [`Source::wait`].

mod attach;
mod attr;
mod close;
mod context;
mod count;
mod define;
mod drain;
mod error;
mod group;
mod limit;
mod losses;
mod memory;
mod message;
mod open;
mod pace;
mod reader;
mod refusal;
mod request;
mod tasks;

use std::{
    collections::VecDeque,
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use self::{
    close::Closing,
    context::Kept,
    limit::Limiter,
    memory::Memory,
    message::{Control, Message, Rounds},
    open::{Descriptor, Opened},
    pace::Pace,
    reader::{Outlet, Phase, Reader},
    refusal::Use,
    tasks::{Kind, Tasks},
};
use crate::{
    abi::perf_event_attr,
    record::{Batch, Chunk, Ended, INDEX_PER_RECORD, LossCounts, SampleLayout, Sorter, Source, TrailerLayout, Wait},
    spec::{CpuSet, Grouping},
    sys::{CallError, definition::Defined, epoll::Epoll, eventfd::EventFd, perf},
};

pub use count::{Count, Counters, Ends, Reading, Waited};
pub use error::CaptureError;
pub use losses::{Lost, LostRecords};
pub use refusal::{Asks, Cause, Refusal};
pub use request::{
    Begin, Callchain, Clock, Config, Contexts, EventRequest, Excluded, Frames, Mapped, Mappings, Members, OfChildren,
    Options, Order, PerfEvent, Presence, Sampling, SideBand, Switching, Target, Telling,
};

/// An event as the kernel was asked for it: what a recording says of it.
#[derive(Clone, Debug, Default)]
pub struct EventAttr {
    /// Its name, as it was asked for.
    pub name: String,
    /// Its attr, but for the size.
    pub attr: perf_event_attr,
    /// The ids that its records carry, one for each descriptor; none where the kernel did not let it be sampled.
    pub ids: Vec<u64>,
    /// Its part in a group.
    pub grouping: Grouping,
}

impl EventAttr {
    fn opened(&mut self, attr: perf_event_attr, id: u64) {
        self.attr = attr;
        self.ids.push(id);
    }
}

/// A live source of records.
pub struct Capture {
    descriptors: Arc<Vec<Descriptor>>,
    ids: Vec<(u64, usize)>,
    attrs: Vec<EventAttr>,
    layouts: Vec<SampleLayout>,
    trailer: TrailerLayout,
    ring_cpus: Vec<Option<u32>>,
    ring_bytes: usize,
    ring_ids: Vec<u64>,
    read_format: u64,
    closing: Closing,
    /// What keeps the tasks' contexts their own.
    contexts: Kept,
    /// Dropped after the descriptors are closed.
    definitions: Vec<Defined>,
    memory: Arc<Memory>,
    control: Arc<Control>,
    messages: Receiver<Message>,
    reader: State,
    asides: Vec<Aside>,
    limited: Arc<AtomicU64>,
    start: Start,
    begin: Begin,
    sorter: Option<Sorter>,
    ready: VecDeque<Wait>,
    ended: Option<Ended>,
}

enum State {
    Idle(Box<Reader>),
    Running(JoinHandle<()>),
    Gone,
}

/// Takes records in the thread of the reader that empties the rings.
pub trait Take: Send {
    /// Takes records of a ring.
    fn take(&mut self, chunk: Chunk);

    /// Nothing came for a moment.
    fn pause(&mut self);

    /// Nothing more will come.
    fn end(&mut self);
}

/// A reader of its own for some rings.
pub struct Lane {
    /// Whose rings.
    pub cpus: CpuSet,
    /// Where it may run; `None` for anywhere.
    pub affinity: Option<CpuSet>,
    /// Who takes what it reads.
    pub taker: Box<dyn Take>,
}

/// A reader of its own, and how it is told to end.
struct Aside {
    control: Arc<Control>,
    state: State,
}

/// What starts the events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The workload's exec.
    Exec,
    /// The ioctl.
    Enable,
    /// The ioctl, several times, because tasks inherit the events meanwhile: one that is being created just then may get
    /// them turned off, as [`context`] tells. Nobody exchanges events with it where contexts are kept, so that the next
    /// pass turns them on for good. Where the kernel cannot keep them, each pass is one more try.
    EnableAgain,
}

/// How often events that are inherited are turned on, or off.
const PASSES: usize = 6;

/// Long enough for a fork that had begun to be over.
const A_FORK: Duration = Duration::from_millis(2);

impl Capture {
    /// Opens all events on the target. Nothing is recorded before [`Capture::enable`].
    pub fn open(target: &Target, events: &[EventRequest], options: &Options) -> Result<Capture, CaptureError> {
        let (events, definitions) = define::tracepoints(target, events, options.members)?;
        let events = &*group::complete(events)?;
        let opened = open::open(target, events, options)?;
        if let (Some(event), true) = (events.first(), opened.ids.is_empty()) {
            let refused = io::Error::from_raw_os_error(libc::EPERM);
            return Err(CaptureError::open(event, Use::Sampled, None, CallError::new("perf_event_open", refused)));
        }
        let common = attr::common_members(events, options.members);
        let layouts = layouts(events, options.members, opened.read_format);
        let kind = if matches!(target, Target::Threads(_)) { Kind::Thread } else { Kind::Process };
        let tasks = (!opened.tasks.is_empty()).then(|| Tasks::watch(&opened.tasks, kind));
        let Opened { descriptors, rings, owners, ring_cpus, ring_ids, ids, attrs, read_format, contexts, .. } = opened;

        let bell = Arc::new(EventFd::new()?);
        let reserve = rings.iter().map(|ring| Memory::cost_of_ring(ring.size())).sum::<usize>();
        let limit = match options.order {
            None => options.buffer,
            // The sorter's index is in the buffer too.
            Some(_) => {
                let share = options.buffer / (attr::SMALLEST_RECORD + INDEX_PER_RECORD) * attr::SMALLEST_RECORD;
                share.max(2 * reserve)
            }
        };
        let memory = Arc::new(Memory::new(limit, Arc::clone(&bell)));
        let control = Arc::new(Control::new(bell));
        let (sender, messages) = crossbeam_channel::unbounded();
        let limited = Arc::new(AtomicU64::new(0));
        // Where id and time lie is the same for all events.
        let fixed = SampleLayout::new(common, read_format);
        let trailer = TrailerLayout::new(common);
        let (rounds, sorter) = match options.order {
            None => (Rounds::Unmarked, None),
            Some(Order::Time { margin }) => {
                let sorter = Sorter::new(fixed, trailer, margin);
                (Rounds::Marked(margin), Some(sorter))
            }
        };
        let descriptors = Arc::new(descriptors);
        let reader = Box::new(Reader {
            numbers: (0..rings.len()).collect(),
            rings,
            descriptors: Arc::clone(&descriptors),
            watched: owners,
            memory: Arc::clone(&memory),
            control: Arc::clone(&control),
            outlet: Outlet::Consumer(sender),
            affinity: None,
            wake: options.wake,
            tasks,
            rounds,
            epoll: Epoll::new()?,
            pace: Pace::new(Instant::now()),
            phase: Phase::Running,
            flushed: 0,
            flush: None,
            first: 0,
            reserve,
            hurried: false,
            sampled: false,
            limiter: options
                .sampling_limit
                .map(|limit| Limiter::new(limit, fixed, ring_cpus.len(), Arc::clone(&limited))),
        });
        Ok(Capture {
            descriptors,
            ids,
            attrs,
            layouts,
            trailer,
            ring_cpus,
            ring_bytes: options.ring_bytes,
            ring_ids,
            read_format,
            closing: Closing::of(events),
            contexts,
            definitions,
            memory,
            control,
            messages,
            reader: State::Idle(reader),
            asides: Vec::new(),
            limited,
            start: match target {
                Target::Workload { .. } => Start::Exec,
                Target::Processes(_) => Start::EnableAgain,
                _ => Start::Enable,
            },
            begin: options.begin,
            sorter,
            ready: VecDeque::new(),
            ended: None,
        })
    }

    /// How the samples of these events would look, were they captured together.
    pub fn layouts(events: &[EventRequest]) -> Vec<SampleLayout> {
        layouts(events, Members::Lean, 0)
    }

    /// The perf id of each descriptor of an event, and which request it is of.
    pub fn ids(&self) -> &[(u64, usize)] {
        &self.ids
    }

    /// The attr of each request, and last that of the event that follows tasks.
    pub fn attrs(&self) -> &[EventAttr] {
        &self.attrs
    }

    /// The layout of a request's samples.
    pub fn layout(&self, event: usize) -> SampleLayout {
        self.layouts[event]
    }

    /// The layout of what stands at the end of records that are no samples.
    pub fn trailer(&self) -> TrailerLayout {
        self.trailer
    }

    /// Of each ring, the perf id of a descriptor that writes into it, and its CPU.
    pub fn rings(&self) -> impl Iterator<Item = (u64, Option<u32>)> {
        self.ring_ids.iter().copied().zip(self.ring_cpus.iter().copied())
    }

    /// What is known of the calls of tasks that are created meanwhile.
    pub fn of_children(&self) -> OfChildren {
        self.contexts.of_children
    }

    /// How many rings there are.
    pub fn ring_count(&self) -> usize {
        self.ring_cpus.len()
    }

    /// How large each of them is.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Gives the rings of some CPUs readers of their own: what these read comes out there, and no longer here. To be called
    /// before anything is started, of a capture without an order.
    pub fn split(&mut self, lanes: Vec<Lane>) -> Result<(), CallError> {
        let State::Idle(whole) = &mut self.reader else { return Ok(()) };
        for Lane { cpus, affinity, taker } in lanes {
            let control = Arc::new(Control::new(Arc::new(EventFd::new()?)));
            // What it takes is given back before it takes more.
            let memory = Arc::new(Memory::new(0, Arc::clone(&control.bell)));
            let mut lane = Reader {
                rings: Vec::new(),
                numbers: Vec::new(),
                descriptors: Arc::clone(&whole.descriptors),
                watched: Vec::new(),
                memory,
                control: Arc::clone(&control),
                outlet: Outlet::Taker(taker),
                affinity,
                wake: None,
                tasks: None,
                rounds: Rounds::Unmarked,
                epoll: Epoll::new()?,
                pace: Pace::new(Instant::now()),
                phase: Phase::Running,
                flushed: 0,
                flush: None,
                first: 0,
                reserve: 0,
                hurried: false,
                sampled: false,
                limiter: None,
            };
            let is_its = |number: usize| self.ring_cpus[number].is_some_and(|cpu| cpus.contains(cpu));
            whole.hand_over(&mut lane, is_its);
            self.asides.push(Aside { control, state: State::Idle(Box::new(lane)) });
        }
        Ok(())
    }

    /// Starts the reader thread, and what tells of tasks and their mappings. Whoever lists what there is already does it
    /// after this: what begins meanwhile is told.
    pub fn follow_tasks(&mut self) -> Result<(), CallError> {
        self.start_reader()?;
        match self.start {
            Start::Exec => Ok(()),
            Start::Enable | Start::EnableAgain => self.enable_those(|descriptor| descriptor.event.is_none()),
        }
    }

    fn start_reader(&mut self) -> Result<(), CallError> {
        self.asides.iter_mut().try_for_each(|aside| aside.state.start())?;
        self.reader.start()
    }

    /// Starts the reader thread and the events. A workload's events start by themselves, when it calls exec.
    pub fn enable(&mut self) -> Result<(), CallError> {
        if self.begin == Begin::Later {
            return self.follow_tasks();
        }
        self.start_reader()?;
        match self.start {
            Start::Exec => {}
            Start::Enable | Start::EnableAgain => self.enable_repeatedly(|_| true)?,
        }
        self.contexts.enabled();
        Ok(())
    }

    /// Turns the events on, but for what follows tasks.
    pub fn enable_events(&self) -> Result<(), CallError> {
        self.enable_repeatedly(|descriptor| descriptor.event.is_some())
    }

    /// Turns the events off, but for what follows tasks.
    pub fn disable_events(&self) -> Result<(), CallError> {
        self.repeatedly(|| {
            let mut events = self.switched().filter(|descriptor| descriptor.event.is_some());
            events.try_for_each(|descriptor| perf::disable(descriptor.fd.as_fd()))
        })
    }

    fn enable_repeatedly(&self, which: impl Fn(&Descriptor) -> bool) -> Result<(), CallError> {
        self.repeatedly(|| self.enable_those(&which))
    }

    fn repeatedly(&self, switch: impl Fn() -> Result<(), CallError>) -> Result<(), CallError> {
        if self.start != Start::Enable {
            for _ in 1..PASSES {
                switch()?;
                std::thread::sleep(A_FORK);
            }
        }
        switch()
    }

    fn enable_those(&self, which: impl Fn(&Descriptor) -> bool) -> Result<(), CallError> {
        let mut those = self.switched().filter(|descriptor| which(descriptor));
        those.try_for_each(|descriptor| perf::enable(descriptor.fd.as_fd()))
    }

    /// What is turned on and off: all but the members of groups, which are on while their leader is.
    fn switched(&self) -> impl Iterator<Item = &Descriptor> {
        let is_member = |descriptor: &&Descriptor| match descriptor.event {
            Some(event) => self.attrs[event].grouping.is_member(),
            None => false,
        };
        self.descriptors.iter().filter(move |descriptor| !is_member(descriptor))
    }

    /// Ends the capture for good, as dropping it does: this is only a name for it. The drop joins the reader thread and
    /// has the descriptors closed; where the kernel takes long for many tracepoints, a child waits for it, not the caller.
    pub fn close(self) {}

    /// Ends the reader threads, which unmaps the rings.
    fn join(&mut self) {
        let asides = self.asides.iter_mut().map(|aside| (&aside.control, &mut aside.state));
        for (control, state) in asides.chain([(&self.control, &mut self.reader)]) {
            control.quit.store(true, SeqCst);
            control.bell.signal();
            state.join();
        }
    }

    /// Has the readers of their own come to their end; the events are off, or nobody wants what comes.
    pub fn end_lanes(&mut self) {
        for aside in &self.asides {
            aside.control.stop.store(true, SeqCst);
            aside.control.bell.signal();
        }
        self.asides.iter_mut().for_each(|aside| aside.state.join());
    }

    fn handle(&mut self, message: Message) {
        match (message, &mut self.sorter) {
            (Message::Chunk(chunk), None) => self.ready.push_back(Wait::Batch(Batch::Ring(chunk))),
            (Message::Chunk(chunk), Some(sorter)) => sorter.push(chunk),
            (Message::RoundBegins(at), Some(sorter)) => sorter.begin_round(at),
            (Message::RoundEnded, Some(sorter)) => sorter.end_round(),
            (Message::Hurry, Some(sorter)) => sorter.hurry(),
            (Message::Flushed, _) => self.ready.push_back(Wait::Flushed),
            (Message::Ended(why), sorter) => {
                if let Some(sorter) = sorter {
                    sorter.finish();
                }
                self.end_lanes();
                self.ended = Some(why);
            }
            (Message::RoundBegins(_) | Message::RoundEnded | Message::Hurry, None) | (Message::Nudge, _) => {}
        }
    }
}

impl State {
    fn start(&mut self) -> Result<(), CallError> {
        *self = match std::mem::replace(self, State::Gone) {
            State::Idle(mut reader) => {
                reader.watch()?;
                let thread = std::thread::Builder::new().name("perf-prof-reader".to_owned());
                let running = thread.spawn(|| reader.run());
                State::Running(running.map_err(|error| CallError::new("clone", error))?)
            }
            other => other,
        };
        Ok(())
    }

    fn join(&mut self) {
        if let State::Running(thread) = std::mem::replace(self, State::Gone) {
            // A reader that panicked has said so on stderr; there is nothing left to do with it.
            let _ = thread.join();
        }
    }
}

fn layouts(events: &[EventRequest], members: Members, read_format: u64) -> Vec<SampleLayout> {
    let common = attr::common_members(events, members);
    events.iter().map(|event| SampleLayout::of(attr::samples(event, common, read_format))).collect()
}

impl Source for Capture {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        loop {
            if self.control.woken.swap(false, SeqCst) {
                return Wait::Woken;
            }
            if let Some(sorted) = self.sorter.as_mut().and_then(Sorter::next_batch) {
                return Wait::Batch(Batch::Sorted(sorted));
            }
            if let Some(wait) = self.ready.pop_front() {
                return wait;
            }
            if let Some(why) = self.ended {
                return Wait::Ended(why);
            }
            let message = match until {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.messages.recv_deadline(until),
            };
            match message {
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => return Wait::Timeout,
                Err(RecvTimeoutError::Disconnected) => self.ended = Some(Ended::Stopped),
            }
        }
    }

    fn flush(&mut self) {
        self.control.flushes.fetch_add(1, SeqCst);
        self.control.bell.signal();
    }

    fn stop(&mut self) {
        self.control.stop.store(true, SeqCst);
        self.control.bell.signal();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        let mut counts = LossCounts {
            per_event: vec![0; self.layouts.len()],
            per_ring: vec![0; self.ring_count()],
            samples_per_ring: vec![0; self.ring_count()],
        };
        self.for_each_loss(|descriptor, _, lost| {
            counts.per_ring[descriptor.ring] += lost;
            if let Some(event) = descriptor.event {
                counts.per_event[event] += lost;
                counts.samples_per_ring[descriptor.ring] += lost;
            }
        })
        .then_some(counts)
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.ring_cpus.clone()
    }

    fn limited(&self) -> u64 {
        self.limited.load(SeqCst)
    }

    fn late(&self) -> u64 {
        self.sorter.as_ref().map_or(0, Sorter::late)
    }

    fn backlog(&self) -> usize {
        self.memory.used()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.join();
        // The reader, which shared them, is gone.
        if let Some(descriptors) = Arc::get_mut(&mut self.descriptors) {
            self.closing.close(std::mem::take(descriptors).into_iter().map(Descriptor::into_parts));
        }
        self.definitions.clear();
    }
}
