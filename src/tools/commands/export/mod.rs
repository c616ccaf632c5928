//! `perf-prof export`: writes the events of a recording for other programs: tables, files of columns, Perfetto, the
//! Firefox Profiler, pprof.

mod arrow_file;
mod column_file;
mod firefox;
mod kernel_trace;
mod pprof_file;
mod rows;

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufWriter, Stdout, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use perf_prof_events::{
    column::Plan,
    event::{Context, Deliver, EventType, Flow, Sample, Sink, Stop},
    picture::perfetto::Machine,
};
use perf_prof_format::spec::EventSpec;
use perf_prof_recordings::Recording;
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, RunPlan, Verbosity},
    spine::{ChosenRecording, Outcome, Receiver, Replayed},
};
use perf_prof_system::{
    output,
    output_path::{self, ExistingFile},
    shell::shell_quote_all,
    terminal::ShownOnStdout,
};

use self::{
    arrow_file::ArrowFile,
    column_file::{ColumnFile, Parquet},
    firefox::FirefoxProfile,
    kernel_trace::{Dating, PerfettoTrace},
    pprof_file::PprofFile,
    rows::{CsvTable, JsonRows},
};
use super::{header::clock, pprof};

/// The plan of an export.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// The recording, and which part of it is read.
    pub input: Input,
    /// The events to export. If the list is empty, all events of the recording are exported.
    pub events: Vec<EventSpec>,
    /// The columns of a file of columns; `None` for all fields.
    pub columns: Option<Vec<String>>,
    /// Where the export is written.
    pub output: Output,
    /// What is written.
    pub form: Form,
    /// How texts are written into a table.
    pub texts: CsvTexts,
    /// How many messages about problems with the recording are printed.
    pub verbosity: Verbosity,
}

/// Where an export is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The standard output.
    Stdout,
    /// A file. If its name ends in `.gz`, it is compressed.
    File(PathBuf),
}

/// How texts are written into a CSV table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CsvTexts {
    /// As they are.
    #[default]
    Plain,
    /// With a `'` in front, if a spreadsheet would take the text for a formula. Anybody can give a task a name that is
    /// a formula.
    ForSpreadsheets,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line of JSON for each event.
    NdJson,
    /// A table with a line for each event.
    Csv,
    /// Columns in a Parquet file.
    Parquet,
    /// Columns in the file format of Arrow.
    Arrow,
    /// A trace for Perfetto.
    Perfetto,
    /// A profile for the Firefox Profiler.
    Firefox,
    /// A profile for pprof.
    Pprof,
}

impl Form {
    /// All forms. Each comes with its name, and with the endings of the files that have this form.
    pub const ALL: [(Form, &'static str, &'static [&'static str]); 7] = [
        (Form::NdJson, "ndjson", &[".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz"]),
        (Form::Csv, "csv", &[".csv", ".csv.gz"]),
        (Form::Parquet, "parquet", &[".parquet"]),
        (Form::Arrow, "arrow", &[".arrow"]),
        (Form::Perfetto, "pftrace", &[".pftrace", ".pftrace.gz"]),
        (Form::Firefox, "firefox", &[".json", ".json.gz"]),
        (Form::Pprof, "pprof", &[".pb.gz", ".pb"]),
    ];

    /// Returns the form that belongs to the ending of a file's name; `None` if no form has this ending.
    pub fn of_path(path: &Path) -> Option<Form> {
        let name = path.file_name()?.to_str()?;
        let has = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        Form::ALL.iter().find(|(_, _, ends)| has(ends)).map(|(form, ..)| *form)
    }

    /// Returns whether the form has columns that can be selected.
    pub fn has_columns(self) -> bool {
        matches!(self, Form::Parquet | Form::Arrow)
    }

    /// Returns whether the form has spans.
    fn has_spans(self) -> bool {
        self.has_columns() || self == Form::NdJson
    }

    /// Returns the form with this name; `None` if there is no such form.
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.iter().find(|(_, of, _)| *of == name).map(|(form, ..)| *form)
    }
}

/// Takes the samples of a recording. Writes each sample at once, or all of them at the end.
trait Exporter {
    /// Takes a sample of the event with the index `event`.
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()>;

    /// Called when events were lost before the next sample.
    fn lost(&mut self) {}

