//! The reader thread. It empties the rings into memory, so that the kernel does not drop records if the consumer is
//! slow.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Ended, RingRoom, record_type},
    spec::CpuSet,
};
use perf_prof_system::{
    CallError, clock,
    epoll::{Epoll, Ready},
    eventfd::{self},
    perf,
    ring::Ring,
    thread,
};

use super::{
    RecordConsumer,
    drain::{Drained, OnTheWay, drain},
    limit::Limiter,
    mailbox::Sender,
    memory::{BLOCK, Memory},
    message::{Control, Message, Rounds},
    offline::OfflineCheck,
    open::Descriptor,
    own::OwnSamples,
    pace::Pace,
    tasks::Tasks,
    unwritten::SampleCounter,
};

/// The state of one reader thread.
pub(super) struct Reader {
    pub rings: Vec<Ring>,
    /// For each ring in `rings`, its index among all rings of the capture.
    pub numbers: Vec<usize>,
    pub descriptors: Arc<Vec<Descriptor>>,
    /// For each ring, the index of the descriptor that is in the epoll set for this ring.
    pub watched: Vec<usize>,
    pub memory: Arc<Memory>,
    pub control: Arc<Control>,
    pub outlet: Outlet,
    /// The CPUs that the thread may run on; `None` for all.
    pub affinity: Option<CpuSet>,
    pub wake: Option<RawFd>,
    /// Groups of tasks. The capture ends when all tasks of one group have exited.
    pub tasks: Vec<Tasks>,
    pub rounds: Rounds,
    pub epoll: Epoll,
    pub pace: Pace,
    pub phase: Phase,
    /// The number of flushes answered so far.
    pub flushed: u64,
    pub flush: Option<Flush>,
    /// The index of the ring with which the next unmarked round starts.
    pub first: usize,
    /// The size of the largest record that is expected.
    pub largest_record: usize,
    /// Whether each ring had room for another record when it was read.
    pub room: Vec<RingRoom>,
    /// The maximum number of bytes of memory that a marked round (see `marked_round`) can need. Between rounds, a
    /// single ring is drained only if this much memory stays free.
    pub reserve: usize,
    /// True since the sorter was asked to release its records, until there is enough memory for a round again. A second
    /// request would have no effect: records that arrived since the start of the last round stay in the sorter until
    /// the next round has ended.
    pub release_requested: bool,
    pub limiter: Option<Limiter>,
    /// Counts the samples in the rings.
    pub counter: Option<SampleCounter>,
    /// Detects CPUs that go offline; `None` if the events belong to tasks.
    pub offline: Option<OfflineCheck>,
    /// The CPU of each ring of the capture.
    pub ring_cpus: Vec<Option<u32>>,
    /// Removes the samples of perf-prof's own threads.
    pub own_samples: Option<OwnSamples>,
    /// True if a consumer that waits has to be woken at the end of this turn.
    pub is_awaited: bool,
    /// True if this round has found samples. A chunk of more than [`LARGE_CHUNK`] bytes is not searched, but assumed to
    /// contain samples.
    pub sampled: bool,
}

