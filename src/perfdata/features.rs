//! What a recording says of itself beside its events: the feature sections. One that is damaged is left out and named,
//! and costs none of the others anything.

use super::{
    attr::Attr,
    bytes::{ByteOrder, Bytes},
    error::PerfDataError,
    header::{FileHeader, Section, section},
    input::Input,
    tracing_data::TracingData,
};
use crate::abi::perf_data::*;

/// What the feature sections tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The traced machine's name.
    pub hostname: Option<String>,
    /// Its kernel's release.
    pub os_release: Option<String>,
    /// The version of the perf that recorded.
    pub version: Option<String>,
    /// Its architecture, as `uname -m` says it.
    pub arch: Option<String>,
    /// How many CPUs it has, and how many of them were online.
    pub cpus: Option<(u32, u32)>,
    /// The command that recorded.
    pub cmdline: Vec<String>,
    /// The events with their names.
    pub events: Vec<EventDesc>,
    /// Binaries that samples are in.
    pub build_ids: Vec<BuildId>,
    /// The tracepoints.
    pub tracing_data: Option<TracingData>,
    /// The times of the first and the last sample.
    pub sample_time: Option<(u64, u64)>,
    /// How the clock of the records compares with the time of day.
    pub clock: Option<ClockData>,
    /// The version of a directory's layout.
    pub dir_format: Option<u64>,
    /// Whether and how it is compressed.
    pub compressed: Option<Compressed>,
}

/// An event's name (HEADER_EVENT_DESC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDesc {
    /// Its attr.
    pub attr: Attr,
    /// Its name: `sched:sched_switch`, `cycles:u`.
    pub name: String,
    /// The ids of its events.
    pub ids: Vec<u64>,
}

/// What a binary was built from (HEADER_BUILD_ID).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId {
    /// The binary's path, or `[kernel.kallsyms]`, `[vdso]`.
    pub path: String,
    /// The id.
    pub id: Vec<u8>,
    /// The record's `misc`: whether it belongs to the kernel or to user space.
    pub misc: u16,
}

/// Two clocks at one moment (HEADER_CLOCK_DATA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// The clock of the records.
    pub clockid: u32,
    /// The time of day, in ns since the Unix epoch.
    pub wall: u64,
    /// The clock's time at that moment.
    pub time: u64,
}

/// How the records are compressed (HEADER_COMPRESSED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// By what; 1 is zstd.
    pub kind: u32,
    /// How well.
    pub level: u32,
    /// How many times smaller it became.
    pub ratio: u32,
}

/// The name of a feature, for messages.
pub fn feature_name(bit: u32) -> String {
    let name = match bit {
        HEADER_TRACING_DATA => "TRACING_DATA",
        HEADER_BUILD_ID => "BUILD_ID",
        HEADER_HOSTNAME => "HOSTNAME",
        HEADER_OSRELEASE => "OSRELEASE",
        HEADER_VERSION => "VERSION",
        HEADER_ARCH => "ARCH",
        HEADER_NRCPUS => "NRCPUS",
        HEADER_CMDLINE => "CMDLINE",
        HEADER_EVENT_DESC => "EVENT_DESC",
        HEADER_SAMPLE_TIME => "SAMPLE_TIME",
        HEADER_CLOCK_DATA => "CLOCK_DATA",
        HEADER_DIR_FORMAT => "DIR_FORMAT",
        HEADER_COMPRESSED => "COMPRESSED",
        other => return format!("feature {other}"),
    };
    name.to_owned()
}

/// The features that are read; the others say nothing that anybody here asks for.
const READ: [u32; 13] = [
    HEADER_TRACING_DATA,
    HEADER_BUILD_ID,
    HEADER_HOSTNAME,
    HEADER_OSRELEASE,
    HEADER_VERSION,
    HEADER_ARCH,
    HEADER_NRCPUS,
    HEADER_CMDLINE,
    HEADER_EVENT_DESC,
    HEADER_SAMPLE_TIME,
    HEADER_CLOCK_DATA,
    HEADER_DIR_FORMAT,
    HEADER_COMPRESSED,
];

const CUT_OFF: &str = "it is cut off";

impl Features {
    /// Reads the features of a file; what is wrong with one becomes a warning.
    pub fn read(
        input: &dyn Input,
        name: &str,
        header: &FileHeader,
        warnings: &mut Vec<String>,
    ) -> Result<Features, PerfDataError> {
        let mut features = Features::default();
        let io = |error| PerfDataError::io(name, error);
        let list = header.list();
        let table = input.bytes(list.offset, list.size).map_err(io)?;
        let mut table = Bytes::new(&table, header.order);
        let size = input.size().map_err(io)?;
        for &bit in &header.features {
            let Some(Section { offset, size: wanted }) = section(&mut table) else {
                warnings.push(format!("{name} is cut off in the list of its features; it was not written to its end"));
                break;
            };
            if !READ.contains(&bit) {
                continue;
            }
            let result = if offset.checked_add(wanted).is_none_or(|end| end > size) {
                Err("it lies outside of the file")
            } else {
                features.add(bit, &input.bytes(offset, wanted).map_err(io)?, header.order)
            };
            if let Err(why) = result {
                warnings.push(format!("{name}: {} is left out: {why}", feature_name(bit)));
            }
        }
        Ok(features)
    }

