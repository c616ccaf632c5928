//! The functions `define_*` of scripts of `perf script`: the names of flags and values.

use std::{collections::BTreeMap, path::Path, process::Command};

use perf_prof_format::{
    abi::{perf_data::*, *},
    tracefs::EventFormat,
};
use perf_prof_system::tracefs::Tracefs;

use crate::harness::{
    machine::{Need, needs},
    made::{Made, MadeAttr, u32s, u64s},
    recording::{Folder, ours},
    run::printed,
};

/// A script that prints the calls of `define_*`.
const PRINT: &str = "
def printer(name):
    def call(*args):
        print(name, *map(repr, args))
    return call

for name in ('flag_field', 'flag_value', 'symbolic_field', 'symbolic_value'):
    globals()['define_' + name] = printer(name)

def trace_unhandled(event_name, context, fields):
    print('event', event_name)
";

/// The formats of events, by system.
pub type Formats = BTreeMap<String, Vec<String>>;

/// Returns a recording with one sample of each event, in which all fields are 0.
fn one_sample_each(formats: &Formats) -> Vec<u8> {
    samples_with(formats, &[0; 2032])
}

/// Returns a recording with one sample of each event. `fields` are the bytes of its fields.
pub fn samples_with(formats: &Formats, fields: &[u8]) -> Vec<u8> {
    let sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW;
    let parsed: Vec<EventFormat> = formats
        .iter()
        .flat_map(|(system, texts)| texts.iter().map(|text| EventFormat::parse(system, text).unwrap()))
        .collect();
    let attr = |format: &EventFormat| MadeAttr {
        kind: PERF_TYPE_TRACEPOINT,
        config: format.id.into(),
        ..MadeAttr::new(sample_type)
    };
    let mut tracing = tracing_data(formats);
    tracing.resize(tracing.len().next_multiple_of(8), 0);
    // The size in this record's header does not include the data after the record.
    let kind = u32s(&[PERF_RECORD_HEADER_TRACING_DATA]);
    let misc_size = [0u16, 12].map(u16::to_ne_bytes).concat();
    let header = [kind, misc_size, u32s(&[tracing.len() as u32]), tracing].concat();
    let mut made = Made::new(attr(&parsed[0]));
    made.attrs = parsed.iter().map(attr).collect();
    made.records = header;
    for (number, format) in (0u64..).zip(&parsed) {
        let raw = [u32s(&[12 + fields.len() as u32, format.id, 0]), fields.to_vec(), vec![0; 4]].concat();
        made = made.sample(0, &[u64s(&[50 + number]), u32s(&[7, 7]), u64s(&[1000 + number]), raw]);
    }
    made.pipe()
}

/// Returns the formats, as perf's `trace-event-info.c` writes them.
fn tracing_data(formats: &Formats) -> Vec<u8> {
    let sized = |text: &[u8]| [u64s(&[text.len() as u64]), text.to_vec()].concat();
    let mut data = b"\x17\x08\x44tracing0.6\0".to_vec();
    data.extend([u8::from(cfg!(target_endian = "big")), 8]);
    data.extend(u32s(&[4096]));
    for header in ["header_page", "header_event"] {
        let text = Tracefs::find().unwrap().read(&format!("events/{header}")).unwrap();
        data.extend([header.as_bytes(), b"\0", &sized(text.as_bytes())].concat());
    }
    data.extend(u32s(&[0, formats.len() as u32]));
    for (system, texts) in formats {
        data.extend([system.as_bytes(), b"\0", &u32s(&[texts.len() as u32])].concat());
        texts.iter().for_each(|text| data.extend(sized(text.as_bytes())));
    }
    [data, u32s(&[0, 0]), u64s(&[0])].concat()
}

/// Returns what the script prints in perf and in perf-prof.
fn both(script: &str, formats: &Formats) -> [Vec<String>; 2] {
    let folder = Folder::new();
    let data = folder.write("made.data", &one_sample_each(formats));
    let script = folder.write("s.py", script.as_bytes());
    let script = script.to_str().unwrap();
    [perf(script, &data), ours(&["script", "-q", "-s", script], &data)]
}

fn perf(script: &str, data: &Path) -> Vec<String> {
    printed(&Command::new("perf").args(["script", "-s", script, "-i"]).arg(data).output().unwrap())
}

/// Returns the formats of this kernel's events, without the many formats of system calls, which contain no names.
fn formats() -> Formats {
    let tracefs = Tracefs::find().unwrap();
    let mut formats = Formats::new();
    for (system, name) in tracefs.events().unwrap() {
        if !["ftrace", "syscalls"].contains(&system.as_str()) {
            let text = tracefs.format(&system, &name).unwrap();
            formats.entry(system).or_default().push(text);
        }
    }
    formats
}

/// Returns the line without its number, and the number.
fn without_number(line: &str) -> (String, i64) {
    let mut words: Vec<&str> = line.splitn(5, ' ').collect();
    let number = words.get(3).and_then(|word| word.parse().ok()).unwrap_or(0);
    if words[0].ends_with("_value") {
        words[3] = "N";
    }
    (words.join(" "), number)
}

#[test]
fn the_names_of_all_tracepoints_are_defined_as_in_perf() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let formats = formats();
    let [perf, ours] = both(PRINT, &formats);
    assert!(ours.iter().filter(|line| line.starts_with("event ")).count() == formats.values().flatten().count());
    for (perf, ours) in perf.iter().zip(&ours) {
        let ((expected, in_perf), (line, number)) = (without_number(perf), without_number(ours));
        assert_eq!(expected, line);
        // perf computes 0 for names of constants, and for `-1`. perf-prof computes their values.
        assert!(number == in_perf || in_perf == 0 || in_perf == 1, "{perf}\n{ours}");
    }
    assert_eq!(perf.len(), ours.len());
}
