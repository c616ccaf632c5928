//! The feature sections of a recording, which describe the recording, its machine and its events. A damaged section is
//! left out with a warning; all other sections are still read.

use perf_prof_format::abi::{perf_data::*, system_calls};

use super::{
    attr::Attr,
    bytes::{ByteOrder, ByteReader},
    header::{FileHeader, Section, section},
    interpreter_frames::RecordedFrames,
    tracing_data::TracingData,
};
use crate::{
    error::{PerfDataError, RENEW, unknown_machine},
    input::random_access::Input,
    limits::MemoryLimit,
};

/// The contents of the feature sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The hostname of the recorded machine.
    pub hostname: Option<String>,
    /// The release of the recorded machine's kernel.
    pub os_release: Option<String>,
    /// The version of the recorder.
    pub version: Option<String>,
    /// The machine's architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// The number of CPUs that the machine has, and the number of CPUs that were online.
    pub cpus: Option<(u32, u32)>,
    /// The command line of the recorder, as separate arguments.
    pub cmdline: Vec<String>,
    /// The events with their names.
    pub events: Vec<EventDesc>,
    /// The build ids of the files that contain sampled addresses.
    pub build_ids: Vec<BuildId>,
    /// The formats of the tracepoints.
    pub tracing_data: Option<TracingData>,
    /// The times of the first and the last sample.
    pub sample_time: Option<(u64, u64)>,
    /// The relation of the records' clock to the time of day.
    pub clock: Option<ClockData>,
    /// The version of the directory layout. `None` if the recording is not a directory.
    pub dir_format: Option<u64>,
    /// The time at which the recorder finished the recording, in seconds since the Unix epoch. Only simpleperf stores
    /// this time.
    pub finished: Option<u64>,
    /// How the records are compressed. `None` if they are not compressed.
    pub compressed: Option<Compressed>,
    /// The names and lines of the interpreter frames in samples.
    pub interpreter_frames: Option<RecordedFrames>,
}

/// The description of an event (HEADER_EVENT_DESC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDesc {
    /// The attr of the event.
    pub attr: Attr,
    /// The name of the event, such as `sched:sched_switch` or `cycles:u`.
    pub name: String,
    /// The sample ids of the event.
    pub ids: Vec<u64>,
}

/// The build id of a file (HEADER_BUILD_ID).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId {
    /// The path of the file, or a name such as `[kernel.kallsyms]` or `[vdso]`.
    pub path: String,
    /// The build id itself.
    pub id: Vec<u8>,
    /// The `misc` member of the build id's record. It shows whether the file belongs to the kernel or to user space.
    pub misc: u16,
}

/// The times of two clocks that were read at the same moment (HEADER_CLOCK_DATA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// The id of the clock that timestamps the records.
    pub clockid: u32,
    /// The time of day when the two clocks were read, in ns since the Unix epoch.
    pub wall: u64,
    /// The time of the records' clock when the two clocks were read, in ns.
    pub time: u64,
}

impl ClockData {
    /// Returns the time of day, in ns since the Unix epoch, at a time of the records' clock.
    pub fn time_of_day(&self, time: u64) -> i64 {
        self.wall.wrapping_add(time).wrapping_sub(self.time) as i64
    }
}

/// How the records are compressed (HEADER_COMPRESSED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// The compression method; 1 is zstd.
    pub kind: u32,
    /// The compression level.
    pub level: u32,
    /// The compression ratio: uncompressed size divided by compressed size.
    pub ratio: u32,
}

/// Returns the name of a feature, for messages.
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
        HEADER_INTERPRETER_FRAMES => "the table of interpreters' frames",
        other => return format!("feature {other}"),
    };
    name.to_owned()
}

/// The features that are read. Other features are skipped, because their contents are not needed.
const READ: [u32; 15] = [
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
    HEADER_SIMPLEPERF_META_INFO,
    HEADER_INTERPRETER_FRAMES,
];

const CUT_OFF: &str = "it is cut off";

/// The end of a warning about formats of tracepoints that cannot be read.
const FORMATS_LOST: &str = ", so the names and fields of tracepoints are not known";

