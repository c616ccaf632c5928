//! `perf-prof list`: prints the events of this machine, their fields, and the Python types that a script sees.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use perf_prof_capture::Capture;
use perf_prof_events::{
    derive::source::{self, STRINGS, SourceDefinition},
    event::{SpanField, SpanFieldKind},
    template::{access_by_key, member_python_type, python_type},
};
use perf_prof_format::{
    record::{SampleLayout, SampleMember},
    spec::{Ids, did_you_mean, glob_matches, parse_events, parse_ids, similar_names},
    tracefs::{EventFormat, Field},
};
use perf_prof_session::{
    engine::ExitStatus,
    selectors::{self, FoundProbe, Machine, RunningMachine, SYSTEM_CALLS, StaticField},
};
use perf_prof_system::{
    output,
    tracefs::{Tracefs, TracefsError},
};
use serde::Serialize;

use super::{
    failure::Failure,
    list_probes::{Patterns, PlaceRow, number_of},
};

/// The arguments of `list`.
#[derive(Args)]
pub struct List {
    /// List only matching events, for example 'sched:*' or '*openat*'. The name of a system matches all events of the
    /// system. 'uprobe:mall*@libc' lists the functions of a library or program that uprobes can trace, and
    /// 'usdt:*@libc' its static probes
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    /// For uprobe: and usdt:, look for files as these processes see them. Without a file, usdt:GLOB lists the static
    /// probes of all files that they have mapped
    #[arg(short, long = "pid", value_name = "LIST", value_parser = parse_ids)]
    pids: Option<Ids>,
    /// Show the fields of each event, with their Python types
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Print a JSON array with an object for each event
    #[arg(long)]
    json: bool,
}

/// The `kind` of a tracepoint.
const TRACEPOINT: &str = "tracepoint";
/// The `kind` of a built-in source whose events are made of several other events.
const SPAN_SOURCE: &str = "built-in source";
/// The `kind` of a function that a probe can trace.
const FUNCTION: &str = "function";
/// The `kind` of a static probe (USDT).
const STATIC_PROBE: &str = "static probe";

/// An event as `--json` prints it.
#[derive(Serialize)]
struct EventRow<'a> {
    event: &'a str,
    /// [`TRACEPOINT`], [`FUNCTION`], or the name of another kind.
    kind: &'static str,
    /// The system of a tracepoint; `None` for other events.
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    /// The description of a built-in source.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'static str>,
    /// An example of a selector of the source, with its options.
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<&'static str>,
    /// The options of a source that have no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<OptionRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<FieldRow>>,
    /// The addresses of a static probe in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<Vec<PlaceRow>>,
}

/// An option of a source as `--json` prints it.
#[derive(Serialize)]
struct OptionRow {
    name: &'static str,
    meaning: &'static str,
}

/// A field as `--json` prints it.
#[derive(Serialize)]
struct FieldRow {
    name: String,
    /// The Python type of the field's value.
    python: &'static str,
    /// True if the value can be negative; `None` if the value is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<bool>,
    /// The size of the field in the record, in bytes. If an array is stored elsewhere in the record (`__data_loc`,
    /// `__rel_loc`), this is the size of the word that says where the array is.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c_type: Option<String>,
    /// The Python expression that reads the field; `None` if it is `event.NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<String>,
    /// A description of the value. Only members of samples have a description, because they have no C type.
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
    /// The option of the source without which spans do not have the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    option: Option<&'static str>,
}

