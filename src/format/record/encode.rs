//! Writes the record of a sample from the values of its members. This is the inverse of the functions of
//! [`SampleLayout`] that read members.

use thiserror::Error;

use super::layout::SampleLayout;
use crate::abi::*;

/// The values of a sample's members. Members that the layout does not have are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleValues {
    /// The flags of the record's header, for example PERF_RECORD_MISC_KERNEL.
    pub misc: u16,
    /// The id of the event: PERF_SAMPLE_IDENTIFIER, and also PERF_SAMPLE_ID.
    pub id: u64,
    /// PERF_SAMPLE_IP.
    pub ip: u64,
    /// The process id of PERF_SAMPLE_TID.
    pub pid: i32,
    /// The thread id of PERF_SAMPLE_TID.
    pub tid: i32,
    /// PERF_SAMPLE_TIME.
    pub time: u64,
    /// PERF_SAMPLE_ADDR.
    pub addr: u64,
    /// PERF_SAMPLE_CPU.
    pub cpu: u32,
    /// PERF_SAMPLE_PERIOD.
    pub period: u64,
    /// PERF_SAMPLE_CALLCHAIN, with its context markers.
    pub callchain: Vec<u64>,
    /// PERF_SAMPLE_RAW.
    pub raw: Vec<u8>,
    /// PERF_SAMPLE_CGROUP.
    pub cgroup: u64,
}

/// The record would be too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record of the event would have {size} bytes, but a record has at most {max}", max = u16::MAX)]
pub struct RecordTooLarge {
    /// The size in bytes.
    pub size: usize,
}

/// The bits of `sample_type` that [`SampleLayout::encode`] can write.
const WRITTEN: u64 = PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_IP
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ADDR
    | PERF_SAMPLE_ID
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_PERIOD
    | PERF_SAMPLE_CALLCHAIN
    | PERF_SAMPLE_RAW
    | PERF_SAMPLE_CGROUP;

impl SampleLayout {
    /// Returns the record of a sample, as the kernel writes it (`perf_output_sample()` in `kernel/events/core.c`). All
    /// members of the layout must be members that [`SampleValues`] has.
    pub fn encode(&self, values: &SampleValues) -> Result<Vec<u8>, RecordTooLarge> {
        let sample_type = self.format.sample_type;
        debug_assert_eq!(sample_type & !WRITTEN, 0, "a member that cannot be written");
        let mut record = Vec::with_capacity(96 + 8 * values.callchain.len() + values.raw.len());
        record.extend(PERF_RECORD_SAMPLE.to_ne_bytes());
        record.extend(values.misc.to_ne_bytes());
        record.extend([0, 0]);
        let pair = |low: u32, high: u32| -> u64 {
            let [a, b] = [low.to_ne_bytes(), high.to_ne_bytes()];
            u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
        };
        let fixed = [
            (PERF_SAMPLE_IDENTIFIER, values.id),
            (PERF_SAMPLE_IP, values.ip),
            (PERF_SAMPLE_TID, pair(values.pid as u32, values.tid as u32)),
            (PERF_SAMPLE_TIME, values.time),
            (PERF_SAMPLE_ADDR, values.addr),
            (PERF_SAMPLE_ID, values.id),
            (PERF_SAMPLE_CPU, pair(values.cpu, 0)),
            (PERF_SAMPLE_PERIOD, values.period),
        ];
        for (bit, value) in fixed {
            if sample_type & bit != 0 {
                record.extend(value.to_ne_bytes());
            }
        }
        if sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
            record.extend((values.callchain.len() as u64).to_ne_bytes());
            record.extend(values.callchain.iter().flat_map(|address| address.to_ne_bytes()));
        }
        if sample_type & PERF_SAMPLE_RAW != 0 {
            // The size and the data together are padded to a multiple of 8 bytes. The size includes the padding.
            let size = (values.raw.len() + 4).next_multiple_of(8) - 4;
            record.extend((size as u32).to_ne_bytes());
            let end = record.len() + size;
            record.extend(&values.raw);
            record.resize(end, 0);
        }
        if sample_type & PERF_SAMPLE_CGROUP != 0 {
            record.extend(values.cgroup.to_ne_bytes());
        }
        let Ok(size) = u16::try_from(record.len()) else { return Err(RecordTooLarge { size: record.len() }) };
        record[6..8].copy_from_slice(&size.to_ne_bytes());
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{record::SampleMember, value::Value};

    proptest! {
        #[test]
        fn every_member_is_read_back(
            bits: u64,
            numbers: [u64; 6],
            pid: i32,
            tid: i32,
            cpu: u32,
            callchain in prop::collection::vec(any::<u64>(), 0..20),
            raw in prop::collection::vec(any::<u8>(), 0..100)
        ) {
            let layout = SampleLayout::new(bits & WRITTEN, 0);
            let [id, ip, time, addr, period, cgroup] = numbers;
            let values = SampleValues { misc: 1, id, ip, pid, tid, time, addr, cpu, period, callchain, raw, cgroup };
            let record = layout.encode(&values).unwrap();
            prop_assert_eq!(crate::record::record_size(&record), record.len());
            let has = |bit: u64| layout.format.sample_type & bit != 0;
            let check = |bit: u64, member: SampleMember, expected: u64| {
                let found = layout.value(member, &record);
                prop_assert_eq!(found, has(bit).then_some(Value::Uint(expected)), "{:?}", member);
                Ok(())
            };
            check(PERF_SAMPLE_IDENTIFIER, SampleMember::Identifier, id)?;
            check(PERF_SAMPLE_IP, SampleMember::Ip, ip)?;
            check(PERF_SAMPLE_TIME, SampleMember::Time, time)?;
            check(PERF_SAMPLE_ADDR, SampleMember::Addr, addr)?;
            check(PERF_SAMPLE_CPU, SampleMember::Cpu, cpu.into())?;
            prop_assert_eq!(layout.pid_tid(&record), has(PERF_SAMPLE_TID).then_some((pid as u32, tid as u32)));
            if has(PERF_SAMPLE_PERIOD) {
                prop_assert_eq!(layout.period(&record), Some(period));
            }
            if has(PERF_SAMPLE_CALLCHAIN) {
                let expected: Vec<u8> = values.callchain.iter().flat_map(|address| address.to_ne_bytes()).collect();
                prop_assert_eq!(layout.callchain(&record), Some(expected.as_slice()));
            }
            if has(PERF_SAMPLE_RAW) {
                prop_assert!(layout.raw(&record).unwrap().starts_with(&values.raw));
                prop_assert_eq!(record.len() % 8, 0);
            }
            prop_assert_eq!(layout.cgroup(&record), has(PERF_SAMPLE_CGROUP).then_some(cgroup));
        }
    }

    #[test]
    fn a_record_that_is_too_large_is_refused() {
        let layout = SampleLayout::new(PERF_SAMPLE_RAW, 0);
        let of_size = |size: usize| layout.encode(&SampleValues { raw: vec![1; size], ..SampleValues::default() });
        assert_eq!(of_size(65_516).unwrap().len(), 65_528);
        assert_eq!(of_size(65_517), Err(RecordTooLarge { size: 65_536 }));
    }
}
