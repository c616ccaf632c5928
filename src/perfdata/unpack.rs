//! Compressed records to the records that are in them: one zstd stream per file, whose context goes on from record to
//! record, as long as a frame of it lasts. Knows nothing of files.

use zstd::{
    stream::raw::{Decoder, InBuffer, Operation, OutBuffer},
    zstd_safe::MAGICNUMBER,
};

use super::{bytes::ByteOrder, index::payload, layouts::Layouts, swap};
use crate::{
    abi::perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2},
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
    /// The last frame has ended, and no other one has begun.
    between_frames: bool,
}

/// Whether a record holds packed ones.
pub(super) fn is_compressed(record: &[u8]) -> bool {
    matches!(record_type(record), PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2)
}

/// What of a compressed record is packed.
fn packed(record: &[u8]) -> Option<&[u8]> {
    match record_type(record) {
        // A u64 says how much of the record is data, as it is filled up to a multiple of 8.
        PERF_RECORD_COMPRESSED2 => {
            let size = u64::from_ne_bytes(*record.get(8..)?.first_chunk()?);
            record.get(16..)?.get(..usize::try_from(size).ok()?)
        }
        _ => record.get(RECORD_HEADER..),
    }
}

/// Whether a compressed record begins with a frame of zstd, to all appearances: what was before is not needed to unpack it.
pub(super) fn begins_frame(record: &[u8]) -> bool {
    packed(record).is_some_and(|packed| packed.starts_with(&MAGICNUMBER.to_le_bytes()))
}

impl Unpacker {
    pub fn new() -> std::io::Result<Self> {
        let decoder = Decoder::new()?;
        let (full, between_frames) = (false, true);
        Ok(Self { decoder, packed: Vec::new(), used: 0, unpacked: Vec::new(), start: 0, end: 0, full, between_frames })
    }

    /// Forgets all that was taken, and begins anew with a frame.
    pub fn restart(&mut self) -> std::io::Result<()> {
        self.decoder.reinit()?;
        self.packed.clear();
        (self.used, self.start, self.end) = (0, 0, 0);
        (self.full, self.between_frames) = (false, true);
        Ok(())
    }

    /// Takes a compressed record, in native order; all that was taken before is unpacked.
    pub fn take(&mut self, record: &[u8]) {
        self.packed.clear();
        self.packed.extend_from_slice(packed(record).unwrap_or(&[]));
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
        if used != 0 || made != 0 {
            // What is left to be done of the frame.
            self.between_frames = matches!(result, Ok(0));
        }
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

    /// Whether what comes next needs nothing of what came before.
    pub fn is_between_frames(&self) -> bool {
        self.between_frames && !self.has_packed() && self.left() == 0
    }
}

/// Unpacks runs of records, each of which begins with a frame of its own.
#[derive(Default)]
pub(super) struct RunUnpacker {
    decoder: Option<Decoder<'static>>,
}

impl RunUnpacker {
    /// Fills `into` with the records of a run, the compressed ones unpacked, in the byte order of the file. Gives how many
    /// bytes those are.
    pub fn unpack(
        &mut self,
        mut run: &mut [u8],
        (order, layouts): (ByteOrder, &Layouts),
        into: &mut [u8],
    ) -> std::io::Result<usize> {
        let damaged = || std::io::Error::other("what was looked at before has changed");
        let mut decoder = match self.decoder.take() {
            Some(mut decoder) => decoder.reinit().map(|()| decoder)?,
            None => Decoder::new()?,
        };
        let mut end = 0;
        while run.len() >= RECORD_HEADER {
            let size = swap::record_size(run, order);
            if size < RECORD_HEADER || size > run.len() {
                break;
            }
            let (record, rest) = std::mem::take(&mut run).split_at_mut(size);
            let room = into.get_mut(end..).ok_or_else(damaged)?;
            let kind = record.first_chunk().map_or(0, |kind| order.u32(*kind));
            let mut skip = 0;
            if matches!(kind, PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2) {
                swap::record(record, order, layouts);
                let mut input = InBuffer::around(packed(record).unwrap_or(&[]));
                let mut output = OutBuffer::around(room);
                while input.pos() < input.src.len() {
                    let before = (input.pos(), output.pos());
                    decoder.run(&mut input, &mut output)?;
                    if (input.pos(), output.pos()) == before {
                        return Err(damaged());
                    }
                }
                end += output.pos();
            } else {
                room.get_mut(..size).ok_or_else(damaged)?.copy_from_slice(record);
                end += size;
                swap::record(record, order, layouts);
                skip = payload(record);
            }
            run = rest.get_mut(usize::try_from(skip).unwrap_or(usize::MAX)..).unwrap_or_default();
        }
        self.decoder = Some(decoder);
        Ok(end)
    }
}