impl List {
    /// Prints the list.
    pub fn run(&self) -> Result<ExitStatus, Failure> {
        // A user without permission to read tracefs can still list and use all other events.
        let (tracefs, text, closed) = match Tracefs::find().and_then(|found| Ok((found.available_events()?, found))) {
            Ok((text, found)) => (found, text, None),
            Err(error) => (Tracefs::at_usual_place(), String::new(), Some(error)),
        };
        let mut tracepoints: Vec<&str> = text.lines().filter(|line| line.contains(':')).collect();
        tracepoints.sort_unstable();
        tracepoints.dedup();
        let machine = RunningMachine;
        let mut sources = selectors::available(&machine);
        sources.extend(source::SOURCES.iter().map(|source| (source.name.to_owned(), SPAN_SOURCE)));
        let events: Vec<(&str, &'static str)> = sources
            .iter()
            .map(|(name, kind)| (name.as_str(), *kind))
            .chain(tracepoints.into_iter().map(|event| (event, TRACEPOINT)))
            .collect();
        let processes = self.pids.clone().map(Vec::from).unwrap_or_default();
        let Patterns { functions, probes, others } = Patterns::find(&self.globs, &processes)?;
        let kind = |source: &Option<String>| if source.is_some() { SPAN_SOURCE } else { FUNCTION };
        let mut chosen: Vec<_> = functions.iter().map(|(function, source)| (function.as_str(), kind(source))).collect();
        if !others.is_empty() || self.globs.is_empty() {
            chosen.extend(select_events(&others, &events, closed.as_ref())?);
            if let Some(error) = closed {
                output::say(format_args!("tracepoints are left out: {error}"));
            }
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let of_probes = probes.iter().map(|(selector, found)| Ok(self.static_row(selector, found)));
        let rows = chosen.into_iter().map(|(event, kind)| self.row(&tracefs, &machine, event, kind));
        let rows = of_probes.chain(rows.filter_map(Result::transpose));
        if self.json {
            let rows: Vec<EventRow<'_>> = rows.collect::<anyhow::Result<_>>()?;
            serde_json::to_writer_pretty(&mut out, &rows).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            for row in rows {
                print(&mut out, &row?)?;
            }
        }
        out.flush()?;
        Ok(ExitStatus(0))
    }

    fn static_row<'a>(&self, event: &'a str, found: &FoundProbe) -> EventRow<'a> {
        let is_verbose = self.verbose > 0;
        EventRow {
            fields: is_verbose.then(|| found.fields().into_iter().map(FieldRow::of_static_probe).collect()),
            places: is_verbose.then(|| PlaceRow::all(found)),
            ..EventRow::new(event, STATIC_PROBE)
        }
    }

    /// Returns the row of an event. Returns `None` if the event was removed in the meantime: another program may remove
    /// its probes at any time.
    fn row<'a>(
        &self,
        tracefs: &Tracefs,
        machine: &dyn Machine,
        event: &'a str,
        kind: &'static str,
    ) -> anyhow::Result<Option<EventRow<'a>>> {
        let tracepoint = event.split_once(':').filter(|_| kind == TRACEPOINT);
        let (system, name) = tracepoint.map_or((None, event), |(system, name)| (Some(system), name));
        let mut row = EventRow { system, name, ..EventRow::new(event, kind) };
        // A selector of the source `function` is the name of the source, a colon, and a probe.
        let of_source = name.split(':').next().filter(|_| kind == SPAN_SOURCE);
        let definition = of_source.and_then(source::source);
        row.about = definition.map(|source| source.about);
        if self.verbose == 0 {
            return Ok(Some(row));
        }
        if let Some(source) = definition {
            row.example = Some(source.example);
            let option = |flag: &source::Flag| OptionRow { name: flag.name, meaning: flag.about };
            row.options =
                Some(source.flags.iter().map(option).collect()).filter(|options: &Vec<_>| !options.is_empty());
            row.fields = Some(FieldRow::of_source(source));
            return Ok(Some(row));
        }
        let Some(system) = system else {
            // A PMU without terms is not an event, so it has no members.
            row.fields = members(event, machine).ok().flatten();
            return Ok(Some(row));
        };
        let text = match tracefs.format(system, name) {
            Err(_) if !tracefs.has_event(system, name) => return Ok(None),
            text => text?,
        };
        let format = EventFormat::parse(system, &text).with_context(|| event.to_owned())?;
        row.id = Some(format.id);
        row.fields = Some(format.fields().iter().map(FieldRow::new).collect());
        Ok(Some(row))
    }
}

impl<'a> EventRow<'a> {
    fn new(event: &'a str, kind: &'static str) -> EventRow<'a> {
        let (system, id, about, example, options, fields, places) = (None, None, None, None, None, None, None);
        EventRow { event, kind, system, name: event, id, about, example, options, fields, places }
    }
}

/// Returns the members of the samples of an event other than a tracepoint.
fn members(event: &str, machine: &dyn Machine) -> anyhow::Result<Option<Vec<FieldRow>>> {
    let specs = parse_events(event)?;
    let Some(spec) = specs.first() else { return Ok(None) };
    let source = selectors::source(spec, None, machine)?;
    let layouts = Capture::layouts(&[source.request]);
    let members = layouts.first().map(SampleLayout::members);
    Ok(members.map(|members| members.map(FieldRow::of_sample).collect()))
}