    /// Writes the remaining data after the last sample. `partial` says what is missing.
    fn finish(self, context: &Context, partial: Option<&Partial>) -> io::Result<()>;
}

/// Returns whether the time of day has to be written. For forms that show it, finds out when the recording was made,
/// and prints a message if that is not known.
fn dating(form: Form, chosen: &mut ChosenRecording) -> Result<Dating> {
    if !matches!(form, Form::Perfetto | Form::Firefox | Form::Pprof) {
        return Ok(Dating::None);
    }
    if chosen.look_for_time_of_day()? {
        return Ok(Dating::Known);
    }
    output::say(format_args!(
        "warning: {} does not say at what time of day it was recorded: times are those of its clock",
        chosen.recording().name
    ));
    Ok(Dating::None)
}

fn machine(recording: &Recording) -> Machine {
    let features = &recording.features;
    let (hostname, kernel, arch) = (&features.hostname, &features.os_release, &features.arch);
    Machine { hostname: hostname.clone(), kernel: kernel.clone(), arch: arch.clone() }
}

/// Returns the metadata of files of columns: facts about their recording.
fn metadata(recording: &Recording) -> HashMap<String, String> {
    let features = &recording.features;
    let command = Some(shell_quote_all(&features.cmdline)).filter(|words| !words.is_empty());
    let offset = features.clock.map(|clock| (clock.wall as i64).wrapping_sub(clock.time as i64).to_string());
    let all = [
        ("host", features.hostname.clone()),
        ("kernel", features.os_release.clone()),
        ("arch", features.arch.clone()),
        ("recorder", features.version.clone()),
        ("command", command),
        ("clock", Some(clock(recording))),
        ("realtime_offset_ns", offset),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// What is missing in the replayed events.
struct Partial {
    /// The number of lost events.
    lost: u64,
    /// What cannot be read, as texts.
    damage: Vec<String>,
}

impl Partial {
    /// Returns what is missing; `None` if the events are complete.
    fn of(outcome: &Outcome) -> Option<Partial> {
        let Some(Replayed { damage, lost, .. }) = &outcome.replayed else { return None };
        let lost = outcome.lost.max(lost.per_event.iter().sum());
        (lost != 0 || !damage.is_empty()).then(|| Partial { lost, damage: damage.clone() })
    }

    fn text(&self) -> String {
        let Partial { lost, damage } = self;
        let lost = (*lost != 0).then(|| format!("{lost} event{} lost", if *lost == 1 { "" } else { "s" }));
        lost.into_iter().chain(damage.iter().cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// The column of the time of day.
const REALTIME: &str = "_realtime";

/// Exports the events.
pub fn run(plan: &ExportPlan) -> Result<ExitStatus> {
    if let Output::File(path) = &plan.output {
        output_path::check(path, ExistingFile::Overwritten)?;
    }
    let mut chosen = select(plan)?;
    // An unknown column has to be found before the file is replaced.
    let names = if plan.form.has_columns() { plan.columns.as_deref() } else { Some(&[][..]) };
    let columns = Plan::new(names, &chosen.selected().types, &chosen.is_delivered())?;
    if columns.schema.index_of(REALTIME).is_ok() {
        chosen.find_time_of_day()?;
    }
    let dating = dating(plan.form, &mut chosen)?;
    let (metadata, machine) = (metadata(chosen.recording()), machine(chosen.recording()));
    let (types, budget) = (chosen.selected().types.clone(), chosen.recording().budget().clone());
    let name = match &plan.output {
        Output::Stdout => "the standard output".to_owned(),
        Output::File(path) => path.display().to_string(),
    };
    let failed = || format!("cannot write {name}");
    let mut to = Destination::open(&plan.output).with_context(failed)?;
    let exported = match plan.form {
        Form::Parquet => {
            let file = ColumnFile::new(columns, metadata, &budget, |schema| Parquet::open(&mut to, schema, &budget));
            export(chosen, file.with_context(failed)?)
        }
        Form::Arrow => {
            let file = ColumnFile::new(columns, metadata, &budget, |schema| ArrowFile::open(&mut to, schema, &budget));
            let file = file.with_context(failed)?;
            export(chosen, file)
        }
        Form::NdJson => {
            let rows = JsonRows::new(&types, &mut to);
            export(chosen, rows)
        }
        Form::Csv => {
            let table = CsvTable::new(&types, plan.texts, &mut to);
            export(chosen, table)
        }
        Form::Perfetto => {
            let trace = PerfettoTrace::new(&types, machine, dating, &mut to).with_context(failed)?;
            export(chosen, trace)
        }
        Form::Firefox => {
            let profile = FirefoxProfile::new(&plan.input.path, &mut to);
            export(chosen, profile)
        }
        Form::Pprof => {
            let profile = PprofFile::new(&chosen, &budget, &mut to);
            export(chosen, profile)
        }
    };
    let Exported { status, count, partial, written } = exported?;
    match written.and_then(|()| to.finish()) {
        // A closed pipe on the standard output is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && plan.output == Output::Stdout => return Ok(status),
        written => written.with_context(failed)?,
    }
    if plan.verbosity > Verbosity::Quiet && plan.output != Output::Stdout {
        let events = if count == 1 { "event" } else { "events" };
        output::say(format_args!("{name}: {count} {events}"));
    }
    if plan.verbosity > Verbosity::Quiet
        && plan.form == Form::Csv
        && let Some(partial) = partial
    {
        output::say(format_args!("warning: {name} is incomplete, and its format cannot say so: {}", partial.text()));
    }
    Ok(status)
}

/// Opens the recording and selects the events.
fn select(plan: &ExportPlan) -> Result<ChosenRecording> {
    let mut run = RunPlan::of_recording(&plan.input, &plan.events, plan.verbosity);
    if plan.form == Form::Pprof {
        run.symbols = pprof::symbols();
    }
    let mut chosen = ChosenRecording::select(&run, &plan.input)?;
    chosen.warn();
    if !plan.form.has_spans() {
        chosen.refuse_spans()?;
    }
    chosen.prepare()?;
    Ok(chosen)
}

/// The result of an export.
struct Exported {
    status: ExitStatus,
    /// The number of samples.
    count: u64,
    partial: Option<Partial>,
    /// Whether everything was written.
    written: io::Result<()>,
}

/// Passes all samples to the exporter.
fn export<E: Exporter>(chosen: ChosenRecording, exporter: E) -> Result<Exported> {
    let delivered = chosen.deliver(|about| {
        let (types, context) = (about.events.clone(), about.context.clone());
        Ok(Exporting { exporter, types, context, count: 0, failure: None })
    })?;
    let (status, partial) = (delivered.status(), Partial::of(&delivered.outcome));
    let Exporting { exporter, context, count, failure, .. } = delivered.sink;
    let written = match failure {
        Some(error) => Err(error),
        None => exporter.finish(&context, partial.as_ref()),
    };
    Ok(Exported { status, count, partial, written })
}

/// The sink that passes samples to an exporter.
struct Exporting<E> {
    exporter: E,
    types: Vec<EventType>,
    context: Arc<Context>,
    count: u64,
    failure: Option<io::Error>,
}

impl<E: Exporter> Receiver for Exporting<E> {}

impl<E: Exporter> Sink for Exporting<E> {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

impl<E: Exporter> Deliver for Exporting<E> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of_type) = self.types.get(event) else { return ControlFlow::Continue(()) };
        self.count += 1;
        match self.exporter.sample(event, &Sample { event: of_type, record }, &self.context) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
                self.failure = Some(error);
                ControlFlow::Break(if is_closed { Stop::ClosedPipe } else { Stop::Failed })
            }
        }
    }

    fn lost(&mut self, _: u64, _: u64) -> Flow {
        self.exporter.lost();
        ControlFlow::Continue(())
    }
}

/// The destination of the bytes.
enum Destination {
    Stdout(ShownOnStdout<BufWriter<Stdout>>),
    File(BufWriter<File>),
    Compressed(GzEncoder<BufWriter<File>>),
}

impl Destination {
    fn open(output: &Output) -> io::Result<Destination> {
        let Output::File(path) = output else {
            return Ok(Destination::Stdout(ShownOnStdout::new(BufWriter::new(io::stdout()))));
        };
        let file = BufWriter::new(File::create(path)?);
        let is_compressed = path.extension().is_some_and(|end| end == "gz");
        Ok(match is_compressed {
            true => Destination::Compressed(GzEncoder::new(file, Compression::default())),
            false => Destination::File(file),
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Destination::Stdout(mut to) => to.flush(),
            Destination::File(mut to) => to.flush(),
            Destination::Compressed(to) => to.finish()?.flush(),
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Stdout(to) => to.write(bytes),
            Destination::File(to) => to.write(bytes),
            Destination::Compressed(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Stdout(to) => to.flush(),
            Destination::File(to) => to.flush(),
            Destination::Compressed(to) => to.flush(),
        }
    }
}
