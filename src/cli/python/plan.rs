//! Makes the plan of a script run from the options and the split arguments. Refuses options that cannot be combined.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use perf_prof_capture::OwnThreads;
use perf_prof_format::spec::{EventSpec, SpecError};
use perf_prof_python::run::{
    imports::{Generation, generation_of},
    inputs::{PatternError, expand},
    plan::{Dialect, Module, ScriptPlan},
};
use perf_prof_session::{
    plan::{
        AllCpus, Callchain, Clock, DeliveryOrder, Draft, Face, PlanError, RecordingOutput, Selection, SplitBy, Switch,
    },
    selectors,
};
use perf_prof_symbols::symbol::{self, Data, Demangle, Inline, Srcline};
use perf_prof_system::shell::{shell_quote, shell_quote_all};

use super::{first_line, inputs, options::Options, snapshots, split::Split};
use crate::{
    option_error::OptionError,
    values::{owner, verbosity},
};

/// Returns the error for a command line without events.
fn no_event(module: Option<&OsStr>) -> ScriptPlanError {
    let Some(script) = module else { return ScriptPlanError::NoEvent };
    let name = script.to_string_lossy().into_owned();
    if !first_line::is_of_perf_prof(script) {
        return match generation_of(Path::new(script)) {
            Some(Generation::Program) => ScriptPlanError::NoEventForProgram(name, shell_quote(script)),
            _ => ScriptPlanError::NoEvent,
        };
    }
    let path = if name.contains('/') { name.clone() } else { format!("./{name}") };
    ScriptPlanError::NoEventBesideFirstLine(name, shell_quote(&path))
}

/// Why no plan can be made from the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptPlanError {
    /// No `-e` on the command line.
    #[error(
        "no event selected; use -e, for example `perf-prof python -e sched:sched_wakeup script.py` (`perf-prof list` \
         lists all events)"
    )]
    NoEvent,
    /// No `-e` on the command line. The script's first line has `-e`.
    #[error("no event selected; to use the events in the first line of {0}, start the script itself: `{1}`")]
    NoEventBesideFirstLine(String, String),
    /// No `-e` on the command line. The script imports perf's Python module.
    #[error("no event selected; use -e, or, if {0} opens its events itself by `import perf`: `perf-prof script {1}`")]
    NoEventForProgram(String, String),
    /// There is no script.
    #[error(
        "no script: give a script after the options, for example `perf-prof python {0} script.py`; write `help` \
         instead of the script to print a template"
    )]
    NoModule(String),
    /// `help` with arguments.
    #[error(
        "`help` prints a template and takes no arguments, but `{0}` was given (to run a script named help, use ./help)"
    )]
    TemplateArguments(String),
    /// A pattern of `--input` matches no recording.
    #[error("--input {0}")]
    InputPattern(#[from] PatternError),
    /// `--input -` together with another recording.
    #[error("--input - cannot be combined with other recordings or with --executor: a pipe can be read only once")]
    PipeAmongRecordings,
    /// `--split cpu` with several recordings.
    #[error(
        "--split cpu cannot be combined with several recordings or with --executor: each recording has its own clock"
    )]
    SplitByCpuOfSeveral,
    /// `--executor` without the name of a function.
    #[error("--executor {0}: write MODULE:FUNCTION; FUNCTION() returns an executor, such as a ProcessPoolExecutor")]
    Executor(String),
    /// `--listen` in a run that delivers no live events to a script.
    #[error("--listen cannot be combined with --input or `help`: it serves the tables of a script during a live run")]
    ListenWithoutRun,
    /// `--before` in a run that delivers no live events to a script.
    #[error(
        "--before cannot be combined with --input or `help`: it keeps live events for perf_prof.snapshot() in the script"
    )]
    BeforeWithoutRun,
    /// `--record` with `help`.
    #[error("--record and `help` cannot be combined: `help` only prints a template, so there are no events to record")]
    RecordOfTemplate,
    /// `--record -`.
    #[error("--record needs a file name: the script uses the standard output (for a file named -, use ./-)")]
    RecordToStdout,
    /// An error in options that other commands also have.
    #[error(transparent)]
    Options(#[from] OptionError),
}

impl From<SpecError> for ScriptPlanError {
    fn from(error: SpecError) -> Self {
        ScriptPlanError::Options(error.into())
    }
}

impl From<PlanError> for ScriptPlanError {
    fn from(error: PlanError) -> Self {
        ScriptPlanError::Options(error.into())
    }
}

