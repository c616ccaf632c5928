//! The header of a recording: what stands at its very beginning, the attrs with their ids, and where the rest lies. Knows
//! nothing of what the sections hold.

use super::{
    attr::{Attr, SMALLEST_ATTR},
    bytes::{ByteOrder, Bytes},
    error::PerfDataError,
    input::Input,
};
use crate::abi::perf_data::{HEADER_BUILD_ID, HEADER_HOSTNAME, PERF_MAGIC2};

/// The size of `struct perf_file_header`, and of `struct perf_pipe_file_header`.
const FILE_HEADER: u64 = 104;
pub(super) const PIPE_HEADER: u64 = 16;

/// What stands behind the header of a recording of ours, in front of features that were known from its begin: their bits, and
/// then as behind the records, where they lie and what they say.
pub(super) const KNOWN_FROM_THE_BEGIN: [u8; 8] = *b"features";

/// More attrs than any recording has: a descriptor each is open while it is made.
const MOST_ATTRS: u64 = 1 << 20;
/// More ids than any recording has: one for each event on each CPU or thread.
const MOST_IDS: u64 = 1 << 24;

/// A part of the file (`struct perf_file_section`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

/// An attr with the ids of its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttrIds {
    /// The attr.
    pub attr: Attr,
    /// The id of its event on each CPU or thread; none where a recording has one event only.
    pub ids: Vec<u64>,
}

/// How a recording begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// A file, whose header leads to its parts.
    File(FileHeader),
    /// A stream: everything else comes as records.
    Pipe(ByteOrder),
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Its byte order.
    pub order: ByteOrder,
    /// The events.
    pub attrs: Vec<AttrIds>,
    /// The records. A size of 0 is that of a recording that was cut off.
    pub data: Section,
    /// The feature sections that there are, by their bit.
    pub features: Vec<u32>,
}

impl FileHeader {
    /// The list of the features, which stands behind the records: where each of them lies.
    pub(super) fn list(&self) -> Section {
        let offset = self.data.offset.saturating_add(self.data.size);
        Section { offset, size: 16 * self.features.len() as u64 }
    }
}

/// The byte order that the magic number tells, or `None` for something else.
pub(super) fn magic(bytes: &[u8], name: &str) -> Result<ByteOrder, PerfDataError> {
    let wrong = || match bytes {
        [] => PerfDataError::Empty { name: name.to_owned() },
        _ => PerfDataError::NotPerfData { name: name.to_owned() },
    };
    let magic: &[u8; 8] = bytes.first_chunk().ok_or_else(wrong)?;
    let order = [ByteOrder::Native, ByteOrder::Foreign].into_iter().find(|order| {
        // The number is that of a little-endian machine's text.
        order.u64(*magic) == PERF_MAGIC2
    });
    match order {
        Some(order) => Ok(order),
        None if magic == b"PERFFILE" => Err(PerfDataError::TooOld { name: name.to_owned() }),
        None => Err(wrong()),
    }
}

/// Reads the header of a file that can be read at any place.
pub fn read(input: &dyn Input, name: &str) -> Result<Header, PerfDataError> {
    let io = |error| PerfDataError::io(name, error);
    let bytes = input.bytes(0, FILE_HEADER).map_err(io)?;
    let order = magic(&bytes, name)?;
    let mut read = Bytes::new(&bytes[8..], order);
    let cut_off = |part| PerfDataError::CutOff { name: name.to_owned(), part };
    let size = read.u64().ok_or_else(|| cut_off("header"))?;
    if size == PIPE_HEADER {
        return Ok(Header::Pipe(order));
    }
    if size != FILE_HEADER {
        return Err(PerfDataError::damaged(name, format!("its header is said to have {size} bytes")));
    }
    let mut header = || {
        let entry_size = read.u64()?;
        let attrs = section(&mut read)?;
        let data = section(&mut read)?;
        // Names of events of long ago.
        section(&mut read)?;
        let features = features(read.take(32)?, order);
        Some((entry_size, attrs, data, features))
    };
    let (entry_size, attrs, data, features) = header().ok_or_else(|| cut_off("header"))?;
    let attrs = self::attrs(input, name, order, entry_size, attrs)?;
    Ok(Header::File(FileHeader { order, attrs, data, features }))
}

/// The features of a recording that are known where its end is missing, if any were written before the records: a header
/// with their bits, in front of whose list no records are.
pub(super) fn known_from_the_begin(input: &dyn Input, header: &FileHeader) -> std::io::Result<Option<FileHeader>> {
    let list = FILE_HEADER + 8 + 32;
    let bytes = input.bytes(FILE_HEADER, list - FILE_HEADER)?;
    let bits = bytes.strip_prefix(&KNOWN_FROM_THE_BEGIN).filter(|bits| bits.len() == 32);
    let known = |bits| FileHeader {
        features: features(bits, header.order),
        data: Section { offset: list, size: 0 },
        ..header.clone()
    };
    Ok(bits.map(known))
}

