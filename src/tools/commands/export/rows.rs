//! One line per event: JSON, or a CSV table whose columns are the fields of all events.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use perf_prof_events::event::{Context, EventType, Sample, Shortfall, cgroup_text, frames, has_callchain, write_json};
use perf_prof_format::{control_characters::in_json, tracefs::Field, value::Value};
use serde_json::json;

use super::{CsvTexts, Destination, Exporter, Partial};

/// Lines of JSON, one per event.
pub struct JsonRows<'a> {
    to: &'a mut Destination,
    /// The name of each event.
    names: Vec<String>,
    line: Vec<u8>,
}

impl<'a> JsonRows<'a> {
    pub fn new(types: &[EventType], to: &'a mut Destination) -> JsonRows<'a> {
        JsonRows { to, names: types.iter().map(EventType::shown_name).collect(), line: Vec::new() }
    }
}

impl Exporter for JsonRows<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        self.line.clear();
        write_json(self.names.get(event).map_or("", String::as_str), sample, context, &mut self.line);
        self.to.write_all(&self.line)
    }

    /// If events or spans are missing, writes an object like the last one of `perf-prof top --json`.
    fn finish(self, _: &Context, partial: Option<&Partial>) -> io::Result<()> {
        let Some(partial) = partial else { return Ok(()) };
        let Shortfall { lost, damaged, gaps, .. } = partial.shortfall;
        let mut total =
            json!({ "kind": "total", "partial": true, "lost": lost, "damaged": damaged, "reasons": partial.text() });
        if gaps != 0 {
            total["missing"] = gaps.into();
            total["missing_time"] = partial.shortfall.missing_time().into();
        }
        writeln!(self.to, "{}", in_json(&total.to_string()))
    }
}

/// A CSV table. If an event lacks a field, its cell in the field's column is empty.
pub struct CsvTable<'a> {
    to: csv::Writer<&'a mut Destination>,
    /// For each event: the index of the column of each field, by the field's name.
    columns: Vec<HashMap<String, usize>>,
    /// The names of all columns. The list is empty after the names were written.
    head: Vec<String>,
    /// The cells of the current line.
    line: Vec<String>,
    texts: CsvTexts,
    has_cgroups: bool,
    has_chains: bool,
}

/// The columns before the columns of the fields. No field has one of these names, because names of fields do not start
/// with an underscore.
const FIRST: [&str; 6] = ["_event", "_time", "_cpu", "_pid", "_tid", "_comm"];

impl<'a> CsvTable<'a> {
    pub fn new(types: &[EventType], texts: CsvTexts, to: &'a mut Destination) -> CsvTable<'a> {
        let mut head: Vec<String> = FIRST.map(str::to_owned).into();
        let has_cgroups = types.iter().any(|event| event.layout.has_cgroup());
        head.extend(has_cgroups.then(|| "_cgroup".to_owned()));
        let (first, mut columns) = (head.len(), Vec::new());
        for event in types {
            let column = |name: String| match head.iter().skip(first).position(|of| *of == name) {
                Some(at) => (name, first + at),
                None => {
                    head.push(name.clone());
                    (name, head.len() - 1)
                }
            };
            columns.push(field_names(event).map(column).collect());
        }
        let has_chains = types.iter().any(|event| has_callchain(&Sample { event, record: &[] }));
        if has_chains {
            head.push("_callchain".to_owned());
        }
        let line = vec![String::new(); head.len()];
        CsvTable { to: csv::Writer::from_writer(to), columns, head, line, texts, has_cgroups, has_chains }
    }
}

impl Exporter for CsvTable<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        if !self.head.is_empty() {
            self.to.write_record(std::mem::take(&mut self.head)).map_err(io_error)?;
        }
        self.line.iter_mut().for_each(String::clear);
        let Row { name, time, cpu, pid, comm, .. } = Row::of(sample, context);
        let (_, tid) = sample.pid_tid();
        let comm = self.texts.cell(comm.unwrap_or_default());
        let first = [name, time.to_string(), cpu.to_string(), pid.to_string(), tid.to_string(), comm];
        let cgroup = || cgroup_text(sample, context).map(|path| String::from_utf8_lossy(&path).into_owned());
        let cgroup = self.has_cgroups.then(|| cgroup().unwrap_or_default());
        self.line.iter_mut().zip(first.into_iter().chain(cgroup)).for_each(|(column, value)| *column = value);
        for (name, value) in values(sample) {
            if let Some(&column) = self.columns.get(event).and_then(|columns| columns.get(&name)) {
                let is_text = matches!(value, Datum::One(Value::Str(_)));
                self.line[column] = if is_text { self.texts.cell(text(&value)) } else { text(&value) };
            }
        }
        if self.has_chains
            && let Some(last) = self.line.last_mut()
        {
            *last = self.texts.cell(functions(sample, context).collect::<Vec<_>>().join(";"));
        }
        self.to.write_record(&self.line).map_err(io_error)
    }

    fn finish(mut self, _: &Context, _: Option<&Partial>) -> io::Result<()> {
        if !self.head.is_empty() {
            self.to.write_record(&self.head).map_err(io_error)?;
        }
        self.to.flush()
    }
}

