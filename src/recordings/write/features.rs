//! Writes feature sections, which describe the machine and the recording.

use std::collections::BTreeMap;

use perf_prof_format::{
    abi::{
        PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER,
        perf_data::{
            HEADER_ARCH, HEADER_BUILD_ID, HEADER_CLOCK_DATA, HEADER_CLOCKID, HEADER_CMDLINE, HEADER_COMPRESSED,
            HEADER_CPU_TOPOLOGY, HEADER_CPUDESC, HEADER_CPUID, HEADER_DIR_FORMAT, HEADER_EVENT_DESC, HEADER_GROUP_DESC,
            HEADER_HOSTNAME, HEADER_INTERPRETER_FRAMES, HEADER_NRCPUS, HEADER_NUMA_TOPOLOGY, HEADER_OSRELEASE,
            HEADER_PMU_MAPPINGS, HEADER_SAMPLE_TIME, HEADER_TOTAL_MEM, HEADER_TRACING_DATA, HEADER_VERSION,
            PERF_DIR_VERSION,
        },
    },
    record::EventAttr,
    spec::Grouping,
};

use super::{Dso, DsoOwner, Dsos, Level, TracingData, attr, compress::PIECE};
use crate::RecordedFrames;

/// The content of one feature section.
#[derive(Clone, Debug)]
pub enum Feature<'a> {
    /// The formats of tracepoints.
    TracingData(&'a TracingData),
    /// The build ids of files.
    BuildIds(&'a Dsos),
    /// The hostname of the machine.
    Hostname(&'a str),
    /// The release of the kernel.
    OsRelease(&'a str),
    /// The version of the recorder.
    Version(&'a str),
    /// The architecture, as `uname -m` prints it.
    Arch(&'a str),
    /// The number of CPUs.
    CpuCount {
        /// The number of CPUs that the machine has.
        available: u32,
        /// The number of CPUs that are online.
        online: u32,
    },
    /// The model name of the CPU.
    CpuDesc(&'a str),
    /// The vendor, family, model and stepping of the CPU.
    CpuId(&'a str),
    /// The size of the memory in KiB.
    TotalMemory(u64),
    /// The command line of the recorder.
    CommandLine(&'a [String]),
    /// The events: the attr, the name and the ids of each event.
    EventDesc(&'a [EventAttr]),
    /// The groups of events.
    Groups(&'a [EventAttr]),
    /// The CPUs of cores, dies and packages.
    CpuTopology(&'a CpuTopology),
    /// The NUMA nodes.
    NumaTopology(&'a [NumaNode]),
    /// The types and names of PMUs.
    PmuMappings(&'a [(u32, String)]),
    /// The times of the first and the last sample.
    SampleTime(u64, u64),
    /// Marks the recording as a directory.
    Directory,
    /// How the records are compressed.
    Compressed {
        /// The compression level.
        level: Level,
        /// The compression ratio, as a whole number: uncompressed size divided by compressed size.
        ratio: u32,
    },
    /// The resolution in nanoseconds of the clock that the user chose for the records.
    ClockResolution(u64),
    /// The relation of the samples' clock to the time of day.
    ClockData(ClockData),
    /// The names and lines of the interpreter frames in samples.
    InterpreterFrames(&'a RecordedFrames),
}

/// The CPUs of each package, core and die. A list of CPUs is a text such as `0-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// The CPUs of each package.
    pub packages: Vec<String>,
    /// The CPUs of each core.
    pub cores: Vec<String>,
    /// The core and the package of each CPU, in the order of CPU numbers.
    pub cpus: Vec<(u32, u32)>,
    /// The CPUs of each die; empty if the kernel does not report dies.
    pub dies: Vec<String>,
    /// The die of each CPU; empty if `dies` is empty.
    pub die_of: Vec<u32>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// The number of the node.
    pub node: u32,
    /// The size of the node's memory in KiB.
    pub total: u64,
    /// The size of the node's free memory in KiB.
    pub free: u64,
    /// The CPUs of the node, as a text such as `0-3`.
    pub cpus: String,
}

/// The times of two clocks that were read at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// The clock that timestamps the samples: `CLOCK_*`.
    pub clock: u32,
    /// The time of day, in nanoseconds since the Unix epoch.
    pub realtime: u64,
    /// The time of the samples' clock when `realtime` was read, in nanoseconds.
    pub time: u64,
}

/// The contents of feature sections, by feature bit.
#[derive(Clone, Debug, Default)]
pub struct Features(BTreeMap<u32, Vec<u8>>);

impl Features {
    /// Sets a feature. Replaces an earlier value of the same feature.
    pub fn set(&mut self, feature: &Feature<'_>) {
        let mut out = Vec::new();
        let bit = feature.write(&mut out);
        self.0.insert(bit, out);
    }

    /// Returns the bit and the content of each section, in ascending order of the bits.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.0.iter().map(|(&bit, bytes)| (bit, bytes.as_slice()))
    }

    /// Returns the feature map of a header, in which the bits of the sections are set.
    pub(super) fn bits(&self) -> [u64; 4] {
        let mut bits = [0; 4];
        self.0.keys().for_each(|&bit| bits[bit as usize / 64] |= 1u64 << (bit % 64));
        bits
    }

    /// Returns the size of all sections in bytes.
    pub fn size(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

impl Feature<'_> {
    /// Writes the section and returns its bit.
    fn write(&self, out: &mut Vec<u8>) -> u32 {
        match *self {
            Feature::TracingData(data) => {
                data.write(out);
                HEADER_TRACING_DATA
            }
            Feature::BuildIds(dsos) => {
                build_ids(out, dsos);
                HEADER_BUILD_ID
            }
            Feature::InterpreterFrames(frames) => {
                frames.write(out);
                HEADER_INTERPRETER_FRAMES
            }
            Feature::Hostname(text) => string(out, text, HEADER_HOSTNAME),
            Feature::OsRelease(text) => string(out, text, HEADER_OSRELEASE),
            Feature::Version(text) => string(out, text, HEADER_VERSION),
            Feature::Arch(text) => string(out, text, HEADER_ARCH),
            Feature::CpuCount { available, online } => {
                words(out, &[available, online]);
                HEADER_NRCPUS
            }
            Feature::CpuDesc(text) => string(out, text, HEADER_CPUDESC),
            Feature::CpuId(text) => string(out, text, HEADER_CPUID),
            Feature::TotalMemory(kib) => longs(out, &[kib], HEADER_TOTAL_MEM),
            Feature::CommandLine(words) => strings(out, words, HEADER_CMDLINE),
            Feature::EventDesc(events) => {
                event_desc(out, events);
                HEADER_EVENT_DESC
            }
            Feature::Groups(events) => {
                groups(out, events);
                HEADER_GROUP_DESC
            }
            Feature::CpuTopology(topology) => {
                cpu_topology(out, topology);
                HEADER_CPU_TOPOLOGY
            }
            Feature::NumaTopology(nodes) => {
                words(out, &[nodes.len() as u32]);
                for NumaNode { node, total, free, cpus } in nodes {
                    words(out, &[*node]);
                    longs(out, &[*total, *free], HEADER_NUMA_TOPOLOGY);
                    string(out, cpus, HEADER_NUMA_TOPOLOGY);
                }
                HEADER_NUMA_TOPOLOGY
            }
            Feature::PmuMappings(pmus) => {
                words(out, &[pmus.len() as u32]);
                for (kind, name) in pmus {
                    words(out, &[*kind]);
                    string(out, name, HEADER_PMU_MAPPINGS);
                }
                HEADER_PMU_MAPPINGS
            }
            Feature::SampleTime(first, last) => longs(out, &[first, last], HEADER_SAMPLE_TIME),
            Feature::Directory => longs(out, &[PERF_DIR_VERSION], HEADER_DIR_FORMAT),
            Feature::Compressed { level, ratio } => {
                // The version is 0, and the method PERF_COMP_ZSTD is 1. Last comes the size that a reader allocates.
                words(out, &[0, 1, level.number().into(), ratio, PIECE as u32]);
                HEADER_COMPRESSED
            }
            Feature::ClockResolution(nanoseconds) => longs(out, &[nanoseconds], HEADER_CLOCKID),
            Feature::ClockData(ClockData { clock, realtime, time }) => {
                // The version of this section is 1.
                words(out, &[1, clock]);
                longs(out, &[realtime, time], HEADER_CLOCK_DATA)
            }
        }
    }
}

pub(super) fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
}

/// Writes numbers and returns `bit`.
fn longs(out: &mut Vec<u8>, longs: &[u64], bit: u32) -> u32 {
    longs.iter().for_each(|long| out.extend(long.to_ne_bytes()));
    bit
}

/// Writes a text and returns `bit`. The text is padded with NULs to a multiple of 64 bytes (NAME_ALIGN). The padded
/// size is written before the text.
fn string(out: &mut Vec<u8>, text: &str, bit: u32) -> u32 {
    let size = (text.len() + 1).next_multiple_of(64);
    words(out, &[size as u32]);
    out.extend(text.as_bytes());
    out.resize(out.len() + size - text.len(), 0);
    bit
}

fn strings(out: &mut Vec<u8>, texts: &[String], bit: u32) -> u32 {
    words(out, &[texts.len() as u32]);
    texts.iter().for_each(|text| {
        string(out, text, bit);
    });
    bit
}

fn event_desc(out: &mut Vec<u8>, events: &[EventAttr]) {
    let size = attr::common_size(events.iter().map(|event| &event.attr), 0);
    words(out, &[events.len() as u32, size as u32]);
    for event in events {
        out.extend(attr::sized(&event.attr, size));
        words(out, &[event.ids.len() as u32]);
        string(out, &event.name, HEADER_EVENT_DESC);
        longs(out, &event.ids, HEADER_EVENT_DESC);
    }
}

/// Writes each group that has more than one event: the name of the group, the index of the group's leader in `events`,
/// and the number of events in the group.
fn groups(out: &mut Vec<u8>, events: &[EventAttr]) {
    // perf treats a group with this name as a group without a name.
    const NAMELESS: &str = "{anon_group}";
    let size = |leader: usize| 1 + events[leader + 1..].iter().take_while(|event| event.grouping.is_member()).count();
    let leads = |event: &EventAttr| matches!(event.grouping, Grouping::Leader(_));
    let leaders = (0..events.len()).filter(|&index| leads(&events[index]));
    let groups: Vec<(usize, usize)> = leaders.map(|leader| (leader, size(leader))).filter(|&(_, n)| n > 1).collect();
    words(out, &[groups.len() as u32]);
    for (leader, size) in groups {
        string(out, NAMELESS, HEADER_GROUP_DESC);
        words(out, &[leader as u32, size as u32]);
    }
}

fn cpu_topology(out: &mut Vec<u8>, topology: &CpuTopology) {
    strings(out, &topology.packages, HEADER_CPU_TOPOLOGY);
    strings(out, &topology.cores, HEADER_CPU_TOPOLOGY);
    topology.cpus.iter().for_each(|&(core, package)| words(out, &[core, package]));
    if !topology.dies.is_empty() {
        strings(out, &topology.dies, HEADER_CPU_TOPOLOGY);
        words(out, &topology.die_of);
    }
}

/// A flag in `misc`: the record contains the size of the build id (`PERF_RECORD_MISC_BUILD_ID_SIZE` in
/// `tools/lib/perf/include/perf/event.h`).
const STATES_SIZE: u16 = 1 << 15;

fn build_ids(out: &mut Vec<u8>, dsos: &Dsos) {
    let mut sorted: Vec<(&[u8], &Dso)> = dsos.iter().map(|(path, dso)| (&**path, dso)).collect();
    sorted.sort_unstable_by_key(|&(path, dso)| (dso.of == DsoOwner::User, path));
    for (path, dso) in sorted {
        let Some(id) = dso.build_id.as_deref().filter(|id| id.len() <= 20) else { continue };
        build_id_record(out, 0, path, dso.of, id);
    }
}

/// Writes a build id. `kind` is 0 in a feature section, and the type of the record in a pipe.
pub(super) fn build_id_record(out: &mut Vec<u8>, kind: u32, path: &[u8], of: DsoOwner, id: &[u8]) {
    // perf 7.2 refuses a record whose size is not a multiple of 8.
    const BEFORE_NAME: usize = 8 + 4 + 24;
    let name = (BEFORE_NAME + (path.len() + 1).next_multiple_of(64)).next_multiple_of(8) - BEFORE_NAME;
    let misc = match of {
        DsoOwner::Kernel => PERF_RECORD_MISC_KERNEL,
        DsoOwner::User => PERF_RECORD_MISC_USER,
    };
    words(out, &[kind]);
    out.extend([misc | STATES_SIZE, (BEFORE_NAME + name) as u16].map(u16::to_ne_bytes).as_flattened());
    // The pid is -1, which means that the file belongs to the host and not to a guest.
    words(out, &[u32::MAX]);
    let mut bytes = [0; 24];
    bytes[..id.len()].copy_from_slice(id);
    bytes[20] = id.len() as u8;
    out.extend(bytes);
    out.extend(path);
    out.resize(out.len() + name - path.len(), 0);
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::Sampled;

    use super::*;

    #[test]
    fn texts_are_filled_up() {
        let mut out = Vec::new();
        assert_eq!(string(&mut out, "x86_64", 7), 7);
        assert_eq!((out.len(), &out[..10]), (68, &b"\x40\0\0\0x86_64"[..]));
        let mut out = Vec::new();
        string(&mut out, &"x".repeat(64), 7);
        assert_eq!((out.len(), out[0], out[67], out[68]), (4 + 128, 128, b'x', 0));
    }

    #[test]
    fn groups_of_one_event_are_none() {
        use Grouping::{Alone, Leader, Member};
        let groupings = [Leader(Sampled::Each), Alone, Leader(Sampled::Leader), Member(Sampled::Leader), Alone];
        let events = groupings.map(|grouping| EventAttr { grouping, ..EventAttr::default() });
        let mut out = Vec::new();
        groups(&mut out, &events);
        assert_eq!((&out[..8], &out[8..13]), (&[1, 0, 0, 0, 64, 0, 0, 0][..], &b"{anon"[..]));
        assert_eq!(out[72..], [2, 0, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn build_ids_of_the_kernel_come_first() {
        let dso = |id: &[u8], of| Dso { build_id: Some(id.into()), of };
        let dsos = Dsos::from([
            (b"/a".as_slice().into(), dso(&[1; 20], DsoOwner::User)),
            (b"[kernel.kallsyms]".as_slice().into(), dso(&[2; 16], DsoOwner::Kernel)),
            (b"/none".as_slice().into(), Dso { build_id: None, of: DsoOwner::User }),
        ]);
        let mut features = Features::default();
        features.set(&Feature::BuildIds(&dsos));
        let (bit, bytes) = features.iter().next().unwrap();
        assert_eq!((bit, bytes.len()), (HEADER_BUILD_ID, 208));
        assert_eq!(&bytes[..12], [0, 0, 0, 0, 1, 0x80, 104, 0, 255, 255, 255, 255]);
        assert_eq!((bytes[12], bytes[12 + 20], &bytes[36..42]), (2, 16, &b"[kerne"[..]));
        assert_eq!((&bytes[108..112], bytes[116], &bytes[140..143]), (&[2, 0x80, 104, 0][..], 1, &b"/a\0"[..]));
    }
}
