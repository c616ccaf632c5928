//! Compares the text that perf-prof renders for an event with the text that the kernel prints, character by character.
//! The kernel's text comes from the file `trace`. perf-prof renders the bytes of the same events, which come from the
//! file `trace_pipe_raw`.

mod instance;
mod machine;
mod probes;
mod ring_buffer;
mod through_perf;
mod workload;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
};

use perf_prof_format::{
    tracefs::{EventFormat, Field, FieldKind, Kernel},
    value::Value,
};

use instance::Instance;
use machine::Machine;
use probes::Probes;

use crate::harness::{
    machine::{Need, skip},
    probe_lock,
};

/// The results of the comparison for one kind of event.
#[derive(Default)]
struct Kind {
    exact: usize,
    /// Events that were compared without the words that only the kernel can compute.
    partly: usize,
    /// Numbers in the text that were compared with the value of a field.
    values: usize,
    mismatches: Vec<(String, String)>,
}

#[test]
fn rendered_text_is_the_kernels_own() {
    probe_lock::alone();
    let instance = Instance::new("perf_prof_oracle").unwrap_or_else(|reason| skip(Need::Tracefs, reason));
    let defined = Probes::new(workload::probed as *const ());
    let formats = formats();
    instance.record(std::process::id(), workload::run).unwrap();

    let text: Vec<String> = instance.cpus().map(|cpu| instance.text(cpu).unwrap()).collect();
    let mut machine = Machine::read().unwrap();
    text.iter().for_each(|text| machine.learn_vmemmap_base(text));

    println!("names that only the kernel knows: {}", unknown(&formats, &machine));
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for (cpu, text) in instance.cpus().zip(&text) {
        let (before, raw) = (instance.stats(cpu), instance.raw(cpu).unwrap());
        println!(
            "CPU {cpu}: {} bytes of text, {} of pages; {before}; then {}",
            text.len(),
            raw.len(),
            instance.stats(cpu)
        );
        compare(&formats, &machine, &raw, text, &mut kinds);
    }
    report(&kinds);
    drop((instance, defined));
    let compared = kinds.values().filter(|kind| kind.exact > 0).count();
    assert!(compared >= 150, "only {compared} kinds of events happened");
    assert_eq!(kinds.values().map(|kind| kind.mismatches.len()).sum::<usize>(), 0, "see the differences above");
}

/// Returns the formats of the running kernel by id.
fn formats() -> HashMap<u16, EventFormat> {
    let mut formats = HashMap::new();
    for path in glob::glob("/sys/kernel/tracing/events/*/*/format").unwrap().flatten() {
        let system = path.iter().rev().nth(2).unwrap().to_string_lossy();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let format = EventFormat::parse(&system, &text).unwrap();
        formats.insert(format.id as u16, format);
    }
    formats
}

fn compare(
    formats: &HashMap<u16, EventFormat>,
    machine: &Machine,
    pages: &[u8],
    text: &str,
    kinds: &mut BTreeMap<String, Kind>,
) {
    let mut rest = text;
    while rest.starts_with('#') || rest.starts_with('\n') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    let mut in_text: HashMap<u32, Vec<Field>> = HashMap::new();
    for raw in ring_buffer::events(pages) {
        let format = &formats[&u16::from_ne_bytes([raw[0], raw[1]])];
        let mut rendered = Vec::new();
        // The kernel prints the name of the event before its text. Events of system calls and of the system `ftrace`
        // are exceptions. The text of a system call starts with the name of the call.
        if &*format.system != "syscalls" && &*format.system != "ftrace" {
            rendered.extend(format!("{}: ", format.name).bytes());
        }
        format.render(raw, machine, &mut rendered);
        let mut rendered = String::from_utf8_lossy(&rendered).into_owned();
        if !rendered.ends_with('\n') || &*format.system != "ftrace" {
            rendered.push('\n');
        }

        let kind = kinds.entry(format!("{}:{}", format.system, format.name)).or_default();
        if let Some(after) = rest.strip_prefix(&rendered) {
            kind.exact += 1;
            kind.values +=
                check_values(&rendered, in_text.entry(format.id).or_insert_with(|| fields_in_text(format)), raw);
            rest = after;
            continue;
        }
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if names_what_is_unknown(format, machine) && matches(rendered.trim_end(), line) {
            kind.partly += 1;
        } else {
            kind.mismatches.push((line.to_owned(), rendered));
        }
        rest = after;
    }
    assert_eq!(rest, "", "the text has more events than the bytes");
}

