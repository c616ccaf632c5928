//! What a recording says of the machine that it was made on.

use std::fs;

use crate::{
    perfdata::write::{ClockData, CpuTopology, Feature, Features, NumaNode, TracingData},
    spec::CpuSet,
    sys::{
        clock::{self, Clock},
        mmap::page_size,
        pmu::{self, Pmu},
        procfs,
        tracefs::{Tracefs, TracefsError},
    },
};

const CPUS: &str = "/sys/devices/system/cpu";

/// perf's own clock has no number, and who reads this has no other use for one.
const NO_CLOCK: u32 = u32::MAX;

/// Everything that does not depend on what is recorded. `offset` is how far the clock is from the time of day, if that is
/// known.
pub fn features(command_line: &[String], clock: Clock, offset: Option<i64>) -> Features {
    let mut features = Features::default();
    let mut set = |feature: Feature<'_>| features.set(&feature);
    set(Feature::Hostname(&text("/proc/sys/kernel/hostname")));
    set(Feature::OsRelease(&text("/proc/sys/kernel/osrelease")));
    set(Feature::Version(concat!("perf-prof ", env!("CARGO_PKG_VERSION"))));
    set(Feature::Arch(std::env::consts::ARCH));
    set(Feature::CommandLine(command_line));
    let present: CpuSet = text(&format!("{CPUS}/present")).parse().unwrap_or_default();
    let available = present.iter().last().map_or(1, |last| last + 1);
    let online = procfs::online_cpus().map_or(available, |online| online.len() as u32);
    set(Feature::CpuCount { available, online });
    let cpuinfo = text("/proc/cpuinfo");
    if let Some(name) = cpu_value(&cpuinfo, &["model name", "Processor", "cpu model"]) {
        set(Feature::CpuDesc(name));
    }
    let numbers = ["vendor_id", "cpu family", "model", "stepping"].map(|key| cpu_value(&cpuinfo, &[key]));
    if let [Some(vendor), Some(family), Some(model), Some(stepping)] = numbers {
        set(Feature::CpuId(&format!("{vendor},{family},{model},{stepping}")));
    }
    let memory = text("/proc/meminfo");
    if let Some(total) = memory_value(&memory, "MemTotal:") {
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

/// The formats of these tracepoints, each a system and a name.
pub fn tracing_data<'a>(
    tracefs: &Tracefs,
    events: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<TracingData, TracefsError> {
    let mut data = TracingData {
        page_size: page_size() as u32,
        header_page: tracefs.read("events/header_page")?.into_bytes(),
        header_event: tracefs.read("events/header_event")?.into_bytes(),
        // Only formats that show addresses of strings need these, and only readers that render them.
        printk_formats: tracefs.printk_formats().unwrap_or_default().into_bytes(),
        saved_cmdlines: tracefs.read("saved_cmdlines").unwrap_or_default().into_bytes(),
        ..TracingData::default()
    };
    let mut seen = std::collections::HashSet::new();
    for (system, name) in events.filter(|event| seen.insert(*event)) {
        let format = tracefs.format(system, name)?.into_bytes();
        data.formats.entry(system.to_owned()).or_default().push(format);
    }
    Ok(data)
}

fn text(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The value of the first of these keys that /proc/cpuinfo has.
fn cpu_value<'a>(cpuinfo: &'a str, keys: &[&str]) -> Option<&'a str> {
    let value =
        |line: &'a str, key| line.split_once(':').filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
    keys.iter().find_map(|&key| cpuinfo.lines().find_map(|line| value(line, key)))
}

/// KiB of a line like `MemTotal: 16 kB`.
fn memory_value(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.split_once(key))?.1;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn cpu_topology(available: u32) -> CpuTopology {
    let mut topology = CpuTopology::default();
    for cpu in 0..available {
        let read = |names: &[&str]| {
            let texts = names.iter().map(|name| text(&format!("{CPUS}/cpu{cpu}/topology/{name}")));
            texts.into_iter().find(|text| !text.is_empty())
        };
        // A CPU that is offline has no topology; perf writes -1.
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
    const NODES: &str = "/sys/devices/system/node";
    let online: CpuSet = text(&format!("{NODES}/online")).parse().unwrap_or_default();
    let node = |node| {
        let memory = text(&format!("{NODES}/node{node}/meminfo"));
        let value = |key| memory_value(&memory, key).unwrap_or(0);
        let cpus = text(&format!("{NODES}/node{node}/cpulist"));
        NumaNode { node, total: value("MemTotal:"), free: value("MemFree:"), cpus }
    };
    online.iter().map(node).collect()
}
