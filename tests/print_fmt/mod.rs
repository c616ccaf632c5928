//! Tests format files and print formats. The tests in this file use all formats of a kernel. All of them parse and
//! compile, and no raw data causes a panic.

mod events;
mod expressions;
mod hostile;

use perf_prof_format::{
    tracefs::{EventFormat, NoKernel},
    value::Value,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use crate::harness::machine::{Need, skip};

/// All `format` files of Linux 6.18, one after the other. A line `=== system` precedes each.
const FORMATS: &[u8] = include_bytes!("../../src/python/testing/linux-6.18-x86_64.zst");

/// Returns the formats of Linux 6.18, each with its system.
pub fn recorded() -> Vec<(String, String)> {
    let text = String::from_utf8(zstd::decode_all(FORMATS).unwrap()).unwrap();
    let events = text.split("=== ").skip(1).map(|event| event.split_once('\n').unwrap());
    events.map(|(system, text)| (system.to_owned(), text.to_owned())).collect()
}

/// Returns the formats of the running kernel, or the reason why they cannot be read.
pub fn live() -> Result<Vec<(String, String)>, String> {
    let events = std::path::Path::new("/sys/kernel/tracing/events");
    let mut formats = Vec::new();
    let entries = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>())
    };
    for system in entries(events)? {
        for event in entries(&system)? {
            // A dynamic event may have been removed since its folder was listed.
            if let Ok(text) = std::fs::read_to_string(event.join("format")) {
                formats.push((system.file_name().unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    if formats.is_empty() { Err("no events in /sys/kernel/tracing/events".into()) } else { Ok(formats) }
}

fn check(formats: &[(String, String)]) {
    let mut failures = Vec::new();
    let (mut fields, mut named) = (0, 0);
    for (system, text) in formats {
        match EventFormat::parse(system, text) {
            Err(error) => failures.push(format!("{system}: {error}")),
            Ok(event) => {
                let declared = text.lines().filter(|line| line.trim_start().starts_with("field:")).count();
                assert_eq!(event.common_fields().len() + event.fields().len(), declared, "{system}:{}", event.name);
                assert_eq!(event.common_fields().len(), 4, "{system}:{}", event.name);
                assert_eq!(event.text(), text);
                fields += declared;
                match event.print_fmt() {
                    Ok(print_fmt) => named += usize::from(!print_fmt.names().is_empty()),
                    Err(error) => failures.push(format!("{system}:{}: {error}", event.name)),
                }
            }
        }
    }
    println!("{} formats, {fields} fields, {named} print formats that use names of the kernel", formats.len());
    assert_eq!(failures, [""; 0], "{} of {} formats failed", failures.len(), formats.len());
}

#[test]
fn every_recorded_format_parses() {
    let formats = recorded();
    assert!(formats.len() > 2300);
    check(&formats);
}

#[test]
fn every_format_of_this_kernel_parses() {
    check(&live().unwrap_or_else(|reason| skip(Need::Tracefs, reason)));
}

#[test]
fn no_payload_makes_rendering_panic() {
    let mut runner = TestRunner::deterministic();
    let payload = proptest::collection::vec(proptest::num::u8::ANY, 0..300);
    let mut out = Vec::new();
    for (system, text) in recorded() {
        let event = EventFormat::parse(&system, &text).unwrap();
        for round in 0..8 {
            let mut raw = payload.new_tree(&mut runner).unwrap().current();
            if round % 2 == 0 {
                // Small numbers are often valid values of enums and flags, and small offsets often lie in the data.
                raw.iter_mut().enumerate().filter(|(at, _)| at % 4 != 0).for_each(|(_, byte)| *byte %= 3);
            }
            out.clear();
            event.render(&raw, &NoKernel, &mut out);
            assert!(out.len() <= 70_000, "{system}:{} renders to {} bytes", event.name, out.len());
            for field in event.fields() {
                let value = field.value(&raw);
                let array = field.array(&raw).map(|array| array.collect::<Vec<_>>());
                assert!(array.is_none() || matches!(value, Some(Value::Bytes(_))), "{system}:{}", event.name);
                out.clear();
                assert_eq!(event.render_field(&field.name, &raw, &NoKernel, &mut out), value.is_some());
            }
        }
    }
}