/// Makes the plan. `argv` is the whole command line, which templates and recordings contain.
pub fn plan(options: Options, split: Split, argv: &[OsString]) -> Result<ScriptPlan, ScriptPlanError> {
    let paths = match (&options.part, options.input.last()) {
        // This process replays a part for another process. The other process has expanded the patterns, and has
        // appended the recording to the options that the user typed. So the last `--input` names the recording.
        (Some(_), Some(path)) => vec![path.clone()],
        _ => expand(&options.input)?,
    };
    let mut events: Vec<EventSpec> = Vec::new();
    for list in &options.events {
        events.extend(selectors::parse(list)?);
    }
    let first = match (events.first(), paths.first()) {
        (None, None) => return Err(no_event(split.module.as_deref())),
        (_, Some(path)) => format!("--input {}", shell_quote(path)),
        (Some(first), None) => format!("-e {}", shell_quote(&first.selector)),
    };
    let module = match split.module {
        None => return Err(ScriptPlanError::NoModule(first)),
        Some(module) if module == "help" => match split.script_args.first() {
            None => Module::Template,
            Some(arg) => return Err(ScriptPlanError::TemplateArguments(arg.to_string_lossy().into_owned())),
        },
        Some(module) => Module::Script { module, args: split.script_args },
    };
    if options.listen.is_some() && (!paths.is_empty() || module == Module::Template) {
        return Err(ScriptPlanError::ListenWithoutRun);
    }
    let own_events = match &module {
        Module::Script { module, .. } if !paths.is_empty() => {
            // If the user selects no events, the script gets the events of its first line, even if it was started with
            // `perf-prof python SCRIPT`.
            let typed = events.len();
            if typed == 0 {
                events = first_line::events(module);
            }
            match &options.part {
                Some(part) => part.own_events,
                None if typed == 0 => events.len(),
                None => first_line::count_own_events(argv, module),
            }
        }
        _ => 0,
    };
    if options.before.is_some() && (!paths.is_empty() || module == Module::Template) {
        return Err(ScriptPlanError::BeforeWithoutRun);
    }
    let recording = if options.before.is_some() { None } else { recording(&options, &module, argv)? };
    let input = paths.first().cloned();
    let recordings = match (&options.part, &module) {
        (None, Module::Script { .. }) => inputs::recordings(paths, &options, split.options)?,
        _ => None,
    };
    let run = Draft { events, own_events, recording, input, ..draft(options.clone(), split.workload) }.checked()?;
    Ok(ScriptPlan {
        command_line: shell_quote_all(argv),
        flight: snapshots::plan(&options, &run, argv)?,
        run,
        python: options.python,
        dialect: Dialect::PerfProf,
        on_error: options.on_error.unwrap_or_default(),
        module,
        recordings,
        listen: options.listen,
        part: options.part,
    })
}

/// Returns the draft of the run: its options before they are checked, without events and recordings.
fn draft(options: Options, exec: Option<Vec<OsString>>) -> Draft {
    let selection = Selection {
        all_cpus: if options.all_cpus { AllCpus::BesideTasks } else { AllCpus::NotSelected },
        cpus: options.cpus,
        pids: options.pids.map(Vec::from),
        tids: options.tids.map(Vec::from),
        cgroups: options.cgroups,
        exec,
        command: Vec::new(),
    };
    let chains = options.call_graph.map(Option::unwrap_or_default).or(options.callchains.then(Default::default));
    let user = switch(options.user_callchain, options.no_user_callchain);
    let kernel = switch(options.kernel_callchain, options.no_kernel_callchain);
    let split_by = |split: String| if split == "cpu" { SplitBy::Cpu } else { SplitBy::Time };
    let part = options.part;
    Draft {
        selection,
        callchain: Callchain::with_frames_of(chains, user, kernel).with_python(options.python_frames),
        period: options.rate.count,
        frequency: options.rate.freq,
        ring_size: options.mmap_pages,
        buffer: options.buffer,
        watermark: options.watermark,
        clock: if options.monotonic { Clock::Monotonic } else { Clock::Perf },
        order: if options.order { DeliveryOrder::Time } else { DeliveryOrder::PerCpu },
        sampling_limit: options.sampling_limit,
        cgroups: options.all_cgroups.into(),
        in_kernel: options.in_kernel.when(),
        own_threads: if options.include_self { OwnThreads::Included } else { OwnThreads::LeftOut },
        duration: options.duration,
        owner: owner(options.force),
        times: options.time,
        guests: options.guest.into(),
        jobs: part.as_ref().map(|part| part.count).or(options.jobs.map(usize::from)),
        split: options.split.map(split_by),
        processes: part.as_ref().map(|part| part.processes),
        others: Dialect::PerfProf.other_records(),
        symbols: symbol::Options {
            cache_bytes: options.symbol_cache.unwrap_or(symbol::Options::default().cache_bytes),
            demangle: if options.no_demangle { Demangle::No } else { Demangle::Yes },
            inline: if options.inline { Inline::Yes } else { Inline::No },
            srcline: if options.srcline { Srcline::Yes } else { Srcline::No },
            data: Data::No,
        },
        interval: options.interval,
        limit: options.exit_n,
        usage_every: options.usage_self,
        // A process that replays a part sends its output to the process that merges the results. Only the merging
        // process opens the file of --output.
        output: if part.is_some() { None } else { options.output },
        face: Face::Script,
        verbosity: verbosity(options.verbose, options.quiet),
        ..Draft::default()
    }
}

