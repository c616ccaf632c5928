//! What a recording that comes through a pipe says of itself: in records, before all others.

use super::{
    attr::Attr,
    bytes::{ByteOrder, Bytes},
    error::PerfDataError,
    features::{EventDesc, Features, build_id, feature_name},
    feed::{Next, Records},
    header::AttrIds,
    kernel_mapping::{KernelMapping, is_of_kernel},
};
use crate::abi::perf_data::*;

/// What a stream's first records say.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub attrs: Vec<AttrIds>,
    pub features: Features,
    pub kernel: Option<KernelMapping>,
    /// What is wrong with it.
    pub warnings: Vec<String>,
}

/// The kind of update that names an event (`enum perf_event_update_type`).
const UPDATE_NAME: u64 = 2;

/// Mappings of modules are not looked behind any further.
const MOST_MAPPINGS: usize = 1 << 20;

/// Reads the records that come before the first one of the kernel's. The mappings of the kernel and of its modules are
/// perf's own, and updates of events stand behind them.
pub(super) fn describe(records: &mut Records) -> Result<Described, PerfDataError> {
    let order = records.order;
    let mut described = Described::default();
    let mut mappings = Vec::new();
    while let Next::Record(size) = next(records)? {
        let record = records.peek(size);
        let kind = Bytes::new(record, order).u32().unwrap_or(0);
        if is_of_kernel(record, order) && mappings.len() < MOST_MAPPINGS {
            described.kernel = described.kernel.or_else(|| KernelMapping::parse(record, order));
            mappings.extend_from_slice(record);
            records.take(size);
            continue;
        }
        if kind < FIRST_OF_USER_SPACE || [PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2].contains(&kind) {
            break;
        }
        let mut payload = 0;
        match described.record(kind, record, order) {
            Ok(more) => payload = more,
            Err((what, why)) => described.warnings.push(format!("{}: {what} is left out: {why}", records.name)),
        }
        records.take(size);
        if kind == PERF_RECORD_HEADER_TRACING_DATA {
            let bytes = records.bytes(payload)?;
            if let Err(why) = described.features.add(HEADER_TRACING_DATA, &bytes, order) {
                let what = feature_name(HEADER_TRACING_DATA);
                described.warnings.push(format!("{}: {what} is left out: {why}", records.name));
            }
        } else {
            records.skip(payload);
        }
    }
    records.put_back(&mappings);
    if described.attrs.is_empty() {
        return Err(PerfDataError::NoEvents { name: records.name.clone() });
    }
    Ok(described)
}

/// Nobody waits for attention here: what interrupts is for the time when records are handed out.
fn next(records: &mut Records) -> Result<Next, PerfDataError> {
    loop {
        match records.next() {
            Err(PerfDataError::Interrupted) => {}
            result => return result,
        }
    }
}

const CUT_OFF: &str = "it is cut off";

impl Described {
    /// Takes a record; gives how many bytes behind it belong to it. An error names the thing and what is wrong.
    fn record(&mut self, kind: u32, record: &[u8], order: ByteOrder) -> Result<u64, (String, &'static str)> {
        let mut read = Bytes::new(record.get(8..).unwrap_or(&[]), order);
        match kind {
            PERF_RECORD_HEADER_ATTR => {
                let attr = attr(read, order).ok_or_else(|| ("an event".to_owned(), CUT_OFF))?;
                self.attrs.push(attr);
            }
            PERF_RECORD_EVENT_UPDATE => {
                self.update(read).ok_or_else(|| ("the name of an event".to_owned(), CUT_OFF))?;
            }
            PERF_RECORD_HEADER_FEATURE => {
                let bit = read.u64().and_then(|bit| u32::try_from(bit).ok()).unwrap_or(u32::MAX);
                self.features.add(bit, read.rest(), order).map_err(|why| (feature_name(bit), why))?;
            }
            PERF_RECORD_HEADER_BUILD_ID => {
                let misc = Bytes::new(record.get(4..).unwrap_or(&[]), order).u16().unwrap_or(0);
                let id = build_id(record, misc).ok_or_else(|| (feature_name(HEADER_BUILD_ID), CUT_OFF))?;
                self.features.build_ids.push(id);
            }
            PERF_RECORD_HEADER_TRACING_DATA => return Ok(read.u32().map_or(0, u64::from)),
            PERF_RECORD_AUXTRACE => return Ok(read.u64().unwrap_or(0)),
            _ => {}
        }
        Ok(0)
    }

    fn update(&mut self, mut read: Bytes<'_>) -> Option<()> {
        let (kind, id) = (read.u64()?, read.u64()?);
        if kind != UPDATE_NAME {
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

/// `struct perf_record_header_attr`: an attr of the size that it states, then ids.
fn attr(read: Bytes<'_>, order: ByteOrder) -> Option<AttrIds> {
    let bytes = read.rest();
    let mut head = read;
    head.u32()?;
    let size = match head.u32()? as usize {
        0 => super::attr::SMALLEST_ATTR,
        size => size,
    };
    let attr = Attr::parse(bytes.get(..size)?, order)?;
    let mut ids = Bytes::new(bytes.get(size..)?, order);
    Some(AttrIds { attr, ids: std::iter::from_fn(|| ids.u64()).collect() })
}
