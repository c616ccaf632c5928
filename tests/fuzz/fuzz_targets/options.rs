//! Reads the input as the value of options: probes with arguments, breakpoints, terms, times, threads, control
//! channels. What was parsed must be usable without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::spec::{
    CallGraph, Control, EventKind, Threads, TimeRanges, breakpoint_at, number, parse_events, parse_fixed_point, terms,
};

fuzz_target!(|text: &str| {
    if let Ok(events) = parse_events(text) {
        for event in &events {
            if let EventKind::Probe(probe) = &event.kind {
                let _ = probe.recorded_name();
            }
            for argument in &event.attrs.arguments {
                let _ = argument.base();
                assert!(argument.fetch_with_base("%ax").contains("%ax"));
            }
        }
    }
    if let Ok(ranges) = text.parse::<TimeRanges>() {
        for (first, last) in [(0, 0), (0, u64::MAX), (1_000_000_000, 9_000_000_000), (u64::MAX, u64::MAX)] {
            ranges.resolve(first, last);
        }
    }
    let _ = (text.parse::<CallGraph>().is_ok(), text.parse::<Control>().is_ok(), text.parse::<Threads>().is_ok());
    let _ = (breakpoint_at(text), terms(text), number(text), parse_fixed_point(text, 9));
});
