//! The options of `perf-prof script` for scripts that were written for `perf script`, and the plan of a run. A script
//! runs on a recording, on live events, or through wrappers: shell scripts that belong to a named script.

use std::{
    ffi::{OsStr, OsString},
    io::Read,
    path::{Path, PathBuf},
};

use clap::{
    ArgAction, Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perf_prof_events::{event::Chains, template::FieldSigns};
use perf_prof_format::spec::{CallGraph, RingSize, parse_pages};
use perf_prof_python::run::{
    self,
    imports::{Generation, generation_of},
    plan::{Dialect, Module, OnError, PerfScriptOptions, ScriptPlan, Signs},
    program::ProgramPlan,
};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Callchain, DeliveryOrder, Draft, Face, Input, Jobs, Naming, PlanError, RunPlan, SplitBy},
};
use perf_prof_symbols::symbol;
use perf_prof_system::{
    file::open_regular,
    output,
    shell::{shell_quote, shell_quote_all},
};
use perf_prof_tools::commands::script_template::{self, ScriptFile};

use super::{
    folders::{self, Wrapper},
    recording::{RecordingOptions, recording_path},
    wrappers::{self, Invocation},
};
use crate::{
    event_filters::EventFilters, failure::Failure, option_error::OptionError, python::on_error, record, targets,
};

const READ_ON: &str = "`perf-prof script --help` explains the options, with examples";

/// The options that only scripts use.
#[derive(Args)]
#[command(next_help_heading = "Scripts")]
pub struct ProgramOptions {
    // Must come before `events`: see `EventFilters`.
    #[command(flatten)]
    filters: EventFilters,
    /// Run a Python script that was written for perf script; `lang` lists the languages
    #[arg(short = 's', long, value_name = "FILE")]
    script: Option<OsString>,
    /// List the scripts that have names, with their arguments
    #[arg(short, long)]
    list: bool,
    /// Write a script with a handler for each tracepoint of the recording: `python` (to perf-script.py), `python:FILE`
    /// or FILE.py
    #[arg(short, long, value_name = "LANG", conflicts_with_all = ["script", "args"])]
    gen_script: Option<OsString>,
    /// Live: run the script on these events while they happen, without a recording
    #[arg(short, long = "event", value_name = "EVENT,...", action = ArgAction::Append)]
    events: Vec<String>,
    /// Live: record a call chain with every event, with `fp` or `dwarf[,SIZE]`
    #[arg(long, value_name = "HOW", requires = "events")]
    call_graph: Option<CallGraph>,
    /// Live: size of each ring buffer, as a number of pages (for example `128`) or in bytes (for example `8M`)
    #[arg(short, long, value_name = "N", value_parser = parse_pages, requires = "events")]
    mmap_pages: Option<RingSize>,
    /// Give scripts the true values of negative numbers, which perf shows as large positive ones
    #[arg(long)]
    signed: bool,
    /// Divide the recording between N processes, for scripts that only count and for scripts with __partial__ and
    /// __merge__
    #[arg(long, value_name = "N", conflicts_with = "events", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// What to do after an exception in a handler: continue (the default) or stop
    #[arg(
        long,
        value_name = "ACTION",
        value_parser = PossibleValuesParser::new(["continue", "stop"]).map(|action| on_error(&action)),
        hide_possible_values = true
    )]
    on_error: Option<OnError>,
    /// Use this Python for the script: an interpreter, or the folder of a venv
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Live: like `-- CMD`, as in perf-prof python: all words behind it are the command and its arguments
    #[arg(
        long,
        value_name = "CMD",
        num_args = 1..,
        allow_hyphen_values = true,
        requires = "events",
        conflicts_with = "args"
    )]
    exec: Vec<OsString>,
    /// A script or its name, `record NAME` or `report NAME`; then the arguments of the script
    #[arg(value_name = "ARGS", trailing_var_arg = true)]
    args: Vec<OsString>,
}

/// The options of `perf-prof script` that both scripts and the text output use.
#[derive(Clone, Copy)]
pub struct OtherOptions<'a> {
    /// The recording and its samples, or the target of live events.
    pub of: &'a RecordingOptions,
    /// True if the events of all CPUs are traced.
    pub all_cpus: bool,
    /// Whether scripts get callchains.
    pub chains: Chains,
    /// How function names are looked up.
    pub symbols: symbol::Options,
    /// All words of the command line.
    pub argv: &'a [OsString],
}

