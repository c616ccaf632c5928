//! Makes the batches of a recording, on request or ahead of time in a thread. With a thread, the consumer spends no
//! time on reading and sorting.

use std::{
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
    vec,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use perf_prof_format::record::Sorted;
use perf_prof_system::own_threads;

use super::merge::{BYTES_PER_CALL, Merger};
use crate::error::PerfDataError;

/// The number of bytes that the thread collects in a group of batches before it sends the group to the consumer. Groups
/// are large because waking a sleeping thread takes as long as reading a hundred records, or many hundreds on a virtual
/// machine.
const GROUP: usize = 1 << 20;

/// The maximum time of one wait for a group. A signal does not end a wait on a channel. So the wait ends after this
/// time, to let the caller handle signals.
const ATTENTION: Duration = Duration::from_millis(100);

/// The maximum number of groups that wait for the consumer.
const GROUPS: usize = 2;

/// The result of a request for a batch: the next batch, or `None` at the end, or [`PerfDataError::Interrupted`] if no
/// batch is ready yet.
type Next = Result<Option<Sorted>, PerfDataError>;

/// The batches of a recording.
pub(crate) struct Batches {
    from: Producer,
    state: Arc<State>,
}

/// The place where the batches are made.
enum Producer {
    /// In the thread of the caller.
    Here(Merger),
    /// In a thread that starts at the first request. If the process forks before the first request, the child process
    /// has a complete copy of the merger.
    Later(Merger),
    Thread(Thread),
    /// Nowhere: all batches were made, or the producer is being replaced.
    Gone,
}

struct Thread {
    groups: Receiver<Vec<Next>>,
    /// The batches of the last group that were not returned yet.
    group: vec::IntoIter<Next>,
    handle: thread::JoinHandle<()>,
}

impl Thread {
    /// Returns `Ok(None)`, the end of the batches, after the thread has closed its channel. If the thread panicked, the
    /// panic continues in the caller. Otherwise the missing records would look like a normal end.
    fn end(self) -> Next {
        match self.handle.join() {
            Ok(()) => Ok(None),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The progress of the thread.
#[derive(Default)]
struct State {
    consumed: AtomicU64,
    late: AtomicU64,
    bytes: AtomicUsize,
    /// True if the consumer needs no more batches.
    stopped: AtomicBool,
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
        Self { from: Producer::Here(merger), state: Arc::default() }
    }

    /// Lets a thread make the batches from now on. Does nothing if this was already requested.
    pub fn read_ahead(&mut self) {
        self.from = match std::mem::replace(&mut self.from, Producer::Gone) {
            Producer::Here(merger) => Producer::Later(merger),
            other => other,
        };
    }

    pub fn next(&mut self) -> Next {
        if let Producer::Later(_) = self.from {
            self.start();
        }
        match &mut self.from {
            Producer::Here(merger) => {
                let next = merger.next_batch();
                self.state.note(merger);
                return next;
            }
            Producer::Thread(Thread { groups, group, .. }) => loop {
                if let Some(next) = group.next() {
                    return next;
                }
                match groups.recv_timeout(ATTENTION) {
                    Ok(next) => *group = next.into_iter(),
                    Err(RecvTimeoutError::Timeout) => return Err(PerfDataError::Interrupted),
                    // The thread closes the channel after the last group.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            },
            Producer::Later(_) | Producer::Gone => return Ok(None),
        }
        match std::mem::replace(&mut self.from, Producer::Gone) {
            Producer::Thread(thread) => thread.end(),
            _ => Ok(None),
        }
    }

    fn start(&mut self) {
        let Producer::Later(merger) = std::mem::replace(&mut self.from, Producer::Gone) else { return };
        let (sender, groups) = crossbeam_channel::bounded(GROUPS);
        let state = self.state.clone();
        // If the thread cannot be started, its closure is dropped. So the merger is not part of the closure. It is sent
        // to the thread through a channel.
        let (give, take) = crossbeam_channel::bounded(1);
        let body = move || {
            if let Ok(merger) = take.recv() {
                make(merger, &sender, &state);
            }
        };
        self.from = match own_threads::spawn("perf-prof-replay", body) {
            Err(_) => Producer::Here(merger),
            Ok(handle) => match give.send(merger) {
                Ok(()) => Producer::Thread(Thread { groups, group: Vec::new().into_iter(), handle }),
                Err(error) => Producer::Here(error.into_inner()),
            },
        };
    }

    /// Stops the thread, and drops the batches that are ready.
    pub fn stop(&mut self) {
        if let Producer::Thread(thread) = std::mem::replace(&mut self.from, Producer::Gone) {
            self.state.stopped.store(true, Relaxed);
            drop(thread.groups);
            // A thread that panicked has already printed its message, and its missing batches are not needed any more.
            let _ = thread.handle.join();
        }
        self.state.bytes.store(0, Relaxed);
    }

    /// Sets the eventfd that interrupts a wait for more data.
    pub fn set_wake(&mut self, wake: RawFd) {
        if let Producer::Here(merger) | Producer::Later(merger) = &mut self.from {
            merger.set_wake(wake);
        }
    }

    /// Returns how many bytes of the recording were read.
    pub fn consumed(&self) -> u64 {
        self.state.consumed.load(Relaxed)
    }

    /// Returns how many records were loaded after newer records had been delivered.
    pub fn late(&self) -> u64 {
        self.state.late.load(Relaxed)
    }

    /// Returns how many bytes were read and not delivered yet.
    pub fn bytes(&self) -> usize {
        self.state.bytes.load(Relaxed)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes batches until the end, or until the consumer stops.
fn make(mut merger: Merger, sender: &Sender<Vec<Next>>, state: &State) {
    let mut is_last = false;
    while !is_last && !state.stopped.load(Relaxed) {
        let (mut group, mut bytes) = (Vec::new(), 0);
        // If few records are selected, a group is sent before it is full.
        let turn = merger.consumed() + BYTES_PER_CALL;
        while bytes < GROUP && merger.consumed() < turn && !is_last {
            let next = merger.next_batch();
            match &next {
                Ok(Some(batch)) => bytes += batch.chunks.iter().map(|chunk| chunk.bytes().len()).sum::<usize>(),
                Err(PerfDataError::Interrupted) => break,
                Ok(None) | Err(_) => is_last = true,
            }
            group.push(next);
        }
        state.note(&merger);
        if !group.is_empty() && sender.send(group).is_err() {
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

    use perf_prof_format::record::{Chunk, SortedRecord};

    use super::*;
    use crate::{
        ReadLimits,
        order::{block_stream::Stream, merge::ReleaseTime},
    };

    /// Blocks without records, which the test counts. `load` is called for each block that is loaded.
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
        Batches::new(Merger::new(vec![Box::new(stream)], ReleaseTime::InRounds, ReadLimits::default().limit("x")))
    }

    /// Returns the next batch. Ignores interruptions.
    fn patiently(batches: &mut Batches) -> Next {
        loop {
            match batches.next() {
                Err(PerfDataError::Interrupted) => {}
                next => return next,
            }
        }
    }

    #[test]
    fn a_slow_reader_can_be_interrupted() {
        let (go_on, wait) = crossbeam_channel::bounded::<()>(0);
        let mut batches = batches(0..1, move |_| wait.recv_timeout(Duration::from_secs(60)).unwrap());
        batches.read_ahead();
        assert!(matches!(batches.next(), Err(PerfDataError::Interrupted)));
        go_on.send(()).unwrap();
        assert!(matches!(patiently(&mut batches), Ok(None)));
    }

    /// The thread sends nothing, because no record is selected. It still has to stop when the reader stops it.
    #[test]
    fn a_stopped_reader_does_not_read_on() {
        const BLOCKS: u32 = 100_000;
        let loaded = Arc::new(AtomicUsize::new(0));
        let count = loaded.clone();
        let mut batches = batches(0..BLOCKS, move |_| {
            count.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(1));
        });
        batches.read_ahead();
        assert!(matches!(batches.next(), Err(PerfDataError::Interrupted)));
        batches.stop();
        assert!(loaded.load(Relaxed) < BLOCKS as usize);
        assert!(matches!(batches.next(), Ok(None)));
    }

    #[test]
    fn reading_pauses_in_blocks_without_selected_records() {
        let mut batches = batches(0..1000, |_| {});
        assert!(matches!(batches.next(), Err(PerfDataError::Interrupted)));
        assert_eq!(batches.consumed(), BYTES_PER_CALL);
        assert!(matches!(patiently(&mut batches), Ok(None)));
        assert_eq!(batches.consumed(), 1000 << 17);
    }

    #[test]
    fn a_panic_of_the_reader_is_passed_on() {
        let mut batches = batches(0..3, |number| assert!(number < 2, "number {number}"));
        batches.read_ahead();
        let panic = catch_unwind(AssertUnwindSafe(|| patiently(&mut batches))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "number 2");
        assert!(matches!(batches.next(), Ok(None)));
    }
}
