//! Compresses records with zstd into PERF_RECORD_COMPRESSED. A file has one zstd stream, so that repeated data is
//! stored once. The stream consists of frames. Each frame contains whole records, and a reader can start at any frame.

use std::{fmt, io};

use crate::format::checksums::{self, FrameSum};
use perf_prof_format::{abi::perf_data::PERF_RECORD_COMPRESSED, record::Records};
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name, zstd_sys::ZSTD_EndDirective};

/// The maximum number of uncompressed bytes in one compressed record. A reader allocates this much memory for each
/// record (`comp_mmap_len`). The number is small enough that even incompressible data fits into one record. This is
/// necessary, because zstd decompresses only whole blocks: a record with a part of a block decompresses to nothing, and
/// perf considers such a record damaged (`perf_session__process_compressed_event()`).
pub(super) const PIECE: usize = 60 << 10;

/// The number of uncompressed bytes after which a frame ends. The frame ends after the record that reaches this number.
/// Each frame is compressed without the data of earlier frames. So frames of this size make recordings 0.3 % larger;
/// frames of 1 MiB would make recordings 1 % larger.
const FRAME: usize = 4 << 20;

/// The number of bytes that fit into a record after the record's header.
const PAYLOAD: usize = u16::MAX as usize - 8;

/// A zstd compression level; 1 is the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u8);

impl Level {
    /// The lowest and the highest level.
    pub const RANGE: std::ops::RangeInclusive<u8> = 1..=22;

    /// The fastest level.
    pub const FASTEST: Level = Level(1);

    /// Returns the level with this number; `None` if zstd has no such level.
    pub fn new(level: u8) -> Option<Level> {
        Self::RANGE.contains(&level).then_some(Level(level))
    }

    /// Returns the number of the level.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Default for Level {
    fn default() -> Level {
        Level(1)
    }
}

pub(super) struct Compressor {
    context: CCtx<'static>,
    payload: Box<[u8]>,
    /// The number of uncompressed bytes in the current frame so far.
    frame: usize,
    sum: FrameSum,
    /// The total number of bytes before compression.
    pub raw: u64,
    /// The total number of bytes after compression.
    pub packed: u64,
}

