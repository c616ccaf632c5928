//! Reads the input as a format file, a NUL byte and the raw data of an event. Parsing and rendering must end without a
//! panic, and with bounded text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::tracefs::{EventFormat, NoKernel};

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|&b| b == 0).unwrap_or(input.len());
    let (text, raw) = (String::from_utf8_lossy(&input[..at]), input.get(at + 1..).unwrap_or_default());
    for system in ["sched", "syscalls", "ftrace"] {
        let Ok(format) = EventFormat::parse(system, &text) else { return };
        let mut out = Vec::new();
        format.render(raw, &NoKernel, &mut out);
        for field in format.common_fields().iter().chain(format.fields()) {
            let _ = field.value(raw);
            let _ = field.array(raw).map(|array| array.count());
            format.render_field(&field.name, raw, &NoKernel, &mut out);
        }
    }
});
