//! Reads the input as the system of a tracepoint, a NUL byte and its format. What is written into the templates of
//! scripts must stay in docstrings and comments: it must not become code.
#![no_main]

use std::{collections::HashSet, sync::Arc, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use perf_prof_events::{event::{EventType, Format}, template::{FieldSigns, perf_script_template, script}};
use perf_prof_format::{record::SampleLayout, tracefs::{EventFormat, NoKernel}};

/// The lines of code that each template contains.
static CODE: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let format = EventFormat::parse(
        "a",
        "name: b\nID: 1\nformat:\n\tfield:int x;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n",
    );
    code(&script(&[event(format.expect("the format is valid"))], "a")).map(str::to_owned).collect()
});

fn event(format: EventFormat) -> EventType {
    let layout = SampleLayout::from_format(Default::default());
    EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None }
}

/// Returns the lines of a script outside of docstrings and of the comment at its start. In this comment, quotes have no
/// meaning.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let comment: usize = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
    text[comment..].split("\"\"\"").step_by(2).flat_map(str::lines)
}

fn has_controls(text: &str) -> bool {
    text.chars().any(|char| char.is_control() && char != '\n' && char != '\t')
}

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (system, text) = (String::from_utf8_lossy(&input[..at]), String::from_utf8_lossy(&input[at..]));
    let Ok(format) = EventFormat::parse(&system, text.trim_start_matches('\0')) else { return };
    let mut field = None;
    format.definitions(&NoKernel, &mut field);
    let events = [event(format)];
    let written = script(&events, &system);
    assert!(!has_controls(&written), "{written:?}");
    for line in code(&written) {
        let name = line.strip_prefix("def ").and_then(|line| line.strip_suffix("(event) -> None:"));
        let is_handler = name.is_some_and(|name| name.chars().all(|char| char == '_' || char.is_alphanumeric()));
        assert!(CODE.contains(line) || is_handler, "{line:?} is code");
    }
    for signs in [FieldSigns::AsPerf, FieldSigns::True] {
        let written = perf_script_template(&events, signs);
        assert!(!has_controls(&written), "{written:?}");
    }
});
