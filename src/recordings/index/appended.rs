//! Finds another recording that was appended to a file (`cat a.data b.data`). What the end of the file says is about that one.

use std::io;

use perf_prof_format::abi::perf_data::PERF_MAGIC2;

use super::trailer::StoredIndex;
use crate::{
    format::{
        bytes::{ByteOrder, ByteReader},
        header::{FILE_HEADER, FileHeader, PIPE_HEADER, Section},
    },
    input::random_access::Input,
    limits::MemoryLimit,
};

/// How many bytes are read at a time to find the next recording.
const AT_ONCE: u64 = 16 << 20;

/// How many bytes are looked at to find it. An index of the first recording is smaller. A sparse file may be much larger.
const LOOKED_AT: u64 = 1 << 30;

/// The size of the magic number and of the size of the header, with which a recording begins.
const BEGIN: usize = 16;

/// Returns the stored index of a recording, and where another recording begins in its file. The index is then that of the last
/// one, so none is returned.
pub(crate) fn index(
    input: &dyn Input,
    header: &FileHeader,
    limit: &MemoryLimit,
) -> io::Result<(StoredIndex, Option<u64>)> {
    Ok(match another(input, header.order, header.feature_list())? {
        Some(at) => (StoredIndex::default(), Some(at)),
        None => (StoredIndex::read(input, header.order, limit)?, None),
    })
}

/// Returns where the next recording begins behind the features in this list.
fn another(input: &dyn Input, order: ByteOrder, list: Section) -> io::Result<Option<u64>> {
    let (size, bytes) = (input.size()?, input.bytes(list.offset, list.size)?);
    let mut read = ByteReader::new(&bytes, order);
    let sections = std::iter::from_fn(|| Some(read.u64()?.saturating_add(read.u64()?)));
    // perf leaves a gap behind the list, and features may be before it.
    let end = sections.filter(|end| *end <= size).fold(list.offset.saturating_add(list.size), u64::max);
    if StoredIndex::at_end(input, order)?.is_some_and(|(index, _)| index.offset == end) {
        return Ok(None);
    }
    let begins = |bytes: &[u8]| {
        let (magic, size) = bytes.split_first_chunk()?;
        let size = order.u64(*size.first_chunk()?);
        (order.u64(*magic) == PERF_MAGIC2 && matches!(size, FILE_HEADER | PIPE_HEADER)).then_some(())
    };
    // A stored index of the first recording may come before the next one.
    for from in (end..size.min(end.saturating_add(LOOKED_AT))).step_by((AT_ONCE - BEGIN as u64) as usize) {
        let bytes = input.bytes(from, AT_ONCE)?;
        if let Some(at) = bytes.windows(BEGIN).position(|bytes| begins(bytes).is_some()) {
            return Ok(Some(from + at as u64));
        }
    }
    Ok(None)
}
