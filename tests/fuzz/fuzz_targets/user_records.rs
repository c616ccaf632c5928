//! Reads the input as a record of perf's user space: counts, threads and CPUs of `perf stat record`, errors of aux data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_recordings::{AuxtraceError, CpuMap, EventCpus, Stat, StatConfig, StatRound, ThreadMap};

fuzz_target!(|input: &[u8]| {
    let most = input.len() * 8 + 65_536;
    if let Some(map) = CpuMap::parse(input) {
        assert!(map.cpus.len() <= most);
    }
    if let Some(map) = EventCpus::parse(input) {
        assert!(map.cpus.cpus.len() <= most);
    }
    if let Some(map) = ThreadMap::parse(input) {
        assert!(map.threads.len() <= input.len());
    }
    let _ = (Stat::parse(input), StatConfig::parse(input), StatRound::parse(input), AuxtraceError::parse(input));
});