/// Where the reader sends the records.
pub(super) enum Outlet {
    /// The consumer in another thread. It also gets all other messages.
    Consumer(Sender),
    /// A consumer in the reader thread. Its `end` is called after the last records.
    Taker(Box<dyn RecordConsumer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Records are read.
    Running,
    /// The events are off; the rings are being emptied.
    Emptying(Ended),
    /// Everything has been sent.
    Ended,
}

/// A flush request that has not been answered yet.
#[derive(Debug)]
pub(super) struct Flush {
    /// The total number of flush requests so far. All of them are answered together.
    request: u64,
    /// The heads of the rings at the time of the request.
    heads: Vec<u64>,
    /// The end of the first round after the request that emptied all rings. `None` before this round has ended, and
    /// always without `Rounds::Marked`.
    taken: Option<Instant>,
}

/// The assumed maximum time between two moments: the kernel reads the time of a record, and the kernel has written the
/// record. Interrupts can delay the second moment.
const WRITER_DELAY: Duration = Duration::from_millis(1);

/// When records of this many bytes wait, the consumer is woken before the end of the round. A wake-up costs the consumer
/// as much as a hundred events or more.
const BATCH: usize = 4 << 20;

/// Chunks of more than this many bytes are not searched for samples.
const LARGE_CHUNK: usize = 4096;

// The tokens of the epoll set. The token of a ring is its index. The token of a task is its descriptor plus `TASK`.
const BELL: u64 = 1 << 40;
const WAKE: u64 = BELL + 1;
const TASK: u64 = 1 << 41;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Quiet,
    /// There were only side-band records. They alone are no reason to start the next round soon.
    SideBand,
    Records,
    /// There was not enough memory. The reader continues when `need` bytes are free.
    Starved {
        need: usize,
    },
}

impl Reader {
    /// Moves some rings to the reader `other`. `is_its` gets the index of a ring in the capture and returns whether to
    /// move the ring. Must be called before either reader runs.
    pub fn hand_over(&mut self, other: &mut Reader, is_its: impl Fn(usize) -> bool) {
        let rings = self.rings.drain(..).zip(self.numbers.drain(..)).zip(self.watched.drain(..));
        for ((ring, number), watched) in rings.collect::<Vec<_>>() {
            let to = if is_its(number) { &mut *other } else { &mut *self };
            to.rings.push(ring);
            to.numbers.push(number);
            to.watched.push(watched);
        }
    }

    /// Adds all descriptors to the epoll set.
    pub fn watch(&mut self) -> Result<(), CallError> {
        for (index, &watched) in self.watched.iter().enumerate() {
            self.epoll.add(self.descriptors[watched].fd.as_raw_fd(), index as u64)?;
        }
        self.epoll.add(self.control.wake_reader.as_raw_fd(), BELL)?;
        if let Some(fd) = self.wake {
            self.epoll.add(fd, WAKE)?;
        }
        for fd in self.tasks.iter().flat_map(Tasks::descriptors) {
            self.epoll.add(fd, TASK + fd as u64)?;
        }
        Ok(())
    }

    /// Runs until `quit` is set.
    pub fn run(mut self) {
        if let Some(cpus) = &self.affinity {
            // If this fails, the thread runs on other CPUs, and nothing else changes.
            let _ = thread::pin(cpus);
        }
        // The thread needs little CPU time. But if it has to wait for a CPU while a ring fills up, records are lost. It
        // must not get a higher priority, which would take CPU time from the traced programs. If the traced programs run in
        // the same session, they would even lose time on other CPUs, because all tasks of a session share one weight
        // (`autogroup` in sched(7)).
        thread::take_short_turns();
        let mut ready = Vec::new();
        while !self.control.quit.load(SeqCst) {
            let timeout = (self.phase != Phase::Ended).then(|| self.pace.until_round(Instant::now()));
            if self.epoll.wait(timeout, &mut ready).is_err() {
                // epoll_wait does not fail on an open epoll set. If it fails nevertheless, the capture must end and not
                // hang.
                return self.end(Ended::Stopped);
            }
            let mut rings_ready = false;
            for &event in &ready {
                rings_ready |= self.handle_ready(event);
            }
            match self.phase {
                Phase::Running => self.running(&ready, rings_ready),
                Phase::Emptying(why) => self.emptying(why),
                Phase::Ended => {}
            }
            self.hand_over_batch();
            if let (Phase::Ended, Outlet::Taker(_)) = (self.phase, &self.outlet) {
                break;
            }
        }
        if let Outlet::Taker(taker) = &mut self.outlet {
            taker.end();
        }
    }