    /// Takes a feature's bytes, from a section of a file or a record of a pipe.
    pub fn add(&mut self, bit: u32, bytes: &[u8], order: ByteOrder) -> Result<(), &'static str> {
        let read = Bytes::new(bytes, order);
        match bit {
            HEADER_TRACING_DATA => self.tracing_data = Some(TracingData::parse(bytes)?),
            HEADER_BUILD_ID => self.build_ids = build_ids(bytes, order)?,
            _ => self.numbers_and_texts(bit, read).ok_or(CUT_OFF)?,
        }
        Ok(())
    }

    fn numbers_and_texts(&mut self, bit: u32, mut read: Bytes<'_>) -> Option<()> {
        match bit {
            HEADER_HOSTNAME => self.hostname = Some(read.sized_text()?),
            HEADER_OSRELEASE => self.os_release = Some(read.sized_text()?),
            HEADER_VERSION => self.version = Some(read.sized_text()?),
            HEADER_ARCH => self.arch = Some(read.sized_text()?),
            HEADER_NRCPUS => self.cpus = Some((read.u32()?, read.u32()?)),
            HEADER_CMDLINE => {
                let count = read.u32()?;
                self.cmdline = (0..count).map_while(|_| read.sized_text()).collect();
            }
            HEADER_EVENT_DESC => self.events = event_descs(read)?,
            // Zeros of a perf that did not look at the samples.
            HEADER_SAMPLE_TIME => {
                self.sample_time = Some((read.u64()?, read.u64()?)).filter(|&(_, last)| last != 0);
            }
            HEADER_CLOCK_DATA => {
                read.u32()?;
                self.clock = Some(ClockData { clockid: read.u32()?, wall: read.u64()?, time: read.u64()? });
            }
            HEADER_DIR_FORMAT => self.dir_format = Some(read.u64()?),
            HEADER_COMPRESSED => {
                read.u32()?;
                self.compressed = Some(Compressed { kind: read.u32()?, level: read.u32()?, ratio: read.u32()? });
            }
            _ => {}
        }
        Some(())
    }
}

/// `write_event_desc()` in `tools/perf/util/header.c`.
fn event_descs(mut read: Bytes<'_>) -> Option<Vec<EventDesc>> {
    let (count, attr_size) = (read.u32()?, read.u32()?);
    let mut events = Vec::new();
    for _ in 0..count {
        let attr = Attr::parse(read.take(attr_size as usize)?, read.order())?;
        let ids = read.u32()?;
        let name = read.sized_text()?;
        let ids: Vec<u64> = (0..ids).map_while(|_| read.u64()).collect();
        events.push(EventDesc { attr, name, ids });
    }
    Some(events)
}

/// Build ids, one record after the other.
fn build_ids(bytes: &[u8], order: ByteOrder) -> Result<Vec<BuildId>, &'static str> {
    let mut ids = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut header = Bytes::new(rest, order);
        let (_, misc, size) =
            (header.u32().ok_or(CUT_OFF)?, header.u16().ok_or(CUT_OFF)?, header.u16().ok_or(CUT_OFF)?);
        let (record, after) = rest.split_at_checked(usize::from(size)).ok_or(CUT_OFF)?;
        ids.push(build_id(record, misc).ok_or(CUT_OFF)?);
        rest = after;
    }
    Ok(ids)
}

/// A build id's record, header included. Its size stands behind it, and is 20 where an older perf wrote nothing there
/// (`struct perf_record_header_build_id`).
pub(super) fn build_id(record: &[u8], misc: u16) -> Option<BuildId> {
    const HAS_SIZE: u16 = 1 << 15;
    let id = record.get(12..36)?;
    let size = if misc & HAS_SIZE != 0 { usize::from(id[20]).min(20) } else { 20 };
    let path = &record[36..];
    let path = &path[..path.iter().position(|&byte| byte == 0).unwrap_or(path.len())];
    Some(BuildId { path: String::from_utf8_lossy(path).into_owned(), id: id[..size].to_vec(), misc })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_cut_off_is_left_out() {
        let mut features = Features::default();
        let order = ByteOrder::of_big_endian(false);
        assert_eq!(features.add(HEADER_NRCPUS, &[4, 0, 0, 0, 2, 0, 0, 0], order), Ok(()));
        assert_eq!(features.cpus, Some((4, 2)));
        assert_eq!(features.add(HEADER_SAMPLE_TIME, &[4, 0, 0, 0, 2, 0, 0, 0], order), Err(CUT_OFF));
        assert_eq!(features.add(HEADER_EVENT_DESC, &[255; 40], order), Err(CUT_OFF));
        assert_eq!(features.add(HEADER_BUILD_ID, &[1; 20], order), Err(CUT_OFF));
        // A size of 0 must not be read for ever.
        assert_eq!(features.add(HEADER_BUILD_ID, &[0; 20], order), Err(CUT_OFF));
    }
}
