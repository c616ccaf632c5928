//! Reads the records at the start of a pipe recording, which describe its events and its machine.

use perf_prof_format::abi::perf_data::*;

use super::{
    attr::Attr,
    bytes::{ByteOrder, ByteReader},
    checksums,
    features::{EventDesc, Features, PARSED, build_id, feature_name},
    first_records::{AuxTrace, IdIndex, aux_kind, inner_tracing_data},
    header::{AttrIds, EVENT_MEMORY, ID_MEMORY},
    kernel_mapping::{KernelMapping, is_kernel_mapping},
    own_updates::FirstUpdates,
};
use crate::{
    error::PerfDataError,
    input::feed::{Next, RecordReader},
    limits::MemoryLimit,
};

/// The contents of a stream's first records.
#[derive(Debug, Default)]
pub(crate) struct PipeDescription {
    pub attrs: Vec<AttrIds>,
    pub features: Features,
    pub kernel: Option<KernelMapping>,
    /// The AUX area data that was found so far.
    pub aux: AuxTrace,
    /// What the rings belong to.
    pub id_index: IdIndex,
    /// What perf-prof tells about filters and off times.
    pub own: FirstUpdates,
    /// Messages about problems with these records.
    pub warnings: Vec<String>,
}

/// The maximum number of bytes of records that [`read_description`] puts back.
const MAX_PUT_BACK: usize = 1 << 20;

/// Reads the records that perf itself wrote at the start, up to the first record of the kernel or the first count.
/// `limit` is the maximum memory for the description.
///
/// Some of these records do not describe events: mappings of the kernel and its modules, and records about counts. But
/// updates of events may come after these records. So this function skips them, and puts them back when it returns.
/// They are read again later as normal records. Reading ends at the first count, because `perf stat record -I` writes
/// the next count only after an interval.
/// count only after an interval.
pub(crate) fn read_description(
    records: &mut RecordReader,
    limit: &MemoryLimit,
) -> Result<PipeDescription, PerfDataError> {
    let order = records.order;
    let mut described = PipeDescription::default();
    let (mut again, mut used) = (Vec::new(), 0u64);
    while let Next::Record(size) = next(records)? {
        records.note_end_mark(size);
        let record = records.peek(size);
        let kind = ByteReader::new(record, order).u32().unwrap_or(0);
        if is_kernel_mapping(record, order) && again.len() < MAX_PUT_BACK {
            described.kernel = described.kernel.or_else(|| KernelMapping::parse(record, order));
            again.extend_from_slice(record);
            records.advance(size);
            continue;
        }
        if describes_counts(record, kind, order) && again.len() < MAX_PUT_BACK {
            again.extend_from_slice(record);
            records.advance(size);
            continue;
        }
        if kind < FIRST_USER_RECORD_TYPE
            || ENDS_DESCRIPTION.contains(&kind)
            || checksums::stated(record, order).is_some()
        {
            break;
        }
        // A record may contain almost only ids, and a stream may contain any number of such records.
        used = used.saturating_add(EVENT_MEMORY + size as u64 / 8 * ID_MEMORY);
        limit.check(used)?;
        let mut payload = 0;
        match described.record(kind, record, order) {
            Ok(more) => payload = more,
            Err((what, why)) => described.warnings.push(format!("{}: {what} cannot be read: {why}", records.name)),
        }
        records.advance(size);
        if kind == PERF_RECORD_HEADER_TRACING_DATA && payload != 0 {
            used = used.saturating_add(payload.saturating_mul(PARSED));
            limit.check(used)?;
            let bytes = records.read_payload(payload)?;
            if let Err(why) = described.features.add(HEADER_TRACING_DATA, &bytes, order) {
                let what = feature_name(HEADER_TRACING_DATA);
                described.warnings.push(format!("{}: {what} cannot be read: {why}", records.name));
            }
        } else {
            records.skip_payload(payload);
        }
    }
    records.put_back(&again);
    if described.attrs.is_empty() {
        return Err(PerfDataError::NoEvents { name: records.name.clone() });
    }
    Ok(described)
}

/// The types of perf's own records that do not belong to the description.
const ENDS_DESCRIPTION: [u32; 5] = [
    PERF_RECORD_COMPRESSED,
    PERF_RECORD_COMPRESSED2,
    PERF_RECORD_STAT,
    PERF_RECORD_STAT_ROUND,
    PERF_RECORD_AUXTRACE_ERROR,
];

