//! The header of a recording: magic, attrs with their ids, and the locations of the other sections.

use perf_prof_format::abi::perf_data::{HEADER_BUILD_ID, HEADER_HOSTNAME, PERF_MAGIC2};

use super::{
    attr::{Attr, SMALLEST_ATTR},
    bytes::{ByteOrder, ByteReader},
};
use crate::{error::PerfDataError, input::random_access::Input, limits::MemoryLimit};

/// The size in bytes of `struct perf_file_header`. `PIPE_HEADER` is the size of `struct perf_pipe_file_header`.
pub(crate) const FILE_HEADER: u64 = 104;
pub(crate) const PIPE_HEADER: u64 = 16;

/// The magic of perf before version 3.3 (`__perf_magic1` in `tools/perf/util/header.c`). Apart from the magic, the
/// format is the same as today.
const OLD_MAGIC: &[u8; 8] = b"PERFFILE";

/// The magic of the early features. `perf-prof record` writes these features before the records, because they are known
/// at the start. The magic is directly after the file header. After the magic come the bits of the features, the list
/// of their sections, and the sections, in the same layout as the features after the records.
pub(crate) const EARLY_FEATURES_MAGIC: [u8; 8] = *b"features";

/// The maximum number of attrs. Valid recordings have fewer attrs, because a recorder needs at least one open
/// descriptor for each attr. If a file states more attrs, it is damaged.
const MOST_ATTRS: u64 = 1 << 20;
/// The maximum number of ids of all events together. Valid recordings have fewer ids, because each event has one id for
/// each CPU or thread. If a file states more ids, it is damaged.
const MOST_IDS: u64 = 1 << 24;

/// The memory, in bytes, that is counted for an event and for an id. An id is stored in three lists, and in a table
/// that maps ids to events.
pub(crate) const EVENT_MEMORY: u64 = 1024;
pub(crate) const ID_MEMORY: u64 = 64;

/// A section of the file (`struct perf_file_section`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The offset of the section in the file, in bytes.
    pub offset: u64,
    /// The size of the section in bytes.
    pub size: u64,
}

/// An attr with the ids of its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttrIds {
    /// The attr.
    pub attr: Attr,
    /// The ids of the event: one for each CPU or thread. May be empty if the recording has a single event.
    pub ids: Vec<u64>,
}

/// The format of a recording, with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The file format. The header states the locations of the sections.
    File(FileHeader),
    /// The pipe format. All data after the header is records.
    Pipe(ByteOrder),
}

/// The header of a recording in file format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The byte order of the file.
    pub order: ByteOrder,
    /// The attrs of the events, with their ids.
    pub attrs: Vec<AttrIds>,
    /// The section that contains the records. Its size is 0 if the recorder did not finish the recording.
    pub data: Section,
    /// The bits of the feature sections, in ascending order.
    pub features: Vec<u32>,
}

impl FileHeader {
    /// Returns the location of the list of feature sections. This list is directly after the records.
    pub(crate) fn feature_list(&self) -> Section {
        let offset = self.data.offset.saturating_add(self.data.size);
        Section { offset, size: 16 * self.features.len() as u64 }
    }
}

/// Returns the byte order of the file, which the magic number shows. Fails if `bytes` do not start with the magic of a
/// perf.data file.
pub(crate) fn byte_order_of_magic(bytes: &[u8], name: &str) -> Result<ByteOrder, PerfDataError> {
    let wrong = || match bytes {
        [] => PerfDataError::Empty { name: name.to_owned() },
        _ => PerfDataError::NotPerfData { name: name.to_owned() },
    };
    let magic: &[u8; 8] = bytes.first_chunk().ok_or_else(wrong)?;
    let mut orders = [ByteOrder::Native, ByteOrder::Foreign].into_iter();
    if magic == OLD_MAGIC {
        // The old magic is the same in both byte orders. The size of the header shows the byte order.
        let cut_off = || PerfDataError::CutOff { name: name.to_owned(), part: "header" };
        let size = bytes.get(8..).and_then(|bytes| bytes.first_chunk()).ok_or_else(cut_off)?;
        let order = orders.find(|order| [FILE_HEADER, PIPE_HEADER].contains(&order.u64(*size)));
        return order.ok_or_else(|| invalid_size(name, ByteOrder::Native.u64(*size)));
    }
    // PERF_MAGIC2 is the text `PERFILE2`, read as a number by a little-endian machine.
    orders.find(|order| order.u64(*magic) == PERF_MAGIC2).ok_or_else(wrong)
}