    /// Handles a descriptor that is ready. Returns whether the descriptor belongs to a ring.
    fn handle_ready(&mut self, ready: Ready) -> bool {
        match ready.token {
            BELL => {
                self.control.wake_reader.drain();
                self.pace.hasten();
            }
            WAKE => {
                if let Some(fd) = self.wake {
                    eventfd::drain(fd);
                }
                self.wake_consumer();
            }
            token if token >= TASK => {
                let fd = (token - TASK) as RawFd;
                self.epoll.remove(fd);
                self.tasks.iter_mut().for_each(|tasks| tasks.exited(fd));
                self.pace.hasten();
            }
            ring => {
                if ready.hung_up {
                    self.watch_another(ring as usize);
                }
                return true;
            }
        }
        false
    }

    /// Watches another descriptor for a ring. The task of the watched descriptor has exited or its CPU is gone, so this
    /// descriptor would stay ready forever. Other tasks may still write into the ring, and a wakeup goes to all events
    /// that share the ring (ring_buffer_wakeup() in kernel/events/core.c). So the dummy event of the next attachment is
    /// watched instead. If the task of that dummy event has exited too, the dummy event hangs up at once and is
    /// replaced in the same way. If no dummy event is left, only the regular rounds read the ring.
    fn watch_another(&mut self, ring: usize) {
        let watched = self.watched[ring];
        self.epoll.remove(self.descriptors[watched].fd.as_raw_fd());
        let number = self.numbers[ring];
        let is_next = |descriptor: &Descriptor| descriptor.ring == number && descriptor.event.is_none();
        let next = self.descriptors.iter().skip(watched + 1).position(is_next);
        if let Some(next) = next.map(|distance| watched + 1 + distance) {
            // If this fails, only the regular rounds read the ring.
            let _ = self.epoll.add(self.descriptors[next].fd.as_raw_fd(), ring as u64);
            self.watched[ring] = next;
        } else if let Some(cpu) = self.ring_cpus.get(number).copied().flatten()
            && self.offline.as_mut().is_some_and(|offline| offline.hung_up(cpu))
        {
            self.wake_consumer();
        }
    }

    fn running(&mut self, ready: &[Ready], rings_ready: bool) {
        if self.control.stop.load(SeqCst) {
            return self.end(Ended::Stopped);
        }
        if self.tasks.iter_mut().any(Tasks::all_exited) {
            return self.end(Ended::TasksExited);
        }
        if self.offline.as_mut().is_some_and(|offline| offline.is_any_offline(Instant::now())) {
            self.wake_consumer();
        }
        let request = self.control.flushes.load(SeqCst);
        if self.flush.is_none() && request != self.flushed {
            let heads = self.rings.iter().map(Ring::head).collect();
            self.flush = Some(Flush { request, heads, taken: None });
            self.pace.hasten();
        }
        let now = Instant::now();
        if self.pace.round_is_due(now) {
            match self.round(now) {
                Round::Records => self.pace.records(now),
                Round::Quiet => {
                    if let Outlet::Taker(taker) = &mut self.outlet {
                        taker.pause();
                    }
                    self.pace.quiet(now);
                }
                Round::SideBand => self.pace.side_band(now),
                Round::Starved { need } => self.starved(now, need),
            }
        } else if rings_ready {
            // A ring that has reached its watermark is drained at once. All other rings wait for the next round.
            for ready in ready.iter().filter(|ready| ready.token < BELL) {
                let index = ready.token as usize;
                let head = self.rings[index].head();
                if self.rounds != Rounds::Unmarked && !self.leaves_room_for_a_round(index, head) {
                    self.pace.hasten();
                } else {
                    self.is_awaited |= self.drain(index, head) == Drained::Partly;
                }
            }
            self.pace.records_between_rounds(now);
        }
    }

