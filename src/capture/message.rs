//! What the reader thread and the consumer tell each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use crate::{
    record::{Chunk, Ended},
    sys::eventfd::EventFd,
};

/// What the reader tells the consumer, in order.
#[derive(Debug)]
pub(super) enum Message {
    /// Records of one ring.
    Chunk(Chunk),
    /// All rings are going to be emptied.
    RoundBegins(Instant),
    /// All rings were emptied.
    RoundEnded,
    /// Somebody waits: for what came before this, or for its memory.
    Hurry,
    /// Everything up to a flush's request came before this.
    Flushed,
    /// There is nothing here: look at what is not in the channel.
    Nudge,
    /// Nothing more will come.
    Ended(Ended),
}

/// What the consumer tells the reader. Signal `bell` after a change.
#[derive(Debug)]
pub(super) struct Control {
    pub bell: Arc<EventFd>,
    pub stop: AtomicBool,
    pub quit: AtomicBool,
    /// How many flushes were asked for.
    pub flushes: AtomicU64,
    /// The wake descriptor was readable. Not in the channel: it must not wait behind the backlog.
    pub woken: AtomicBool,
}

impl Control {
    /// Nothing is asked for yet.
    pub fn new(bell: Arc<EventFd>) -> Control {
        let (stop, quit, woken) = Default::default();
        Control { bell, stop, quit, flushes: AtomicU64::new(0), woken }
    }
}

/// Whether the consumer sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounds {
    /// Every ring by itself.
    Unmarked,
    /// The consumer wants to know the rounds, until everything is older than this margin.
    Marked(Duration),
}