/// What the arguments after the options request.
enum Request {
    /// Run a script on a recording or on live events.
    Script { script: OsString, args: Vec<OsString> },
    /// Run the wrapper that records the events that a script needs.
    Record { name: OsString, args: Vec<OsString> },
    /// Run the wrapper that runs a script on a recording.
    Report { name: OsString, args: Vec<OsString> },
    /// Run both wrappers at once.
    Live { name: OsString, args: Vec<OsString> },
}

fn usage(message: impl ToString) -> Failure {
    Failure::Usage(message.to_string(), READ_ON.into())
}

fn unknown(name: &OsStr) -> Failure {
    let name = name.to_string_lossy();
    Failure::Usage(
        format!("`{name}` is neither the file nor the name of a script"),
        "`perf-prof script -l` lists the scripts that have names".into(),
    )
}

/// Returns the error for a word that is neither a script nor the name of a script. The word may be the path of a
/// recording.
fn no_script(word: &OsStr) -> Failure {
    let shown = word.to_string_lossy();
    let read_on = format!(
        "`perf-prof script -l` lists the scripts that have names; to select a recording, use -i: `-i {}`",
        shell_quote(word)
    );
    Failure::Usage(format!("`{shown}` is no script"), read_on.into())
}

/// Returns whether a path is a recording, in a file or a directory.
fn is_recording(path: &Path) -> bool {
    let mut magic = [0; 8];
    let is_file = open_regular(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok() && &magic == b"PERFILE2");
    is_file || path.is_dir()
}

/// Returns whether a script imports perf's Python module. Such a script opens its events itself. Fails if the script
/// also has handlers for `perf script`.
fn is_program(script: &OsStr) -> Result<bool, Failure> {
    // If the file cannot be read, the code that runs the script reports the error.
    match generation_of(Path::new(script)).unwrap_or(Generation::Handlers) {
        Generation::Handlers => Ok(false),
        Generation::Program => Ok(true),
        Generation::Mixed(what) => Err(Failure::Usage(
            format!(
                "{} imports perf, and so opens its events itself, but it also {what}: perf calls functions by their \
                 names only in scripts without `import perf`",
                script.display()
            ),
            "call such functions from a callback of perf.session(), or do without `import perf`: docs/perf-module.md"
                .into(),
        )),
    }
}

/// Returns the request of a report on the recording of `-i`, if there is one. The wrapper passes its arguments on to
/// `perf script`, so the recording comes after them.
fn report_on(name: OsString, mut args: Vec<OsString>, input: Option<&Path>) -> Request {
    if let Some(input) = input {
        args.extend(["-i".into(), input.as_os_str().to_owned()]);
    }
    Request::Report { name, args }
}

/// Returns whether the arguments of a script with wrappers contain `-i FILE` with a recording. For the recorder, `-i`
/// has another meaning (--no-inherit), so the file decides.
fn names_recording(args: &[OsString]) -> bool {
    let before_command = args.split(|arg| arg == "--").next().unwrap_or_default();
    before_command.windows(2).any(|words| {
        (words[0] == "-i" || words[0] == "--input") && (words[1] == "-" || is_recording(Path::new(&words[1])))
    })
}

fn events_without_script(events: &str, input: Option<&Path>) -> Failure {
    let events = shell_quote(events);
    let input = shell_quote(input.unwrap_or(Path::new("perf.data")));
    usage(format!(
        "-e {events} selects live events for a script, which -s names; `perf-prof trace -e {events} --input {input}` \
         prints these events of a recording"
    ))
}

fn opens_its_events(script: &OsStr, option: &str) -> Failure {
    usage(format!(
        "{option} has no effect on {}: the script imports perf, so it opens its events itself; write arguments of the \
         script after its name",
        script.display()
    ))
}

/// Returns the path of the script in `-s [LANGUAGE:]FILE`.
fn python_script(spec: &OsStr) -> Result<OsString, Failure> {
    let Some((language, script)) = spec.to_str().and_then(|spec| spec.split_once(':')) else {
        return Ok(spec.to_owned());
    };
    match language.to_ascii_lowercase().as_str() {
        "python" | "py" if !script.is_empty() => Ok(script.into()),
        "python" | "py" => Err(usage(format!("-s {language}: the script is missing; write -s {language}:FILE"))),
        _ => Err(usage(format!(
            "-s: `{language}` is not a language of scripts; write -s FILE for a Python script (`-s lang` lists the \
             languages)"
        ))),
    }
}

