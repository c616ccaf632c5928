//! Live capture: opens events, reads their rings, and counts what is lost.
//!
//! This crate knows formats and the machine. It knows neither what an event means nor how a user selects events.
//!
//! A dummy event owns a ring, on each CPU or for each thread. All events on this CPU or thread write into the ring. A
//! reader thread moves the records from the rings into bounded memory. The consumer takes the records from this memory
//! with [`Source::wait`].
//!
//! # Where a change goes
//!
//! * how events are attached: `attach.rs` (to what), `attr.rs` (the attr), `open.rs` (with rings), `count.rs` (without
//!   rings, for `stat`)
//! * which members all samples have: `common_members` in `attr.rs`
//! * groups of events: `group.rs`
//! * how often rings are read: `pace.rs`; how records reach the consumer: `message.rs`, `mailbox.rs`; how much memory
//!   they take: `memory.rs`; sizes of samples: `sample_size.rs`. The sizes of rings come from `live/requests.rs` in the
//!   crate `session`.
//! * removal of perf-prof's own samples: `own.rs`; which task the sample of an event belongs to: `live/requests.rs` in
//!   the crate `session`
//! * what counts as lost: `losses.rs`; events without a sample: `unwritten.rs`; `--sampling-limit`: `limit.rs`
//! * rings that the kernel overwrites, for `record --before`: `overwritten.rs`; when a copy of such a ring is intact:
//!   `ring_writers.rs`
//! * perf's Python module, whose programs poll events themselves: `polled.rs`; CPUs that go offline: `offline.rs`;
//!   tasks that exit: `tasks.rs`
//! * probes that are defined in tracefs: `define.rs`; probes at which BPF programs run: `hooked.rs`; probes of child
//!   processes: `context.rs`
//! * why the kernel denies permission: `refusal.rs`

mod attach;
mod attr;
mod close;
mod context;
mod count;
mod define;
mod drain;
mod error;
mod group;
mod hooked;
mod limit;
mod losses;
mod mailbox;
mod memory;
mod message;
mod offline;
mod open;
mod overwritten;
mod own;
mod pace;
mod polled;
mod reader;
mod refusal;
mod request;
mod ring_writers;
mod sample_size;
mod tasks;
mod threads;
mod unwritten;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use perf_prof_format::{
    record::{
        Batch, Ended, EventAttr, INDEX_PER_RECORD, LossCounts, RingRoom, SampleLayout, Sorter, Source, TrailerLayout,
        Wait,
    },
    spec::CpuSet,
};
use perf_prof_system::{CallError, eventfd::EventFd, perf, probe_definition::DefinedProbe};

use self::{
    close::Closing,
    context::KeptContexts,
    limit::Limiter,
    mailbox::{NoMessage, Receiver, mailbox},
    memory::Memory,
    message::{Control, Message, Rounds},
    offline::{OfflineCheck, OfflineCpus},
    open::{Descriptor, OpenRings},
    overwritten::OverwrittenRings,
    pace::Pace,
    reader::{Outlet, Reader},
    refusal::Purpose,
    tasks::{Kind, Tasks},
    threads::{ReaderThread, State},
    unwritten::{SampleCounter, SampleCounts},
};

pub use count::{Count, CounterReading, Counters, EndCondition, Waited};
pub use error::CaptureError;
pub use hooked::HookedProbe;
pub use losses::{Lost, LostRecords};
pub use overwritten::{CopiedRing, ResizeError, Written};
pub use polled::{Owners, Place, PolledEvent, PolledRings, Values};
pub use refusal::{Cause, NeededFor, Refusal};
pub use request::{
    Callchain, ChildEvents, Clock, CommonMembers, Config, Contexts, Counting, EventRequest, EventStart, Excluded,
    Frames, IdleRounds, MappingScope, Mappings, Options, OwnThreads, Owner, PerfEvent, Presence, RecordOrder, Samples,
    Sampling, SideBand, SideBandRecords, Switching, Target, Writer,
};
pub use threads::{ExtraReader, Preview, Reading, RecordConsumer};

