//! The queue between a run and a program, with limited memory. It contains the events that the run has delivered and
//! the program has not taken yet. This file does not use Python.

use std::{
    collections::VecDeque,
    mem,
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Condvar, PoisonError},
    time::Instant,
};

use perf_prof_events::event::{Deliver, Flow, Sink, Stop};
use perf_prof_system::{CallError, eventfd::EventFd, mutex::Mutex, signals::EndRequests};

/// When a batch has reached this size in bytes, the batch is passed to the program. Larger batches would reach the
/// program later.
const BATCH_BYTES: usize = 256 << 10;
/// The maximum memory, in bytes, of all batches in the queue. At this limit the run stops delivering. The events of a
/// live run then stay in the run's own buffer (option `buffer`).
const WAITING_BYTES: usize = 8 << 20;

/// An entry that a run delivers.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A sample: the index of its event type, and the position of its record in the batch.
    Sample { event: u32, start: u32, size: u16 },
    /// A record that is not a sample, and its position in the batch. Only types of records that the run requests are
    /// delivered.
    Other { start: u32, size: u16 },
    /// Events were lost between these two times. Both times are 0 if events are not in the order of time.
    Lost { start: u64, end: u64 },
    /// An interval has passed.
    Interval,
}

/// A batch of entries in the order of delivery, with the records of the samples.
#[derive(Debug, Default)]
pub struct EventBatch {
    pub entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl EventBatch {
    /// Returns a part of the records' bytes.
    pub fn record(&self, start: u32, size: u16) -> &[u8] {
        let start = start as usize;
        self.bytes.get(start..start + usize::from(size)).unwrap_or_default()
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }
}

/// When a run begins to deliver events to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// When the events of the run are enabled.
    AtOnce,
    /// When [`Queue::start`] is called.
    WhenAsked,
}

/// The state that the run and the program share.
#[derive(Default)]
struct State {
    batches: VecDeque<EventBatch>,
    memory: usize,
    stage: Stage,
    /// The number of samples that the run does not deliver, because the program has them already. `None` until the run
    /// may begin to deliver.
    skipped: Option<u64>,
}

/// Which side still uses the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The run and the program.
    #[default]
    Open,
    /// Only the program: the run has ended, but batches may still be in the queue.
    Ended,
    /// Neither: the program takes no more batches.
    Closed,
}

/// The queue between the thread of a run and the program.
pub struct Queue {
    state: Mutex<State>,
    /// Notified at each change of the state.
    changed: Condvar,
    /// Readable while the queue may contain a batch, and after the end of the run.
    ready: EventFd,
    /// The program's requests to end the run.
    pub requests: Arc<EndRequests>,
}

/// The result of [`Queue::take`].
pub enum Taken {
    Batch(EventBatch),
    /// The queue contains no batch, but the run goes on.
    Nothing,
    /// There will be no more batches.
    End,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(delivery: Delivery) -> Result<Arc<Queue>, CallError> {
        let skipped = (delivery == Delivery::AtOnce).then_some(0);
        Ok(Arc::new(Queue {
            state: Mutex::new(State { skipped, ..State::default() }),
            changed: Condvar::new(),
            ready: EventFd::new()?,
            requests: Arc::new(EndRequests::new()?),
        }))
    }