/// Returns the file to write for `-g LANGUAGE[:FILE]` or `-g FILE.py`.
fn template_file(spec: &OsStr) -> Result<ScriptFile, Failure> {
    let text = spec.to_str().unwrap_or_default();
    let (language, file) = text.split_once(':').map_or((text, None), |(language, file)| (language, Some(file)));
    match (language.to_ascii_lowercase().as_str(), file) {
        ("python" | "py", None) => Ok(ScriptFile::Usual),
        ("python" | "py", Some(file)) if !file.is_empty() => Ok(ScriptFile::Named(file.into())),
        _ if Path::new(spec).extension() == Some(OsStr::new("py")) => Ok(ScriptFile::Named(spec.into())),
        _ => Err(usage(format!("-g: `{}` is no Python script: write -g python or -g FILE.py", spec.display()))),
    }
}

/// The list of script languages, in perf's words.
const LANGUAGES: &str = "
Scripting language extensions (used in perf script -s [spec:]script.[spec]):

  Python                                     [Python]
  py                                         [Python]
";

impl ProgramOptions {
    /// Runs what the options request. Returns `None` if they request no script: the recording is then printed as text.
    pub fn run(self, others: OtherOptions<'_>) -> Result<Option<ExitStatus>, Failure> {
        if let (Some(filter), true) = (self.filters.first(), self.events.is_empty()) {
            return Err(usage(format!(
                "--filter {} applies to live events only, after their -e; samples of a recording are selected with -C, \
                 -p, -t, --comms, -S or --time",
                shell_quote(filter)
            )));
        }
        if self.list {
            output::print_line("List of available trace scripts:");
            folders::list().iter().for_each(|script| output::print_line(&script.line()));
            return Ok(Some(ExitStatus(0)));
        }
        if self.script.as_deref() == Some(OsStr::new("lang")) {
            output::write_line(LANGUAGES);
            return Ok(Some(ExitStatus(0)));
        }
        if let Some(spec) = &self.gen_script {
            let signs = if self.signed { FieldSigns::True } else { FieldSigns::AsPerf };
            let input = others.of.input();
            script_template::write(&input.path, &input.limits, &template_file(spec)?, signs)?;
            return Ok(Some(ExitStatus(0)));
        }
        if let (Some(events), None) = (self.events.first(), &self.script) {
            return Err(events_without_script(events, others.of.written_input()));
        }
        let Some(request) = self.request(others.of.written_input())? else { return Ok(None) };
        let status = match request {
            Request::Script { script, args } if is_program(&script)? => {
                if let Some(option) = self.option_of_events(others) {
                    return Err(opens_its_events(&script, option));
                }
                let jobs = self.jobs.unwrap_or(1).into();
                run::program::run(&ProgramPlan { script, args, python: self.python, jobs })?.0
            }
            Request::Script { script, args } => {
                let plan = self.plan(script, args, others)?;
                run::run(&plan)?.0
            }
            Request::Record { name, mut args } => {
                let record = folders::wrapper(&name, Wrapper::Record).ok_or_else(|| unknown(&name))?;
                if !record::has_command(&args) {
                    args.insert(0, "-a".into());
                }
                wrappers::run(&[Invocation { wrapper: &record, args: &args }])?
            }
            Request::Report { name, args } => {
                let report = folders::wrapper(&name, Wrapper::Report).ok_or_else(|| unknown(&name))?;
                wrappers::run(&[Invocation { wrapper: &report, args: &args }])?
            }
            Request::Live { name, args } => live(&name, args, others.all_cpus)?,
        };
        Ok(Some(ExitStatus(status)))
    }