/// The memory that is counted for reading and parsing a section, divided by the section's size.
pub(crate) const PARSED: u64 = 4;

/// The memory that is counted for reading, parsing and showing interpreter frames, divided by the size of their
/// section. In the section, a frame takes 64 bytes.
const FRAMES_PARSED: u64 = 8;

/// Returns the warning about the sections that should be after the end of the file.
fn outside_warning(name: &str, outside: &[u32]) -> Option<String> {
    let names: Vec<_> = outside.iter().map(|&bit| feature_name(bit)).collect();
    let they_lie = if names.len() == 1 { "it lies" } else { "they lie" };
    let lost = if outside.contains(&HEADER_TRACING_DATA) { FORMATS_LOST } else { "" };
    let text = format!("{name}: {} cannot be read: {they_lie} outside the file{lost}; {RENEW}", names.join(", "));
    (!names.is_empty()).then_some(text)
}

impl Features {
    /// Reads the feature sections of a file. Skips each damaged section and adds a warning about it. `limit` is the
    /// maximum memory for the sections.
    pub(crate) fn read(
        input: &dyn Input,
        limit: &MemoryLimit,
        header: &FileHeader,
        warnings: &mut Vec<String>,
    ) -> Result<Features, PerfDataError> {
        let (mut features, mut used, name) = (Features::default(), 0u64, limit.name());
        let io = |error| PerfDataError::io(name, error);
        let list = header.feature_list();
        let table = input.bytes(list.offset, list.size).map_err(io)?;
        let mut table = ByteReader::new(&table, header.order);
        let (size, mut outside) = (input.size().map_err(io)?, Vec::new());
        for (at, &bit) in header.features.iter().enumerate() {
            let Some(Section { offset, size: wanted }) = section(&mut table) else {
                let lost = if header.features[at..].contains(&HEADER_TRACING_DATA) { FORMATS_LOST } else { "" };
                warnings.push(format!("{name} is cut off: its list of feature sections is incomplete{lost}; {RENEW}"));
                break;
            };
            if !READ.contains(&bit) {
                continue;
            }
            let is_inside = offset.checked_add(wanted).is_some_and(|end| end <= size);
            if !is_inside {
                outside.push(bit);
                continue;
            }
            let result = if bit == HEADER_INTERPRETER_FRAMES {
                // This section is only skipped if it is too large, because records can be read without its names.
                let needed = used.saturating_add(wanted.saturating_mul(FRAMES_PARSED));
                match limit.check(needed) {
                    Ok(()) => features.add(bit, &input.bytes(offset, wanted).map_err(io)?, header.order),
                    Err(_) => Err("it needs more memory than --buffer allows"),
                }
            } else {
                used = used.saturating_add(wanted.saturating_mul(PARSED));
                limit.check(used)?;
                features.add(bit, &input.bytes(offset, wanted).map_err(io)?, header.order)
            };
            if let Err(why) = result {
                let lost = if bit == HEADER_TRACING_DATA { FORMATS_LOST } else { "" };
                warnings.push(format!("{name}: {} cannot be read: {why}{lost}", feature_name(bit)));
            }
        }
        warnings.extend(outside_warning(name, &outside));
        Ok(features)
    }

