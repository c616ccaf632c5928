//! A recording for a pipe: everything is a record, and what a file tells at its end is told first.

use std::{fs::File, io};

use super::{Dso, Dsos, Features, Level, Stream, attr, feature::build_id_record};
use crate::{
    abi::perf_data::{
        HEADER_BUILD_ID, HEADER_TRACING_DATA, PERF_MAGIC2, PERF_RECORD_HEADER_ATTR, PERF_RECORD_HEADER_BUILD_ID,
        PERF_RECORD_HEADER_FEATURE, PERF_RECORD_HEADER_TRACING_DATA,
    },
    capture::EventAttr,
    record::SampleLayout,
};

/// The size that perf's attrs have had since 5.13. Until 6.5 it took an event's ids to stand behind that many bytes, whatever
/// the attr said of its size.
const ATTR_SIZE: usize = 128;

/// Begins a recording in a pipe: the events, and what is known of the machine.
pub fn begin(
    file: File,
    events: &[EventAttr],
    features: &Features,
    layout: SampleLayout,
    level: Option<Level>,
) -> io::Result<Stream> {
    let mut out = Vec::new();
    // `struct perf_pipe_file_header`: the magic and its own size.
    out.extend([PERF_MAGIC2, 16].map(u64::to_ne_bytes).as_flattened());
    let size = attr::common_size(events.iter().map(|event| &event.attr), ATTR_SIZE);
    for event in events {
        let ids = event.ids.iter().flat_map(|id| id.to_ne_bytes());
        record(&mut out, PERF_RECORD_HEADER_ATTR, &[attr::sized(&event.attr, size), ids.collect()].concat());
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

/// What files were built from, as records.
pub fn build_ids(dsos: &Dsos) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, Dso { build_id, of }) in dsos {
        if let Some(id) = build_id.as_deref().filter(|id| id.len() <= 20) {
            build_id_record(&mut out, PERF_RECORD_HEADER_BUILD_ID, path, *of, id);
        }
    }
    out
}

/// A record, filled up to 8 bytes. What does not fit into one is left out.
fn record(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let Ok(size) = u16::try_from((8 + body.len()).next_multiple_of(8)) else { return };
    let end = out.len() + usize::from(size);
    out.extend(kind.to_ne_bytes());
    out.extend([0, size].map(u16::to_ne_bytes).as_flattened());
    out.extend(body);
    out.resize(end, 0);
}

/// A record that states the size of what follows it.
fn tracing_data(out: &mut Vec<u8>, bytes: &[u8]) {
    let size = bytes.len().next_multiple_of(8);
    out.extend(PERF_RECORD_HEADER_TRACING_DATA.to_ne_bytes());
    out.extend([0, 16].map(u16::to_ne_bytes).as_flattened());
    out.extend([size as u32, 0].map(u32::to_ne_bytes).as_flattened());
    out.extend(bytes);
    out.resize(out.len() + size - bytes.len(), 0);
}