impl Compressor {
    pub fn new(level: Level) -> io::Result<Compressor> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        context.set_parameter(CParameter::CompressionLevel(level.0.into())).map_err(failed)?;
        Ok(Compressor {
            context,
            payload: vec![0; PAYLOAD].into(),
            frame: 0,
            sum: FrameSum::default(),
            raw: 0,
            packed: 0,
        })
    }

    /// Compresses these records and appends the result to `out`. No data stays in zstd's buffers. So a reader can
    /// decompress all of these records even before the frame ends.
    pub fn pack(&mut self, mut records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let before = out.len();
        self.raw += records.len() as u64;
        while !records.is_empty() {
            let (now, later) = records.split_at(self.end_of_frame(records));
            self.frame += now.len();
            let end = if self.frame < FRAME { ZSTD_EndDirective::ZSTD_e_flush } else { ZSTD_EndDirective::ZSTD_e_end };
            self.pieces(now, end, out)?;
            if self.frame >= FRAME {
                self.frame = 0;
            }
            records = later;
        }
        self.packed += (out.len() - before) as u64;
        Ok(())
    }

    /// Returns how many bytes of these records still belong to the current frame.
    fn end_of_frame(&self, records: &[u8]) -> usize {
        let room = FRAME - self.frame;
        if records.len() <= room {
            return records.len();
        }
        let mut end = 0;
        for record in Records::new(records) {
            if end >= room {
                return end;
            }
            end += record.len();
        }
        records.len()
    }

    /// Compresses `bytes`. `end` says what follows the last byte: a flush, or the end of the frame.
    fn pieces(&mut self, bytes: &[u8], end: ZSTD_EndDirective, out: &mut Vec<u8>) -> io::Result<()> {
        let mut pieces = bytes.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_some() { ZSTD_EndDirective::ZSTD_e_flush } else { end };
            let mut input = InBuffer::around(piece);
            loop {
                let mut output = OutBuffer::around(&mut self.payload[..]);
                let left = self.context.compress_stream2(&mut output, &mut input, end);
                let left = left.map_err(failed)?;
                let payload = output.as_slice();
                out.extend(checksums::record(self.sum.add(payload)));
                out.extend(PERF_RECORD_COMPRESSED.to_ne_bytes());
                out.extend([0, (8 + payload.len()) as u16].map(u16::to_ne_bytes).as_flattened());
                out.extend(payload);
                if left == 0 && input.pos() == piece.len() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compressor {{ raw: {}, packed: {} }}", self.raw, self.packed)
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use perf_prof_format::{abi::perf_data::PERF_RECORD_EVENT_UPDATE, record::record_type};

    use super::*;

    /// Decompresses as perf does: each record in one step, into a buffer of `PIECE` bytes.
    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut context = zstd::zstd_safe::DCtx::create();
        let (mut all, mut records) = (Vec::new(), Records::new(packed));
        while let (Some(checksum), Some(record)) = (records.next(), records.next()) {
            assert_eq!(
                (record_type(checksum), record_type(record)),
                (PERF_RECORD_EVENT_UPDATE, PERF_RECORD_COMPRESSED)
            );
            let mut piece = vec![0; PIECE];
            let mut output = OutBuffer::around(&mut piece[..]);
            let mut input = InBuffer::around(&record[8..]);
            context.decompress_stream(&mut output, &mut input).unwrap();
            assert_eq!(input.pos(), record.len() - 8);
            // perf considers a record damaged if it decompresses to nothing.
            assert_ne!(output.pos(), 0);
            all.extend(output.as_slice());
        }
        assert!(records.rest().is_empty());
        all
    }

    /// Returns unpredictable numbers of `bits` bits, one per byte.
    fn noise(bits: u32) -> impl Iterator<Item = u8> {
        let mut number = 1u64;
        std::iter::repeat_with(move || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> (64 - bits)) as u8
        })
    }

    #[test]
    fn incompressible_data_becomes_as_many_records() {
        let noise: Vec<u8> = noise(8).take(PIECE + 1000).collect();
        let (mut compressor, mut out) = (Compressor::new(Level::default()).unwrap(), Vec::new());
        compressor.pack(&noise, &mut out).unwrap();
        assert_eq!(Records::new(&out).count(), 4);
        assert_eq!((unpack(&out), compressor.raw, compressor.packed), (noise, PIECE as u64 + 1000, out.len() as u64));
    }

    /// zstd gives no output for a block before it has the whole block.
    #[test]
    fn every_record_decompresses_to_something() {
        for bits in 1..=8 {
            let bytes: Vec<u8> = noise(bits).take(3 * PIECE).collect();
            let (mut compressor, mut out) = (Compressor::new(Level::default()).unwrap(), Vec::new());
            compressor.pack(&bytes, &mut out).unwrap();
            assert!(unpack(&out) == bytes, "{bits}");
        }
    }

    #[test]
    fn a_frame_ends_where_a_record_does() {
        let record = |number: u64| {
            let size = 24 + number % 500 * 8;
            let header = [&9u32.to_ne_bytes()[..], &[0, 0], &(size as u16).to_ne_bytes()].concat();
            [header, number.to_ne_bytes().repeat(size as usize / 8 - 1)].concat()
        };
        let records: Vec<Vec<u8>> = (0..5000).map(record).collect();
        for together in [1, 100, 5000] {
            let (mut compressor, mut out) = (Compressor::new(Level::default()).unwrap(), Vec::new());
            records.chunks(together).for_each(|some| compressor.pack(&some.concat(), &mut out).unwrap());
            assert!(unpack(&out) == records.concat());
            // Decompresses each frame separately.
            let frames = Records::new(&out).skip(1).step_by(2).map(|record| record[8..].to_vec()).collect::<Vec<_>>();
            let frames = frames.chunk_by(|_, next| next[..4] != [0x28, 0xb5, 0x2f, 0xfd]).map(<[_]>::concat);
            let frames: Vec<Vec<u8>> =
                frames.map(|frame| zstd::bulk::decompress(&frame, 2 * FRAME).unwrap_or_default()).collect();
            let ended = &frames[..frames.len() - 1];
            assert!(ended.len() == 2 && ended.iter().all(|frame| frame.len() >= FRAME), "{together}");
            assert!(ended.iter().all(|frame| Records::new(frame).map(<[_]>::len).sum::<usize>() == frame.len()));
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(spans in prop::collection::vec((any::<u8>(), 0usize..300_000), 0..8), level in 1u8..5) {
            let mut compressor = Compressor::new(Level::new(level).unwrap()).unwrap();
            let (mut all, mut out) = (Vec::new(), Vec::new());
            for (byte, len) in spans {
                let bytes: Vec<u8> = (0..len).map(|at| if at % 7 == 0 { at as u8 } else { byte }).collect();
                compressor.pack(&bytes, &mut out).unwrap();
                all.extend(bytes);
            }
            prop_assert_eq!(unpack(&out), all);
        }
    }
}
