//! The options of `perf-prof export`, and its plan.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, builder::PossibleValuesParser};
use perf_prof_session::{engine::ExitStatus, selectors};
use perf_prof_tools::commands::export::{self, CsvTexts, ExportPlan, Form, Output};

use super::{failure::Failure, script::RecordingOptions};

const LONG_ABOUT: &str = "Write the events of a recording for other programs.

The end of the file's name says what is written:
  x.csv             a table: a line for each event, a column for each field
  x.ndjson          a line of JSON for each event, as perf-prof trace --json prints it
  x.parquet         columns for DuckDB, pandas, polars, Spark: a row for each event, integers of the fields' own widths
  x.arrow           the same columns in the file format of Arrow
  x.pftrace         a trace for Perfetto, ui.perfetto.dev, and its SQL: the tasks on each CPU and the states of threads \
(from sched_switch and sched_wakeup), the ends of tasks, the frequency of CPUs (power:cpu_frequency), and all other \
events as moments of their threads, with call chains
  x.json            a profile for the Firefox Profiler, profiler.firefox.com: samples with call chains, and tracepoints as \
markers
  x.pb.gz           a profile for pprof, Pyroscope and Parca: sums of samples and of their periods for each call chain, task \
and CPU, with inlined functions, source lines and build ids
With .gz after it, the file is compressed. Parquet and Arrow files are compressed in themselves; their metadata are the \
host, its kernel, the clock and the command of the recording, and `partial` if events or spans are missing.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof export -o switches.csv -e sched:sched_switch
      write the task switches in perf.data as a table
  perf-prof export -o x.parquet -e sched:sched_switch --columns _time,_cpu,prev_comm,next_pid
      write four columns of the task switches for DuckDB, pandas or polars
  perf-prof export -i DIR -o - --format ndjson | jq .next_comm
      pass all events in DIR to jq
  perf-prof record -a -e sched:sched_switch,sched:sched_wakeup -- sleep 1 && perf-prof export -o cpus.pftrace
      show in Perfetto who ran on which CPU
  perf-prof record -g -e cpu-clock -F 997 -- CMD && perf-prof export -o profile.json.gz
      show in the Firefox Profiler where CMD spent its time
  perf-prof export -o profile.pb.gz && pprof -http : profile.pb.gz
      show it in pprof

A recording of a command or of single tasks has no switches to these tasks, because a switch belongs to the task that \
leaves the CPU. Record with -a for exact states of threads.

Columns have the names of fields, or of what all events have: _event, _time, _realtime (the time of day), _cpu, _pid, \
_tid, _comm, _period, _stack (call chains as text), _callchain (their addresses). NAME_raw has the bytes of a text that \
is not UTF-8. In a row of an event that lacks a field, its column is null. Spans have duration, begin.NAME and end.NAME.

In a spreadsheet, a text that begins with = is a formula, and anybody can give a task such a name: use --spreadsheet for \
CSV, or a Parquet file, whose texts are texts.

Times are in nanoseconds of the recording's clock. Call chains are written outermost function first, in JSON innermost first.";

/// Write the events of a recording for other programs: CSV, JSON lines, Parquet, Arrow, Perfetto, Firefox Profiler, pprof
#[derive(Args)]
#[command(
    long_about = LONG_ABOUT,
    after_help = "--help explains more, with examples.",
    after_long_help = AFTER_HELP,
    mut_arg("pids", |arg| arg.help("Only these processes and their new children, for example 1,2,3"))
)]
pub struct Export {
    #[command(flatten)]
    of: RecordingOptions,
    /// Only these events, as in `perf-prof python`; `perf-prof evlist` lists the events in the recording
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    events: Vec<String>,
    /// The columns of a Parquet or Arrow file. Without it: all fields
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// The file: x.csv, x.ndjson, x.parquet, x.arrow, x.pftrace, x.json or x.pb, or some of them with .gz; - is
    /// the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What is written, whatever the name of the file is
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(Form::ALL.map(|(_, name, _)| name)))]
    format: Option<String>,
    /// CSV for a spreadsheet: put ' before each text that it would take for a formula, such as a task named =1+1
    #[arg(long)]
    spreadsheet: bool,
}

impl Export {
    /// Writes the file.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof export --help` explains the options, with examples";
        if let Some(status) = self.of.header()? {
            return Ok(status);
        }
        let wrong = |message: String| Failure::Usage(message, READ_ON.into());
        let mut events = Vec::new();
        for list in &self.events {
            events.extend(selectors::parse(list).map_err(|error| wrong(error.to_string()))?);
        }
        // Spans are made before their tasks are selected, as in trace, top and hist.
        let input = self.of.input().selecting(&events).map_err(|error| wrong(error.to_string()))?;
        let form = match &self.format {
            Some(name) => Form::named(name),
            None => Form::of_path(&self.output),
        };
        let form = form.ok_or_else(|| wrong(unknown_form(&self.output)))?;
        if self.columns.is_some() && !form.has_columns() {
            return Err(wrong("--columns selects the columns of Parquet and Arrow files".to_owned()));
        }
        if self.spreadsheet && form != Form::Csv {
            return Err(wrong("--spreadsheet changes the texts of CSV tables".to_owned()));
        }
        let output = if self.output.as_os_str() == "-" { Output::Stdout } else { Output::File(self.output) };
        let plan = ExportPlan {
            input,
            events,
            columns: self.columns,
            python: self.of.python_frames,
            output,
            form,
            texts: if self.spreadsheet { CsvTexts::ForSpreadsheets } else { CsvTexts::Plain },
            verbosity: self.of.verbosity(),
        };
        Ok(export::run(&plan)?)
    }
}

fn unknown_form(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "--format says what is written to the standard output: csv, ndjson, parquet, arrow, pftrace, firefox or pprof"
            .to_owned(),
        false if [".parquet.gz", ".arrow.gz"].iter().any(|end| path.to_string_lossy().ends_with(end)) => format!(
            "{}: Parquet and Arrow files are not compressed with gzip; leave out .gz (Parquet files are compressed in \
             themselves)",
            path.display()
        ),
        false => format!(
            "the name of {} does not tell the format: give a name that ends in .csv, .ndjson, .pftrace, .json or .pb \
             (also with .gz), .parquet or .arrow, or add --format",
            path.display()
        ),
    }
}
