//! Reads the first records of a file, which come before the records of tasks.

use perf_prof_format::abi::perf_data::{
    FIRST_USER_RECORD_TYPE, PERF_RECORD_AUXTRACE, PERF_RECORD_AUXTRACE_INFO, PERF_RECORD_COMPRESSED,
    PERF_RECORD_COMPRESSED2, PERF_RECORD_HEADER_TRACING_DATA, PERF_RECORD_ID_INDEX,
};

use super::{
    bytes::{ByteOrder, ByteReader},
    kernel_mapping::{KernelMapping, is_kernel_mapping},
    own_updates::FirstUpdates,
};
use crate::{
    error::PerfDataError,
    input::feed::{Next, RecordReader},
};

/// The facts in the first records of a file.
#[derive(Debug, Default)]
pub(crate) struct FirstRecords {
    /// The first mapping of the kernel.
    pub kernel: Option<KernelMapping>,
    /// The formats of the tracepoints, if a record contains them. Most recorders write them into a feature section.
    pub tracing_data: Option<Vec<u8>>,
    /// The AUX area data that was found so far.
    pub aux: AuxTrace,
    /// What the rings belong to.
    pub id_index: IdIndex,
    /// What perf-prof tells about filters and off times.
    pub own: FirstUpdates,
}

/// What an id index (PERF_RECORD_ID_INDEX) states. `perf-prof record` and perf (since 6.0) write an id index at the start
/// of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdIndex {
    /// Whether the rings belong to CPUs or to threads.
    pub rings_of: RingsOf,
    /// Whether it names the threads for which events were opened. `perf-prof record` leaves them out.
    pub has_threads: bool,
    /// The number of rings; 0 if the recording does not state them.
    pub rings: u64,
}

/// Whether the rings of a recording belong to CPUs or to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RingsOf {
    /// The recording does not state what its rings belong to.
    #[default]
    Unknown,
    /// Each ring belongs to a CPU.
    Cpus,
    /// Some rings belong to threads, on any CPU.
    Threads,
}

/// Whether the records of a section are those of one ring, as in a file of a directory, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rings {
    /// Also if nothing says how many they are.
    One,
    Several,
}

impl IdIndex {
    /// Returns how many rings the records of each of `parts` parts come from: each ring of a directory has a file of its own.
    pub fn rings_of_part(&self, parts: usize) -> Rings {
        if parts == 1 && self.rings > 1 { Rings::Several } else { Rings::One }
    }

    /// Adds the information in an id index. A long id index is split into several records, and this method is called
    /// for each of them.
    pub fn add(&mut self, record: &[u8], order: ByteOrder) {
        let mut read = ByteReader::new(record.get(8..).unwrap_or(&[]), order);
        for _ in 0..read.u64().unwrap_or(0) {
            // Each entry has four numbers: id, ring, CPU, thread.
            let Some([_, ring, cpu, thread]) = (|| Some([read.u64()?, read.u64()?, read.u64()?, read.u64()?]))() else {
                break;
            };
            self.rings = self.rings.max(ring.saturating_add(1));
            self.has_threads |= thread != u64::MAX;
            self.rings_of = match (self.rings_of, cpu) {
                (RingsOf::Threads, _) | (_, u64::MAX) => RingsOf::Threads,
                (RingsOf::Unknown | RingsOf::Cpus, _) => RingsOf::Cpus,
            };
        }
    }
}

/// The AUX area data of a recording: traces that the CPU writes. perf-prof does not decode these traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuxTrace {
    /// The kind of trace (`enum auxtrace_type` in `tools/perf/util/auxtrace.h`).
    pub kind: Option<u32>,
    /// The number of bytes in the records that were already read.
    pub bytes: u64,
}

