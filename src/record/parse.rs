//! One record's bytes to what they mean, for the kinds that a session acts upon.

use crate::abi::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES,
    PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE,
};

/// Size of `struct perf_event_header`: u32 type, u16 misc, u16 size.
pub const RECORD_HEADER: usize = 8;

/// The record's type, or 0 for bytes too short to hold a header.
#[inline]
pub fn record_type(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |b: &[u8; 4]| u32::from_ne_bytes(*b))
}

/// The size that the record's header states, or 0 for bytes too short to hold a header.
#[inline]
pub fn record_size(bytes: &[u8]) -> usize {
    bytes.get(6..8).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]) as usize)
}

/// The records in a run of bytes. Ends at the first record that is cut off or states a size below its header's.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Walks `bytes`, which begin with a record.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that were not walked yet; after the end, what could not be read as a record.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let size = record_size(self.rest);
        if size < RECORD_HEADER {
            return None;
        }
        let (record, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(record)
    }
}

/// A record by kind. Layouts are those of `include/uapi/linux/perf_event.h`, `enum perf_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample; its layout is its event's (`SampleLayout`).
    Sample,
    /// `lost` records were dropped for want of space in the ring.
    Lost {
        /// How many.
        lost: u64,
    },
    /// A task has a new name.
    Comm {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// The name, up to its NUL.
        comm: &'a [u8],
        /// Whether exec gave it.
        exec: bool,
    },
    /// A task was created.
    Fork {
        /// Its process.
        pid: u32,
        /// Its parent's process.
        ppid: u32,
        /// Its thread id.
        tid: u32,
        /// The thread that created it.
        ptid: u32,
    },
    /// A task exited.
    Exit {
        /// Its process.
        pid: u32,
        /// Its thread id.
        tid: u32,
    },
    /// Sampling was throttled or resumed.
    Throttle,
    /// A kind that nobody here acts upon, or a record too short for its kind.
    Other(u32),
}

impl<'a> Record<'a> {
    /// Reads a whole record, header included.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Record<'a> {
        let kind = record_type(bytes);
        if kind == PERF_RECORD_SAMPLE {
            return Record::Sample;
        }
        Self::side_band(kind, bytes).unwrap_or(Record::Other(kind))
    }

    fn side_band(kind: u32, bytes: &'a [u8]) -> Option<Record<'a>> {
        Some(match kind {
            PERF_RECORD_LOST => Record::Lost { lost: u64_at(bytes, 16)? },
            PERF_RECORD_LOST_SAMPLES => Record::Lost { lost: u64_at(bytes, 8)? },
            PERF_RECORD_COMM => {
                let text = bytes.get(16..)?;
                let comm = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
                let misc = u16::from_ne_bytes([bytes[4], bytes[5]]);
                let exec = misc & PERF_RECORD_MISC_COMM_EXEC != 0;
                Record::Comm { pid: u32_at(bytes, 8)?, tid: u32_at(bytes, 12)?, comm, exec }
            }
            PERF_RECORD_FORK => Record::Fork {
                pid: u32_at(bytes, 8)?,
                ppid: u32_at(bytes, 12)?,
                tid: u32_at(bytes, 16)?,
                ptid: u32_at(bytes, 20)?,
            },
            PERF_RECORD_EXIT => Record::Exit { pid: u32_at(bytes, 8)?, tid: u32_at(bytes, 16)? },
            PERF_RECORD_THROTTLE | PERF_RECORD_UNTHROTTLE => Record::Throttle,
            _ => return None,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}