    /// Answers a flush request when all records that were in the rings at the time of the request have been delivered.
    /// This may take several rounds: if memory is short, one round cannot empty all rings. `began` is the start of the
    /// last round, and `complete` says whether that round emptied all rings.
    fn advance_flush(&mut self, began: Instant, complete: bool) {
        let Some(flush) = &mut self.flush else { return };
        let answered = match self.rounds {
            Rounds::Unmarked => self.rings.iter().zip(&flush.heads).all(|(ring, &head)| ring.tail() >= head),
            // Only after a second round are the records of the first round certain to be in order.
            Rounds::Marked(_) => match flush.taken {
                Some(taken) if complete && began >= taken + WRITER_DELAY => true,
                None if complete => {
                    flush.taken = Some(Instant::now());
                    self.pace.settle_by(Instant::now() + WRITER_DELAY);
                    false
                }
                _ => false,
            },
        };
        if answered {
            let request = flush.request;
            self.answer_flushes(request);
        }
    }

    fn answer_flushes(&mut self, request: u64) {
        if self.rounds != Rounds::Unmarked {
            self.send(Message::ReleaseHeld);
        }
        for _ in self.flushed..request {
            self.send(Message::Flushed);
        }
        self.flushed = request;
        self.flush = None;
    }

    fn starved(&mut self, now: Instant, need: usize) {
        self.pace.starved(now);
        if self.memory.await_room(need) {
            self.pace.hasten();
        }
    }

    /// Turns all events off, then empties the rings.
    fn end(&mut self, why: Ended) {
        // If the consumer runs in the reader thread, the reader is told to end only when the events are already off.
        let descriptors = if let Outlet::Consumer(_) = &self.outlet { self.descriptors.as_slice() } else { &[] };
        for descriptor in descriptors {
            // If this fails, the event stays on, but nobody reads its records any more.
            let _ = perf::disable(descriptor.fd.as_fd());
        }
        self.control.off_at.store(clock::realtime(), SeqCst);
        // An event that another CPU was just writing is counted, and its sample may come only now.
        std::thread::sleep(WRITER_DELAY);
        self.phase = Phase::Emptying(why);
        self.emptying(why);
    }

    fn emptying(&mut self, why: Ended) {
        let now = Instant::now();
        if let Round::Starved { need } = self.round(now) {
            return self.starved(now, need);
        }
        if self.rounds != Rounds::Unmarked {
            // No more records can arrive. This empty round tells the sorter that the previous round is complete.
            self.send(Message::RoundBegins(now));
            self.send(Message::RoundEnded);
        }
        self.answer_flushes(self.control.flushes.load(SeqCst));
        self.send(Message::Ended(why));
        self.phase = Phase::Ended;
    }

    /// Empties all rings, as far as memory suffices.
    fn round(&mut self, now: Instant) -> Round {
        (self.sampled, self.is_awaited) = (false, true);
        self.pace.went_round(now);
        let round = match self.rounds {
            Rounds::Unmarked => self.unmarked_round(),
            Rounds::Marked(margin) => self.marked_round(now, margin),
        };
        self.advance_flush(now, !matches!(round, Round::Starved { .. }));
        round
    }

    fn unmarked_round(&mut self) -> Round {
        let mut any = false;
        let count = self.rings.len();
        for index in (self.first..count).chain(0..self.first) {
            let head = self.rings[index].head();
            match self.drain(index, head) {
                Drained::Empty => {}
                Drained::All => any = true,
                Drained::Partly => {
                    // If memory is short, the next round starts with the next ring. So each ring gets its turn.
                    self.first = (index + 1) % count;
                    return Round::Starved { need: BLOCK };
                }
            }
        }
        self.outcome(any)
    }

    fn outcome(&self, any: bool) -> Round {
        match (any, self.sampled) {
            (false, _) => Round::Quiet,
            (true, false) => Round::SideBand,
            (true, true) => Round::Records,
        }
    }