    /// Returns what the arguments request. `input` is the recording of `-i`, which only a report can read: nothing is
    /// traced beside a recording.
    fn request(&self, input: Option<&Path>) -> Result<Option<Request>, Failure> {
        let mut args = self.args.clone();
        if let Some(script) = &self.script {
            return Ok(Some(Request::Script { script: python_script(script)?, args }));
        }
        if args.is_empty() {
            return Ok(None);
        }
        let first = args.remove(0);
        let word = first.to_str().unwrap_or_default();
        if word == "record" || word == "report" {
            if args.is_empty() {
                return Err(usage(format!("{word} needs the name of a script, for example `{word} syscall-counts`")));
            }
            let name = args.remove(0);
            return match (word, input) {
                ("record", None) => Ok(Some(Request::Record { name, args })),
                ("record", Some(_)) => Err(usage(format!(
                    "`record {0}` writes a recording, so -i has no meaning; `record {0} -o FILE` says where",
                    name.to_string_lossy()
                ))),
                _ => Ok(Some(report_on(name, args, input))),
            };
        }
        let wrapper = |which| folders::wrapper(&first, which);
        if wrapper(Wrapper::Record).is_some() && wrapper(Wrapper::Report).is_some() {
            return Ok(Some(match input.is_some() || names_recording(&args) {
                true => report_on(first, args, input),
                false => Request::Live { name: first, args },
            }));
        }
        let script = match folders::script(&first) {
            _ if is_recording(Path::new(&first)) => return Err(no_script(&first)),
            _ if Path::new(&first).is_file() => first,
            Some(found) => found.file.into(),
            None => return Err(no_script(&first)),
        };
        Ok(Some(Request::Script { script, args }))
    }

    /// Returns an option that the user gave and that applies only to events that perf-prof opens. A script that opens
    /// its events itself cannot use such an option. Returns `None` if there is no such option.
    fn option_of_events(&self, OtherOptions { of, all_cpus, .. }: OtherOptions<'_>) -> Option<&'static str> {
        let others = [
            (!self.events.is_empty(), "-e"),
            (all_cpus, "-a"),
            (self.signed, "--signed"),
            (self.on_error.is_some(), "--on-error"),
        ];
        let own = others.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option);
        own.or_else(|| of.of_events())
    }

    /// Makes the plan for running a script.
    fn plan(&self, script: OsString, args: Vec<OsString>, others: OtherOptions<'_>) -> Result<ScriptPlan, Failure> {
        let OtherOptions { of, symbols, argv, .. } = others;
        // The script is opened before the events, so that a wrong path is reported at once.
        open_regular(Path::new(&script))
            .map_err(|error| usage(format!("cannot open the script {}: {}", script.display(), error.source)))?;
        let (run, args) = if self.events.is_empty() {
            let mut run = RunPlan::of_recording(&self.recording(others), &[], of.verbosity());
            run.capture.callchain.python = of.python_frames;
            (run, args)
        } else {
            let (args, command) = command_of(args, argv);
            let command = if self.exec.is_empty() { command } else { self.exec.clone() };
            (self.live(others, command)?, args)
        };
        let signs = if self.signed { Signs::True } else { Signs::AsPerf };
        let dialect = Dialect::PerfScript(PerfScriptOptions { signs });
        let others = dialect.other_records();
        let run = RunPlan { others, symbols, naming: Naming::Perf, face: Face::Script, ..run };
        Ok(ScriptPlan {
            flight: None,
            listen: None,
            command_line: shell_quote_all(argv),
            run,
            python: self.python.clone(),
            dialect,
            on_error: self.on_error.unwrap_or_default(),
            module: Module::Script { module: script, args },
            recordings: None,
            part: None,
        })
    }

    fn recording(&self, OtherOptions { of, chains, .. }: OtherOptions<'_>) -> Input {
        let jobs = self.jobs.filter(|&count| count > 1);
        let jobs = jobs.map(|count| Jobs { count: count.into(), split: SplitBy::Time });
        let input = of.input();
        let max_stack = if chains == Chains::Hidden { Some(0) } else { input.max_stack };
        Input { path: recording_path(of.written_input()), jobs, max_stack, ..input }
    }

    /// Returns the plan of live events. The events are sorted by time, because scripts of perf expect this order.
    fn live(
        &self,
        OtherOptions { of, all_cpus, chains, .. }: OtherOptions<'_>,
        command: Vec<OsString>,
    ) -> Result<RunPlan, Failure> {
        if let Some(option) = of.only_for_recordings() {
            return Err(usage(format!(
                "-e and {option} cannot be combined: -e selects live events, and {option} is for recordings"
            )));
        }
        let events = self.filters.events(&self.events).map_err(usage)?;
        let selection = of.target(all_cpus).selection(command);
        targets::say_what_has_no_effect(&selection, of.verbosity());
        let draft = Draft {
            events,
            selection,
            callchain: Callchain::with_all_frames(self.call_graph.filter(|_| chains == Chains::Shown)),
            ring_size: self.mmap_pages,
            order: DeliveryOrder::Time,
            verbosity: of.verbosity(),
            ..Draft::default()
        };
        draft.checked().map_err(|error| match error {
            PlanError::CommandBesideTarget => usage(
                "a command cannot be combined with -C, -p, -t or --cgroups: leave these options out to trace the command, or \
                 use -a to trace all CPUs while the command runs",
            ),
            error => usage(OptionError::from(error)),
        })
    }
}