/// Returns the events that match any of `globs`, or all events if there are no globs. Fails if a glob has no match.
/// `closed` is the reason why `events` contains no tracepoints; `None` if it contains tracepoints.
fn select_events<'a>(
    globs: &[String],
    events: &[(&'a str, &'static str)],
    closed: Option<&TracefsError>,
) -> anyhow::Result<Vec<(&'a str, &'static str)>> {
    for glob in globs {
        if !events.iter().any(|(event, _)| matches_event(glob, event)) {
            if let Some(error) = closed {
                bail!("no event matches `{glob}`, but tracepoints could not be listed: {error}");
            }
            if selectors::is_system_call(glob) {
                bail!(
                    "`{glob}` is a system call, and so an event by its own name: `perf-prof trace -e {glob}`; \
                     `perf-prof list -v {SYSTEM_CALLS}` shows its fields"
                );
            }
            let near = similar_names(glob, events.iter().map(|&(event, _)| event));
            match near[..] {
                [] => bail!(
                    "no event of this kernel matches `{glob}`; `perf-prof list` lists all {} events",
                    events.len()
                ),
                _ => bail!("no event of this kernel matches `{glob}`{}", did_you_mean(&near)),
            }
        }
    }
    let chosen = |event: &str| globs.is_empty() || globs.iter().any(|glob| matches_event(glob, event));
    Ok(events.iter().filter(|(event, _)| chosen(event)).copied().collect())
}

/// Returns whether `glob` matches the event `system:name`. A glob without a colon may match either the system or the
/// name.
fn matches_event(glob: &str, event: &str) -> bool {
    let (system, name) = event.split_once(':').unwrap_or((event, ""));
    match glob.split_once(':') {
        Some((in_system, in_name)) => glob_matches(in_system, system) && glob_matches(in_name, name),
        None => glob_matches(glob, name) || glob_matches(glob, system),
    }
}

fn print(out: &mut impl Write, row: &EventRow<'_>) -> io::Result<()> {
    match row.kind {
        TRACEPOINT => writeln!(out, "{}", row.event)?,
        kind => writeln!(out, "{:30} [{kind}]", row.event)?,
    }
    if let (Some(about), Some(example)) = (row.about, row.example) {
        writeln!(out, "    {about}; for example:")?;
        writeln!(out, "    -e '{example}'")?;
    }
    for OptionRow { name, meaning } in row.options.iter().flatten() {
        writeln!(out, "    option {name}: {meaning}")?;
    }
    row.places.iter().flatten().try_for_each(|place| writeln!(out, "    {}", place.line()))?;
    let Some(fields) = &row.fields else { return Ok(()) };
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    for field in fields {
        let FieldRow { name, python, c_type, size, signed, meaning, access, option, .. } = field;
        let number = match (signed, size) {
            (Some(true), Some(size)) => format!("s{}", size * 8),
            (Some(false), Some(size)) => format!("u{}", size * 8),
            _ => String::new(),
        };
        let what = c_type.as_deref().or(*meaning).unwrap_or_default();
        let access = access.as_ref().map(|access| format!("  (read it as {access})")).unwrap_or_default();
        let option = option.map(|option| format!("  (with the option {option})")).unwrap_or_default();
        writeln!(out, "    {name:width$}  {python:5}  {number:3}  {what}{access}{option}")?;
    }
    Ok(())
}

impl FieldRow {
    fn new(field: &Field) -> Self {
        // An argument of a system call may be smaller than its slot in the record. `size` is the size of the argument,
        // because the script gets the argument.
        let number = field.number();
        let size = number.map_or(field.size, |number| number.width.into());
        let (python, c_type) = (python_type(field), Some(field.c_type()));
        let (size, offset) = (Some(size), Some(field.offset));
        let signed = number.map(|number| number.signed);
        let access = access_by_key(&field.name);
        Self { name: field.name.clone(), python, signed, size, offset, c_type, access, meaning: None, option: None }
    }

    fn of_static_probe(field: StaticField) -> Self {
        let number = number_of(&field);
        let (size, signed) = (number.map(|(size, _)| size), number.map(|(_, signed)| signed));
        let python = if number.is_some() { "int" } else { "-" };
        let (c_type, meaning) = match field.type_name {
            Ok(name) => (Some(name), None),
            Err(why) => (None, Some(why)),
        };
        Self { name: field.name, python, signed, size, offset: None, c_type, access: None, meaning, option: None }
    }