impl FirstRecords {
    /// Reads the records up to the mapping of the kernel. perf writes this mapping before the records of tasks, but any
    /// number of perf's own records may precede the mapping.
    pub fn read(records: &mut RecordReader) -> Result<FirstRecords, PerfDataError> {
        let mut found = FirstRecords::default();
        while let Next::Record(size) = records.next()? {
            let order = records.order;
            let record = records.peek(size);
            found.kernel = KernelMapping::parse(record, order);
            let kind = ByteReader::new(record, order).u32().unwrap_or(0);
            // The search ends at these types: they contain compressed records, or have a payload after them.
            let is_more = [PERF_RECORD_COMPRESSED, PERF_RECORD_COMPRESSED2, PERF_RECORD_AUXTRACE].contains(&kind);
            let is_of_task = kind < FIRST_USER_RECORD_TYPE && !is_kernel_mapping(record, order);
            if found.kernel.is_some() || is_more || is_of_task {
                break;
            }
            if kind == PERF_RECORD_ID_INDEX {
                found.id_index.add(record, order);
            }
            found.own.add(record, order);
            if kind == PERF_RECORD_AUXTRACE_INFO {
                found.aux.kind = aux_kind(record, order);
            }
            if kind == PERF_RECORD_HEADER_TRACING_DATA {
                match inner_tracing_data(record, ByteReader::new(record.get(8..).unwrap_or(&[]), order).u32()) {
                    Some(data) => found.tracing_data = Some(data.to_vec()),
                    None => break,
                }
            }
            records.advance(size);
        }
        Ok(found)
    }
}

/// Returns the kind of trace that a record of type PERF_RECORD_AUXTRACE_INFO states.
pub(crate) fn aux_kind(record: &[u8], order: ByteOrder) -> Option<u32> {
    ByteReader::new(record.get(8..)?, order).u32()
}

/// Returns the message about AUX area data, which are not decoded.
pub(crate) fn aux_warning(name: &str, AuxTrace { kind, bytes }: AuxTrace) -> String {
    let trace = match kind {
        Some(1) => "intel_pt",
        Some(2) => "intel_bts",
        Some(3) => "cs_etm",
        Some(4) => "arm_spe",
        Some(5) => "s390_cpumsf",
        Some(6) => "hisi_ptt",
        _ => "AUX area",
    };
    format!("{name}: {bytes} bytes of {trace} trace are not decoded; only sampled events are shown")
}

/// Returns the tracing data of a record of type PERF_RECORD_HEADER_TRACING_DATA, if the record itself contains the
/// data. `size` is the size of the data. simpleperf writes the data into the record (`TracingDataRecord` in
/// `simpleperf/record.h` of Android). In a pipe recording of perf, the data follows the record instead.
pub(crate) fn inner_tracing_data(record: &[u8], size: Option<u32>) -> Option<&[u8]> {
    record.get(12..)?.get(..usize::try_from(size?).ok()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{format::header::Section, input::feed::FileFeed};

    #[test]
    fn the_list_of_ids_tells_how_many_rings_there_were() {
        for big in [false, true] {
            let order = ByteOrder::from_big_endian_flag(big);
            let u64s = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
            let record = |kind: u8, words: &[u64]| {
                let size = 8 + 8 * words.len() as u8;
                let header = if big { [0, 0, 0, kind, 0, 0, 0, size] } else { [kind, 0, 0, 0, 0, 0, size, 0] };
                [&header[..], words.iter().flat_map(|&word| u64s(word)).collect::<Vec<_>>().as_slice()].concat()
            };
            let rings = |records: &[Vec<u8>]| {
                let bytes = records.concat();
                let section = Section { offset: 0, size: bytes.len() as u64 };
                let feed = FileFeed::new(Arc::new(bytes), section);
                FirstRecords::read(&mut RecordReader::new("x", order, Box::new(feed))).unwrap().id_index.rings
            };
            let list = record(69, &[2, 70, 0, 0, u64::MAX, 71, 3, 3, u64::MAX]);
            let (other, kernels) = (record(82, &[]), record(3, &[0]));
            assert_eq!(rings(&[other.clone(), list.clone(), other.clone()]), 4);
            assert_eq!(rings(&[list.clone(), record(69, &[1, 72, 8, 0, 0])]), 9);
            assert_eq!(rings(&[other, kernels, list.clone()]), 0);
            // The id index states an impossible number of entries.
            assert_eq!(rings(&[record(69, &[u64::MAX, 70, 5, 0, 0, 71, 6])]), 6);
            assert_eq!(rings(&[record(69, &[])]), 0);
        }
    }

    /// Each ring of a directory has a file of its own.
    #[test]
    fn a_part_has_several_rings_only_if_it_is_the_only_one() {
        let rings = |rings: u64, parts| IdIndex { rings, ..IdIndex::default() }.rings_of_part(parts);
        let found = [rings(2, 1), rings(1, 1), rings(0, 1), rings(2, 3)];
        assert_eq!(found, [Rings::Several, Rings::One, Rings::One, Rings::One]);
    }
}