impl CsvTexts {
    /// Returns the contents of the cell for a text.
    fn cell(self, text: String) -> String {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if self == CsvTexts::ForSpreadsheets && is_formula { format!("'{text}") } else { text }
    }
}

/// Returns the I/O error, so that a closed pipe can be distinguished from other errors.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// The members that all events have, read from a sample.
pub struct Row {
    pub name: String,
    /// The time, in ns of the recording's clock.
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    /// The thread, also if it is exiting and the sample has the id -1.
    pub tid: i32,
    pub comm: Option<String>,
}

impl Row {
    pub fn of(sample: &Sample<'_>, context: &Context) -> Row {
        let (pid, _) = sample.pid_tid();
        let (tid, time) = (sample.task(), sample.time());
        let comm = context.comm(tid, time).map(|comm| String::from_utf8_lossy(&comm).into_owned());
        Row { name: sample.event.shown_name(), time, cpu: sample.cpu(), pid, tid, comm }
    }
}

/// The value of a field.
pub enum Datum<'a> {
    One(Value<'a>),
    /// An array of integers.
    Many(Vec<Value<'a>>),
}

/// Returns the values of a sample with their names: the fields of a tracepoint, or the numeric members of another
/// event.
pub fn values<'a>(sample: &Sample<'a>) -> impl Iterator<Item = (String, Datum<'a>)> {
    let fields = sample.event.format.tracepoint().map_or(&[][..], |format| format.fields());
    let raw = sample.raw();
    let of_field = move |field: &Field| {
        let datum = match field.array(raw) {
            Some(array) => Datum::Many(array.collect()),
            None => Datum::One(field.value(raw)?),
        };
        Some((field.name.clone(), datum))
    };
    let members = sample.event.own_members().filter_map(|member| {
        Some((member.name().to_owned(), Datum::One(sample.event.layout.value(member, sample.record)?)))
    });
    fields.iter().filter_map(of_field).chain(members).collect::<Vec<_>>().into_iter()
}

fn field_names(event: &EventType) -> impl Iterator<Item = String> {
    let fields = event.format.tracepoint().map_or(&[][..], |format| format.fields());
    fields.iter().map(|field| field.name.clone()).chain(event.own_members().map(|member| member.name().to_owned()))
}

/// Returns the names of the functions in the call chain, outermost first.
pub fn functions(sample: &Sample<'_>, context: &Context) -> impl Iterator<Item = String> + use<> {
    let frames = frames(sample, context);
    frames.into_iter().rev().map(|frame| match &*frame.symbol {
        perf_prof_events::event::UNKNOWN if frame.dso.starts_with('[') => frame.dso.to_string(),
        perf_prof_events::event::UNKNOWN => format!("[{}]", frame.dso.rsplit('/').next().unwrap_or_default()),
        name => name.to_owned(),
    })
}

/// Returns a value as text.
pub fn text(datum: &Datum<'_>) -> String {
    let one = |value: &Value<'_>| match *value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Bytes(bytes) | Value::Words(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    match datum {
        Datum::One(value) => one(value),
        Datum::Many(values) => values.iter().map(one).collect::<Vec<_>>().join(" "),
    }
}
