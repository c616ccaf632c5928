//! Feature sections: what a recording says of the machine and of itself, as bytes.

use std::collections::BTreeMap;

use super::{Dso, DsoOf, Dsos, Level, TracingData, attr, compress::PIECE};
use crate::{
    abi::{
        PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_USER,
        perf_data::{
            HEADER_ARCH, HEADER_BUILD_ID, HEADER_CLOCK_DATA, HEADER_CLOCKID, HEADER_CMDLINE, HEADER_COMPRESSED,
            HEADER_CPU_TOPOLOGY, HEADER_CPUDESC, HEADER_CPUID, HEADER_DIR_FORMAT, HEADER_EVENT_DESC, HEADER_GROUP_DESC,
            HEADER_HOSTNAME, HEADER_NRCPUS, HEADER_NUMA_TOPOLOGY, HEADER_OSRELEASE, HEADER_PMU_MAPPINGS,
            HEADER_SAMPLE_TIME, HEADER_TOTAL_MEM, HEADER_TRACING_DATA, HEADER_VERSION, PERF_DIR_VERSION,
        },
    },
    capture::EventAttr,
    spec::Grouping,
};

/// What is said in one section.
#[derive(Clone, Debug)]
pub enum Feature<'a> {
    /// The formats of tracepoints.
    TracingData(&'a TracingData),
    /// What the files were built from.
    BuildIds(&'a Dsos),
    /// The machine's name.
    Hostname(&'a str),
    /// The kernel's release.
    OsRelease(&'a str),
    /// Of the program that records.
    Version(&'a str),
    /// As `uname -m` says it.
    Arch(&'a str),
    /// CPUs that there are, and that are online.
    CpuCount {
        /// There are so many.
        available: u32,
        /// So many are online.
        online: u32,
    },
    /// The CPU's name.
    CpuDesc(&'a str),
    /// Its vendor and numbers.
    CpuId(&'a str),
    /// Memory, in KiB.
    TotalMemory(u64),
    /// The command line.
    CommandLine(&'a [String]),
    /// The events.
    EventDesc(&'a [EventAttr]),
    /// Which of them are groups.
    Groups(&'a [EventAttr]),
    /// Cores and packages.
    CpuTopology(&'a CpuTopology),
    /// Nodes of memory.
    NumaTopology(&'a [NumaNode]),
    /// PMUs' numbers and names.
    PmuMappings(&'a [(u32, String)]),
    /// Times of the first and the last sample.
    SampleTime(u64, u64),
    /// It is a directory.
    Directory,
    /// How records are packed.
    Compressed {
        /// How hard.
        level: Level,
        /// How much smaller they became, as a whole number.
        ratio: u32,
    },
    /// The resolution of a clock that was chosen, in nanoseconds.
    ClockResolution(u64),
    /// How that clock relates to the time of day.
    ClockData(ClockData),
}

/// Which CPUs are which core's and package's, as lists of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// The CPUs of each package.
    pub packages: Vec<String>,
    /// The CPUs of each core.
    pub cores: Vec<String>,
    /// Core and package of each CPU that there is, in the order of their numbers.
    pub cpus: Vec<(u32, u32)>,
    /// The CPUs of each die, and the die of each CPU; empty where the kernel does not tell.
    pub dies: Vec<String>,
    /// See `dies`.
    pub die_of: Vec<u32>,
}

/// A node of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its memory in KiB.
    pub total: u64,
    /// What of it is free.
    pub free: u64,
    /// Its CPUs, as a list.
    pub cpus: String,
}

/// Two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// Which clock stamps the samples: `CLOCK_*`.
    pub clock: u32,
    /// The time of day, in nanoseconds since the epoch.
    pub realtime: u64,
    /// What the clock showed then.
    pub time: u64,
}

/// Sections by the bit of each.
#[derive(Clone, Debug, Default)]
pub struct Features(BTreeMap<u32, Vec<u8>>);

impl Features {
    /// Says something; what was said under the same bit is replaced.
    pub fn set(&mut self, feature: &Feature<'_>) {
        let mut out = Vec::new();
        let bit = feature.write(&mut out);
        self.0.insert(bit, out);
    }

    /// The sections in the order of their bits.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.0.iter().map(|(&bit, bytes)| (bit, bytes.as_slice()))
    }

    /// Their bits, as a header has them.
    pub(super) fn bits(&self) -> [u64; 4] {
        let mut bits = [0; 4];
        self.0.keys().for_each(|&bit| bits[bit as usize / 64] |= 1u64 << (bit % 64));
        bits
    }

    /// How many bytes they have.
    pub fn size(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

impl Feature<'_> {
    /// Writes the section; gives its bit.
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
                // A version, which has been 0 so far, and PERF_COMP_ZSTD.
                words(out, &[0, 1, level.number().into(), ratio, PIECE as u32]);
                HEADER_COMPRESSED
            }
            Feature::ClockResolution(nanoseconds) => longs(out, &[nanoseconds], HEADER_CLOCKID),
            Feature::ClockData(ClockData { clock, realtime, time }) => {
                // The version of the section, which is 1.
                words(out, &[1, clock]);
                longs(out, &[realtime, time], HEADER_CLOCK_DATA)
            }
        }
    }
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
}

/// Writes numbers; gives the bit that they are said under.
fn longs(out: &mut Vec<u8>, longs: &[u64], bit: u32) -> u32 {
    longs.iter().for_each(|long| out.extend(long.to_ne_bytes()));
    bit
}

/// A text: its size with the zeroes behind it, up to a multiple of 64 (NAME_ALIGN), then both.
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

/// Each group of more than one event: its name, where its leader stands among the events, how many they are.
fn groups(out: &mut Vec<u8>, events: &[EventAttr]) {
    // What perf takes for no name.
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

/// Says that the build id states its size (`PERF_RECORD_MISC_BUILD_ID_SIZE` in `tools/lib/perf/include/perf/event.h`).
const STATES_SIZE: u16 = 1 << 15;

fn build_ids(out: &mut Vec<u8>, dsos: &Dsos) {
    let mut sorted: Vec<(&[u8], &Dso)> = dsos.iter().map(|(path, dso)| (&**path, dso)).collect();
    sorted.sort_unstable_by_key(|&(path, dso)| (dso.of == DsoOf::User, path));
    for (path, dso) in sorted {
        let Some(id) = dso.build_id.as_deref().filter(|id| id.len() <= 20) else { continue };
        build_id_record(out, 0, path, dso.of, id);
    }
}

/// A build id: as in the section, or with the kind of a record.
pub(super) fn build_id_record(out: &mut Vec<u8>, kind: u32, path: &[u8], of: DsoOf, id: &[u8]) {
    let name = (path.len() + 1).next_multiple_of(64);
    let misc = match of {
        DsoOf::Kernel => PERF_RECORD_MISC_KERNEL,
        DsoOf::User => PERF_RECORD_MISC_USER,
    };
    words(out, &[kind]);
    out.extend([misc | STATES_SIZE, (8 + 4 + 24 + name) as u16].map(u16::to_ne_bytes).as_flattened());
    // Of the host, not of a guest.
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
    use super::*;
    use crate::spec::Sampled;

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
            (b"/a".as_slice().into(), dso(&[1; 20], DsoOf::User)),
            (b"[kernel.kallsyms]".as_slice().into(), dso(&[2; 16], DsoOf::Kernel)),
            (b"/none".as_slice().into(), Dso { build_id: None, of: DsoOf::User }),
        ]);
        let mut features = Features::default();
        features.set(&Feature::BuildIds(&dsos));
        let (bit, bytes) = features.iter().next().unwrap();
        assert_eq!((bit, bytes.len()), (HEADER_BUILD_ID, 200));
        assert_eq!(&bytes[..12], [0, 0, 0, 0, 1, 0x80, 100, 0, 255, 255, 255, 255]);
        assert_eq!((bytes[12], bytes[12 + 20], &bytes[36..42]), (2, 16, &b"[kerne"[..]));
        assert_eq!((&bytes[104..108], bytes[112], &bytes[136..139]), (&[2, 0x80, 100, 0][..], 1, &b"/a\0"[..]));
    }
}
