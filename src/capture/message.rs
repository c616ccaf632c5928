//! The messages between the reader thread and the consumer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64},
    },
    time::{Duration, Instant},
};

use perf_prof_format::record::{Chunk, Ended, RingRoom};
use perf_prof_system::eventfd::EventFd;

/// A message from the reader to the consumer. Messages arrive in the order in which they were sent.
#[derive(Debug)]
pub(super) enum Message {
    /// Records of one ring.
    Chunk(Chunk),
    /// Says whether the ring with this index had room for another record when its last chunk was read.
    Room(u32, RingRoom),
    /// A round begins: the reader empties all rings.
    RoundBegins(Instant),
    /// The round has ended: all rings have been emptied.
    RoundEnded,
    /// The sorter has to release its records, because a caller waits for them or the reader needs their memory.
    ReleaseHeld,
    /// All records that were in the rings at the time of a flush request have been sent before this message.
    Flushed,
    /// Wakes the consumer. The consumer then checks the flags in `Control`.
    WakeUp,
    /// There are no more messages.
    Ended(Ended),
}

/// The requests of the consumer to the reader. `wake_reader` has to be signalled after each change.
#[derive(Debug)]
pub(super) struct Control {
    pub wake_reader: Arc<EventFd>,
    pub stop: AtomicBool,
    pub quit: AtomicBool,
    /// The number of flushes requested so far.
    pub flushes: AtomicU64,
    /// Set when the wake descriptor was readable. A message instead of this flag would arrive only after all earlier
    /// chunks.
    pub woken: AtomicBool,
    /// The time of day in ns at which the events were turned off; 0 while they are on.
    pub off_at: AtomicI64,
}

impl Control {
    pub fn new(bell: Arc<EventFd>) -> Control {
        let (stop, quit, woken) = Default::default();
        Control { wake_reader: bell, stop, quit, flushes: AtomicU64::new(0), woken, off_at: AtomicI64::new(0) }
    }
}

/// Whether the reader reports its rounds to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounds {
    /// Rounds are not reported. The consumer does not sort the records, so the rings do not depend on each other.
    Unmarked,
    /// The begin and the end of each round are reported, because the consumer sorts the records. After the last
    /// records, rounds go on until all records are older than this margin.
    Marked(Duration),
}