/// Returns the fields that the print format shows unchanged as ` name=number `, with a conversion of the same
/// signedness.
fn fields_in_text(format: &EventFormat) -> Vec<Field> {
    let print_fmt = format.print_fmt_text();
    let shown = |field: &&Field| {
        let FieldKind::Int { signed, .. } = field.kind else { return false };
        let conversions = if signed { ["%d", "%ld", "%lld"] } else { ["%u", "%lu", "%llu"] };
        conversions.iter().any(|conversion| print_fmt.contains(&format!(" {}={conversion} ", field.name)))
            && print_fmt.contains(&format!(", REC->{},", field.name))
    };
    format.fields().iter().filter(shown).cloned().collect()
}

/// Compares the values of `fields` with the numbers in the text. Returns how many numbers were compared.
fn check_values(text: &str, fields: &[Field], raw: &[u8]) -> usize {
    let mut checked = 0;
    for field in fields {
        let value = match field.value(raw) {
            Some(Value::Int(value)) => value.to_string(),
            Some(Value::Uint(value)) => value.to_string(),
            other => panic!("{} is {other:?}", field.name),
        };
        if let Some((_, after)) = text.split_once(&format!(" {}=", field.name)) {
            assert_eq!(after.split(' ').next(), Some(&*value), "{} in {text}", field.name);
            checked += 1;
        }
    }
    checked
}

/// Returns whether the print format uses a name whose value only the kernel knows.
fn names_what_is_unknown(format: &EventFormat, machine: &Machine) -> bool {
    format.print_fmt().is_ok_and(|print_fmt| !print_fmt.names().iter().all(|name| is_known(name, machine)))
}

fn is_known(name: &str, machine: &Machine) -> bool {
    match name.split_once('.') {
        Some((tag, member)) => machine.member(tag, member).is_some(),
        None if name.contains(' ') => machine.size_of(name).is_some(),
        None if name == "HZ" => machine.hz().is_some(),
        None => machine.constant(name).is_some() || machine.variable(name).is_some(),
    }
}

/// Returns all unknown names that print formats use, each with the number of formats that use it.
fn unknown(formats: &HashMap<u16, EventFormat>, machine: &Machine) -> String {
    let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
    for name in formats.values().filter_map(|format| format.print_fmt().ok()).flat_map(|print_fmt| print_fmt.names()) {
        if !is_known(name, machine) {
            *unknown.entry(name).or_default() += 1;
        }
    }
    unknown.iter().map(|(name, formats)| format!("{name} ({formats} formats)")).collect::<Vec<_>>().join(", ")
}

/// Returns whether `text` matches `pattern`, in which each `?` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('?');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn report(kinds: &BTreeMap<String, Kind>) {
    let exact = kinds.values().map(|kind| kind.exact).sum::<usize>();
    println!("{exact} events of {} kinds are exact", kinds.values().filter(|kind| kind.exact > 0).count());
    let values = kinds.values().map(|kind| kind.values).sum::<usize>();
    println!("{values} numbers in {} kinds are field values", kinds.values().filter(|kind| kind.values > 0).count());
    for (name, kind) in kinds {
        if kind.partly > 0 {
            println!("{name}: {} events compared except for words that only the kernel knows", kind.partly);
        }
        if !kind.mismatches.is_empty() {
            println!(
                "{name}: {} of {} differ",
                kind.mismatches.len(),
                kind.exact + kind.partly + kind.mismatches.len()
            );
        }
        for (kernel, ours) in kind.mismatches.iter().take(3) {
            println!("  kernel: {kernel}\n  ours:   {}", ours.trim_end());
        }
    }
}
