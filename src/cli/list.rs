//! `perf-prof list`: the events of this machine, their fields and the types that a script sees.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use serde::Serialize;

use super::report::Failure;
use crate::{
    capture::Capture,
    profiler::{self, Machine, RunningMachine},
    record::{SampleLayout, SampleMember},
    spec::{EventKind, glob_matches, near, parse_events},
    sys::{
        output,
        tracefs::{Tracefs, TracefsError},
    },
    template::{c_type, member_python_type, python_type},
    tracefs::{EventFormat, Field, FieldKind},
};

/// Arguments of `list`.
#[derive(Args)]
pub struct List {
    /// Only events that match, as 'sched:*' or '*openat*'; a system's name stands for all of its events, and
    /// 'uprobe:mall*@libc' for probes on functions of a program or library
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    /// Show each event's fields, with the types that a script sees
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Print an array of objects
    #[arg(long)]
    json: bool,
}

/// The kind of the events that are no others.
const TRACEPOINT: &str = "tracepoint";
/// The kind of what a probe can be put on.
const FUNCTION: &str = "function";

/// An event as `--json` shows it.
#[derive(Serialize)]
struct EventRow<'a> {
    event: &'a str,
    /// A tracepoint, or what else it is.
    kind: &'static str,
    /// Of a tracepoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<FieldRow>>,
}

/// A field as `--json` shows it.
#[derive(Serialize)]
struct FieldRow {
    name: String,
    /// The type of its value in a script.
    python: &'static str,
    /// Whether that can be negative; only for numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<bool>,
    /// Bytes in the record; for an array elsewhere in it, of its locator.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c_type: Option<String>,
    /// What it is, where no C type says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
}

impl List {
    /// Prints the list.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        // Whoever may not read it can do without: other events need none.
        let (tracefs, text, closed) = match Tracefs::find().and_then(|found| Ok((found.available_events()?, found))) {
            Ok((text, found)) => (found, text, None),
            Err(error) => (Tracefs::expected(), String::new(), Some(error)),
        };
        let mut tracepoints: Vec<&str> = text.lines().filter(|line| line.contains(':')).collect();
        tracepoints.sort_unstable();
        tracepoints.dedup();
        let machine = RunningMachine;
        let sources = profiler::there_are(&machine);
        let events: Vec<(&str, &'static str)> = sources
            .iter()
            .map(|(name, kind)| (name.as_str(), *kind))
            .chain(tracepoints.into_iter().map(|event| (event, TRACEPOINT)))
            .collect();
        let (functions, globs) = functions(&self.globs)?;
        let mut chosen: Vec<_> = functions.iter().map(|function| (function.as_str(), FUNCTION)).collect();
        if !globs.is_empty() || self.globs.is_empty() {
            chosen.extend(choose(&globs, &events, closed.as_ref())?);
            if let Some(error) = closed {
                output::say(format_args!("tracepoints are left out: {error}"));
            }
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let rows = chosen.into_iter().map(|(event, kind)| self.row(&tracefs, &machine, event, kind));
        let rows = rows.filter_map(Result::transpose);
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
        Ok(ExitCode::SUCCESS)
    }

    /// An event's row; none of one that is no longer there, as somebody's probe that has been removed since.
    fn row<'a>(
        &self,
        tracefs: &Tracefs,
        machine: &dyn Machine,
        event: &'a str,
        kind: &'static str,
    ) -> anyhow::Result<Option<EventRow<'a>>> {
        let tracepoint = event.split_once(':').filter(|_| kind == TRACEPOINT);
        let (system, name) = tracepoint.map_or((None, event), |(system, name)| (Some(system), name));
        let mut row = EventRow { event, kind, system, name, id: None, fields: None };
        if self.verbose == 0 {
            return Ok(Some(row));
        }
        let Some(system) = system else {
            // A PMU by itself is no event: its terms make one.
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

/// The functions that selectors of probes stand for, and the globs that are none.
fn functions(globs: &[String]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut functions, mut others) = (Vec::new(), Vec::new());
    for glob in globs {
        let kind = parse_events(glob).ok().and_then(|mut specs| specs.pop()).map(|spec| spec.kind);
        match kind {
            Some(EventKind::Probe(probe)) if probe.kind.is_user() => {
                let found = profiler::functions(&probe).with_context(|| glob.clone())?;
                if found.is_empty() {
                    bail!("{glob}: no function of the file matches");
                }
                functions.extend(found);
            }
            _ => others.push(glob.clone()),
        }
    }
    Ok((functions, others))
}

/// What samples of an event hold that is no tracepoint.
fn members(event: &str, machine: &dyn Machine) -> anyhow::Result<Option<Vec<FieldRow>>> {
    let specs = parse_events(event)?;
    let Some(spec) = specs.first() else { return Ok(None) };
    let source = profiler::source(spec, None, machine)?;
    let layouts = Capture::layouts(&[source.request]);
    let members = layouts.first().map(SampleLayout::members);
    Ok(members.map(|members| members.map(FieldRow::of_sample).collect()))
}

/// The events that any of `globs` matches; all without one. A glob that matches nothing is an error; `closed` is why there are
/// no tracepoints among them.
fn choose<'a>(
    globs: &[String],
    events: &[(&'a str, &'static str)],
    closed: Option<&TracefsError>,
) -> anyhow::Result<Vec<(&'a str, &'static str)>> {
    for glob in globs {
        if !events.iter().any(|(event, _)| chooses(glob, event)) {
            if let Some(error) = closed {
                bail!("no event that is no tracepoint matches `{glob}`, and tracepoints cannot be listed: {error}");
            }
            let near = near(glob, events.iter().map(|&(event, _)| event));
            match near[..] {
                [] => bail!("no event of this kernel matches `{glob}`; `perf-prof list` shows all {}", events.len()),
                _ => bail!("no event of this kernel matches `{glob}`; did you mean {}?", near.join(" or ")),
            }
        }
    }
    let chosen = |event: &str| globs.is_empty() || globs.iter().any(|glob| chooses(glob, event));
    Ok(events.iter().filter(|(event, _)| chosen(event)).copied().collect())
}