/// A live source of records.
pub struct Capture {
    descriptors: Arc<Vec<Descriptor>>,
    ids: Vec<(u64, usize)>,
    /// The ids of events that were closed before the capture started.
    closed_ids: Vec<u64>,
    attrs: Vec<EventAttr>,
    layouts: Vec<SampleLayout>,
    trailer: TrailerLayout,
    ring_cpus: Vec<Option<u32>>,
    ring_bytes: usize,
    /// The rings for samples that stay in a ring until they are copied. Empty if samples are delivered.
    overwritten: OverwrittenRings,
    ring_ids: Vec<u64>,
    read_format: u64,
    closing: Closing,
    /// Prevents the kernel from swapping the contexts of tasks.
    contexts: KeptContexts,
    /// The probes that were defined in tracefs for this capture. Dropped after the descriptors are closed.
    definitions: Vec<DefinedProbe>,
    memory: Arc<Memory>,
    control: Arc<Control>,
    messages: Receiver,
    reader: State,
    reader_threads: Vec<ReaderThread>,
    limited: Arc<AtomicU64>,
    /// The number of samples of perf-prof's own threads that were removed.
    own: Arc<AtomicU64>,
    /// The samples that were found in the rings; `None` if they are not counted.
    found: Option<SampleCounts>,
    offline: OfflineCpus,
    start: StartTrigger,
    begin: EventStart,
    sorter: Option<Sorter>,
    preview: Option<Box<dyn Preview>>,
    ready: VecDeque<Wait>,
    ended: Option<Ended>,
}

/// What turns the events on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartTrigger {
    /// The exec call of the workload.
    Exec,
    /// The enable ioctl.
    Enable,
    /// The enable ioctl, called several times. A task that is created during the call may inherit events that are off (see
    /// [`context`]); the next call turns these on. If the kernel cannot swap the contexts of tasks, these events then stay
    /// on. If the kernel can swap contexts, each call is one more attempt.
    EnableAgain,
}

impl StartTrigger {
    fn of_target(target: &Target) -> StartTrigger {
        match target {
            Target::Workload { .. } => StartTrigger::Exec,
            Target::Processes(_) => StartTrigger::EnableAgain,
            _ => StartTrigger::Enable,
        }
    }
}

/// How many times the enable or disable ioctl is called for inherited events.
const PASSES: usize = 6;

/// The pause between two calls of the ioctl. It is long enough for a fork that is in progress to finish.
const FORK_DURATION: Duration = Duration::from_millis(2);

