//! Records packed by zstd into PERF_RECORD_COMPRESSED: one stream of zstd for the whole file, so that what repeats itself all
//! the time is said once.

use std::{fmt, io};

use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name, zstd_sys::ZSTD_EndDirective};

use crate::abi::perf_data::PERF_RECORD_COMPRESSED;

/// What one record holds at most, unpacked: a reader keeps so much room for each (`comp_mmap_len`).
pub(super) const PIECE: usize = 256 << 10;

/// What fits into a record beside its header.
const PAYLOAD: usize = u16::MAX as usize - 8;

/// How hard it is tried: zstd's levels, 1 for the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u8);

impl Level {
    /// The least and the most.
    pub const RANGE: std::ops::RangeInclusive<u8> = 1..=22;

    /// A level of zstd.
    pub fn new(level: u8) -> Option<Level> {
        Self::RANGE.contains(&level).then_some(Level(level))
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Default for Level {
    fn default() -> Level {
        Level(1)
    }
}

/// Packs records.
pub(super) struct Compressor {
    context: CCtx<'static>,
    payload: Box<[u8]>,
    /// Bytes that came in.
    pub raw: u64,
    /// Bytes that they became.
    pub packed: u64,
}

impl Compressor {
    pub fn new(level: Level) -> io::Result<Compressor> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        context.set_parameter(CParameter::CompressionLevel(level.0.into())).map_err(failed)?;
        Ok(Compressor { context, payload: vec![0; PAYLOAD].into(), raw: 0, packed: 0 })
    }

    /// Appends these bytes, packed, to `out`. Whoever has read it by then has all of them.
    pub fn pack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let before = out.len();
        for piece in bytes.chunks(PIECE) {
            let mut input = InBuffer::around(piece);
            loop {
                let mut output = OutBuffer::around(&mut self.payload[..]);
                let left = self.context.compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_flush);
                let left = left.map_err(failed)?;
                let payload = output.as_slice();
                out.extend(PERF_RECORD_COMPRESSED.to_ne_bytes());
                out.extend([0, (8 + payload.len()) as u16].map(u16::to_ne_bytes).as_flattened());
                out.extend(payload);
                if left == 0 && input.pos() == piece.len() {
                    break;
                }
            }
        }
        self.raw += bytes.len() as u64;
        self.packed += (out.len() - before) as u64;
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

    use super::*;
    use crate::record::{Records, record_type};

    /// Unpacks as perf does: each record in one step, into a piece.
    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut context = zstd::zstd_safe::DCtx::create();
        let (mut all, mut records) = (Vec::new(), Records::new(packed));
        for record in &mut records {
            assert_eq!(record_type(record), PERF_RECORD_COMPRESSED);
            let mut piece = vec![0; PIECE];
            let mut output = OutBuffer::around(&mut piece[..]);
            let mut input = InBuffer::around(&record[8..]);
            context.decompress_stream(&mut output, &mut input).unwrap();
            assert_eq!(input.pos(), record.len() - 8);
            all.extend(output.as_slice());
        }
        assert!(records.rest().is_empty());
        all
    }

    #[test]
    fn what_cannot_be_packed_takes_many_records() {
        let mut number = 1u64;
        let noise = std::iter::repeat_with(|| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(PIECE + 1000).collect();
        let (mut compressor, mut out) = (Compressor::new(Level::default()).unwrap(), Vec::new());
        compressor.pack(&noise, &mut out).unwrap();
        assert!(Records::new(&out).count() >= 5);
        assert_eq!((unpack(&out), compressor.raw, compressor.packed), (noise, PIECE as u64 + 1000, out.len() as u64));
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
