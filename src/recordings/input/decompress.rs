//! Decompresses records. A file contains one zstd stream. Until a zstd frame ends, the decompression of a record
//! depends on the records before it. Knows nothing of files.

use perf_prof_format::{
    abi::perf_data::{PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2},
    record::{RECORD_HEADER, record_type},
};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::{
    format::{bytes::ByteOrder, checksums, layouts::Layouts, swap},
    index::blocks::payload,
};

/// The maximum number of bytes that one step decompresses, even if the record contains more.
const STEP: usize = 128 << 10;

/// The decompressor of one file.
pub(crate) struct Decompressor {
    decoder: Decoder<'static>,
    packed: Vec<u8>,
    /// The number of bytes of `packed` that were already given to the decoder.
    used: usize,
    /// The buffer for decompressed bytes. The bytes from `start` to `end` have not been returned yet. All other bytes
    /// of the buffer are free.
    unpacked: Vec<u8>,
    start: usize,
    end: usize,
    /// True if the last step filled all the space for its output. In this case, zstd may have more output for the same
    /// input.
    full: bool,
    /// True if the last zstd frame has ended and no other frame has started.
    between_frames: bool,
}

/// Returns whether a record contains compressed records.
pub(crate) fn is_compressed(record: &[u8]) -> bool {
    matches!(record_type(record), PERF_RECORD_COMPRESSED | PERF_RECORD_COMPRESSED2)
}

/// Returns the data of a compressed record.
pub(crate) fn packed(record: &[u8]) -> Option<&[u8]> {
    match record_type(record) {
        // A u64 states how many bytes of the record are data, because the record is padded to a multiple of 8.
        PERF_RECORD_COMPRESSED2 => {
            let size = u64::from_ne_bytes(*record.get(8..)?.first_chunk()?);
            record.get(16..)?.get(..usize::try_from(size).ok()?)
        }
        _ => record.get(RECORD_HEADER..),
    }
}

/// Returns whether a compressed record appears to start with a zstd frame. Such a record can be decompressed without
/// the records before it.
pub(crate) fn begins_frame(record: &[u8]) -> bool {
    packed(record).is_some_and(checksums::begins_frame)
}

/// Returns a decoder that takes at most about `memory` bytes. A frame states its window: the number of bytes of its
/// output that the decoder has to remember. Without a limit, a small file could request 128 MiB.
fn decoder(memory: usize) -> std::io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(memory.max(1).ilog2().clamp(*WINDOWS.start(), *WINDOWS.end())))?;
    Ok(decoder)
}

/// The limits of windows, as exponents of two. zstd itself allows windows of 128 MiB (ZSTD_WINDOWLOG_LIMIT_DEFAULT in
/// `zstd.h`), and level 22 needs such windows. The lower limit is the window of level 1, which perf uses if no level is
/// given.
const WINDOWS: std::ops::RangeInclusive<u32> = 19..=27;

impl Decompressor {
    /// Creates a decompressor that takes at most about `memory` bytes.
    pub fn new(memory: usize) -> std::io::Result<Self> {
        let decoder = decoder(memory)?;
        let (full, between_frames) = (false, true);
        Ok(Self { decoder, packed: Vec::new(), used: 0, unpacked: Vec::new(), start: 0, end: 0, full, between_frames })
    }

    /// Discards all input and output. The next input has to start with a frame.
    pub fn restart(&mut self) -> std::io::Result<()> {
        self.decoder.reinit()?;
        self.packed.clear();
        (self.used, self.start, self.end) = (0, 0, 0);
        (self.full, self.between_frames) = (false, true);
        Ok(())
    }

    /// Takes a compressed record in native byte order as the next input. All earlier input must have been decompressed.
    pub fn set_input(&mut self, record: &[u8]) {
        self.packed.clear();
        self.packed.extend_from_slice(packed(record).unwrap_or(&[]));
        self.used = 0;
    }

    /// Returns the next whole record of the decompressed bytes. Returns `None` if they contain no whole record.
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

    /// Returns whether there is anything left to decompress.
    pub fn has_packed(&self) -> bool {
        self.used < self.packed.len() || self.full
    }

    /// Decompresses some more bytes.
    pub fn step(&mut self, order: ByteOrder) -> Result<(), String> {
        let rest = &self.unpacked[self.start..self.end];
        if rest.len() >= RECORD_HEADER && swap::record_size(rest, order) < RECORD_HEADER {
            return Err("the decompressed bytes are not records".to_owned());
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
            // A result of 0 means that the frame has ended.
            self.between_frames = matches!(result, Ok(0));
        }
        match result {
            Ok(_) if used == 0 && made == 0 && self.used < self.packed.len() => Err("zstd is stuck".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => {
                self.used = self.packed.len();
                self.full = false;
                Err(error.to_string())
            }
        }
    }

    /// Returns the number of decompressed bytes that do not form a whole record yet.
    pub fn left(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether the next compressed record is independent of the records so far.
    pub fn is_between_frames(&self) -> bool {
        self.between_frames && !self.has_packed() && self.left() == 0
    }
}

/// A decompressor for runs of records. In each run, the compressed records start with a new zstd frame.
pub(crate) struct RunDecompressor {
    decoder: Option<Decoder<'static>>,
    memory: usize,
}

impl RunDecompressor {
    /// Creates a decompressor that takes at most about `memory` bytes, besides the runs themselves.
    pub fn new(memory: usize) -> Self {
        RunDecompressor { decoder: None, memory }
    }

    /// Writes the records of a run to `into`, with compressed records decompressed. The records in `into` keep the byte
    /// order of the file. Returns the size of the records in `into` in bytes. Checksums are left out: they were compared when
    /// the run was indexed.
    pub fn unpack(
        &mut self,
        mut run: &mut [u8],
        order: ByteOrder,
        layouts: &Layouts,
        into: &mut [u8],
    ) -> std::io::Result<usize> {
        let damaged = || std::io::Error::other("the file has changed since it was indexed");
        let mut decoder = match self.decoder.take() {
            Some(mut decoder) => decoder.reinit().map(|()| decoder)?,
            None => decoder(self.memory)?,
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
            } else if checksums::stated(record, order).is_none() {
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
