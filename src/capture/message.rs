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
    /// Says whether the ring with this number had room when its last chunk was read.
    Room(u32, RingRoom),
    /// A round starts. In a round, all rings are emptied.
    RoundBegins(Instant),
    /// The round is over: all rings have been emptied.
    RoundEnded,
    /// Tells the sorter to release its records, because a caller waits for them or the reader needs their memory.
    ReleaseHeld,
    /// All records that were in the rings when a flush was requested have been sent before this message.
    Flushed,
    /// Wakes the consumer, so that it checks the flags outside of the channel.
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
    /// Set when the wake descriptor was readable. This is a flag, because a message would arrive only after all earlier chunks.
    pub woken: AtomicBool,
    /// The time of day in ns at which the events were turned off; 0 before.
    pub off_at: AtomicI64,
}

impl Control {
    /// Returns a control without requests.
    pub fn new(bell: Arc<EventFd>) -> Control {
        let (stop, quit, woken) = Default::default();
        Control { wake_reader: bell, stop, quit, flushes: AtomicU64::new(0), woken, off_at: AtomicI64::new(0) }
    }
}

/// How the reader reports its rounds to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounds {
    /// Rounds are not reported: the consumer does not sort the records, so each ring is independent.
    Unmarked,
    /// The start and the end of each round are reported, because the consumer sorts the records. After the last
    /// records, rounds go on until all records are older than this margin.
    Marked(Duration),
}
