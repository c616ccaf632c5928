//! Reads bytes from front to back, from a section of a file or from a pipe, and splits them into records. The records
//! keep the byte order of the file.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, RawFd},
    sync::Arc,
};

use perf_prof_format::record::RECORD_HEADER;
use perf_prof_system::readable::{self, Readable};

use super::random_access::Input;
use crate::{
    error::PerfDataError,
    format::{bytes::ByteOrder, header::Section, own_updates::EndMark, swap},
};

/// The size of the read buffer in bytes; a record has at most 64 KiB.
const BUFFER: usize = 256 << 10;

/// The number of bytes of a file after which `read` returns `Interrupted` once, so that the caller can do other work.
const BYTES_BETWEEN_PAUSES: u64 = 4 << 20;

/// A source of bytes.
pub(crate) trait Feed: Send {
    /// Reads some bytes and returns their number; 0 means the end. Returns the error `Interrupted` if the caller has to
    /// do other work first.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sets the eventfd that interrupts a wait.
    fn set_wake(&mut self, _wake: RawFd) {}

    /// Returns whether fewer bytes are there than there should be, after all of them were read.
    fn is_cut_off(&self) -> bool {
        false
    }

    /// Returns another feed with the bytes that were not read yet. `None` if the bytes can be read only once.
    fn copied(&self) -> Option<Box<dyn Feed>> {
        None
    }
}

/// A section of a file.
#[derive(Clone)]
pub(crate) struct FileFeed {
    input: Arc<dyn Input>,
    rest: Section,
    /// The number of bytes until `read` returns `Interrupted`; `None` if `read` never returns `Interrupted`.
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
            self.turn = Some(BYTES_BETWEEN_PAUSES);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = usize::try_from(self.rest.size).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.input.read_at(&mut buffer[..room], self.rest.offset)?;
        self.rest.offset += count as u64;
        self.rest.size -= count as u64;
        self.turn = self.turn.map(|left| left.saturating_sub(count as u64));
        Ok(count)
    }

    /// Makes `read` return `Interrupted` regularly. A file needs no eventfd, because reading a file does not wait. But
    /// reading a large file takes long, and the caller has to do other work in between.
    fn set_wake(&mut self, _wake: RawFd) {
        self.turn = Some(BYTES_BETWEEN_PAUSES);
    }

    fn is_cut_off(&self) -> bool {
        self.rest.size != 0
    }

    fn copied(&self) -> Option<Box<dyn Feed>> {
        Some(Box::new(self.clone()))
    }
}

/// A pipe, or stdin. Stdin may be any kind of file.
pub(crate) struct PipeFeed {
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

/// Splits the bytes of a feed into records.
pub(crate) struct RecordReader {
    pub name: String,
    pub order: ByteOrder,
    feed: Box<dyn Feed>,
    buffer: Vec<u8>,
    /// The bytes of the buffer from `start` to `end` were read from the feed, but have not been used yet.
    start: usize,
    end: usize,
    /// The number of bytes to skip before the next record: the unread rest of the previous record's payload.
    skip: u64,
    /// The number of bytes that were used so far.
    consumed: u64,
    end_mark: EndMark,
}

/// The next item in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A whole record of this size in bytes.
    Record(usize),
    /// The end of the feed.
    End,
    /// The feed ends in the middle of a record, or before it should. The value is how many bytes of the last record exist.
    CutOff(u64),
    /// The feed ends in the payload of a record, or after a whole record, without the mark that its recorder writes at the end of a
    /// pipe.
    Unfinished,
    /// Bytes that are not a record.
    Damaged,
}

impl RecordReader {
    pub fn new(name: &str, order: ByteOrder, feed: Box<dyn Feed>) -> Self {
        let (name, buffer) = (name.to_owned(), vec![0; BUFFER]);
        Self { name, order, feed, buffer, start: 0, end: 0, skip: 0, consumed: 0, end_mark: EndMark::Never }
    }

    /// Returns another reader at the same position. `None` if the bytes can be read only once.
    pub fn copied(&self) -> Option<RecordReader> {
        let (name, buffer, feed) = (self.name.clone(), self.buffer.clone(), self.feed.copied()?);
        Some(Self { name, buffer, feed, ..*self })
    }

    pub fn set_wake(&mut self, wake: RawFd) {
        self.feed.set_wake(wake);
    }

    /// Notes whether the next record, of `size` bytes, says that a mark will come at the end.
    pub fn note_end_mark(&mut self, size: usize) {
        self.end_mark.note(&self.buffer[self.start..self.start + size], self.order);
    }

    /// Returns whether the mark at the end should come and is not among the records so far.
    pub fn awaits_end_mark(&self) -> bool {
        self.end_mark == EndMark::Awaited
    }

    /// Returns how many bytes were used so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Makes sure that the next whole record is in the buffer.
    pub fn next(&mut self) -> Result<Next, PerfDataError> {
        while self.skip > 0 {
            let there = usize::try_from(self.skip).unwrap_or(usize::MAX).min(self.end - self.start);
            self.advance(there);
            self.skip -= there as u64;
            if self.skip > 0 && !self.fill()? {
                return Ok(Next::Unfinished);
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
                    if self.end_mark == EndMark::Awaited {
                        self.end_mark.note(&rest[..size], self.order);
                    }
                    return Ok(Next::Record(size));
                }
            }
            if !self.fill()? {
                let left = (self.end - self.start) as u64;
                return Ok(match self.end_mark {
                    _ if left != 0 || self.feed.is_cut_off() => Next::CutOff(left),
                    EndMark::Awaited => Next::Unfinished,
                    EndMark::Never | EndMark::Found => Next::End,
                });
            }
        }
    }

    /// Returns the next record without advancing. `size` is the size that [`RecordReader::next`] returned.
    pub fn peek(&mut self, size: usize) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + size]
    }

    /// Advances by `size` bytes.
    pub fn advance(&mut self, size: usize) {
        self.start += size;
        self.consumed += size as u64;
    }

    /// Puts records back into the buffer, before the unused bytes, so that they are read again.
    pub fn put_back(&mut self, records: &[u8]) {
        self.buffer.splice(..self.start, records.iter().copied());
        (self.start, self.end) = (0, self.end - self.start + records.len());
        self.buffer.resize(self.buffer.len().max(BUFFER), 0);
        self.consumed = self.consumed.saturating_sub(records.len() as u64);
    }

    /// Skips the payload after a record: the next `bytes` bytes.
    pub fn skip_payload(&mut self, bytes: u64) {
        self.skip = bytes;
    }

    /// Reads a payload of `size` bytes; returns fewer bytes if the feed ends. The next record is then [`Next::Unfinished`].
    pub fn read_payload(&mut self, size: u64) -> Result<Vec<u8>, PerfDataError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            if self.start == self.end && !self.fill()? {
                self.skip = size - bytes.len() as u64;
                break;
            }
            let wanted = usize::try_from(size).unwrap_or(usize::MAX) - bytes.len();
            let there = wanted.min(self.end - self.start);
            bytes.extend_from_slice(&self.buffer[self.start..self.start + there]);
            self.advance(there);
        }
        Ok(bytes)
    }

    /// Reads more bytes into the buffer; returns `false` at the end of the feed.
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