impl Capture {
    /// Opens all events on the target. Nothing is recorded before [`Capture::enable`] is called.
    pub fn open(target: &Target, events: &[EventRequest], options: &Options) -> Result<Capture, CaptureError> {
        let (events, definitions) = define::tracepoints(target, events, options.members)?;
        let events = &*group::complete(events)?;
        let opened = open::open(target, events, options)?;
        check_that_any_is_open(events, &opened)?;
        let layouts = layouts(events, options.members, opened.read_format);
        let OpenRings { descriptors, rings, owners, ring_cpus, ring_ids, ids, attrs, read_format, contexts, .. } =
            opened;
        let (bell, descriptors) = (Arc::new(EventFd::new()?), Arc::new(descriptors));
        let reserve = rings.iter().map(|ring| Memory::cost_of_ring(ring.size())).sum::<usize>();
        let memory = Arc::new(memory_for_records(options, reserve, &bell));
        let control = Arc::new(Control::new(bell));
        let (sender, messages) = mailbox();
        let outlet = Outlet::Consumer(sender);
        // Id and time have the same offsets in the samples of all events.
        let common = attr::common_members(events, options.members);
        let (fixed, trailer) = (SampleLayout::new(common, read_format), TrailerLayout::new(common));
        let sorter = options.order.map(|RecordOrder::Time { margin }| Sorter::new(fixed, trailer, margin));
        let (own, limited, offline) = (Arc::default(), Arc::default(), OfflineCpus::default());
        let limiter = |limit| Limiter::new(limit, fixed, ring_cpus.len(), Arc::clone(&limited));
        let reader = Box::new(Reader {
            largest_record: largest_record(events, options),
            room: vec![RingRoom::Left; rings.len()],
            numbers: (0..rings.len()).collect(),
            rings,
            watched: owners,
            wake: options.wake,
            tasks: tasks_that_end(target, &opened.tasks, options),
            rounds: options.order.map_or(Rounds::Unmarked, |RecordOrder::Time { margin }| Rounds::Marked(margin)),
            reserve,
            offline: OfflineCheck::of_target(target, open::cpus_of_events(&descriptors, &ring_cpus), &offline),
            own_samples: own::filter(events, &layouts, &ids, options.own_threads, &own),
            limiter: options.sampling_limit.map(limiter),
            counter: SampleCounter::of(target, events, options.samples, fixed, &ids, ring_cpus.len()),
            ring_cpus: ring_cpus.clone(),
            pace: Pace::new(Instant::now(), options.idle),
            ..Reader::without_rings(Arc::clone(&descriptors), Arc::clone(&memory), Arc::clone(&control), outlet)?
        });
        Ok(Capture {
            descriptors,
            ids,
            closed_ids: Vec::new(),
            attrs,
            layouts,
            trailer,
            ring_cpus,
            ring_bytes: options.ring_bytes,
            overwritten: opened.overwritten,
            ring_ids,
            read_format,
            closing: Closing::for_events(events),
            contexts,
            definitions,
            memory,
            control,
            messages,
            found: reader.counter.as_ref().map(SampleCounter::counts),
            reader: State::Idle(reader),
            reader_threads: Vec::new(),
            limited,
            own,
            offline,
            start: StartTrigger::of_target(target),
            begin: options.begin,
            sorter,
            preview: None,
            ready: VecDeque::new(),
            ended: None,
        })
    }

    /// Returns the layouts of the samples if `events` were captured together.
    pub fn layouts(events: &[EventRequest]) -> Vec<SampleLayout> {
        layouts(events, CommonMembers::Lean, 0)
    }

    /// Returns the perf id of each event descriptor, and the index of its request.
    pub fn ids(&self) -> &[(u64, usize)] {
        &self.ids
    }

    /// Returns one attr for each request, followed by the attr of the dummy event. The dummy event reports fork, exec,
    /// exit and mappings of tasks.
    pub fn attrs(&self) -> &[EventAttr] {
        &self.attrs
    }

    /// Returns the layout of the samples of the request `event`.
    pub fn layout(&self, event: usize) -> SampleLayout {
        self.layouts[event]
    }

    /// Returns the layout of the id members that end all records other than samples.
    pub fn trailer(&self) -> TrailerLayout {
        self.trailer
    }

    /// Returns a pair for each ring: the perf id of a descriptor that writes into the ring, and the CPU of the ring.
    /// The CPU is `None` for the ring of a thread.
    pub fn rings(&self) -> impl Iterator<Item = (u64, Option<u32>)> {
        self.ring_ids.iter().copied().zip(self.ring_cpus.iter().copied())
    }

    /// Returns the CPUs that have events. The rings of other CPUs have side-band records alone. Returns `None` if a ring
    /// belongs to a thread.
    pub fn cpus_of_events(&self) -> Option<CpuSet> {
        open::cpus_of_events(&self.descriptors, &self.ring_cpus)
    }

