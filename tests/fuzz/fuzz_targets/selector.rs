//! Reads the input as the text of event selectors and other options. Parsing must end without a panic, and an error
//! must have a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::spec::{CpuSet, glob_matches, parse_events, parse_interval, parse_pages, parse_size};

fuzz_target!(|text: &str| {
    match parse_events(text) {
        Ok(events) => assert!(!events.is_empty() || text.trim().is_empty(), "nothing was selected"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = (text.parse::<CpuSet>().is_ok(), parse_interval(text).is_ok());
    let _ = (parse_size(text).is_ok(), parse_pages(text).is_ok());
    if let Some((glob, name)) = text.split_once(':') {
        glob_matches(glob, name);
    }
});