fn invalid_size(name: &str, size: u64) -> PerfDataError {
    PerfDataError::damaged(name, format!("its header states an invalid size: {size} bytes"))
}

/// Reads the header of a file that supports random access. `limit` is the maximum memory for the attrs and the ids.
pub(crate) fn read(input: &dyn Input, limit: &MemoryLimit) -> Result<Header, PerfDataError> {
    let name = limit.name();
    let io = |error| PerfDataError::io(name, error);
    let bytes = input.bytes(0, FILE_HEADER).map_err(io)?;
    let order = byte_order_of_magic(&bytes, name)?;
    let mut read = ByteReader::new(&bytes[8..], order);
    let cut_off = |part| PerfDataError::CutOff { name: name.to_owned(), part };
    let size = read.u64().ok_or_else(|| cut_off("header"))?;
    if size == PIPE_HEADER {
        return Ok(Header::Pipe(order));
    }
    if size != FILE_HEADER {
        return Err(invalid_size(name, size));
    }
    let mut header = || {
        let entry_size = read.u64()?;
        let attrs = section(&mut read)?;
        let data = section(&mut read)?;
        // This skips the section event_types, which only very old versions of perf wrote.
        section(&mut read)?;
        let features = features(read.read_bytes(32)?, order);
        Some((entry_size, attrs, data, features))
    };
    let (entry_size, attrs, data, features) = header().ok_or_else(|| cut_off("header"))?;
    let attrs = self::attrs(input, limit, order, entry_size, attrs)?;
    Ok(Header::File(FileHeader { order, attrs, data, features }))
}

/// Returns a header whose features are the early features (see [`EARLY_FEATURES_MAGIC`]). Returns `None` if the file
/// has no early features. Early features can be read even if the end of the file is missing. The data section of the
/// returned header is empty and ends where the list of early features starts, so `feature_list()` returns this list.
pub(crate) fn read_early_features(input: &dyn Input, header: &FileHeader) -> std::io::Result<Option<FileHeader>> {
    let list = FILE_HEADER + 8 + 32;
    let bytes = input.bytes(FILE_HEADER, list - FILE_HEADER)?;
    let bits = bytes.strip_prefix(&EARLY_FEATURES_MAGIC).filter(|bits| bits.len() == 32);
    let known = |bits| FileHeader {
        features: features(bits, header.order),
        data: Section { offset: list, size: 0 },
        ..header.clone()
    };
    Ok(bits.map(known))
}

pub(crate) fn section(read: &mut ByteReader<'_>) -> Option<Section> {
    Some(Section { offset: read.u64()?, size: read.u64()? })
}

