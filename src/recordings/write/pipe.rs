//! A recording in pipe format. All data after the header consists of records. The features are written before the other
//! records, not at the end.

use std::{fs::File, io};

use perf_prof_format::abi::perf_data::{
    HEADER_BUILD_ID, HEADER_TRACING_DATA, PERF_MAGIC2, PERF_RECORD_HEADER_ATTR, PERF_RECORD_HEADER_BUILD_ID,
    PERF_RECORD_HEADER_FEATURE, PERF_RECORD_HEADER_TRACING_DATA,
};

use super::{Dso, Dsos, EventAttr, Known, Level, Stream, attr, features::build_id_record};
use crate::OwnUpdate;

/// The size in bytes of perf's attrs since 5.13. Until version 6.5, perf expected the ids of an event directly after
/// this many bytes, even if the attr stated another size.
const ATTR_SIZE: usize = 128;

/// Starts a recording in a pipe: writes the events and the features.
pub fn begin(file: File, known: &Known<'_>, level: Option<Level>) -> io::Result<Stream> {
    let Known { events, layout, features } = *known;
    let mut out = Vec::new();
    // `struct perf_pipe_file_header` consists of the magic and its own size.
    out.extend([PERF_MAGIC2, 16].map(u64::to_ne_bytes).as_flattened());
    let size = attr::common_size(events.iter().map(|event| &event.attr), ATTR_SIZE);
    for (at, event) in events.iter().enumerate() {
        let ids = event.ids.iter().flat_map(|id| id.to_ne_bytes());
        record(&mut out, PERF_RECORD_HEADER_ATTR, &[attr::sized(&event.attr, size), ids.collect()].concat());
        if at == 0 {
            // From here on, a reader notices that the rest is missing. perf has to know the event whose id it has.
            out.extend(OwnUpdate::WillEnd.record(some_id(events)));
        }
    }
    let of_their_own = [HEADER_TRACING_DATA, HEADER_BUILD_ID];
    for (bit, bytes) in features.iter().filter(|(bit, _)| !of_their_own.contains(bit)) {
        let body = [&u64::from(bit).to_ne_bytes()[..], bytes].concat();
        record(&mut out, PERF_RECORD_HEADER_FEATURE, &body);
    }
    for (_, bytes) in features.iter().filter(|&(bit, _)| bit == HEADER_TRACING_DATA) {
        tracing_data(&mut out, bytes);
    }
    let mut stream = Stream::new(file, 0, layout, level)?;
    stream.own(&out).and_then(|()| stream.flush()).map_err(|error| error.0)?;
    Ok(stream)
}

/// Returns an id of the first event. perf looks up the id of an update before its type.
pub fn some_id(events: &[EventAttr]) -> u64 {
    events.first().and_then(|event| event.ids.first()).copied().unwrap_or(0)
}

/// Returns the records at the end: the build ids of files, and the mark of the end. `id` is any id of the events.
pub fn end(dsos: &Dsos, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, Dso { build_id, of }) in dsos {
        if let Some(id) = build_id.as_deref().filter(|id| id.len() <= 20) {
            build_id_record(&mut out, PERF_RECORD_HEADER_BUILD_ID, path, *of, id);
        }
    }
    out.extend(OwnUpdate::End.record(id));
    out
}

/// Appends a record, padded to a multiple of 8 bytes. A body that is too large for a record is left out.
fn record(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let Ok(size) = u16::try_from((8 + body.len()).next_multiple_of(8)) else { return };
    let end = out.len() + usize::from(size);
    out.extend(kind.to_ne_bytes());
    out.extend([0, size].map(u16::to_ne_bytes).as_flattened());
    out.extend(body);
    out.resize(end, 0);
}

/// Appends the record of the tracing data, and then the tracing data as the record's payload. The record states the
/// size of the payload.
fn tracing_data(out: &mut Vec<u8>, bytes: &[u8]) {
    let size = bytes.len().next_multiple_of(8);
    out.extend(PERF_RECORD_HEADER_TRACING_DATA.to_ne_bytes());
    out.extend([0, 16].map(u16::to_ne_bytes).as_flattened());
    out.extend([size as u32, 0].map(u32::to_ne_bytes).as_flattened());
    out.extend(bytes);
    out.resize(out.len() + size - bytes.len(), 0);
}