    /// Returns the descriptors to which a BPF program has to write the samples of a request, each with its CPU.
    pub fn outputs(&self, event: usize) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let of_event = self.descriptors.iter().filter(move |descriptor| descriptor.event == Some(event));
        let of_event = of_event.filter(|descriptor| descriptor.is_of_program());
        of_event.filter_map(|descriptor| Some((self.ring_cpus[descriptor.ring]?, descriptor.fd.as_fd())))
    }

    /// Returns whether the capture gets all events of tasks that are created during the capture.
    pub fn of_children(&self) -> ChildEvents {
        self.contexts.of_children
    }

    /// Returns the number of samples of perf-prof's own threads that were removed. The number grows while the capture
    /// runs.
    pub fn own_samples(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.own)
    }

    /// Returns the number of rings.
    pub fn ring_count(&self) -> usize {
        self.ring_cpus.len()
    }

    /// Returns the size of each ring's data, in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Moves the rings of some CPUs to separate reader threads. Each of these threads passes its records to its own
    /// consumer, so this source no longer returns these records. Must be called before the capture is started, and only if
    /// the capture does not sort records.
    pub fn split(&mut self, extra_readers: Vec<ExtraReader>) -> Result<(), CallError> {
        let State::Idle(whole) = &mut self.reader else { return Ok(()) };
        for ExtraReader { cpus, affinity, taker } in extra_readers {
            let control = Arc::new(Control::new(Arc::new(EventFd::new()?)));
            // A consumer in the reader thread drops each chunk before it gets the next one. So the limit 0 is enough:
            // it allows one chunk at a time.
            let memory = Arc::new(Memory::new(0, Arc::clone(&control.wake_reader)));
            let descriptors = Arc::clone(&whole.descriptors);
            let outlet = Outlet::Taker(taker);
            let counter = whole.counter.clone();
            let mut lane = Reader {
                affinity,
                counter,
                ..Reader::without_rings(descriptors, memory, Arc::clone(&control), outlet)?
            };
            let is_its = |number: usize| self.ring_cpus[number].is_some_and(|cpu| cpus.contains(cpu));
            whole.hand_over(&mut lane, is_its);
            self.reader_threads.push(ReaderThread { control, state: State::Idle(Box::new(lane)) });
        }
        Ok(())
    }

    /// Starts the reader thread and the side-band records of tasks and mappings. A caller that lists existing tasks and
    /// mappings must do so after this call. Then each task and each mapping is in the list or in a record.
    pub fn follow_tasks(&mut self) -> Result<(), CallError> {
        self.start_reader()?;
        match self.start {
            StartTrigger::Exec => self.enable_selected(Descriptor::is_of_program),
            StartTrigger::Enable | StartTrigger::EnableAgain => {
                self.enable_selected(|descriptor| descriptor.event.is_none())
            }
        }
    }

    /// Starts the reader thread. The events are still off, so the rings are empty.
    pub fn start_reader(&mut self) -> Result<(), CallError> {
        self.reader_threads.iter_mut().try_for_each(|aside| aside.state.start())?;
        self.reader.start()
    }

    /// Starts the reader thread and the events. The events of a workload start by themselves, when the workload calls exec.
    pub fn enable(&mut self) -> Result<(), CallError> {
        if self.begin == EventStart::Later {
            return self.follow_tasks();
        }
        self.start_reader()?;
        match self.start {
            StartTrigger::Exec => self.enable_selected(Descriptor::is_of_program)?,
            StartTrigger::Enable | StartTrigger::EnableAgain => self.enable_repeatedly(|_| true)?,
        }
        self.contexts.enabled();
        Ok(())
    }

    /// Turns the events on. Does not change the dummy events, which report what happens to tasks.
    pub fn enable_events(&self) -> Result<(), CallError> {
        self.enable_repeatedly(|descriptor| descriptor.event.is_some())
    }

    /// Turns the events off. The dummy events stay on, because they report what happens to tasks.
    pub fn disable_events(&self) -> Result<(), CallError> {
        self.repeatedly(|| {
            let mut events = self.switchable_descriptors().filter(|descriptor| descriptor.event.is_some());
            events.try_for_each(|descriptor| perf::disable(descriptor.fd.as_fd()))
        })
    }

    fn enable_repeatedly(&self, which: impl Fn(&Descriptor) -> bool) -> Result<(), CallError> {
        self.repeatedly(|| self.enable_selected(&which))
    }

    fn repeatedly(&self, switch: impl Fn() -> Result<(), CallError>) -> Result<(), CallError> {
        if self.start != StartTrigger::Enable {
            for _ in 1..PASSES {
                switch()?;
                std::thread::sleep(FORK_DURATION);
            }
        }
        switch()
    }

    fn enable_selected(&self, which: impl Fn(&Descriptor) -> bool) -> Result<(), CallError> {
        let mut those = self.switchable_descriptors().filter(|descriptor| which(descriptor));
        those.try_for_each(|descriptor| perf::enable(descriptor.fd.as_fd()))
    }

    /// Returns the descriptors that are turned on and off. Group members are not among them: they count whenever their
    /// leader is on.
    fn switchable_descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        let is_member = |descriptor: &&Descriptor| match descriptor.event {
            Some(event) => self.attrs[event].grouping.is_member(),
            None => false,
        };
        self.descriptors.iter().filter(move |descriptor| !is_member(descriptor))
    }

    /// Ends the capture, exactly as dropping it does. The drop joins the reader threads and closes the descriptors. If
    /// the kernel needs a long time to close many tracepoints, a child process waits instead of the caller.
    pub fn close(self) {}

    /// Ends the reader threads. This also unmaps the rings.
    fn join(&mut self) {
        let reader_threads = self.reader_threads.iter_mut().map(|aside| (&aside.control, &mut aside.state));
        for (control, state) in reader_threads.chain([(&self.control, &mut self.reader)]) {
            control.quit.store(true, SeqCst);
            control.wake_reader.signal();
            state.join();
        }
    }

    /// Ends the separate reader threads. Called when the events are off, or when nobody needs their records any more.
    pub fn end_lanes(&mut self) {
        for aside in &self.reader_threads {
            aside.control.stop.store(true, SeqCst);
            aside.control.wake_reader.signal();
        }
        self.reader_threads.iter_mut().for_each(|aside| aside.state.join());
    }

    /// Shows all records to `preview` before they are sorted and delivered.
    pub fn set_preview(&mut self, preview: Box<dyn Preview>) {
        self.preview = Some(preview);
    }

    fn handle(&mut self, message: Message) {
        if let (Message::Chunk(chunk), Some(preview)) = (&message, &mut self.preview) {
            preview.look(chunk);
        }
        match (message, &mut self.sorter) {
            (Message::Chunk(chunk), None) => self.ready.push_back(Wait::Batch(Batch::Ring(chunk))),
            (Message::Chunk(chunk), Some(sorter)) => sorter.push(chunk),
            (Message::Room(ring, room), Some(sorter)) => sorter.push(room.chunk(ring)),
            (Message::RoundBegins(at), Some(sorter)) => sorter.begin_round(at),
            (Message::RoundEnded, Some(sorter)) => sorter.end_round(),
            (Message::ReleaseHeld, Some(sorter)) => sorter.release_without_margin(),
            (Message::Flushed, _) => self.ready.push_back(Wait::Flushed),
            (Message::Ended(why), sorter) => {
                if let Some(sorter) = sorter {
                    sorter.finish();
                }
                self.end_lanes();
                self.ended = Some(why);
            }
            (Message::Room(..) | Message::RoundBegins(_) | Message::RoundEnded | Message::ReleaseHeld, None)
            | (Message::WakeUp, _) => {}
        }
    }
}

