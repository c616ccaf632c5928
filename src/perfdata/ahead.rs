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

use crossbeam_channel::{Receiver, RecvError, Sender};

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

impl Thread {
    /// The end, once the thread has hung up. If it panicked, so does this, as if it had done itself what the thread did:
    /// what is not there would pass for the end otherwise.
    fn end(self) -> Next {
        match self.handle.join() {
            Ok(()) => Ok(None),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
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
                return next;
            }
            From::Thread(Thread { groups, group, .. }) => loop {
                if let Some(next) = group.next() {
                    return next;
                }
                match groups.recv() {
                    Ok(next) => *group = next.into_iter(),
                    // Behind the last one it hangs up.
                    Err(RecvError) => break,
                }
            },
            From::Later(_) | From::Nobody => return Ok(None),
        }
        match std::mem::replace(&mut self.from, From::Nobody) {
            From::Thread(thread) => thread.end(),
            _ => Ok(None),
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
            // One that panicked has said so, and nobody asks for what it did not make.
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

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    use super::*;
    use crate::{
        perfdata::{merge::Release, stream::Stream},
        record::{Chunk, SortedRecord},
    };

    /// The numbers of blocks without records; what is done for each is up to the test.
    struct Blocks<F> {
        left: Range<u32>,
        load: F,
    }

    impl<F: FnMut(u32) + Send> Stream for Blocks<F> {
        fn bound(&mut self) -> Result<u64, PerfDataError> {
            Ok(if self.left.is_empty() { u64::MAX } else { self.left.start.into() })
        }

        fn load(&mut self, _records: &mut Vec<SortedRecord>) -> Result<Option<(u32, Chunk)>, PerfDataError> {
            let Some(number) = self.left.next() else { return Ok(None) };
            (self.load)(number);
            Ok(Some((number, Chunk::new(0, Vec::new(), None))))
        }

        fn consumed(&self) -> u64 {
            u64::from(self.left.start) << 17
        }
    }

    fn batches(left: Range<u32>, load: impl FnMut(u32) + Send + 'static) -> Batches {
        let stream = Blocks { left, load };
        Batches::new(Merger::new(vec![Box::new(stream)], Release::InRounds))
    }

    #[test]
    fn a_reader_that_panicked_passed_for_one_at_the_end() {
        let mut batches = batches(0..3, |number| assert!(number < 2, "number {number}"));
        batches.read_ahead();
        let panic = catch_unwind(AssertUnwindSafe(|| batches.next())).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "number 2");
        assert!(matches!(batches.next(), Ok(None)));
    }
}
