//! The reader thread: empties the rings into memory, so that a slow consumer does not make the kernel drop records.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;

use super::{
    Take,
    drain::{Drained, drain},
    limit::Limiter,
    memory::{BLOCK, Memory},
    message::{Control, Message, Rounds},
    open::Descriptor,
    pace::Pace,
    tasks::Tasks,
};
use crate::{
    abi::PERF_RECORD_SAMPLE,
    record::{Ended, record_type},
    spec::CpuSet,
    sys::{
        CallError,
        epoll::{Epoll, Ready},
        eventfd::{self},
        perf,
        ring::Ring,
        signals, thread,
    },
};

/// The reader's own.
pub(super) struct Reader {
    pub rings: Vec<Ring>,
    /// The number of each in the capture.
    pub numbers: Vec<usize>,
    pub descriptors: Arc<Vec<Descriptor>>,
    /// Which descriptor stands for each ring in the epoll set.
    pub watched: Vec<usize>,
    pub memory: Arc<Memory>,
    pub control: Arc<Control>,
    pub outlet: Outlet,
    /// The CPUs that it may run on; `None` for any.
    pub affinity: Option<CpuSet>,
    pub wake: Option<RawFd>,
    /// `None` when the end of no task ends the capture.
    pub tasks: Option<Tasks>,
    pub rounds: Rounds,
    pub epoll: Epoll,
    pub pace: Pace,
    pub phase: Phase,
    /// How many flushes were answered.
    pub flushed: u64,
    pub flush: Option<Flush>,
    /// The ring that the next unmarked round begins with.
    pub first: usize,
    /// Memory that a marked round needs at most; wake-ups for single rings leave it free.
    pub reserve: usize,
    /// The sorter was told to let go, and there was no room for a round since. Telling it again would do nothing: it
    /// holds back what came since the last round began, until the next one has.
    pub hurried: bool,
    pub limiter: Option<Limiter>,
    /// Whether this round has taken samples, or so much that it does not matter what.
    pub sampled: bool,
}

/// Where records go.
pub(super) enum Outlet {
    /// To the consumer, who is told everything else too.
    Consumer(Sender<Message>),
    /// To somebody who takes them in the reader's own thread, and knows when they end.
    Taker(Box<dyn Take>),
}

/// What the reader is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Events flow.
    Running,
    /// The events are off, the rings are being emptied.
    Emptying(Ended),
    /// All was said.
    Ended,
}

/// A flush that was not answered yet.
#[derive(Debug)]
pub(super) struct Flush {
    /// Answers all requests up to this one.
    request: u64,
    /// Where the rings' heads were.
    heads: Vec<u64>,
    /// When a marked round had taken everything.
    taken: Option<Instant>,
}

/// What an interrupted writer may need to finish a record that it has stamped already.
const WRITER: Duration = Duration::from_millis(1);

/// Bytes that are not looked through for samples.
const MUCH: usize = 4096;

// Tokens of the epoll set. Rings have their index, tasks their descriptor above `TASK`.
const BELL: u64 = 1 << 40;
const WAKE: u64 = BELL + 1;
const TASK: u64 = 1 << 41;

/// How a round went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Quiet,
    /// No samples, only what happens to tasks: no reason to come back soon.
    SideBand,
    Records,
    /// No memory for all of it; `need` more would do for the next step.
    Starved {
        need: usize,
    },
}

impl Reader {
    /// Gives rings, chosen by their numbers, to another reader. Before either runs.
    pub fn hand_over(&mut self, other: &mut Reader, is_its: impl Fn(usize) -> bool) {
        let rings = self.rings.drain(..).zip(self.numbers.drain(..)).zip(self.watched.drain(..));
        for ((ring, number), watched) in rings.collect::<Vec<_>>() {
            let to = if is_its(number) { &mut *other } else { &mut *self };
            to.rings.push(ring);
            to.numbers.push(number);
            to.watched.push(watched);
        }
    }

