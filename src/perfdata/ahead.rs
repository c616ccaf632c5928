//! Batches of a recording, made here when they are asked for, or ahead of that by a thread: then reading and ordering take
//! no time of whoever is busy with the records. Knows nothing of what is in them.

use std::{
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread, vec,
};

use crossbeam_channel::{Receiver, Sender};

use super::{error::PerfDataError, merge::Merger};
use crate::{record::Sorted, sys::signals};

/// Bytes of the recording that are handed over at once: a thread that sleeps takes as long to wake as a hundred records
/// take to be read, or many hundreds on a virtual machine.
const GROUP: usize = 1 << 20;

/// Groups that wait.
const GROUPS: usize = 2;

/// What comes next; `None` at the end.
type Next = Result<Option<Sorted>, PerfDataError>;

/// The batches of a recording.
pub(super) struct Batches {
    from: From,
    state: Arc<State>,
}

/// Who makes them.
enum From {
    /// Whoever asks for them.
    Here(Merger),
    /// A thread, from the first time on that one is asked for: processes that are forked before have a whole copy.
    Later(Merger),
    Thread(Thread),
    Nobody,
}

struct Thread {
    groups: Receiver<Vec<Next>>,
    /// What is left of the last group.
    group: vec::IntoIter<Next>,
    handle: thread::JoinHandle<()>,
}

/// How far it is.
#[derive(Default)]
struct State {
    consumed: AtomicU64,
    late: AtomicU64,
    bytes: AtomicUsize,
}

impl State {
    fn note(&self, merger: &Merger) {
        self.consumed.store(merger.consumed(), Relaxed);
        self.late.store(merger.late(), Relaxed);
        self.bytes.store(merger.bytes(), Relaxed);
    }
}

impl Batches {
    pub fn new(merger: Merger) -> Self {
        Self { from: From::Here(merger), state: Arc::default() }
    }

    /// Has a thread make them, if nothing was asked for yet.
    pub fn read_ahead(&mut self) {
        self.from = match std::mem::replace(&mut self.from, From::Nobody) {
            From::Here(merger) => From::Later(merger),
            other => other,
        };
    }

    pub fn next(&mut self) -> Next {
        if let From::Later(_) = self.from {
            self.start();
        }
        match &mut self.from {
            From::Here(merger) => {
                let next = merger.next_batch();
                self.state.note(merger);
                next
            }
            From::Thread(Thread { groups, group, .. }) => loop {
                if let Some(next) = group.next() {
                    return next;
                }
                // Behind the last one it hangs up.
                let Ok(next) = groups.recv() else { return Ok(None) };
                *group = next.into_iter();
            },
            From::Later(_) | From::Nobody => Ok(None),
        }
    }

    fn start(&mut self) {
        let From::Later(merger) = std::mem::replace(&mut self.from, From::Nobody) else { return };
        let (sender, groups) = crossbeam_channel::bounded(GROUPS);
        let state = self.state.clone();
        let thread = thread::Builder::new().name("perf-prof-replay".to_owned());
        // What a thread that cannot be had was to get would be lost with it.
        let (give, take) = crossbeam_channel::bounded(1);
        let body = move || {
            signals::block_in_this_thread();
            if let Ok(merger) = take.recv() {
                make(merger, &sender, &state);
            }
        };
        self.from = match thread.spawn(body) {
            Err(_) => From::Here(merger),
            Ok(handle) => match give.send(merger) {
                Ok(()) => From::Thread(Thread { groups, group: Vec::new().into_iter(), handle }),
                Err(error) => From::Here(error.into_inner()),
            },
        };
    }

    /// Makes no more, and gives up what was made.
    pub fn stop(&mut self) {
        if let From::Thread(thread) = std::mem::replace(&mut self.from, From::Nobody) {
            drop(thread.groups);
            // One that panicked has said so.
            let _ = thread.handle.join();
        }
        self.state.bytes.store(0, Relaxed);
    }

    /// The eventfd that interrupts a wait for more.
    pub fn set_wake(&mut self, wake: RawFd) {
        if let From::Here(merger) | From::Later(merger) = &mut self.from {
            merger.set_wake(wake);
        }
    }

    /// How many bytes of the recording were read.
    pub fn consumed(&self) -> u64 {
        self.state.consumed.load(Relaxed)
    }

    /// How many samples came when newer ones had been handed out.
    pub fn late(&self) -> u64 {
        self.state.late.load(Relaxed)
    }

    /// Bytes that were read and not handed out.
    pub fn bytes(&self) -> usize {
        self.state.bytes.load(Relaxed)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes batches until nobody wants one any more.
fn make(mut merger: Merger, sender: &Sender<Vec<Next>>, state: &State) {
    loop {
        let (mut group, mut bytes, mut is_last) = (Vec::new(), 0, false);
        while bytes < GROUP && !is_last {
            let next = merger.next_batch();
            match &next {
                Ok(Some(batch)) => bytes += batch.chunks.iter().map(|chunk| chunk.bytes().len()).sum::<usize>(),
                Ok(None) | Err(_) => is_last = true,
            }
            group.push(next);
        }
        state.note(&merger);
        if sender.send(group).is_err() || is_last {
            return;
        }
    }
}