    /// Runs a round that the sorter can rely on: the round empties all rings or no ring. If memory does not suffice for
    /// the round, the sorter has to release its records. The sorter can release all records except those of the last
    /// round, so the memory must always be large enough for two rounds.
    fn marked_round(&mut self, now: Instant, margin: Duration) -> Round {
        let heads: Vec<u64> = self.rings.iter().map(Ring::head).collect();
        let spans = || self.rings.iter().zip(&heads).map(|(ring, head)| (head - ring.tail()) as usize);
        let need = spans().map(Memory::cost_of_ring).sum();
        if !self.memory.has_room(need, 0) {
            if !std::mem::replace(&mut self.release_requested, true) {
                self.send(Message::ReleaseHeld);
            }
            return Round::Starved { need };
        }
        self.release_requested = false;
        let any = spans().any(|span| span > 0);
        if !any && self.flush.is_none() && !self.pace.is_settling(now, margin) {
            return Round::Quiet;
        }
        self.send(Message::RoundBegins(now));
        for (index, head) in heads.into_iter().enumerate() {
            self.drain(index, head);
        }
        self.send(Message::RoundEnded);
        self.outcome(any)
    }

    fn leaves_room_for_a_round(&self, index: usize, head: u64) -> bool {
        let span = (head - self.rings[index].tail()) as usize;
        self.memory.has_room(Memory::cost_of_ring(span), self.reserve)
    }

    fn drain(&mut self, index: usize, head: u64) -> Drained {
        let tail = self.rings[index].tail();
        let drained = self.drain_records(index, head);
        if self.rounds != Rounds::Unmarked {
            self.report_room(index, tail, drained);
        }
        drained
    }

    /// Tells the sorter whether the ring had room for another record before it was drained. If the ring had no room,
    /// records may have been lost after those in the ring; the kernel reports this loss only with the next record. `tail`
    /// is the position of the ring's first record.
    fn report_room(&mut self, index: usize, tail: u64, drained: Drained) {
        let ring = &self.rings[index];
        let is_full = (ring.head() - tail) as usize + self.largest_record > ring.size();
        let room = match (self.room[index], drained) {
            (RingRoom::Left, _) if is_full => RingRoom::Used,
            (RingRoom::Used, Drained::All) if !is_full => RingRoom::Left,
            _ => return,
        };
        self.room[index] = room;
        self.send(Message::Room(self.numbers[index] as u32, room));
    }

    fn drain_records(&mut self, index: usize, head: u64) -> Drained {
        let (outlet, sampled, number) = (&mut self.outlet, &mut self.sampled, self.numbers[index]);
        let (memory, is_sorted) = (&self.memory, self.rounds != Rounds::Unmarked);
        let on_the_way =
            OnTheWay { counter: &self.counter, own_samples: &mut self.own_samples, limiter: &mut self.limiter };
        drain(&mut self.rings[index], number, head, memory, on_the_way, |chunk| {
            *sampled |= chunk.bytes().len() > LARGE_CHUNK
                || chunk.records().any(|record| record_type(record) == PERF_RECORD_SAMPLE);
            match outlet {
                Outlet::Consumer(messages) => {
                    messages.send(Message::Chunk(chunk));
                    // The sorter releases records only at the end of a round.
                    if !is_sorted && memory.used() >= BATCH {
                        messages.wake();
                    }
                }
                Outlet::Taker(taker) => taker.consume(chunk),
            }
        })
    }

    /// Makes the consumer's wait return.
    fn wake_consumer(&mut self) {
        self.control.woken.store(true, SeqCst);
        self.send(Message::WakeUp);
        self.is_awaited = true;
    }

    /// Wakes a consumer that waits, after each round.
    fn hand_over_batch(&mut self) {
        if std::mem::take(&mut self.is_awaited)
            && let Outlet::Consumer(messages) = &self.outlet
        {
            messages.wake();
        }
    }

    fn send(&self, message: Message) {
        if let Outlet::Consumer(messages) = &self.outlet {
            messages.send(message);
        }
    }
}

#[cfg(test)]
mod tests;
