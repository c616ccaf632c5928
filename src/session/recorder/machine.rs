//! Collects the feature sections that describe the machine, and the formats of tracepoints.

use std::collections::BTreeMap;

use perf_prof_format::tracefs::EventFormat;
use perf_prof_recordings::{
    BlockDevice,
    write::{ClockData, CpuTopology, Feature, Features, NumaNode, TracingData},
};
use perf_prof_system::{
    block,
    clock::{self, Clock},
    mmap::page_size,
    pmu::{self, Pmu},
    procfs,
    topology::{self, Node, NodeMemory, read_trimmed},
    tracefs::{Tracefs, TracefsError},
};

/// The clock id that is written for perf's default clock, which has no id. Readers only use the id to show the name of
/// the clock.
const NO_CLOCK: u32 = u32::MAX;

/// Returns all feature sections that do not depend on the events. `offset` is the time of day minus the time of the
/// records' clock, in nanoseconds, if this difference is known.
pub fn features(command_line: &[String], clock: Clock, offset: Option<i64>) -> Features {
    let mut features = Features::default();
    let mut set = |feature: Feature<'_>| features.set(&feature);
    set(Feature::Hostname(&topology::hostname()));
    set(Feature::OsRelease(&read_trimmed("/proc/sys/kernel/osrelease")));
    set(Feature::Version(concat!("perf-prof ", env!("CARGO_PKG_VERSION"))));
    set(Feature::Arch(std::env::consts::ARCH));
    set(Feature::CommandLine(command_line));
    let available = topology::present_cpus().iter().last().map_or(1, |last| last + 1);
    let online = procfs::online_cpus().map_or(available, |online| online.len() as u32);
    set(Feature::CpuCount { available, online });
    let cpuinfo = read_trimmed("/proc/cpuinfo");
    if let Some(name) = cpu_value(&cpuinfo, &["model name", "Processor", "cpu model"]) {
        set(Feature::CpuDesc(name));
    }
    let numbers = ["vendor_id", "cpu family", "model", "stepping"].map(|key| cpu_value(&cpuinfo, &[key]));
    if let [Some(vendor), Some(family), Some(model), Some(stepping)] = numbers {
        set(Feature::CpuId(&format!("{vendor},{family},{model},{stepping}")));
    }
    if let Some(total) = topology::total_memory() {
        set(Feature::TotalMemory(total));
    }
    set(Feature::CpuTopology(&cpu_topology(available)));
    let nodes = numa_nodes();
    if !nodes.is_empty() {
        set(Feature::NumaTopology(&nodes));
    }
    let pmus = pmu::names().into_iter().filter_map(|name| Some((Pmu::read(&name).ok()??.kind, name)));
    set(Feature::PmuMappings(&pmus.collect::<Vec<_>>()));
    if clock == Clock::Monotonic {
        set(Feature::ClockResolution(1));
    }
    if let Some(offset) = offset {
        let realtime = clock::realtime();
        let clock = if clock == Clock::Monotonic { libc::CLOCK_MONOTONIC as u32 } else { NO_CLOCK };
        set(Feature::ClockData(ClockData { clock, realtime: realtime as u64, time: (realtime - offset) as u64 }));
    }
    features
}

/// Returns the tracing data of a recording, with these formats.
pub fn tracing_data<'a>(
    tracefs: &Tracefs,
    formats: impl Iterator<Item = &'a EventFormat>,
) -> Result<TracingData, TracefsError> {
    let mut data = TracingData {
        page_size: page_size() as u32,
        header_page: tracefs.read("events/header_page")?.into_bytes(),
        header_event: tracefs.read("events/header_event")?.into_bytes(),
        // Without these two files, little is missing later: some comms, and strings that events refer to by address.
        printk_formats: tracefs.printk_formats().unwrap_or_default().into_bytes(),
        saved_cmdlines: tracefs.read("saved_cmdlines").unwrap_or_default().into_bytes(),
        ..TracingData::default()
    };
    // If an event is selected with strings and without strings, the longer format fits the samples of both.
    let mut longest: BTreeMap<(&str, &str), &EventFormat> = BTreeMap::new();
    for format in formats {
        let known = longest.entry((&format.system, &format.name)).or_insert(format);
        if known.fields().len() < format.fields().len() {
            *known = format;
        }
    }
    for ((system, _), format) in longest {
        data.formats.entry(system.to_owned()).or_default().push(format.text().as_bytes().to_vec());
    }
    Ok(data)
}

/// Returns the block devices that have hardware queues.
pub fn block_devices() -> Vec<BlockDevice> {
    let device = |dev| Some(BlockDevice { dev, queues: block::hardware_queues(dev.into())? as u32 });
    block::devices().into_iter().filter_map(device).collect()
}

/// Returns the value of the first key in `keys` that /proc/cpuinfo contains.
fn cpu_value<'a>(cpuinfo: &'a str, keys: &[&str]) -> Option<&'a str> {
    let value =
        |line: &'a str, key| line.split_once(':').filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
    keys.iter().find_map(|&key| cpuinfo.lines().find_map(|line| value(line, key)))
}

fn cpu_topology(available: u32) -> CpuTopology {
    let mut topology = CpuTopology::default();
    for cpu in 0..available {
        let read = |names: &[&str]| {
            let texts = names.iter().map(|name| topology::of_cpu(cpu, name));
            texts.into_iter().find(|text| !text.is_empty())
        };
        // An offline CPU has no topology. perf writes -1 for it.
        let number = |name| read(&[name]).and_then(|text| text.parse::<i32>().ok()).unwrap_or(-1) as u32;
        let mut note = |list: fn(&mut CpuTopology) -> &mut Vec<String>, names: &[&str]| {
            if let Some(text) = read(names).filter(|text| !list(&mut topology).contains(text)) {
                list(&mut topology).push(text);
            }
        };
        note(|topology| &mut topology.packages, &["package_cpus_list", "core_siblings_list"]);
        note(|topology| &mut topology.cores, &["core_cpus_list", "thread_siblings_list"]);
        note(|topology| &mut topology.dies, &["die_cpus_list"]);
        topology.cpus.push((number("core_id"), number("physical_package_id")));
        topology.die_of.push(number("die_id"));
    }
    topology
}

fn numa_nodes() -> Vec<NumaNode> {
    let node = |node: Node| {
        let NodeMemory { total, free } = node.memory();
        NumaNode { node: node.0, total, free, cpus: node.cpu_list() }
    };
    topology::nodes().into_iter().map(node).collect()
}
