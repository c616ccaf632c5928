//! Compressed records to the records that are in them: one zstd stream per file, whose context goes on from record to
//! record. Knows nothing of files.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::{bytes::ByteOrder, swap};
use crate::{
    abi::perf_data::PERF_RECORD_COMPRESSED2,
    record::{RECORD_HEADER, record_type},
};

/// How much is unpacked at once, however much a record may unpack to.
const STEP: usize = 128 << 10;

/// The unpacking of one file.
pub(super) struct Unpacker {
    decoder: Decoder<'static>,
    packed: Vec<u8>,
    /// How much of `packed` was used.
    used: usize,
    /// What was unpacked, and not used yet: from `start` to `end`. The rest is room.
    unpacked: Vec<u8>,
    start: usize,
    end: usize,
    /// The last step filled all the room it had, so there may be more.
    full: bool,
}

impl Unpacker {
    pub fn new() -> std::io::Result<Self> {
        let decoder = Decoder::new()?;
        Ok(Self { decoder, packed: Vec::new(), used: 0, unpacked: Vec::new(), start: 0, end: 0, full: false })
    }

    /// Takes a compressed record, in native order; all that was taken before is unpacked.
    pub fn take(&mut self, record: &[u8]) {
        let packed = match record_type(record) {
            // A u64 says how much of the record is data, as it is filled up to a multiple of 8.
            PERF_RECORD_COMPRESSED2 => record.get(8..16).and_then(|size| {
                let size = u64::from_ne_bytes(size.try_into().ok()?);
                record.get(16..)?.get(..usize::try_from(size).ok()?)
            }),
            _ => record.get(RECORD_HEADER..),
        };
        self.packed.clear();
        self.packed.extend_from_slice(packed.unwrap_or(&[]));
        self.used = 0;
    }

    /// The next whole record that is unpacked.
    pub fn next(&mut self, order: ByteOrder) -> Option<&mut [u8]> {
        let rest = &self.unpacked[self.start..self.end];
        let size = swap::record_size(rest, order);
        if rest.len() < RECORD_HEADER || size > rest.len() || size < RECORD_HEADER {
            return None;
        }
        let start = self.start;
        self.start += size;
        Some(&mut self.unpacked[start..start + size])
    }

    /// Whether there is anything to be unpacked.
    pub fn has_packed(&self) -> bool {
        self.used < self.packed.len() || self.full
    }

    /// Unpacks some more.
    pub fn step(&mut self, order: ByteOrder) -> Result<(), String> {
        let rest = &self.unpacked[self.start..self.end];
        if rest.len() >= RECORD_HEADER && swap::record_size(rest, order) < RECORD_HEADER {
            return Err("what was unpacked are no records".to_owned());
        }
        self.unpacked.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.unpacked.len() < self.end + STEP {
            self.unpacked.resize(self.end + STEP, 0);
        }
        let mut input = InBuffer::around(&self.packed[self.used..]);
        let mut output = OutBuffer::around(&mut self.unpacked[self.end..self.end + STEP]);
        let result = self.decoder.run(&mut input, &mut output);
        let (used, made) = (input.pos(), output.pos());
        self.end += made;
        self.used += used;
        self.full = made == STEP;
        match result {
            Ok(_) if used == 0 && made == 0 && self.used < self.packed.len() => Err("it does not go on".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => {
                self.used = self.packed.len();
                self.full = false;
                Err(error.to_string())
            }
        }
    }

    /// Bytes that were unpacked and are no whole record.
    pub fn left(&self) -> usize {
        self.end - self.start
    }
}
