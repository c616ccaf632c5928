//! Bytes that come one after the other: a part of a file, or a pipe; and the records in them, as they were written. Knows
//! nothing of what the records say.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, RawFd},
    sync::Arc,
};

use super::{bytes::ByteOrder, error::PerfDataError, header::Section, input::Input, swap};
use crate::{
    record::RECORD_HEADER,
    sys::readable::{self, Readable},
};

/// How much is read at once; a record has at most 64 KiB.
const BUFFER: usize = 256 << 10;

/// So many bytes of a file are read before the caller is given the opportunity to attend to others.
const TURN: u64 = 4 << 20;

/// Where bytes come from.
pub(super) trait Feed: Send {
    /// Reads some bytes, 0 at the end. `Interrupted` when somebody wants the caller's attention.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// The eventfd that interrupts a wait.
    fn set_wake(&mut self, _wake: RawFd) {}
}

/// A part of a file.
pub(super) struct FileFeed {
    input: Arc<dyn Input>,
    rest: Section,
    /// How much is read until the next opportunity; `None` where nobody looks for one.
    turn: Option<u64>,
}

impl FileFeed {
    pub fn new(input: Arc<dyn Input>, section: Section) -> Self {
        Self { input, rest: section, turn: None }
    }
}

impl Feed for FileFeed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.turn == Some(0) {
            self.turn = Some(TURN);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = usize::try_from(self.rest.size).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.input.read_at(&mut buffer[..room], self.rest.offset)?;
        self.rest.offset += count as u64;
        self.rest.size -= count as u64;
        self.turn = self.turn.map(|left| left.saturating_sub(count as u64));
        Ok(count)
    }

    /// There is no wait to be interrupted, but reading may take as long as one.
    fn set_wake(&mut self, _wake: RawFd) {
        self.turn = Some(TURN);
    }
}

/// A pipe, or whatever else stdin is.
pub(super) struct PipeFeed {
    file: File,
    wake: Option<RawFd>,
}

impl PipeFeed {
    pub fn new(file: File) -> Self {
        Self { file, wake: None }
    }
}

impl Feed for PipeFeed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match readable::wait(self.file.as_fd(), self.wake).map_err(|error| error.source)? {
            Readable::Woken => Err(io::ErrorKind::Interrupted.into()),
            Readable::Yes => self.file.read(buffer),
        }
    }

    fn set_wake(&mut self, wake: RawFd) {
        self.wake = Some(wake);
    }
}

/// The records of a feed.
pub(super) struct Records {
    pub name: String,
    pub order: ByteOrder,
    feed: Box<dyn Feed>,
    buffer: Vec<u8>,
    /// What of the buffer was not used yet.
    start: usize,
    end: usize,
    /// Bytes behind the last record that are no records.
    skip: u64,
    /// How many bytes were used.
    consumed: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole record of this size.
    Record(usize),
    /// Nothing: the feed has ended.
    End,
    /// So many bytes that are no whole record.
    CutOff(u64),
    /// Something that is no record.
    Damaged,
}

impl Records {
    pub fn new(name: &str, order: ByteOrder, feed: Box<dyn Feed>) -> Self {
        let (name, buffer) = (name.to_owned(), vec![0; BUFFER]);
        Self { name, order, feed, buffer, start: 0, end: 0, skip: 0, consumed: 0 }
    }

    pub fn set_wake(&mut self, wake: RawFd) {
        self.feed.set_wake(wake);
    }

    /// How many bytes were used.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Makes sure that a whole record is in the buffer.
    pub fn next(&mut self) -> Result<Next, PerfDataError> {
        while self.skip > 0 {
            let there = usize::try_from(self.skip).unwrap_or(usize::MAX).min(self.end - self.start);
            self.take(there);
            self.skip -= there as u64;
            if self.skip > 0 && !self.fill()? {
                return Ok(Next::End);
            }
        }
        loop {
            let rest = &self.buffer[self.start..self.end];
            if rest.len() >= RECORD_HEADER {
                let size = swap::record_size(rest, self.order);
                if size < RECORD_HEADER {
                    return Ok(Next::Damaged);
                }
                if size <= rest.len() {
                    return Ok(Next::Record(size));
                }
            }
            if !self.fill()? {
                let left = (self.end - self.start) as u64;
                return Ok(if left == 0 { Next::End } else { Next::CutOff(left) });
            }
        }
    }

    /// The next bytes; as many as [`Records::next`] said.
    pub fn peek(&mut self, size: usize) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + size]
    }

    /// Goes on behind so many bytes.
    pub fn take(&mut self, size: usize) {
        self.start += size;
        self.consumed += size as u64;
    }

    /// Goes back before records that were taken last.
    pub fn put_back(&mut self, records: &[u8]) {
        self.buffer.splice(..self.start, records.iter().copied());
        (self.start, self.end) = (0, self.end - self.start + records.len());
        self.buffer.resize(self.buffer.len().max(BUFFER), 0);
        self.consumed = self.consumed.saturating_sub(records.len() as u64);
    }

    /// Goes on behind what stands behind a record and is no record.
    pub fn skip(&mut self, bytes: u64) {
        self.skip = bytes;
    }

    /// The next bytes, which are no records: at most so many, fewer at the end.
    pub fn bytes(&mut self, size: u64) -> Result<Vec<u8>, PerfDataError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            if self.start == self.end && !self.fill()? {
                break;
            }
            let wanted = usize::try_from(size).unwrap_or(usize::MAX) - bytes.len();
            let there = wanted.min(self.end - self.start);
            bytes.extend_from_slice(&self.buffer[self.start..self.start + there]);
            self.take(there);
        }
        Ok(bytes)
    }

    /// Reads more; `false` at the end.
    fn fill(&mut self) -> Result<bool, PerfDataError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.feed.read(&mut self.buffer[self.end..]) {
            Ok(count) => {
                self.end += count;
                Ok(count > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(PerfDataError::Interrupted),
            Err(error) => Err(PerfDataError::io(&self.name, error)),
        }
    }
}