    /// Puts everything that is waited for into the epoll set.
    pub fn watch(&mut self) -> Result<(), CallError> {
        for (index, &watched) in self.watched.iter().enumerate() {
            self.epoll.add(self.descriptors[watched].fd.as_raw_fd(), index as u64)?;
        }
        self.epoll.add(self.control.bell.as_raw_fd(), BELL)?;
        if let Some(fd) = self.wake {
            self.epoll.add(fd, WAKE)?;
        }
        for fd in self.tasks.iter().flat_map(Tasks::descriptors) {
            self.epoll.add(fd, TASK + fd as u64)?;
        }
        Ok(())
    }

    /// Runs until the consumer says `quit`.
    pub fn run(mut self) {
        signals::block_in_this_thread();
        if let Some(cpus) = &self.affinity {
            // Elsewhere it does the same work.
            let _ = thread::pin(cpus);
        }
        // It works little and seldom, but when a ring fills up while all CPUs are busy, who waits his turn loses records.
        thread::prefer();
        let mut ready = Vec::new();
        while !self.control.quit.load(SeqCst) {
            let timeout = (self.phase != Phase::Ended).then(|| self.pace.until_round(Instant::now()));
            if self.epoll.wait(timeout, &mut ready).is_err() {
                // Cannot happen with a set that is open; if it does, the session must end instead of hanging.
                return self.end(Ended::Stopped);
            }
            let mut rings_ready = false;
            for &event in &ready {
                rings_ready |= self.react(event);
            }
            match self.phase {
                Phase::Running => self.running(&ready, rings_ready),
                Phase::Emptying(why) => self.emptying(why),
                Phase::Ended => {}
            }
            if let (Phase::Ended, Outlet::Taker(_)) = (self.phase, &self.outlet) {
                break;
            }
        }
        if let Outlet::Taker(taker) = &mut self.outlet {
            taker.end();
        }
    }