/// Separates the arguments of a script on live events from the command after `--` or `--exec`.
fn command_of(mut args: Vec<OsString>, argv: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    // clap removes a `--` that comes before all arguments, so it is searched in `argv`.
    let is_separated = argv.len().checked_sub(args.len() + 1).is_some_and(|before| argv[before] == "--");
    let command = match args.iter().position(|arg| arg == "--" || arg == "--exec") {
        _ if is_separated => std::mem::take(&mut args),
        Some(at) => args.split_off(at).split_off(1),
        None => Vec::new(),
    };
    (args, command)
}

/// Runs both wrappers of a script. As in perf, a script whose name ends in `top` gets all arguments, and all CPUs are
/// recorded. For any other script, its required arguments come first; the rest goes to the recorder.
fn live(name: &OsStr, mut args: Vec<OsString>, all_cpus: bool) -> Result<u8, Failure> {
    let (Some(record), Some(report)) =
        (folders::wrapper(name, Wrapper::Record), folders::wrapper(name, Wrapper::Report))
    else {
        return Err(unknown(name));
    };
    let is_top = name.as_encoded_bytes().ends_with(b"top");
    let description = folders::description(&name.to_string_lossy(), &report.file);
    let required = description.required_args();
    if args.len() < required {
        let message = format!("the script `{}` needs arguments: {}", description.name, description.args);
        return Err(usage(message));
    }
    let of_recorder = if is_top { Vec::new() } else { args.split_off(required) };
    let everywhere = is_top || all_cpus || !record::has_command(&of_recorder);
    let options = ["-q", "-o", "-"].map(OsString::from);
    let recorder: Vec<OsString> =
        everywhere.then(|| "-a".into()).into_iter().chain(options).chain(of_recorder).collect();
    args.extend(["-i", "-"].map(OsString::from));
    let record = Invocation { wrapper: &record, args: &recorder };
    Ok(wrappers::run(&[record, Invocation { wrapper: &report, args: &args }])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_command_comes_after_two_dashes_or_exec() {
        let check = |argv: &str, args: &str, script: &str, command: &str| {
            let (of_script, of_command) = command_of(words(args), &words(argv));
            assert_eq!((of_script, of_command), (words(script), words(command)), "{argv}");
        };
        check("p script -s x.py -e a:b", "", "", "");
        check("p script -s x.py -e a:b 5 -v", "5 -v", "5 -v", "");
        check("p script -s x.py -e a:b -- ls -l", "ls -l", "", "ls -l");
        check("p script -s x.py -e a:b 5 -- ls -- x", "5 -- ls -- x", "5", "ls -- x");
        check("p script -s x.py -e a:b 5 --exec ls -- x", "5 --exec ls -- x", "5", "ls -- x");
    }

    #[test]
    fn templates_are_written_where_perf_writes_them() {
        let places = [("python:perf-script.py", "perf-script.py"), ("py:x", "x"), ("a/y.py", "a/y.py")];
        for (spec, file) in places {
            assert_eq!(template_file(OsStr::new(spec)).unwrap(), ScriptFile::Named(file.into()));
        }
        for spec in ["python", "Python", "py"] {
            assert_eq!(template_file(OsStr::new(spec)).unwrap(), ScriptFile::Usual);
        }
        for spec in ["perl", "x.pl", "python:", ""] {
            assert!(matches!(template_file(OsStr::new(spec)), Err(Failure::Usage(..))), "{spec}");
        }
    }

    #[test]
    fn languages_are_written_as_in_perf() {
        for spec in ["x.py", "Python:x.py", "python:x.py", "py:x.py", "PY:x.py"] {
            assert_eq!(python_script(OsStr::new(spec)).unwrap(), "x.py");
        }
        for spec in ["perl:x.pl", "py:", ":x.py"] {
            assert!(matches!(python_script(OsStr::new(spec)), Err(Failure::Usage(..))), "{spec}");
        }
    }
}
