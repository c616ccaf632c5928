//! `perf-prof export`: writes the events of a recording for other programs: tables, files of columns, Perfetto, the
//! Firefox Profiler, pprof.

mod arrow_file;
mod column_file;
mod firefox;
mod kernel_trace;
mod known_events;
mod pprof_file;
mod rows;
mod selected_tasks;
mod window;

use std::{
    collections::HashMap,
    fmt,
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
    event::{AlwaysEntered, Context, Deliver, EventType, Flow, Provenance, Sample, Shortfall, Stats},
    picture::perfetto::Machine,
};
use perf_prof_format::spec::EventSpec;
use perf_prof_recordings::Recording;
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, InterpreterFrameUse, RunPlan, Verbosity},
    spine::{ChosenRecording, Outcome, Replayed},
};
use perf_prof_system::{
    output,
    output_path::{self, ExistingFile},
    shell::{shell_quote, shell_quote_all},
    terminal::ShownOnStdout,
};

use self::{
    arrow_file::ArrowFile,
    column_file::{ColumnFile, Parquet},
    firefox::FirefoxProfile,
    kernel_trace::{Dating, PerfettoTrace, Scope, States},
    pprof_file::PprofFile,
    rows::{CsvTable, JsonRows},
    selected_tasks::SelectedTasks,
};
use super::{header::clock, period::PeriodUnit, pprof, script_text::names};
use crate::output::stop_after;

/// The plan of an export.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// The recording, and the part of it that is read.
    pub input: Input,
    /// The events to export. An empty list means all events of the recording.
    pub events: Vec<EventSpec>,
    /// The columns of a Parquet or Arrow file. `None` for all fields.
    pub columns: Option<Vec<String>>,
    /// Whether call chains have the frames of Python functions. `None` if the user did not specify this.
    pub python: Option<InterpreterFrameUse>,
    /// Where the export is written.
    pub output: Output,
    /// The format of the export.
    pub form: Form,
    /// How CSV tables contain texts.
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

impl fmt::Display for Output {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Stdout => to.write_str("the standard output"),
            Output::File(path) => path.display().fmt(to),
        }
    }
}

/// How CSV tables contain texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CsvTexts {
    /// Unchanged.
    #[default]
    Plain,
    /// With a `'` before each text that a spreadsheet would take for a formula. A comm may be such a text, because anybody
    /// can name a task.
    ForSpreadsheets,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One line of JSON per event.
    NdJson,
    /// A table with one line per event.
    Csv,
    /// A Parquet file, which contains columns.
    Parquet,
    /// A file in Arrow's file format, which contains columns.
    Arrow,
    /// A trace for Perfetto.
    Perfetto,
    /// A profile for the Firefox Profiler.
    Firefox,
    /// A profile for pprof.
    Pprof,
}