/// Whether `glob` matches `system:name`, or without a colon one of the two.
fn chooses(glob: &str, event: &str) -> bool {
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
    let Some(fields) = &row.fields else { return Ok(()) };
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    for field in fields {
        let FieldRow { name, python, c_type, size, signed, meaning, .. } = field;
        let number = match (signed, size) {
            (Some(true), Some(size)) => format!("s{}", size * 8),
            (Some(false), Some(size)) => format!("u{}", size * 8),
            _ => String::new(),
        };
        let what = c_type.as_deref().or(*meaning).unwrap_or_default();
        writeln!(out, "    {name:width$}  {python:5}  {number:3}  {what}")?;
    }
    Ok(())
}

impl FieldRow {
    fn new(field: &Field) -> Self {
        // An argument of a system call is narrower than its slot; what a script sees is the argument.
        let (signed, size) = match field.kind {
            FieldKind::Int { width, signed } => (Some(signed), usize::from(width)),
            FieldKind::Pointer => (Some(false), field.size),
            FieldKind::Bool | FieldKind::Array(_) | FieldKind::DataLoc(_) | FieldKind::RelLoc(_) => (None, field.size),
        };
        let (python, c_type) = (python_type(field), Some(c_type(field)));
        let (size, offset) = (Some(size), Some(field.offset));
        Self { name: field.name.clone(), python, signed, size, offset, c_type, meaning: None }
    }

    fn of_sample(member: SampleMember) -> Self {
        let (name, python, meaning) = (member.name().to_owned(), member_python_type(member), Some(member.doc()));
        Self { name, python, signed: None, size: None, offset: None, c_type: None, meaning }
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
        expected.assert_eq(&choose(&globs, &events, None).map_or_else(|e| format!("error: {e}"), names));
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
        check("nothing:*", expect!["error: no event of this kernel matches `nothing:*`; `perf-prof list` shows all 6"]);
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
            \tfield:__data_loc char[] path;\toffset:88;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d\", REC->pid\n";
        let format = EventFormat::parse("s", text).unwrap();
        let fields = Some(format.fields().iter().map(FieldRow::new).collect());
        let mut out = Vec::new();
        let (system, kind) = (Some("s"), TRACEPOINT);
        print(&mut out, &EventRow { event: "s:x", kind, system, name: "x", id: Some(7), fields }).unwrap();
        expect![[r#"
            s:x
                comm  str         char[16]
                pid   int    s32  pid_t
                ok    bool        bool
                ptr   int    u64  void *
                args  bytes       unsigned long[6]
                path  str         __data_loc char[]
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
