//! The checksums of compressed records. zstd notices only some wrong bits; with others, a frame is decompressed to other
//! records. So `perf-prof record` writes a short record before each compressed record. It has the CRC-32 of the frame's data
//! up to the end of the compressed record, so that a reader also notices if a part of the frame is missing.
//!
//! The short record is an update of an event (PERF_RECORD_EVENT_UPDATE) of a type that perf does not know and ignores. It
//! states the id 0, because perf fails at an update with an unknown id, and takes 0 for the first event.

use perf_prof_format::{
    abi::perf_data::{EVENT_UPDATE_CHECKSUM, PERF_RECORD_EVENT_UPDATE},
    record::RECORD_HEADER,
};
use zstd::zstd_safe::MAGICNUMBER;

use super::bytes::{ByteOrder, ByteReader};

/// The size in bytes of a record with a checksum: a multiple of 8, because newer versions of perf refuse others.
pub(crate) const SIZE: usize = 32;

/// Returns the record with this checksum.
pub(crate) fn record(sum: u32) -> [u8; SIZE] {
    let mut record = [0; SIZE];
    let (header, body) = record.split_at_mut(RECORD_HEADER);
    header[..4].copy_from_slice(&PERF_RECORD_EVENT_UPDATE.to_ne_bytes());
    header[6..].copy_from_slice(&(SIZE as u16).to_ne_bytes());
    body[..8].copy_from_slice(&EVENT_UPDATE_CHECKSUM.to_ne_bytes());
    body[16..20].copy_from_slice(&sum.to_ne_bytes());
    record
}

/// Returns the checksum in a record. `None` if the record has another purpose.
pub(crate) fn stated(record: &[u8], order: ByteOrder) -> Option<u32> {
    let mut read = ByteReader::new(record, order);
    let (kind, _, update, _) = (read.u32()?, read.u32()?, read.u64()?, read.u64()?);
    if kind == PERF_RECORD_EVENT_UPDATE && update == EVENT_UPDATE_CHECKSUM { read.u32() } else { None }
}

/// Returns whether the data of a compressed record starts like a zstd frame.
pub(crate) fn begins_frame(data: &[u8]) -> bool {
    data.starts_with(&MAGICNUMBER.to_le_bytes())
}

/// The checksum of a frame so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameSum(u32);

impl FrameSum {
    /// Adds the data of the next compressed record. Returns the checksum that belongs before this record.
    pub fn add(&mut self, data: &[u8]) -> u32 {
        let before = if begins_frame(data) { 0 } else { self.0 };
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(data);
        self.0 = hasher.finalize();
        self.0
    }
}

/// Whether compressed records have checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    /// No compressed record had one so far. Recordings of perf have none, and neither have those of older versions of
    /// perf-prof.
    #[default]
    No,
    /// There was a checksum, but no compressed record after it: `perf inject` has decompressed the recording, or the
    /// record is damaged.
    Unused,
    Yes,
}

/// Compares compressed records with their checksums, from front to back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksums {
    frame: FrameSum,
    kept: Kept,
    /// The checksum in the last record.
    stated: Option<u32>,
}

impl Checksums {
    /// Takes the next record, which is not compressed and has native byte order. Returns false if there should be a
    /// compressed record instead.
    pub fn plain(&mut self, record: &[u8]) -> bool {
        let expected = std::mem::replace(&mut self.stated, stated(record, ByteOrder::Native));
        if expected.is_some() && self.kept == Kept::No {
            self.kept = Kept::Unused;
        }
        expected.is_none() || self.kept == Kept::Unused
    }

    /// Takes the data of the next record, which is compressed. Returns false if the data, or the frame before them, are not
    /// what was written, or if an earlier record is missing.
    pub fn compressed(&mut self, data: &[u8]) -> bool {
        let stated = self.stated.take();
        if stated.is_none() && self.kept != Kept::Yes {
            return true;
        }
        let before = std::mem::replace(&mut self.kept, Kept::Yes);
        stated == Some(self.frame.add(data)) && before != Kept::Unused
    }
}

