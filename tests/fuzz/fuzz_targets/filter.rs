//! Reads the input as a format file, a filter on its event and the raw data of an event, with NUL bytes between them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::tracefs::{EventFormat, Filter};

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |&byte| byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (format, filter) = (text(), text());
    let raw = parts.next().unwrap_or_default();
    let Ok(format) = EventFormat::parse("sched", &format) else { return };
    match Filter::parse(&filter, &format) {
        Ok(filter) => {
            for raw in [raw, &raw[..raw.len() / 2], &[]] {
                let _ = (filter.passes(raw, Some(1)), filter.passes(raw, None));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