fn layouts(events: &[EventRequest], members: CommonMembers, read_format: u64) -> Vec<SampleLayout> {
    let common = attr::common_members(events, members);
    events.iter().map(|event| SampleLayout::from_format(attr::samples(event, common, read_format))).collect()
}

/// Fails if events were requested, and none of them could be opened.
fn check_that_any_is_open(events: &[EventRequest], opened: &OpenRings) -> Result<(), CaptureError> {
    let Some(event) = events.first().filter(|_| opened.ids.is_empty()) else { return Ok(()) };
    let refused = CallError::new("perf_event_open", io::Error::from_raw_os_error(libc::EPERM));
    Err(CaptureError::open(event, Purpose::Sampled, None, refused))
}

/// Returns the size of the largest record that is expected. The size is at most a quarter of a ring, so that one large
/// sample does not make a nearly empty ring count as full.
fn largest_record(events: &[EventRequest], options: &Options) -> usize {
    events.iter().map(EventRequest::largest_sample).max().unwrap_or(0).min(options.ring_bytes / 4)
}

/// Returns groups of tasks. The capture ends when all tasks of one group have exited.
fn tasks_that_end(target: &Target, opened: &[u32], options: &Options) -> Vec<Tasks> {
    let kind = if target.ends_with_threads() { Kind::Thread } else { Kind::Process };
    let tasks = (!opened.is_empty()).then(|| Tasks::watch(opened, kind));
    let process = options.ends_with.map(|pid| Tasks::watch(&[pid], Kind::Process));
    let cgroups = (!options.ends_with_cgroups.is_empty()).then(|| Tasks::of_cgroups(&options.ends_with_cgroups));
    tasks.into_iter().chain(process).chain(cgroups).collect()
}

