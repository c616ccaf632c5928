//! The threads of a recording, and which spans they have begun and ended.

use rustc_hash::FxHashMap;

use crate::derive::span::missing::{self, MissingSpan};

/// The maximum number of threads that are remembered. With more threads, ends without a begin are no longer told apart.
const MOST: usize = 1 << 16;

/// A recorder turns off events one after another, in less than this time, in ns.
const STOPPING: u64 = 100_000_000;

/// The numbers of system calls that are remembered for each thread: one bit for each of them.
const NUMBERS: usize = 512;

/// What happened last to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was created, and has had no event. Its first end is of no span: a new thread returns from the call that made it,
    /// and was never off its CPU.
    Created,
    /// It has begun a span, and has ended none.
    Begun,
    /// It has ended a span.
    Ended,
}

/// What the events of a thread have shown.
struct Thread {
    stage: Stage,
    /// The time of its last event.
    last: u64,
    /// The second number in the key of its open span. Only for spans of which a thread has one at a time.
    open: Option<u64>,
    /// The task and the time of an end whose begin is missing. A recorder may turn the begin events off a moment before the
    /// end events. So a begin counts as missing only if the thread begins another span later.
    unbegun: Option<(i32, u64)>,
    /// The numbers of the spans that have begun and ended.
    made: [u64; NUMBERS / 64],
}

impl Thread {
    fn new(stage: Stage, last: u64) -> Thread {
        Thread { stage, last, open: None, unbegun: None, made: [0; NUMBERS / 64] }
    }

    fn note_made(&mut self, number: u64) {
        if let Some(word) = self.made.get_mut((number / 64) as usize) {
            *word |= 1 << (number % 64);
        }
    }

    fn has_made(&self, number: u64) -> bool {
        self.made.get((number / 64) as usize).is_some_and(|word| word & 1 << (number % 64) != 0)
    }
}

/// The threads that have had an event since the start of a recording or since the last loss.
#[derive(Default)]
pub(super) struct Threads {
    threads: FxHashMap<u64, Thread>,
    /// The spans of each thread that were open when the thread began another one. A recorder may turn the end events off
    /// first. So they count as missing only if ends go on.
    unended: FxHashMap<u64, Vec<MissingSpan>>,
    /// The memory of the spans in `unended`, in bytes.
    waiting: usize,
    /// When a thread ended a span last.
    last_end: u64,
    /// Whether events were lost. The begin of a thread's first end may be one of them.
    had_loss: bool,
}

/// A thread before a span begins.
pub(super) struct BeforeBegin {
    /// The task and the time of an end whose begin is missing.
    pub unbegun: Option<(i32, u64)>,
    /// The second number in the key of a span that is open, and whose end is missing.
    pub open: Option<u64>,
}

/// A thread before an end whose begin is not known.
pub(super) struct BeforeEnd {
    /// `None` if the thread had no event.
    pub stage: Option<Stage>,
    /// The second number in the key of its open span.
    pub open: Option<u64>,
    /// Whether it has begun and ended a span with the key of the end.
    pub has_made: bool,
}

impl Threads {
    /// Returns whether it is known which threads have had events.
    pub fn are_known(&self) -> bool {
        !self.had_loss && !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.threads.len() >= MOST
    }

    /// Returns a thread. Returns `None` if there is no room for another thread.
    #[inline]
    fn thread(&mut self, thread: u64, new: Stage, time: u64) -> Option<&mut Thread> {
        if self.is_full() {
            return self.threads.get_mut(&thread);
        }
        Some(self.threads.entry(thread).or_insert_with(|| Thread::new(new, time)))
    }

    /// Notes that a thread begins a span. If another span of the thread is open, its end is missing or damaged. This does not
    /// hold before the first end of the thread, because a recorder turns the begin events on first.
    #[inline]
    pub fn begins(&mut self, [thread, number]: [u64; 2], time: u64) -> Option<BeforeBegin> {
        let of = self.thread(thread, Stage::Begun, time)?;
        of.last = of.last.max(time);
        let open = of.open.replace(number).filter(|_| of.stage == Stage::Ended);
        if of.stage == Stage::Created {
            of.stage = Stage::Begun;
        }
        Some(BeforeBegin { unbegun: of.unbegun.take(), open })
    }