    /// Adds a feature. `bytes` is the content of a feature section in a file, or of a feature record in a pipe.
    pub fn add(&mut self, bit: u32, bytes: &[u8], order: ByteOrder) -> Result<(), &'static str> {
        let read = ByteReader::new(bytes, order);
        match bit {
            HEADER_TRACING_DATA => self.tracing_data = Some(TracingData::parse(bytes)?),
            HEADER_BUILD_ID => self.build_ids = build_ids(bytes, order)?,
            HEADER_SIMPLEPERF_META_INFO => self.finished = finished(bytes),
            HEADER_INTERPRETER_FRAMES => self.interpreter_frames = Some(RecordedFrames::read(read)?),
            _ => self.numbers_and_texts(bit, read).ok_or(CUT_OFF)?,
        }
        Ok(())
    }

    /// Drops an architecture that does not exist: a bit of its name is wrong. Then the recording counts as one of this machine's
    /// architecture. Returns the warning about it.
    pub(crate) fn drop_unknown_machine(&mut self, recording: &str) -> Option<String> {
        let unknown = self.arch.take_if(|arch| !system_calls::is_machine(arch))?;
        Some(unknown_machine(recording, &unknown))
    }

    fn numbers_and_texts(&mut self, bit: u32, mut read: ByteReader<'_>) -> Option<()> {
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
            // The times are 0 if the recorder did not read the times of the samples.
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

/// Reads the event descriptions in the format of `write_event_desc()` in `tools/perf/util/header.c`.
fn event_descs(mut read: ByteReader<'_>) -> Option<Vec<EventDesc>> {
    let (count, attr_size) = (read.u32()?, read.u32()?);
    let mut events = Vec::new();
    for _ in 0..count {
        let attr = Attr::parse(read.read_bytes(attr_size as usize)?, read.order())?;
        let ids = read.u32()?;
        let name = read.sized_text()?;
        let ids: Vec<u64> = (0..ids).map_while(|_| read.u64()).collect();
        events.push(EventDesc { attr, name, ids });
    }
    Some(events)
}

/// Returns the time at which simpleperf finished a recording. The feature is a list in which keys and values alternate,
/// each with a NUL at its end.
fn finished(bytes: &[u8]) -> Option<u64> {
    let texts: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    let (_, value) = texts.chunks_exact(2).map(|pair| (pair[0], pair[1])).find(|(key, _)| *key == b"timestamp")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Reads the build ids, which are consecutive records.
fn build_ids(bytes: &[u8], order: ByteOrder) -> Result<Vec<BuildId>, &'static str> {
    let mut ids = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut header = ByteReader::new(rest, order);
        let (_, misc, size) =
            (header.u32().ok_or(CUT_OFF)?, header.u16().ok_or(CUT_OFF)?, header.u16().ok_or(CUT_OFF)?);
        let (record, after) = rest.split_at_checked(usize::from(size)).ok_or(CUT_OFF)?;
        ids.push(build_id(record, misc).ok_or(CUT_OFF)?);
        rest = after;
    }
    Ok(ids)
}

/// Parses a build-id record, including the record's header. The size of the build id is stored after the build id.
/// Older versions of perf stored no size. In their records, the size is 20 bytes (`struct
/// perf_record_header_build_id`).
pub(crate) fn build_id(record: &[u8], misc: u16) -> Option<BuildId> {
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
    fn simpleperf_says_when_it_finished() {
        let finished = |bytes: &[u8]| {
            let mut features = Features::default();
            features.add(HEADER_SIMPLEPERF_META_INFO, bytes, ByteOrder::Native).unwrap();
            features.finished
        };
        assert_eq!(finished(b"clockid\0monotonic\0timestamp\x001596654389\0"), Some(1_596_654_389));
        assert_eq!(finished(b"a\0timestamp\0b\x000\0"), None);
        assert_eq!(finished(b"timestamp\0x\0"), None);
        assert_eq!(finished(b""), None);
    }

    #[test]
    fn a_feature_that_is_cut_off_is_left_out() {
        let mut features = Features::default();
        let order = ByteOrder::from_big_endian_flag(false);
        assert_eq!(features.add(HEADER_NRCPUS, &[4, 0, 0, 0, 2, 0, 0, 0], order), Ok(()));
        assert_eq!(features.cpus, Some((4, 2)));
        assert_eq!(features.add(HEADER_SAMPLE_TIME, &[4, 0, 0, 0, 2, 0, 0, 0], order), Err(CUT_OFF));
        assert_eq!(features.add(HEADER_EVENT_DESC, &[255; 40], order), Err(CUT_OFF));
        assert_eq!(features.add(HEADER_BUILD_ID, &[1; 20], order), Err(CUT_OFF));
        // A size of 0 must not cause an endless loop.
        assert_eq!(features.add(HEADER_BUILD_ID, &[0; 20], order), Err(CUT_OFF));
    }
}