/// Returns the memory for records. `reserve` is the maximum number of bytes that one round over all rings needs. `bell`
/// wakes the reader.
fn memory_for_records(options: &Options, reserve: usize, bell: &Arc<EventFd>) -> Memory {
    let (bytes, least) = match options.order {
        None => (options.buffer.bytes(), 0),
        // The budget also has to pay for the sorter's index.
        Some(_) => {
            let share = options.buffer.bytes() / (attr::SMALLEST_RECORD + INDEX_PER_RECORD) * attr::SMALLEST_RECORD;
            (share.max(2 * reserve), 2 * reserve)
        }
    };
    Memory::new(bytes, Arc::clone(bell)).within(options.buffer.clone(), least)
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
            match self.messages.take(until) {
                Ok(message) => self.handle(message),
                Err(NoMessage::Timeout) => return Wait::Timeout,
                Err(NoMessage::Closed) => {
                    // Nobody has emptied the rings.
                    (self.ended, self.found) = (Some(Ended::Stopped), None);
                }
            }
        }
    }

    fn flush(&mut self) {
        self.control.flushes.fetch_add(1, SeqCst);
        self.control.wake_reader.signal();
    }

    fn stop(&mut self) {
        self.control.stop.store(true, SeqCst);
        self.control.wake_reader.signal();
    }

    fn drop_rest(&mut self) {
        self.drop_rest_if_compared();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        self.loss_counts()
    }

    fn lost_side_band(&mut self) -> Option<Vec<u64>> {
        self.side_band_losses()
    }

    fn take_offline_cpus(&mut self) -> Vec<u32> {
        self.offline.take()
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.ring_cpus.clone()
    }

    fn ring_bytes(&self) -> Option<usize> {
        Some(self.ring_bytes)
    }

    fn off_at(&self) -> Option<i64> {
        Some(self.control.off_at.load(SeqCst)).filter(|&time| time != 0)
    }

    fn dropped_by_limit(&self) -> u64 {
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
        // The reader threads have ended, so nobody else uses the descriptors.
        if let Some(descriptors) = Arc::get_mut(&mut self.descriptors) {
            self.closing.close(std::mem::take(descriptors).into_iter().map(Descriptor::into_parts));
        }
        self.definitions.clear();
    }
}