/// Returns the file that `--record` requests, with the command line for its header; `None` without `--record`.
fn recording(
    options: &Options,
    module: &Module,
    argv: &[OsString],
) -> Result<Option<RecordingOutput>, ScriptPlanError> {
    let Some(path) = &options.record else { return Ok(None) };
    if options.input.is_empty() && *module == Module::Template {
        return Err(ScriptPlanError::RecordOfTemplate);
    }
    if options.input.is_empty() && path.as_os_str() == "-" {
        return Err(ScriptPlanError::RecordToStdout);
    }
    let command_line = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Some(RecordingOutput { path: path.clone(), command_line }))
}

fn switch(on: bool, off: bool) -> Option<Switch> {
    match (on, off) {
        (true, _) => Some(Switch::On),
        (false, true) => Some(Switch::Off),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::FromArgMatches;
    use expect_test::{Expect, expect};
    use perf_prof_session::recorder::Output;

    use super::*;
    use crate::python::{options, split};

    fn parse(args: &[&str]) -> Result<ScriptPlan, ScriptPlanError> {
        let argv: Vec<OsString> = ["perf-prof", "python"].iter().chain(args).map(OsString::from).collect();
        let command = options::command();
        let mut split = split::split(&split::flags(&command), argv[2..].to_vec()).unwrap();
        let ours = [OsString::from("python")].into_iter().chain(std::mem::take(&mut split.options));
        let options = Options::from_arg_matches(&command.try_get_matches_from(ours).unwrap()).unwrap();
        plan(options, split, &argv)
    }

    /// Compares the plan with a plan without options. The lines that differ must be `expected`.
    #[track_caller]
    fn check(args: &[&str], expected: Expect) {
        let unindented = |line: &str| line.strip_prefix("    ").unwrap_or(line).to_owned();
        let lines = |plan: &ScriptPlan| format!("{plan:#?}").lines().map(unindented).collect::<Vec<_>>();
        let plain = lines(&parse(&["-e", "a:b", "x.py"]).unwrap());
        let actual = match parse(args) {
            Ok(plan) => {
                let changed: Vec<String> = lines(&plan).into_iter().filter(|line| !plain.contains(line)).collect();
                changed.join("\n")
            }
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&actual);
    }

    #[test]
    fn plans() {
        check(&["-e", "a:b", "x.py"], expect![[""]]);
        check(
            &["-e", "c:d/x>1 && y/stack/", "-e", "e:f", "help"],
            expect![[r#"
                command_line: "perf-prof python -e 'c:d/x>1 && y/stack/' -e e:f help",
                                selector: "c:d/x>1 && y/stack/",
                                    system: "c",
                                    name: "d",
                                filter: Some(
                                    "x>1 && y",
                                ),
                                    stack: On,
                                selector: "e:f",
                                    system: "e",
                                    name: "f",
                module: Template,"#]],
        );
        check(
            &["-e", "a:b", "x.py", "-i", "1s", "-i", "20", "it's", "-gvv"],
            expect![[r#"
                command_line: "perf-prof python -e a:b x.py -i 1s -i 20 'it'\\''s' -gvv",
                            every_event: On,
                            user: Some(
                                On,
                            ),
                    interval: Some(
                        20ms,
                    verbosity: Debug,
                    args: [
                        "it's",
                    ],"#]],
        );
        check(
            &["-e", "a:b", "--user-callchain", "--no-kernel-callchain", "x.py", "--no-user-callchain"],
            expect![[r#"
                command_line: "perf-prof python -e a:b --user-callchain --no-kernel-callchain x.py --no-user-callchain",
                            user: Some(
                                Off,
                            ),
                            kernel: Some(
                                Off,
                            ),"#]],
        );
        check(
            &["-e", "a:b", "-m", "8M", "--buffer=1G", "--watermark", "50", "-N3", "--order", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -e a:b -m 8M --buffer=1G --watermark 50 -N3 --order x.py",
                        ring_size: Some(
                            Bytes(
                                8388608,
                            ),
                        ),
                        buffer: Some(
                            1073741824,
                        ),
                        watermark: Some(
                            50,
                        ),
                        order: Time,
                    limit: Some(
                        3,"#]],
        );
        check(
            &["-qe", "a:b", "--monotonic", "-o", "f", "--usage-self=5s", "--sampling-limit=9", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -qe a:b --monotonic -o f --usage-self=5s --sampling-limit=9 x.py",
                        clock: Monotonic,
                        sampling_limit: Some(
                            9,
                        ),
                    usage_every: Some(
                        5s,
                    output: Some(
                        "f",
                    verbosity: Quiet,"#]],
        );
        check(
            &["-e", "a:b", "--on-error", "stop", "--python", "/venv", "--", "-x.py", "--", "-v"],
            expect![[r#"
                command_line: "perf-prof python -e a:b --on-error stop --python /venv -- -x.py -- -v",
                python: Some(
                    "/venv",
                ),
                on_error: Stop,
                    module: "-x.py",
                    args: [
                        "--",
                        "-v",
                    ],"#]],
        );
    }

    #[test]
    fn a_flight_recorder_beside_the_run() {
        let flight =
            |args: &[&str]| parse(&[&["-e", "a:b", "-m", "8M"], args, &["x.py"]].concat()).unwrap().flight.unwrap();
        let folder = |args: &[&str]| match flight(args).record.output {
            Output::File(path) => path.display().to_string(),
            Output::Stdout => panic!("a dump is a file"),
        };
        assert_eq!(folder(&["--before", "2s"]), "./");
        assert_eq!(folder(&["--before", "2s", "--record", "dumps"]), "dumps/");
        let plan = flight(&["--before", "2s", "--after", "1s", "--max-files", "3", "--buffer", "64M"]);
        assert_eq!((plan.before, plan.after.as_secs(), plan.max_files), (Some(Duration::from_secs(2)), 1, Some(3)));
        // -m sets the size of the rings whose events are delivered, not of the overwritten rings.
        assert_eq!((plan.record.capture.ring_size, plan.record.capture.buffer), (None, Some(64 << 20)));
        assert!(plan.is_on_request());
        check(
            &["-e", "a:b", "--after", "1s", "x.py"],
            expect!["error: --after is an option of the flight recorder; add --before TIME, for example --before 10s"],
        );
        check(
            &["--input", "a.data", "--before", "1s", "x.py"],
            expect![
                "error: --before cannot be combined with --input or `help`: it keeps live events for perf_prof.snapshot() in the script"
            ],
        );
    }

    #[test]
    fn targets() {
        check(
            &["-e", "a:b", "-C", "2,0-1", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -e a:b -C 2,0-1 x.py",
                        target: Cpus(
                            CpuSet(
                                {
                                    0,
                                    1,
                                    2,
                            ),
                        ),"#]],
        );
        check(
            &["-e", "a:b", "-p", "1,2", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -e a:b -p 1,2 x.py",
                        target: Processes(
                            [
                                1,
                                2,
                            ],
                        ),"#]],
        );
        check(
            &["-e", "a:b", "-t", "3", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -e a:b -t 3 x.py",
                        target: Threads(
                            [
                                3,
                            ],
                        ),"#]],
        );
        check(
            &["-e", "a:b", "--cgroups", "a,b/*", "-C1", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -e a:b --cgroups 'a,b/*' -C1 x.py",
                        target: Cgroups {
                            cgroups: [
                                "a",
                                "b/*",
                            ],
                            cpus: Some(
                                CpuSet(
                                    {
                                        1,
                                    },
                                ),
                            ),"#]],
        );
        check(
            &["-e", "a:b", "x.py", "--exec", "sleep", "-i", "1"],
            expect![[r#"
                command_line: "perf-prof python -e a:b x.py --exec sleep -i 1",
                        target: Workload(
                            [
                                "sleep",
                                "-i",
                                "1",
                            ],
                        ),"#]],
        );
        check(
            &["-e", "a:b", "-t", "3", "-p", "1", "x.py"],
            expect!["error: -p and -t cannot be combined: select only one target for the events"],
        );
        check(
            &["-e", "a:b", "-C0", "x.py", "--exec", "true"],
            expect!["error: -C and --exec cannot be combined: select only one target for the events"],
        );
    }
}