impl Form {
    /// All formats. For each, its name, and the endings of the names of its files.
    pub const ALL: [(Form, &'static str, &'static [&'static str]); 7] = [
        (Form::NdJson, "ndjson", &[".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz"]),
        (Form::Csv, "csv", &[".csv", ".csv.gz"]),
        (Form::Parquet, "parquet", &[".parquet"]),
        (Form::Arrow, "arrow", &[".arrow"]),
        (Form::Perfetto, "pftrace", &[".pftrace", ".pftrace.gz"]),
        (Form::Firefox, "firefox", &[".json", ".json.gz"]),
        (Form::Pprof, "pprof", &[".pb.gz", ".pb"]),
    ];

    /// Returns the format for the name of a file. `None` if no format has the name's ending.
    pub fn of_path(path: &Path) -> Option<Form> {
        let name = path.file_name()?.to_str()?;
        let has = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        Form::ALL.iter().find(|(_, _, ends)| has(ends)).map(|(form, ..)| *form)
    }

    /// Returns whether the format has columns that users can select.
    pub fn has_columns(self) -> bool {
        matches!(self, Form::Parquet | Form::Arrow)
    }

    /// Returns whether spans can be written in the format.
    fn has_spans(self) -> bool {
        self.has_columns() || self == Form::NdJson
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.iter().find(|(_, of, _)| *of == name).map(|(form, ..)| *form)
    }
}

/// Receives the samples of a recording. An exporter writes each sample at once, or all of them at the end.
trait Exporter {
    /// Receives a sample of the event with the index `event`.
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()>;

    /// Returns how many of the samples were not of the selected tasks.
    fn left_out(&self) -> u64 {
        0
    }

    /// Called when events were lost before the next sample.
    fn lost(&mut self) {}

    /// Returns the number of switches of tasks that are missing, whether a loss was reported or not.
    fn unseen(&self) -> u64 {
        0
    }

    /// Receives where and when the events happened, after the last sample.
    fn happened(&mut self, _: Provenance) {}

    /// Writes the remaining data after the last sample. `partial` describes the missing events and spans.
    fn finish(self, context: &Context, partial: Option<&Partial>) -> io::Result<()>;
}

/// Returns whether the time of day has to be written. For formats that contain it, finds the time of day of the
/// recording, and prints a message if it is not known.
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

/// Returns the metadata of Parquet and Arrow files, which describe the recording.
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

/// What the exported events and spans lack.
struct Partial {
    /// What is missing, as `perf-prof top` counts it.
    shortfall: Shortfall,
    /// Descriptions of the parts of the recording that cannot be read.
    damage: Vec<String>,
    /// The number of switches of tasks that are missing, whether a loss was reported or not.
    unseen: u64,
}

impl Partial {
    /// Returns what the events and spans lack. `None` if they are complete.
    fn of(outcome: &Outcome, stats: &Stats, context: &Context, unseen: u64) -> Option<Partial> {
        let Some(Replayed { damage, lost, .. }) = &outcome.replayed else { return None };
        let counted = Shortfall::of(stats, Some(context)).unwrap_or_default();
        let lost = counted.lost.max(lost.per_event.iter().sum());
        let (damaged, of_part) = (counted.damaged || !damage.is_empty(), lost != 0 && stats.is_of_part());
        let shortfall = Shortfall { lost, damaged, of_part, ..counted };
        let is_partial = unseen != 0 || shortfall != Shortfall::default();
        is_partial.then(|| Partial { shortfall, damage: damage.clone(), unseen })
    }

    fn text(&self) -> String {
        let Partial { shortfall, damage, unseen } = self;
        let (lost, up_to) = (shortfall.lost, if shortfall.of_part { "up to " } else { "" });
        let of_events = (lost != 0).then(|| format!("{up_to}{} lost", output::counted(lost, "event", "events")));
        let damaged = shortfall.damaged && damage.is_empty();
        let others = Shortfall { lost: 0, damaged, ..shortfall.clone() }.reasons();
        let others = Some(others).filter(|others| !others.is_empty());
        let unseen = (*unseen != 0).then(|| {
            let unseen = output::counted(*unseen, "switch of tasks was", "switches of tasks were");
            format!("{unseen} not recorded, so times on a CPU are too short, and times in other states may be too long")
        });
        of_events.into_iter().chain(damage.iter().cloned()).chain(unseen).chain(others).collect::<Vec<_>>().join("; ")
    }
}

/// The name of the column with the time of day.
const REALTIME: &str = "_realtime";

/// Exports the events.
pub fn run(plan: &ExportPlan) -> Result<ExitStatus> {
    if let Output::File(path) = &plan.output {
        output_path::check(path, ExistingFile::Overwritten)?;
    }
    let mut input = plan.input.clone();
    let tasks = match plan.form {
        Form::Perfetto => SelectedTasks::of(&mut input),
        _ => SelectedTasks::default(),
    };
    let mut chosen = select(plan, &input)?;
    // An unknown column must fail before the file is overwritten.
    let asked = if plan.form.has_columns() { plan.columns.as_deref() } else { Some(&[][..]) };
    let columns = Plan::new(asked, &chosen.selected().types, &chosen.is_delivered())?;
    if columns.schema.index_of(REALTIME).is_ok() {
        chosen.find_time_of_day()?;
    }
    let dating = dating(plan.form, &mut chosen)?;
    let window = match plan.form {
        Form::Perfetto => match window::find(&input, &mut chosen)? {
            Ok(window) => window,
            Err(status) => return Ok(status),
        },
        _ => None,
    };
    let recording = chosen.recording();
    let of_some_tasks = recording.events.iter().any(|event| recording.is_of_some_tasks(event))
        || (recording.is_own() && names_tasks(&recording.features.cmdline));
    let of = Extent { selects_tasks: tasks.is_any(), of_some_tasks };
    let of_some_cpus = input.cpus.is_some() || recording.events.iter().any(|event| recording.is_of_some_cpus(event));
    let states = if of_some_cpus { States::Unknown } else { States::Known };
    let scope = Scope { tasks, window, states, of_some_tasks };
    let failed = || format!("cannot write {}", plan.output);
    let mut to = Destination::open(&plan.output).with_context(failed)?;
    let Exported { status, count, partial, written } = write(plan, chosen, Found { columns, dating, scope }, &mut to)?;
    match written.and_then(|()| to.finish()) {
        // A closed pipe on stdout is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && plan.output == Output::Stdout => return Ok(status),
        written => written.with_context(failed)?,
    }
    if plan.verbosity > Verbosity::Quiet {
        say(plan, of, count, partial.as_ref());
    }
    Ok(status)
}

/// What was found out before the file is written.
struct Found {
    columns: Plan,
    dating: Dating,
    scope: Scope,
}

/// Writes the events in the format of the plan.
fn write(plan: &ExportPlan, chosen: ChosenRecording, found: Found, to: &mut Destination) -> Result<Exported> {
    let Found { columns, dating, scope } = found;
    let (metadata, machine) = (metadata(chosen.recording()), machine(chosen.recording()));
    let (types, budget) = (chosen.selected().types.clone(), chosen.recording().budget().clone());
    let failed = || format!("cannot write {}", plan.output);
    match plan.form {
        Form::Parquet => {
            let file = ColumnFile::new(columns, metadata, &budget, |schema| Parquet::open(&mut *to, schema, &budget));
            export(chosen, file.with_context(failed)?)
        }
        Form::Arrow => {
            let file = ColumnFile::new(columns, metadata, &budget, |schema| ArrowFile::open(&mut *to, schema, &budget));
            let file = file.with_context(failed)?;
            export(chosen, file)
        }
        Form::NdJson => {
            let rows = JsonRows::new(&types, to);
            export(chosen, rows)
        }
        Form::Csv => {
            let table = CsvTable::new(&types, plan.texts, to);
            export(chosen, table)
        }
        Form::Perfetto => {
            let trace = PerfettoTrace::new(&types, machine, dating, scope, to).with_context(failed)?;
            export(chosen, trace)
        }
        Form::Firefox => {
            let units = PeriodUnit::of_events(&chosen, &names(&chosen));
            let profile = FirefoxProfile::new(&plan.input.path, &types, units, to);
            export(chosen, profile)
        }
        Form::Pprof => {
            let profile = PprofFile::new(&chosen, &budget, to);
            export(chosen, profile)
        }
    }
}

/// What was exported of which recording.
#[derive(Clone, Copy)]
struct Extent {
    /// Whether the trace has only the tasks that the user selected.
    selects_tasks: bool,
    /// Whether the recording has only the events of some tasks.
    of_some_tasks: bool,
}

/// Says how many events were exported, and what is missing, if nothing else has said it or if the file cannot.
fn say(plan: &ExportPlan, of: Extent, count: u64, partial: Option<&Partial>) {
    let name = &plan.output;
    if *name != Output::Stdout {
        output::say(format_args!("{name}: {}", output::counted(count, "event", "events")));
    }
    if count == 0 && of.selects_tasks {
        let list = format!("`perf-prof report -i {} --sort pid,tid,comm` lists all", shell_quote(&plan.input.path));
        output::say(format_args!("no event is of the selected tasks; {list}"));
    }
    let Some(partial) = partial else { return };
    let lack = partial.text();
    if plan.form == Form::Csv {
        output::say(format_args!("warning: {name} is incomplete, and its format has no place for a note: {lack}"));
    } else if partial.unseen != 0 {
        let way_out = if of.of_some_tasks { "; `perf-prof record -a` records the switches of all tasks" } else { "" };
        output::say(format_args!("{name} is partial: {lack}{way_out}"));
    }
}

/// Returns whether the command of a recorder selects tasks by their cgroup or their ids. Its events do not tell: those of a
/// cgroup or of a thread look like those of all tasks.
fn names_tasks(command: &[String]) -> bool {
    let mut options = command.iter().take_while(|word| *word != "--");
    options.any(|word| ["--cgroup", "-G", "--tid", "-t"].iter().any(|option| word.starts_with(option)))
}

/// Opens the recording and selects the events.
fn select(plan: &ExportPlan, input: &Input) -> Result<ChosenRecording> {
    let mut run = RunPlan::of_recording(input, &plan.events, plan.verbosity);
    run.capture.callchain.python = plan.python;
    if plan.form == Form::Pprof {
        run.symbols = pprof::symbols();
    }
    let mut chosen = ChosenRecording::select(&run, input)?;
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
    /// The result of writing the file.
    written: io::Result<()>,
}

/// Passes all samples to the exporter.
fn export<E: Exporter>(chosen: ChosenRecording, exporter: E) -> Result<Exported> {
    let delivered = chosen.deliver(|about| {
        let (types, context) = (about.events.clone(), about.context.clone());
        Ok(Exporting { exporter, types, context, stats: about.stats.clone(), count: 0, failure: None })
    })?;
    let status = delivered.status();
    let Exporting { mut exporter, context, stats, count, failure, .. } = delivered.sink;
    let count = count - exporter.left_out();
    let partial = Partial::of(&delivered.outcome, &stats, &context, exporter.unseen());
    let written = match failure {
        Some(error) => Err(error),
        None => {
            exporter.happened(stats.provenance());
            exporter.finish(&context, partial.as_ref())
        }
    };
    Ok(Exported { status, count, partial, written })
}

/// The sink that passes samples to an exporter.
struct Exporting<E> {
    exporter: E,
    types: Vec<EventType>,
    context: Arc<Context>,
    stats: Arc<Stats>,
    count: u64,
    failure: Option<io::Error>,
}

impl<E: Exporter> AlwaysEntered for Exporting<E> {}

impl<E: Exporter> Deliver for Exporting<E> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of_type) = self.types.get(event) else { return ControlFlow::Continue(()) };
        self.count += 1;
        match self.exporter.sample(event, &Sample { event: of_type, record }, &self.context) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let stop = stop_after(&error);
                self.failure = Some(error);
                ControlFlow::Break(stop)
            }
        }
    }

    fn lost(&mut self, _: u64, _: u64) -> Flow {
        self.exporter.lost();
        ControlFlow::Continue(())
    }
}

/// Where the bytes of an export are written.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_recorder_tells_that_tasks_were_selected() {
        let names = |command: &str| names_tasks(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for command in ["--cgroups web", "--cgroups=web", "-e a -G web", "--cgroup web", "-t 7", "-t7", "--tid 7"] {
            assert!(names(&format!("perf-prof record {command} -- sleep 1")), "{command}");
        }
        // Tasks and cgroups are selected although `-a` is given.
        assert!(names("perf-prof record -a -G web -e sched:sched_switch -- ls"));
        assert!(!names("perf-prof record -a -e sched:sched_switch -- ls -t"));
    }
}