/// Returns whether a record describes the counts of `perf stat record`: their events, CPUs and threads.
fn describes_counts(record: &[u8], kind: u32, order: ByteOrder) -> bool {
    match kind {
        PERF_RECORD_THREAD_MAP | PERF_RECORD_CPU_MAP | PERF_RECORD_STAT_CONFIG => true,
        PERF_RECORD_EVENT_UPDATE => {
            ByteReader::new(record.get(8..).unwrap_or(&[]), order).u64() == Some(EVENT_UPDATE_CPUS)
        }
        _ => false,
    }
}

/// Returns the next record. Ignores interruptions, because the caller can handle an interruption only after the first
/// records were delivered.
fn next(records: &mut RecordReader) -> Result<Next, PerfDataError> {
    loop {
        match records.next() {
            Err(PerfDataError::Interrupted) => {}
            result => return result,
        }
    }
}

const CUT_OFF: &str = "it is cut off";

impl PipeDescription {
    /// Reads a record. Returns the size in bytes of the payload after the record. An error consists of the name of the
    /// part that cannot be read, and the reason.
    fn record(&mut self, kind: u32, record: &[u8], order: ByteOrder) -> Result<u64, (String, &'static str)> {
        let mut read = ByteReader::new(record.get(8..).unwrap_or(&[]), order);
        match kind {
            PERF_RECORD_HEADER_ATTR => {
                let attr = attr(read, order).ok_or_else(|| ("an event".to_owned(), CUT_OFF))?;
                self.attrs.push(attr);
            }
            PERF_RECORD_EVENT_UPDATE => {
                self.own.add(record, order);
                self.update(read).ok_or_else(|| ("the name of an event".to_owned(), CUT_OFF))?;
            }
            PERF_RECORD_HEADER_FEATURE => {
                let bit = read.u64().and_then(|bit| u32::try_from(bit).ok()).unwrap_or(u32::MAX);
                self.features.add(bit, read.rest(), order).map_err(|why| (feature_name(bit), why))?;
            }
            PERF_RECORD_HEADER_BUILD_ID => {
                let misc = ByteReader::new(record.get(4..).unwrap_or(&[]), order).u16().unwrap_or(0);
                let id = build_id(record, misc).ok_or_else(|| (feature_name(HEADER_BUILD_ID), CUT_OFF))?;
                self.features.build_ids.push(id);
            }
            PERF_RECORD_HEADER_TRACING_DATA => {
                let size = read.u32();
                let Some(data) = inner_tracing_data(record, size) else { return Ok(size.map_or(0, u64::from)) };
                self.features
                    .add(HEADER_TRACING_DATA, data, order)
                    .map_err(|why| (feature_name(HEADER_TRACING_DATA), why))?;
            }
            PERF_RECORD_ID_INDEX => self.id_index.add(record, order),
            PERF_RECORD_AUXTRACE_INFO => self.aux.kind = aux_kind(record, order),
            PERF_RECORD_AUXTRACE => {
                let size = read.u64().unwrap_or(0);
                self.aux.bytes = self.aux.bytes.saturating_add(size);
                return Ok(size);
            }
            _ => {}
        }
        Ok(0)
    }

    fn update(&mut self, mut read: ByteReader<'_>) -> Option<()> {
        let (kind, id) = (read.u64()?, read.u64()?);
        if kind != EVENT_UPDATE_NAME {
            return Some(());
        }
        let AttrIds { attr, ids } = self.attrs.iter().find(|attr| attr.ids.contains(&id))?.clone();
        let name = read.rest();
        let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
        let name = String::from_utf8_lossy(name).into_owned();
        match self.features.events.iter_mut().find(|event| event.ids == ids) {
            Some(event) => event.name = name,
            None => self.features.events.push(EventDesc { attr, name, ids }),
        }
        Some(())
    }
}

/// Reads the body of a `struct perf_record_header_attr`: first an attr, which states its own size, then ids.
fn attr(read: ByteReader<'_>, order: ByteOrder) -> Option<AttrIds> {
    let bytes = read.rest();
    let mut head = read;
    head.u32()?;
    let size = match head.u32()? as usize {
        0 => super::attr::SMALLEST_ATTR,
        size => size,
    };
    let attr = Attr::parse(bytes.get(..size)?, order)?;
    let mut ids = ByteReader::new(bytes.get(size..)?, order);
    Some(AttrIds { attr, ids: std::iter::from_fn(|| ids.u64()).collect() })
}