    /// Returns the fields of a source. Numbers are 64 bits wide.
    fn of_source(source: &SourceDefinition) -> Vec<Self> {
        let row = |name: &str, kind, meaning| {
            let (python, signed) = match kind {
                SpanFieldKind::Int => ("int", Some(true)),
                SpanFieldKind::Uint | SpanFieldKind::Address | SpanFieldKind::Time | SpanFieldKind::TimeIfKnown => {
                    ("int", Some(false))
                }
                SpanFieldKind::Text | SpanFieldKind::UserText => ("str", None),
                SpanFieldKind::Words => ("tuple", None),
            };
            let (name, size, meaning) = (name.to_owned(), signed.map(|_| 8), Some(meaning));
            Self { name, python, signed, size, offset: None, c_type: None, access: None, meaning, option: None }
        };
        let duration = row("duration", SpanFieldKind::Time, "ns from its begin to its end");
        let own = source.fields.iter().map(|field| row(field.name, field.value.kind(), field.about));
        let of_strings =
            |field: SpanField| FieldRow { option: Some(STRINGS), ..row(&field.name, field.kind, field.about) };
        std::iter::once(duration).chain(own).chain(source.string_fields().map(of_strings)).collect()
    }

    fn of_sample(member: SampleMember) -> Self {
        let (name, python, meaning) = (member.name().to_owned(), member_python_type(member), Some(member.doc()));
        Self { name, python, signed: None, size: None, offset: None, c_type: None, access: None, meaning, option: None }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const EVENTS: [&str; 6] = [
        "cpu-clock",
        "sched:sched_switch",
        "sched:sched_wakeup",
        "syscalls:sys_enter_openat",
        "syscalls:sys_exit_openat",
        "task:task_newtask",
    ];

    #[track_caller]
    fn check(globs: &str, expected: Expect) {
        let globs: Vec<String> = globs.split_whitespace().map(str::to_owned).collect();
        let events = EVENTS.map(|event| (event, if event.contains(':') { TRACEPOINT } else { "software event" }));
        let names = |found: Vec<(&str, _)>| found.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
        expected.assert_eq(&select_events(&globs, &events, None).map_or_else(|error| format!("error: {error}"), names));
    }

    #[test]
    fn globs() {
        check(
            "",
            expect![
                "cpu-clock sched:sched_switch sched:sched_wakeup syscalls:sys_enter_openat syscalls:sys_exit_openat task:task_newtask"
            ],
        );
        check("sched:*", expect!["sched:sched_switch sched:sched_wakeup"]);
        check("*openat*", expect!["syscalls:sys_enter_openat syscalls:sys_exit_openat"]);
        check("cpu-*", expect!["cpu-clock"]);
        check("task", expect!["task:task_newtask"]);
        check("sched_switch s*:*exit*", expect!["sched:sched_switch syscalls:sys_exit_openat"]);
        check(
            "sched:sched_wakup",
            expect!["error: no event of this kernel matches `sched:sched_wakup`; did you mean sched:sched_wakeup?"],
        );
        check(
            "nothing:*",
            expect!["error: no event of this kernel matches `nothing:*`; `perf-prof list` lists all 6 events"],
        );
    }

    #[test]
    fn fields_that_a_source_has_only_with_an_option_name_it() {
        let fields = FieldRow::of_source(source::source("syscall").unwrap());
        let option = |name: &str| fields.iter().find(|field| field.name == name).unwrap().option;
        assert_eq!(
            ["errno", "path", "filename_str", "mnt_ns"].map(option),
            [None, Some("str"), Some("str"), Some("str")]
        );
    }

    #[test]
    fn fields_as_a_script_sees_them() {
        let text = "name: x\nID: 7\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
            \tfield:bool ok;\toffset:28;\tsize:1;\tsigned:0;\n\
            \tfield:void * ptr;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long args[6];\toffset:40;\tsize:48;\tsigned:0;\n\
            \tfield:__data_loc char[] path;\toffset:88;\tsize:4;\tsigned:0;\n\
            \tfield:u32 keys;\toffset:92;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d\", REC->pid\n";
        let format = EventFormat::parse("s", text).unwrap();
        let fields = Some(format.fields().iter().map(FieldRow::new).collect());
        let mut out = Vec::new();
        let (system, kind) = (Some("s"), TRACEPOINT);
        print(&mut out, &EventRow { system, name: "x", id: Some(7), fields, ..EventRow::new("s:x", kind) }).unwrap();
        expect![[r#"
            s:x
                comm  str         char[16]
                pid   int    s32  pid_t
                ok    bool        bool
                ptr   int    u64  void *
                args  bytes       unsigned long[6]
                path  str         __data_loc char[]
                keys  int    u32  u32  (read it as event['keys'])
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