    /// Returns the descriptor that is readable while the queue may contain a batch.
    pub fn ready_fd(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Takes the first batch, without waiting.
    pub fn take(&self) -> Taken {
        let mut state = self.state.lock();
        if let Some(batch) = state.batches.pop_front() {
            state.memory -= batch.memory();
            drop(state);
            self.changed.notify_all();
            return Taken::Batch(batch);
        }
        if state.stage != Stage::Open {
            return Taken::End;
        }
        self.ready.drain();
        Taken::Nothing
    }

    /// Returns the number of batches in the queue.
    pub fn waiting(&self) -> usize {
        self.state.lock().batches.len()
    }

    /// Waits for a batch, for the end of the run, or until the time `until`.
    pub fn wait(&self, until: Instant) {
        let state = self.state.lock();
        let left = until.saturating_duration_since(Instant::now());
        let is_idle = |state: &mut State| state.batches.is_empty() && state.stage == Stage::Open;
        drop(self.changed.wait_timeout_while(state, left, is_idle));
    }

    /// Lets the run begin to deliver. The run does not deliver its first `skipped` samples. Only the first call has an
    /// effect.
    pub fn start(&self, skipped: u64) {
        self.state.lock().skipped.get_or_insert(skipped);
        self.changed.notify_all();
    }

    /// Waits until the run may begin to deliver. Returns how many samples the run must skip.
    fn wait_for_start(&self) -> u64 {
        let is_early = |state: &mut State| state.skipped.is_none() && state.stage != Stage::Closed;
        let state = self.changed.wait_while(self.state.lock(), is_early).unwrap_or_else(PoisonError::into_inner);
        state.skipped.unwrap_or(0)
    }

    /// Adds a batch. If the queue is at its memory limit, waits first. Fails if the program takes no more batches.
    fn push(&self, batch: EventBatch) -> Flow {
        let is_full = |state: &mut State| state.memory > WAITING_BYTES && state.stage != Stage::Closed;
        let mut state = self.changed.wait_while(self.state.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if state.stage == Stage::Closed {
            return Flow::Break(Stop::Interrupted);
        }
        state.memory += batch.memory();
        state.batches.push_back(batch);
        drop(state);
        self.announce();
        Flow::Continue(())
    }

    /// Notes that the run has ended.
    pub fn end(&self) {
        {
            let mut state = self.state.lock();
            if state.stage == Stage::Open {
                state.stage = Stage::Ended;
            }
        }
        self.announce();
    }

    /// Drops all batches in the queue. From now on, new batches of the run are dropped too.
    pub fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            (state.stage, state.memory) = (Stage::Closed, 0);
            mem::take(&mut state.batches)
        };
        drop(dropped);
        self.announce();
    }

    fn announce(&self) {
        self.changed.notify_all();
        self.ready.signal();
    }
}

/// The sink through which a run delivers to a queue.
pub struct QueueSink {
    queue: Arc<Queue>,
    batch: EventBatch,
    /// The number of samples that must still be skipped.
    skipped: u64,
    /// Called once, after the events were enabled.
    begun: Option<Box<dyn FnOnce() + Send>>,
}

impl QueueSink {
    /// Creates the sink. `begun` is called once, after the events were enabled.
    pub fn new(queue: Arc<Queue>, begun: impl FnOnce() + Send + 'static) -> QueueSink {
        QueueSink { queue, batch: EventBatch::default(), skipped: 0, begun: Some(Box::new(begun)) }
    }

    fn pass_on_if_full(&mut self) -> Flow {
        if self.batch.bytes.len() >= BATCH_BYTES { self.pass_on() } else { Flow::Continue(()) }
    }

    fn pass_on(&mut self) -> Flow {
        let EventBatch { entries, bytes } = &self.batch;
        let next = EventBatch { entries: Vec::with_capacity(entries.len()), bytes: Vec::with_capacity(bytes.len()) };
        self.queue.push(mem::replace(&mut self.batch, next))
    }
}

impl Sink for QueueSink {
    fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun();
        }
        self.skipped = self.queue.wait_for_start();
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
        if !self.batch.entries.is_empty() {
            // `pass_on` fails only if the program takes no more events. In this case the program has also requested the
            // end of the run.
            let _ = self.pass_on();
        }
    }
}

impl Deliver for QueueSink {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        if self.skipped != 0 {
            self.skipped -= 1;
            return Flow::Continue(());
        }
        let sample = Entry::Sample {
            event: event as u32,
            start: self.batch.bytes.len() as u32,
            // The size in a record's header has 16 bits.
            size: record.len() as u16,
        };
        self.batch.entries.push(sample);
        self.batch.bytes.extend_from_slice(record);
        self.pass_on_if_full()
    }

    fn other_record(&mut self, record: &[u8], _time: u64) -> Flow {
        if self.skipped != 0 {
            return Flow::Continue(());
        }
        let start = self.batch.bytes.len() as u32;
        self.batch.entries.push(Entry::Other { start, size: record.len() as u16 });
        self.batch.bytes.extend_from_slice(record);
        self.pass_on_if_full()
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        if self.skipped == 0 {
            self.batch.entries.push(Entry::Lost { start, end });
        }
        Flow::Continue(())
    }

    fn interval(&mut self) -> Flow {
        if self.skipped == 0 {
            self.batch.entries.push(Entry::Interval);
        }
        Flow::Continue(())
    }
}
