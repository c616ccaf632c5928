//! The machine's CPUs, its memory nodes and the size of its memory, as the kernel reports them in /sys/devices/system
//! and /proc/meminfo.

use std::fs;

use perf_prof_format::spec::CpuSet;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// Returns all CPUs that are present, online or not. Returns an empty set if the kernel does not report them.
pub fn present_cpus() -> CpuSet {
    set(&read_trimmed(&format!("{CPUS}/present")))
}

/// Returns the number of CPUs that could ever be present. A per-CPU map has this many values for each key.
pub fn possible_cpus() -> usize {
    set(&read_trimmed(&format!("{CPUS}/possible"))).len().max(1)
}

/// Returns the text of a file in the `topology` folder of a CPU. Returns an empty text if there is no such file, for
/// example because the CPU is offline.
pub fn of_cpu(cpu: u32, file: &str) -> String {
    read_trimmed(&format!("{CPUS}/cpu{cpu}/topology/{file}"))
}

/// Returns the CPUs in a file of the `topology` folder of a CPU. The file has to contain a list of CPUs.
pub fn cpus_of_cpu(cpu: u32, file: &str) -> CpuSet {
    set(&of_cpu(cpu, file))
}

/// Returns the size of the machine's memory in KiB.
pub fn total_memory() -> Option<u64> {
    memory_value(&read_trimmed("/proc/meminfo"), "MemTotal:")
}

/// A NUMA node. The field is the number of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u32);

/// Returns the NUMA nodes that are online. Returns an empty list if the kernel does not report them.
pub fn nodes() -> Vec<Node> {
    set(&read_trimmed(&format!("{NODES}/online"))).iter().map(Node).collect()
}

impl Node {
    /// Returns the CPUs of the node as the kernel writes them, such as `0-3,8`.
    pub fn cpu_list(self) -> String {
        read_trimmed(&format!("{NODES}/node{}/cpulist", self.0))
    }

    /// Returns the CPUs of the node.
    pub fn cpus(self) -> CpuSet {
        set(&self.cpu_list())
    }

    /// Returns the memory of the node in KiB; 0 if the kernel does not report it.
    pub fn memory(self) -> NodeMemory {
        let memory = read_trimmed(&format!("{NODES}/node{}/meminfo", self.0));
        let value = |key| memory_value(&memory, key).unwrap_or(0);
        NodeMemory { total: value("MemTotal:"), free: value("MemFree:") }
    }
}

/// The memory of a NUMA node, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// The total memory.
    pub total: u64,
    /// The free memory.
    pub free: u64,
}

/// Returns the name of this machine in the network; empty if it cannot be read.
pub fn hostname() -> String {
    read_trimmed("/proc/sys/kernel/hostname")
}

/// Returns the text of a file without the blanks around it; an empty text if it cannot be read.
pub fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

/// Returns the number of KiB in the line of `text` that contains `key`. Such a line looks like `MemTotal: 16 kB`.
fn memory_value(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.split_once(key))?.1;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}
