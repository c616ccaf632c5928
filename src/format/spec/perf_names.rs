//! perf's names for events that every kernel knows: software, hardware, caches, raw codes.

use crate::abi::*;

/// The event that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// The attr's `type`.
    pub kind: u32,
    /// The attr's `config`.
    pub config: u64,
}

impl NamedEvent {
    /// Returns whether the event counts time, in ns. Everything else counts occurrences.
    pub fn is_clock(self) -> bool {
        self.kind == PERF_TYPE_SOFTWARE && [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].contains(&self.config)
    }
}

/// The software events: name, older name (if there is one) and `config`. The kernel itself counts these events.
const SOFTWARE: [(&str, Option<&str>, u64); 12] = [
    ("cpu-clock", None, PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", None, PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", Some("faults"), PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", None, PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", None, PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", Some("cs"), PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", Some("migrations"), PERF_COUNT_SW_CPU_MIGRATIONS),
    ("alignment-faults", None, PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", None, PERF_COUNT_SW_EMULATION_FAULTS),
    ("bpf-output", None, PERF_COUNT_SW_BPF_OUTPUT),
    ("cgroup-switches", None, PERF_COUNT_SW_CGROUP_SWITCHES),
    ("dummy", None, PERF_COUNT_SW_DUMMY as u64),
];

const HARDWARE: [(&str, Option<&str>, u64); 10] = [
    ("cycles", Some("cpu-cycles"), PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", None, PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", None, PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", None, PERF_COUNT_HW_CACHE_MISSES),
    ("branches", Some("branch-instructions"), PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", None, PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", None, PERF_COUNT_HW_BUS_CYCLES),
    ("stalled-cycles-frontend", Some("idle-cycles-frontend"), PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
    ("stalled-cycles-backend", Some("idle-cycles-backend"), PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    ("ref-cycles", None, PERF_COUNT_HW_REF_CPU_CYCLES),
];

/// The caches, in the order of `enum perf_hw_cache_id`. Each cache has a list of its operations, which are indices in
/// [`OPERATIONS`].
const CACHES: [(&str, &[usize]); 7] = [
    ("L1-dcache", &[0, 1, 2]),
    ("L1-icache", &[0, 2]),
    ("LLC", &[0, 1, 2]),
    ("dTLB", &[0, 1, 2]),
    ("iTLB", &[0]),
    ("branch", &[0]),
    ("node", &[0, 1, 2]),
];

/// The operations on a cache, in the order of `enum perf_hw_cache_op_id`. Each operation has a name for its accesses
/// and a name for its misses.
const OPERATIONS: [(&str, &str); 3] =
    [("loads", "load-misses"), ("stores", "store-misses"), ("prefetches", "prefetch-misses")];

/// The group of events that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventGroup {
    /// Events that the kernel counts itself.
    Software,
    /// Events that the CPU's counters count.
    Hardware,
    /// Events of caches that the CPU's counters count.
    Cache,
}

/// Returns the event with this name; `None` if perf has no such name.
pub fn named_event(name: &str) -> Option<NamedEvent> {
    let of = |kind, (_, _, config): &(_, _, u64)| NamedEvent { kind, config: *config };
    let is = |row: &&(&str, Option<&str>, u64)| row.0 == name || row.1 == Some(name);
    let software = SOFTWARE.iter().find(is).map(|row| of(PERF_TYPE_SOFTWARE, row));
    let hardware = || HARDWARE.iter().find(is).map(|row| of(PERF_TYPE_HARDWARE, row));
    software.or_else(hardware).or_else(|| cache(name)).or_else(|| raw(name))
}

/// Returns the name of an event. Returns the raw code `rNNN` for a PERF_TYPE_RAW event without a name, and `None` for
/// all other events without a name.
pub fn perf_event_name(event: NamedEvent) -> Option<String> {
    let named = perf_event_names().map(|(name, _)| name).find(|name| named_event(name) == Some(event));
    named.or_else(|| (event.kind == PERF_TYPE_RAW).then(|| format!("r{:x}", event.config)))
}

/// Returns all names except the older ones, each with its group.
pub fn perf_event_names() -> impl Iterator<Item = (String, EventGroup)> {
    let software = SOFTWARE.iter().map(|row| (row.0.to_owned(), EventGroup::Software));
    let hardware = HARDWARE.iter().map(|row| (row.0.to_owned(), EventGroup::Hardware));
    software.chain(hardware).chain(caches().map(|(name, _)| (name, EventGroup::Cache)))
}

fn caches() -> impl Iterator<Item = (String, u64)> {
    CACHES.iter().enumerate().flat_map(|(cache, (name, operations))| {
        operations.iter().flat_map(move |&operation| {
            // The `config` of PERF_TYPE_HW_CACHE consists of cache, operation and result, one byte each.
            let config = cache as u64 | (operation as u64) << 8;
            let (accesses, misses) = OPERATIONS[operation];
            [(format!("{name}-{accesses}"), config), (format!("{name}-{misses}"), config | 1 << 16)]
        })
    })
}

fn cache(name: &str) -> Option<NamedEvent> {
    let found = caches().find(|(known, _)| known == name);
    found.map(|(_, config)| NamedEvent { kind: PERF_TYPE_HW_CACHE, config })
}

/// Parses `rNNN`. NNN is the code that the hardware uses for the event, in hexadecimal digits.
fn raw(name: &str) -> Option<NamedEvent> {
    let digits = name.strip_prefix('r').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok().map(|config| NamedEvent { kind: PERF_TYPE_RAW, config })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let event = |name| named_event(name).map(|event| (event.kind, event.config));
        assert_eq!(event("cpu-clock"), Some((PERF_TYPE_SOFTWARE, 0)));
        assert_eq!(event("faults"), event("page-faults"));
        assert_eq!(event("cs"), Some((PERF_TYPE_SOFTWARE, 3)));
        assert_eq!(event("cpu-cycles"), Some((PERF_TYPE_HARDWARE, 0)));
        assert_eq!(event("branches"), Some((PERF_TYPE_HARDWARE, 4)));
        // The values are those that `perf stat -vv` shows.
        assert_eq!(event("L1-dcache-load-misses"), Some((PERF_TYPE_HW_CACHE, 0x10000)));
        assert_eq!(event("LLC-stores"), Some((PERF_TYPE_HW_CACHE, 0x102)));
        assert_eq!(event("iTLB-load-misses"), Some((PERF_TYPE_HW_CACHE, 0x10004)));
        assert_eq!(event("r00c0"), Some((PERF_TYPE_RAW, 0xc0)));
        assert_eq!((event("iTLB-stores"), event("r"), event("rx"), event("profile")), (None, None, None, None));
    }

    #[test]
    fn every_name_stands_for_an_event_of_its_own() {
        let names: Vec<String> = perf_event_names().map(|(name, _)| name).collect();
        let events: HashSet<(u32, u64)> =
            names.iter().map(|name| named_event(name).unwrap()).map(|event| (event.kind, event.config)).collect();
        assert_eq!(events.len(), names.len());
    }
}