pub(super) fn section(read: &mut Bytes<'_>) -> Option<Section> {
    Some(Section { offset: read.u64()?, size: read.u64()? })
}

/// The bits of the feature map. It is made of words of the size that the writer's `long` has; as perf does
/// (`perf_file_header__read()`), the bit of the host's name, which every recording has, tells which.
fn features(bytes: &[u8], order: ByteOrder) -> Vec<u32> {
    let bits_of = |width: usize| -> Vec<u32> {
        let words = bytes.chunks_exact(width).enumerate();
        let bits = words.flat_map(|(at, word)| {
            let number = match word.first_chunk::<8>() {
                Some(word) => order.u64(*word),
                None => word.first_chunk().map_or(0, |word| u64::from(order.u32(*word))),
            };
            let base = (at * width * 8) as u32;
            (0..width as u32 * 8).filter(move |bit| number >> bit & 1 != 0).map(move |bit| base + bit)
        });
        bits.collect()
    };
    let wide = bits_of(8);
    if order == ByteOrder::Native || wide.contains(&HEADER_HOSTNAME) {
        return wide;
    }
    let narrow = bits_of(4);
    if narrow.contains(&HEADER_HOSTNAME) { narrow } else { vec![HEADER_BUILD_ID] }
}

fn attrs(
    input: &dyn Input,
    name: &str,
    order: ByteOrder,
    entry_size: u64,
    section: Section,
) -> Result<Vec<AttrIds>, PerfDataError> {
    const IDS: usize = 16;
    let damaged = |what: String| PerfDataError::damaged(name, what);
    let entry = usize::try_from(entry_size).unwrap_or(usize::MAX);
    if !(SMALLEST_ATTR + IDS..=4096).contains(&entry) {
        return Err(damaged(format!("its attrs are said to have {entry_size} bytes each")));
    }
    let count = section.size / entry_size;
    if count > MOST_ATTRS {
        return Err(damaged(format!("it is said to have {count} events")));
    }
    let bytes = input.bytes(section.offset, section.size).map_err(|error| PerfDataError::io(name, error))?;
    if (bytes.len() as u64) < section.size {
        return Err(PerfDataError::CutOff { name: name.to_owned(), part: "list of events" });
    }
    let mut left = MOST_IDS;
    let mut attrs = Vec::new();
    for bytes in bytes.chunks_exact(entry) {
        let (attr, ids) = bytes.split_at(entry - IDS);
        let attr = Attr::parse(attr, order).ok_or_else(|| damaged("an attr is too short".to_owned()))?;
        let ids = self::section(&mut Bytes::new(ids, order)).unwrap_or_default();
        left =
            left.checked_sub(ids.size / 8).ok_or_else(|| damaged("it is said to have millions of ids".to_owned()))?;
        let bytes = input.bytes(ids.offset, ids.size).map_err(|error| PerfDataError::io(name, error))?;
        if (bytes.len() as u64) < ids.size {
            return Err(PerfDataError::CutOff { name: name.to_owned(), part: "list of ids" });
        }
        let mut read = Bytes::new(&bytes, order);
        attrs.push(AttrIds { attr, ids: std::iter::from_fn(|| read.u64()).collect() });
    }
    if attrs.is_empty() {
        return Err(PerfDataError::NoEvents { name: name.to_owned() });
    }
    Ok(attrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_every_width() {
        let word = (1u64 << HEADER_HOSTNAME) | 2;
        let mut little = word.to_le_bytes().to_vec();
        little.resize(32, 0);
        assert_eq!(features(&little, ByteOrder::of_big_endian(false)), [1, 3]);
        let mut wide = word.to_be_bytes().to_vec();
        wide.resize(32, 0);
        assert_eq!(features(&wide, ByteOrder::of_big_endian(true)), [1, 3]);
        let mut narrow = (word as u32).to_be_bytes().to_vec();
        narrow.resize(32, 0);
        assert_eq!(features(&narrow, ByteOrder::of_big_endian(true)), [1, 3]);
    }

    #[test]
    fn what_is_none() {
        let shown = |bytes: &[u8]| read(&bytes.to_vec(), "x").unwrap_err().to_string();
        assert_eq!(shown(b""), "x is empty: nothing was recorded, or the disk was full");
        assert_eq!(shown(b"PERF"), "x is no perf.data file: it does not begin with PERFILE2");
        assert_eq!(shown(b"PERFFILE"), "x was written by a perf older than 2.6.36, whose format is not read");
        assert_eq!(shown(b"PERFILE2"), "x is cut off in its header");
        assert_eq!(shown(b"PERFILE2\x68\0\0\0\0\0\0\0"), "x is cut off in its header");
        assert_eq!(shown(b"PERFILE2\x69\0\0\0\0\0\0\0"), "x is damaged: its header is said to have 105 bytes");
        assert_eq!(read(&b"2ELIFREP\0\0\0\0\0\0\0\x10".to_vec(), "x").unwrap(), Header::Pipe(ByteOrder::Foreign));
    }
}