/// Returns compressed records with checksums: a frame for each of `frames`, divided after every `each` bytes.
#[cfg(test)]
pub(crate) fn packed(frames: &[Vec<u8>], each: usize) -> Vec<u8> {
    let (mut sum, mut out) = (FrameSum::default(), Vec::new());
    for frame in frames {
        for piece in zstd::bulk::compress(frame, 1).unwrap_or_default().chunks(each) {
            out.extend(record(sum.add(piece)));
            out.extend(perf_prof_format::abi::perf_data::PERF_RECORD_COMPRESSED.to_ne_bytes());
            out.extend([0, (RECORD_HEADER + piece.len()) as u16].map(u16::to_ne_bytes).as_flattened());
            out.extend(piece);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{attr::Attr, header::AttrIds, layouts::Layouts, swap};

    const FIRST: &[u8] = b"\x28\xb5\x2f\xfdone";

    /// Returns whether each of these pieces of a frame is what was written. A piece without a checksum has `None`.
    fn holds(checksums: &mut Checksums, pieces: &[(Option<u32>, &[u8])]) -> Vec<bool> {
        let piece = |&(sum, data): &(Option<u32>, &[u8])| {
            sum.is_none_or(|sum| checksums.plain(&record(sum))) && checksums.compressed(data)
        };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn what_follows_a_wrong_or_missing_piece_of_a_frame_is_wrong_too() {
        let mut frame = FrameSum::default();
        let sums = [FIRST, b"two", b"three", FIRST].map(|data| Some(frame.add(data)));
        assert_eq!(sums[0], sums[3]);
        let [one, two, three, next] = sums;
        let all = [(one, FIRST), (two, b"two"), (three, b"three"), (next, FIRST)];
        let found = |pieces: &[_]| holds(&mut Checksums::default(), pieces);
        assert_eq!(found(&all), [true; 4]);
        assert_eq!(found(&[all[0], (two, b"twp"), all[2], all[3]]), [true, false, false, true]);
        assert_eq!(found(&[all[0], all[2], all[3]]), [true, false, true]);
        assert_eq!(found(&[all[0], (None, b"two"), all[2], all[3]]), [true, false, true, true]);
    }

    #[test]
    fn a_checksum_is_read_in_either_byte_order() {
        let native = record(0x1234_5678);
        let mut foreign = native;
        for (from, width) in [(0, 4), (4, 2), (6, 2), (8, 8), (16, 8), (24, 4)] {
            foreign[from..from + width].reverse();
        }
        assert_eq!(stated(&native, ByteOrder::Native), Some(0x1234_5678));
        assert_eq!(stated(&foreign, ByteOrder::Foreign), Some(0x1234_5678));
        assert_eq!([stated(&native, ByteOrder::Foreign), stated(&native[..24], ByteOrder::Native)], [None; 2]);
        let event = AttrIds { attr: Attr::default(), ids: Vec::new() };
        swap::record(&mut foreign, ByteOrder::Foreign, &Layouts::new(&[event]));
        assert_eq!(foreign, native);
    }

    #[test]
    fn recordings_without_checksums_hold() {
        let mut checksums = Checksums::default();
        assert_eq!(holds(&mut checksums, &[(None, FIRST), (None, b"two"), (None, FIRST)]), [true; 3]);
        // `perf inject` keeps the checksums, but not the compressed records.
        assert!(checksums.plain(&record(1)) && checksums.plain(&record(2)) && checksums.plain(&[0; 8]));
    }

    #[test]
    fn a_compressed_record_that_is_none_any_more_is_noticed() {
        let mut checksums = Checksums::default();
        let sum = FrameSum::default().add(FIRST);
        assert_eq!(holds(&mut checksums, &[(Some(sum), FIRST)]), [true]);
        assert!(checksums.plain(&record(sum)));
        assert!(!checksums.plain(&[0; 8]) && checksums.plain(&[0; 8]));
        // The first compressed record is noticed when the second one shows that there are compressed records.
        let mut checksums = Checksums::default();
        assert!(checksums.plain(&record(sum)) && checksums.plain(&[0; 8]));
        assert_eq!(holds(&mut checksums, &[(Some(sum), FIRST), (Some(sum), FIRST)]), [false, true]);
    }
}