    /// Reacts to a descriptor; says whether it is a ring's.
    fn react(&mut self, ready: Ready) -> bool {
        match ready.token {
            BELL => {
                self.control.bell.drain();
                self.pace.hasten();
            }
            WAKE => {
                if let Some(fd) = self.wake {
                    eventfd::drain(fd);
                }
                self.control.woken.store(true, SeqCst);
                self.send(Message::Nudge);
            }
            token if token >= TASK => {
                let fd = (token - TASK) as RawFd;
                self.epoll.remove(fd);
                if let Some(tasks) = &mut self.tasks {
                    tasks.exited(fd);
                }
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

    /// The task of a ring's watched event has exited, or its CPU is gone: the descriptor would stay ready for ever.
    /// Other tasks may still write into the ring, and a wake-up goes to all events that share it
    /// (ring_buffer_wakeup() in kernel/events/core.c), so the next attachment's dummy takes its place. Should its task
    /// have exited too, it hangs up at once and the one behind it follows. After the last, the rounds are left.
    fn watch_another(&mut self, ring: usize) {
        let watched = self.watched[ring];
        self.epoll.remove(self.descriptors[watched].fd.as_raw_fd());
        let number = self.numbers[ring];
        let is_next = |descriptor: &Descriptor| descriptor.ring == number && descriptor.event.is_none();
        let next = self.descriptors.iter().skip(watched + 1).position(is_next);
        if let Some(next) = next.map(|distance| watched + 1 + distance) {
            // On failure the ring is seen in each round, as after the last.
            let _ = self.epoll.add(self.descriptors[next].fd.as_raw_fd(), ring as u64);
            self.watched[ring] = next;
        }
    }

    fn running(&mut self, ready: &[Ready], rings_ready: bool) {
        if self.control.stop.load(SeqCst) {
            return self.end(Ended::Stopped);
        }
        if self.tasks.as_mut().is_some_and(Tasks::all_exited) {
            return self.end(Ended::TasksExited);
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
            // What a ring filled up to its watermark is taken at once, without looking at the others.
            for ready in ready.iter().filter(|ready| ready.token < BELL) {
                let index = ready.token as usize;
                let head = self.rings[index].head();
                if self.rounds != Rounds::Unmarked && !self.leaves_room_for_a_round(index, head) {
                    self.pace.hasten();
                } else {
                    self.drain(index, head);
                }
            }
            self.pace.records_between_rounds(now);
        }
    }

    /// A flush is answered when everything that was there at its request has been handed out. It is remembered from
    /// round to round: where memory is short no round may take all that is new, yet the flush must come to its end.
    fn advance_flush(&mut self, began: Instant, complete: bool) {
        let Some(flush) = &mut self.flush else { return };
        let answered = match self.rounds {
            Rounds::Unmarked => self.rings.iter().zip(&flush.heads).all(|(ring, &head)| ring.tail() >= head),
            // What one round took is in order for sure when a second one has ended.
            Rounds::Marked(_) => match flush.taken {
                Some(taken) if complete && began >= taken + WRITER => true,
                None if complete => {
                    flush.taken = Some(Instant::now());
                    self.pace.settle_by(Instant::now() + WRITER);
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
            self.send(Message::Hurry);
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
        // Readers with a taker are told to end when the events are off already.
        let descriptors = if let Outlet::Consumer(_) = &self.outlet { self.descriptors.as_slice() } else { &[] };
        for descriptor in descriptors {
            // A failure leaves an event on whose records nobody will read.
            let _ = perf::disable(descriptor.fd.as_fd());
        }
        self.phase = Phase::Emptying(why);
        self.emptying(why);
    }

    fn emptying(&mut self, why: Ended) {
        let now = Instant::now();
        if let Round::Starved { need } = self.round(now) {
            return self.starved(now, need);
        }
        if self.rounds != Rounds::Unmarked {
            // Nothing more can come: what that round took is complete.
            self.send(Message::RoundBegins(now));
            self.send(Message::RoundEnded);
        }
        self.answer_flushes(self.control.flushes.load(SeqCst));
        self.send(Message::Ended(why));
        self.phase = Phase::Ended;
    }

    /// Empties all rings, as far as there is memory.
    fn round(&mut self, now: Instant) -> Round {
        self.sampled = false;
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
                    // Where memory is short, each ring gets its turn.
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

    /// A round that the sorter can rely upon takes everything or nothing. Where there is no memory for it, the sorter
    /// has to let go what it holds back: all but the last round's records, which is why two rounds always fit.
    fn marked_round(&mut self, now: Instant, margin: Duration) -> Round {
        let heads: Vec<u64> = self.rings.iter().map(Ring::head).collect();
        let spans = || self.rings.iter().zip(&heads).map(|(ring, head)| (head - ring.tail()) as usize);
        let need = spans().map(Memory::cost_of_ring).sum();
        if !self.memory.has_room(need, 0) {
            if !std::mem::replace(&mut self.hurried, true) {
                self.send(Message::Hurry);
            }
            return Round::Starved { need };
        }
        self.hurried = false;
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
        let (outlet, sampled, number) = (&mut self.outlet, &mut self.sampled, self.numbers[index]);
        drain(&mut self.rings[index], number, head, &self.memory, &mut self.limiter, |chunk| {
            *sampled |=
                chunk.bytes().len() > MUCH || chunk.records().any(|record| record_type(record) == PERF_RECORD_SAMPLE);
            match outlet {
                // The consumer is gone only when the capture is being dropped.
                Outlet::Consumer(messages) => drop(messages.send(Message::Chunk(chunk))),
                Outlet::Taker(taker) => taker.take(chunk),
            }
        })
    }

    fn send(&self, message: Message) {
        if let Outlet::Consumer(messages) = &self.outlet {
            let _ = messages.send(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::super::{Begin, Capture, Clock, EventRequest, Mappings, Members, Options, SideBand, State, Target};
    use super::*;
    use crate::sys::eventfd::EventFd;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// A consumer that was slow for long found a hundred requests per second, in a channel without a bound.
    #[test]
    fn a_starved_round_asks_for_memory_once() {
        let bell = Arc::new(EventFd::new().unwrap());
        let memory = Arc::new(Memory::new(BLOCK, Arc::clone(&bell)));
        let control = Control::new(bell);
        let (sender, messages) = crossbeam_channel::unbounded();
        let ring = Ring::fake(4096, 0);
        assert!(ring.write(&[0, 0, 0, 0, 0, 0, 8, 0]));
        let mut reader = Reader {
            rings: vec![ring],
            numbers: vec![0],
            descriptors: Arc::default(),
            watched: vec![],
            memory: Arc::clone(&memory),
            control: Arc::new(control),
            outlet: Outlet::Consumer(sender),
            affinity: None,
            wake: None,
            tasks: None,
            rounds: Rounds::Marked(Duration::ZERO),
            epoll: Epoll::new().unwrap(),
            pace: Pace::new(Instant::now()),
            phase: Phase::Running,
            flushed: 0,
            flush: None,
            first: 0,
            reserve: 0,
            hurried: false,
            limiter: None,
            sampled: false,
        };
        for _ in 0..2 {
            let all = memory.take(BLOCK);
            for _ in 0..3 {
                assert!(matches!(reader.round(Instant::now()), Round::Starved { .. }));
            }
            assert!(matches!(messages.try_iter().collect::<Vec<_>>()[..], [Message::Hurry]));
            crate::record::Recycle::recycle(&*memory, all);
            assert!(!matches!(reader.round(Instant::now()), Round::Starved { .. }));
            assert!(messages.try_iter().all(|message| !matches!(message, Message::Hurry)));
            assert!(reader.rings[0].write(&[0, 0, 0, 0, 0, 0, 8, 0]));
        }
    }

    /// The ring of a CPU was waited for by the event of the first task alone.
    #[test]
    fn a_ring_still_wakes_when_the_first_of_its_tasks_has_exited() {
        let id = std::fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_enter_kill/id");
        let Ok(id) = id else { return println!("skipped: no tracefs") };
        // `read` is a builtin, and so is `kill`: no children.
        let (mut first, mut second) = (shell("read go"), shell("read go; while kill -0 $$; do :; done"));
        let event = EventRequest::tracepoint("syscalls:sys_enter_kill", id.trim().parse().unwrap());
        let options = Options {
            ring_bytes: 16 * 4096,
            buffer: 1 << 20,
            watermark_percent: 50,
            clock: Clock::Perf,
            order: None,
            mappings: Mappings::Ignored,
            members: Members::default(),
            side_band: SideBand::default(),
            begin: Begin::default(),
            switching: crate::capture::Switching::default(),
            sampling_limit: None,
            wake: None,
        };
        let mut capture = Capture::open(&Target::Processes(vec![first.id(), second.id()]), &[event], &options).unwrap();
        capture.enable_those(|_| true).unwrap();
        let State::Idle(mut reader) = std::mem::replace(&mut capture.reader, State::Gone) else { unreachable!() };
        reader.watch().unwrap();
        let (at_first, mut ready) = (reader.watched.clone(), Vec::new());
        let mut wait = |reader: &mut Reader| {
            reader.epoll.wait(Some(Duration::from_secs(60)), &mut ready).unwrap();
            assert!(!ready.is_empty(), "nobody is woken");
            ready.iter().filter(|&&event| reader.react(event) && !event.hung_up).count()
        };

        drop(first.stdin.take());
        first.wait().unwrap();
        while reader.watched.iter().zip(&at_first).any(|(now, first)| now == first) {
            wait(&mut reader);
        }
        drop(second.stdin.take());
        while wait(&mut reader) == 0 {}
        second.kill().unwrap();
        second.wait().unwrap();
    }
}