/// Returns the bits that are set in the feature map. The map consists of words of the size of a `long` on the recorded
/// machine, and the file does not state this size. But every recording sets the hostname bit, so the right size is the
/// one with which the hostname bit is set. perf finds the size in the same way (`perf_file_header__read()`).
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
    limit: &MemoryLimit,
    order: ByteOrder,
    entry_size: u64,
    section: Section,
) -> Result<Vec<AttrIds>, PerfDataError> {
    const IDS: usize = 16;
    let name = limit.name();
    let damaged = |what: String| PerfDataError::damaged(name, what);
    let entry = usize::try_from(entry_size).unwrap_or(usize::MAX);
    if !(SMALLEST_ATTR + IDS..=4096).contains(&entry) {
        return Err(damaged(format!("its header contains an impossible attr size: {entry_size} bytes")));
    }
    let count = section.size / entry_size;
    if count > MOST_ATTRS {
        return Err(damaged(format!("its header contains an impossible number of events: {count}")));
    }
    let mut used = section.size.saturating_add(count * EVENT_MEMORY);
    limit.check(used)?;
    let bytes = input.bytes(section.offset, section.size).map_err(|error| PerfDataError::io(name, error))?;
    if (bytes.len() as u64) < section.size {
        return Err(PerfDataError::CutOff { name: name.to_owned(), part: "list of events" });
    }
    let mut left = MOST_IDS;
    let mut attrs = Vec::new();
    for bytes in bytes.chunks_exact(entry) {
        let (attr, ids) = bytes.split_at(entry - IDS);
        let attr = Attr::parse(attr, order).ok_or_else(|| damaged("the attr of an event is too short".to_owned()))?;
        let ids = self::section(&mut ByteReader::new(ids, order)).unwrap_or_default();
        left =
            left.checked_sub(ids.size / 8).ok_or_else(|| damaged("it states over 16 million event ids".to_owned()))?;
        // The ids are counted for each event, even if several events have the same ids, because a damaged file may
        // state the same bytes as the ids of many events.
        used = used.saturating_add(ids.size / 8 * ID_MEMORY);
        limit.check(used)?;
        let bytes = input.bytes(ids.offset, ids.size).map_err(|error| PerfDataError::io(name, error))?;
        if (bytes.len() as u64) < ids.size {
            return Err(PerfDataError::CutOff { name: name.to_owned(), part: "list of ids" });
        }
        let mut read = ByteReader::new(&bytes, order);
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
    use crate::ReadLimits;

    #[test]
    fn features_of_every_width() {
        let word = (1u64 << HEADER_HOSTNAME) | 2;
        let mut little = word.to_le_bytes().to_vec();
        little.resize(32, 0);
        assert_eq!(features(&little, ByteOrder::from_big_endian_flag(false)), [1, 3]);
        let mut wide = word.to_be_bytes().to_vec();
        wide.resize(32, 0);
        assert_eq!(features(&wide, ByteOrder::from_big_endian_flag(true)), [1, 3]);
        let mut narrow = (word as u32).to_be_bytes().to_vec();
        narrow.resize(32, 0);
        assert_eq!(features(&narrow, ByteOrder::from_big_endian_flag(true)), [1, 3]);
    }

    #[test]
    fn unreadable_files_are_reported_with_their_cause() {
        let shown = |bytes: &[u8]| read(&bytes.to_vec(), &ReadLimits::default().limit("x")).unwrap_err().to_string();
        assert_eq!(shown(b""), "x is empty: nothing was recorded, or the disk was full");
        assert_eq!(shown(b"PERF"), "x is not a perf.data file: it does not start with PERFILE2");
        assert_eq!(shown(b"PERFFILE"), "x is cut off: its header is incomplete; copy it again, or record again");
        assert_eq!(shown(b"PERFFILE\x69\0\0\0\0\0\0\0"), "x is damaged: its header states an invalid size: 105 bytes");
        assert_eq!(shown(b"PERFILE2"), "x is cut off: its header is incomplete; copy it again, or record again");
        assert_eq!(
            shown(b"PERFILE2\x68\0\0\0\0\0\0\0"),
            "x is cut off: its header is incomplete; copy it again, or record again"
        );
        assert_eq!(shown(b"PERFILE2\x69\0\0\0\0\0\0\0"), "x is damaged: its header states an invalid size: 105 bytes");
        let header = |bytes: &[u8]| read(&bytes.to_vec(), &ReadLimits::default().limit("x")).unwrap();
        assert_eq!(header(b"2ELIFREP\0\0\0\0\0\0\0\x10"), Header::Pipe(ByteOrder::Foreign));
        for (size, order) in
            [(16u64.to_ne_bytes(), ByteOrder::Native), (16u64.swap_bytes().to_ne_bytes(), ByteOrder::Foreign)]
        {
            assert_eq!(header(&[&b"PERFFILE"[..], &size].concat()), Header::Pipe(order));
        }
    }
}
