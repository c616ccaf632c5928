//! `perf-prof serve`: runs a script and serves its aggregators as metrics. It is `perf-prof python --listen`, with the
//! options of the script's first line.

use std::{ffi::OsString, path::Path};

use clap::{Arg, ArgAction, Command};
use perf_prof_session::engine::ExitStatus;

use super::{first_line::given, options, split};
use crate::{doctor, failure::Failure, shipped};

/// The default address. Many exporters of applications use this port.
const LISTEN: &str = "127.0.0.1:9464";

const ABOUT: &str = "Serve the aggregators of a script as metrics for Prometheus, and its Stacks as profiles for pprof";

const USAGE: &str = "perf-prof serve [OPTION...] [-e EVENT[,EVENT...]] [--listen ADDRESS:PORT] SCRIPT [ARGS...]";

const LONG_ABOUT: &str = "Serve the aggregators of a script as metrics for Prometheus, and its Stacks as profiles for pprof.

Each aggregator that is a global of the script is a metric at http://ADDRESS:PORT/metrics: Count and Sum are counters, Hist is a \
histogram, and the names of the key are the labels. Stacks are profiles at /debug/pprof/NAME. The tables are read when they are \
asked for. What the kernel can add up by itself costs perf-prof nothing in between.

SCRIPT is a file or the name of a shipped script. The events are those of -e, or else those of the script's first line. \
All options of `perf-prof python` for live events work too.";

const AFTER_HELP: &str = "\
Examples:
  perf-prof serve runqueue_metrics
      serve the time that tasks wait for a CPU at http://127.0.0.1:9464/metrics
  perf-prof serve -e sched:sched_process_exec --listen 127.0.0.1:9500 execs.py
      serve the aggregators of execs.py
  curl -s http://127.0.0.1:9464/metrics
      see what Prometheus gets

Nobody has to log in: who reaches the address reads everything. Without --listen, only this machine does.";

/// Returns the command, for the help text only. Its arguments are split before clap parses them.
pub fn command() -> Command {
    Command::new("serve")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .override_usage(USAGE)
        .after_help("--help explains more, with examples.")
        .after_long_help(AFTER_HELP)
        .disable_version_flag(true)
        .max_term_width(110)
        .arg(
            Arg::new("events")
                .short('e')
                .long("event")
                .value_name("EVENT,...")
                .action(ArgAction::Append)
                .help("Events, as in `perf-prof python`. Without this option: those of the script's first line"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .default_value(LISTEN)
                .help("The address at which the metrics are served"),
        )
        .arg(Arg::new("script").value_name("SCRIPT").help("The script, and its options"))
}

/// Runs `perf-prof serve` with the whole command line and returns the exit status.
pub fn run(argv: &[OsString]) -> Result<ExitStatus, Failure> {
    const READ_ON: &str = "`perf-prof serve --help` explains the options, with examples";
    let words = argv.iter().skip(2).cloned();
    let flags = split::flags(&options::command());
    let split = split::split(&flags, words).map_err(|error| Failure::Usage(error.to_string(), READ_ON.into()))?;
    let is_help = |word: &OsString| word == "-h" || word == "--help";
    let Some(module) = split.module else {
        if split.options.iter().any(is_help) {
            let mut command = command();
            let is_long = split.options.iter().any(|word| word == "--help");
            let help = if is_long { command.render_long_help() } else { command.render_help() };
            perf_prof_system::output::print_line(help.to_string().trim_end());
            return Ok(ExitStatus(0));
        }
        let message = "no script: give one with aggregators, or the name of a shipped one such as runqueue_metrics";
        return Err(Failure::Usage(message.into(), READ_ON.into()));
    };
    let shipped = shipped::file_of(&module)?;
    let script = shipped.as_ref().map_or(module, |file| file.path().into());
    let of_program = argv.first().cloned().unwrap_or_else(|| "perf-prof".into());
    let start: [OsString; 4] = [of_program, "python".into(), "--listen".into(), LISTEN.into()];
    let has_events = split.options.iter().any(is_event);
    let first = if has_events { None } else { given(&script) };
    if !has_events && first.is_none() && script != "help" && !Path::new(&script).exists() {
        return Err(shipped::unknown(&script.to_string_lossy()));
    }
    // The `--` at the end of the first line is removed, because more options follow.
    let first = first.and_then(|words| split::split(&flags, words).ok()).map(|first| first.options);
    let ours = start.into_iter().chain(first.unwrap_or_default()).chain(split.options);
    let of_script = [script].into_iter().chain(split.script_args);
    let words: Vec<OsString> = match split.workload {
        // All arguments of the script belong to the script. The `--` keeps perf-prof from parsing them.
        None => ours.chain(["--".into()]).chain(of_script).collect(),
        Some(command) => ours.chain(of_script).chain(["--exec".into()]).chain(command).collect(),
    };
    let options = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    if let Some(hidden) = doctor::hidden_idle_events(options) {
        perf_prof_system::output::say(format_args!("{hidden}; `perf-prof doctor` has a way out"));
    }
    super::run(&words)
}

fn is_event(word: &OsString) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes == b"--event" || bytes.starts_with(b"--event=") || (bytes.starts_with(b"-e") && !bytes.starts_with(b"--"))
}