    /// Notes that a thread ends a span whose begin is known. Returns the spans that waited for an end of this thread.
    #[inline]
    pub fn ends(&mut self, [thread, number]: [u64; 2], time: u64) -> Vec<MissingSpan> {
        self.last_end = self.last_end.max(time);
        if let Some(of) = self.thread(thread, Stage::Ended, time) {
            (of.stage, of.open, of.last) = (Stage::Ended, None, of.last.max(time));
            of.note_made(number);
        }
        self.take_unended(thread)
    }

    /// Notes an end whose begin is not known.
    pub fn ends_unbegun(&mut self, [thread, number]: [u64; 2], time: u64) -> BeforeEnd {
        self.last_end = self.last_end.max(time);
        let before = self.threads.get_mut(&thread).map(|of| {
            of.last = of.last.max(time);
            let stage = Some(std::mem::replace(&mut of.stage, Stage::Ended));
            BeforeEnd { stage, open: of.open.take(), has_made: of.has_made(number) }
        });
        before.unwrap_or_else(|| {
            self.thread(thread, Stage::Ended, time);
            BeforeEnd { stage: None, open: None, has_made: false }
        })
    }

    /// Notes that a thread was created at `time`, also if its id was that of another thread before.
    pub fn created(&mut self, thread: u64, time: u64) {
        match self.threads.get_mut(&thread) {
            // At the time 0, recorders write a record for each task that exists already.
            _ if time == 0 => {}
            // An earlier part has reported it, and the events since then.
            Some(of) if of.last > time => {}
            Some(of) => *of = Thread::new(Stage::Created, time),
            None => _ = self.thread(thread, Stage::Created, time),
        }
    }

    pub fn exited(&mut self, thread: u64, time: u64) {
        if let Some(of) = self.threads.get_mut(&thread).filter(|of| of.last <= time) {
            of.open = None;
        }
    }

    /// Keeps a span until its thread ends another one. Returns it if there is no room: it then counts at once.
    pub fn keep(&mut self, thread: u64, span: MissingSpan) -> Option<MissingSpan> {
        if self.waiting + span.bytes() > missing::BYTES {
            return Some(span);
        }
        self.waiting += span.bytes();
        self.unended.entry(thread).or_default().push(span);
        None
    }

    pub fn take_unended(&mut self, thread: u64) -> Vec<MissingSpan> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let spans = self.unended.remove(&thread).unwrap_or_default();
        self.waiting -= spans.iter().map(MissingSpan::bytes).sum::<usize>();
        spans
    }

    /// Takes out all spans that wait. Returns those during which the end events were still on.
    pub fn take_last_unended(&mut self) -> Vec<MissingSpan> {
        self.take_unended_until(self.last_end.saturating_sub(STOPPING))
    }

    /// Forgets the threads, because events were lost. Returns the spans that waited.
    pub fn lost(&mut self) -> Vec<MissingSpan> {
        let spans = self.take_unended_until(u64::MAX);
        *self = Threads { had_loss: true, ..Threads::default() };
        spans
    }

    /// Notes an end whose begin is missing.
    pub fn note_unbegun(&mut self, thread: u64, task: i32, time: u64) {
        if let Some(of) = self.threads.get_mut(&thread) {
            of.unbegun = Some((task, time));
        }
    }

    /// Takes out all spans that wait. Returns those that other spans followed until `time`.
    fn take_unended_until(&mut self, time: u64) -> Vec<MissingSpan> {
        let spans = std::mem::take(&mut self.unended).into_values().flatten();
        self.waiting = 0;
        spans.filter(|span| span.until <= time).collect()
    }
}
