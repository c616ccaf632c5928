//! Makes the plan of a script run from the options and the split arguments. Refuses options that do not fit together.

use std::{ffi::OsString, path::PathBuf};

use perf_prof_core::{
    capture::OwnThreads,
    derive::source::Coverage,
    plan::{
        Callchain, Capture, Clock, DeliveryOrder, Face, Input, Jobs, LivePlan, Names, Naming, Origin, ReadLimits,
        RecordingOutput, RunPlan, SplitBy, Switch, Target, TaskSelection, live_target, recorded_tasks,
    },
    spec::{EventSpec, SpecError, parse_events},
    symbol::{self, Data, Demangle, Inline, Srcline},
    sys::{
        compat,
        shell::{shell_quote, shell_quote_all},
    },
};

use super::{first_line, inputs, options::Options, split::Split};
use crate::cli::{
    option_error::OptionError,
    values::{Ids, owner, rate, verbosity},
};
use crate::run::plan::{Dialect, Module, ScriptPlan};

/// Why no plan can be made from the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No `-e`.
    #[error(
        "no event selected; use -e, for example `perf-prof python -e sched:sched_wakeup script.py` (`perf-prof list` \
         lists all events)"
    )]
    NoEvent,
    /// No script.
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
    /// An input that cannot be divided between processes, or an option that is not possible with several processes.
    #[error("--jobs and {0} cannot be combined: with --jobs, each process reads its own part of a file")]
    ConflictWithJobs(&'static str),
    /// A pattern of `--input` that names no recording.
    #[error("--input '{0}' {1}")]
    InputPattern(String, String),
    /// `--input -` beside another recording.
    #[error("--input - cannot be combined with other recordings or with --executor: a pipe can be read only once")]
    PipeAmongRecordings,
    /// `--split cpu` with several recordings.
    #[error(
        "--split cpu cannot be used with several recordings or with --executor: their times are of different clocks"
    )]
    SplitByCpuOfSeveral,
    /// `--executor` without a function.
    #[error("--executor {0}: write MODULE:FUNCTION; FUNCTION() returns an executor, such as a ProcessPoolExecutor")]
    Executor(String),
    /// `--split` without processes.
    #[error("--split says how --jobs divides a recording; use it with --jobs")]
    SplitWithoutJobs,
    /// `--record` with `help`.
    #[error("--record and `help` cannot be combined: `help` only prints a template, so there are no events to record")]
    RecordOfTemplate,
    /// `--record -`.
    #[error("--record needs a file name: the script uses the standard output (for a file named -, use ./-)")]
    RecordToStdout,
    /// A mistake that is possible with the options of other commands too.
    #[error(transparent)]
    Options(#[from] OptionError),
}

impl From<SpecError> for PlanError {
    fn from(error: SpecError) -> Self {
        PlanError::Options(error.into())
    }
}

/// Makes the plan. `argv` is the whole command line; templates and recordings contain it.
pub fn plan(options: Options, split: Split, argv: &[OsString]) -> Result<ScriptPlan, PlanError> {
    let paths = match (&options.part, options.input.last()) {
        // The other process has expanded the patterns, and gives this recording after the options that the user typed.
        (Some(_), Some(path)) => vec![path.clone()],
        _ => inputs::expand(&options.input)?,
    };
    let mut events: Vec<EventSpec> = Vec::new();
    for list in &options.events {
        events.extend(parse_events(list)?);
    }
    let first = match (events.first(), paths.first()) {
        (None, None) => return Err(PlanError::NoEvent),
        (_, Some(path)) => format!("--input {}", shell_quote(path)),
        (Some(first), None) => format!("-e {}", shell_quote(&first.selector)),
    };
    let module = match split.module {
        None => return Err(PlanError::NoModule(first)),
        Some(module) if module == "help" => match split.script_args.first() {
            None => Module::Template,
            Some(arg) => return Err(PlanError::TemplateArguments(arg.to_string_lossy().into_owned())),
        },
        Some(module) => Module::Script { module, args: split.script_args },
    };
    let own_events = match &module {
        Module::Script { module, .. } if !paths.is_empty() => match &options.part {
            Some(part) => part.own_events,
            None => first_line::count_own_events(argv, module),
        },
        _ => 0,
    };
    // -g means the same as in `perf-prof record`: kernel and user frames. A replay shows the frames that were recorded.
    // `-g --no-kernel-callchain` samples no frames, as in the C implementation: user frames are added beside kernel
    // frames only.
    let is_asked = (options.callchains || options.call_graph.is_some()) && !compat::is_on();
    let both = (is_asked && paths.is_empty() && !options.no_kernel_callchain).then_some(Switch::On);
    let callchain = Callchain {
        every_event: if options.callchains || options.call_graph.is_some() { Switch::On } else { Switch::Off },
        how: options.call_graph.flatten().unwrap_or_default(),
        user: switch(options.user_callchain, options.no_user_callchain).or(both),
        kernel: switch(options.kernel_callchain, options.no_kernel_callchain),
    };
    let symbols = symbol::Options {
        cache_bytes: options.symbol_cache.unwrap_or(symbol::Options::default().cache_bytes),
        demangle: if options.no_demangle { Demangle::No } else { Demangle::Yes },
        inline: if options.inline { Inline::Yes } else { Inline::No },
        srcline: if options.srcline { Srcline::Yes } else { Srcline::No },
        data: Data::No,
    };
    let input = input(&options, paths.first(), split.workload.is_some(), &events)?;
    let recordings = match (&options.part, &module) {
        (None, Module::Script { .. }) => inputs::recordings(paths, &options, split.options)?,
        _ => None,
    };
    let record = record(&options, &module, argv)?;
    let target = match input {
        Some(_) => Target::AllCpus,
        None => target(options.cpus, options.pids, options.tids, options.cgroups, split.workload)?,
    };
    let (target, selected_tasks) = match target {
        Target::Processes(_) | Target::Threads(_) | Target::Workload(_) if options.all_cpus => {
            (Target::AllCpus, Some(target))
        }
        target => live_target(&events, target).map_err(OptionError::from)?,
    };
    let capture = Capture {
        events,
        target,
        selected_tasks,
        callchain,
        rate: rate(options.count, options.freq)?,
        ring_size: options.mmap_pages,
        buffer: options.buffer,
        watermark: options.watermark,
        clock: if options.monotonic { Clock::Monotonic } else { Clock::Perf },
        order: if options.order { DeliveryOrder::Time } else { DeliveryOrder::PerCpu },
        sampling_limit: options.sampling_limit,
        own_threads: if options.include_self { OwnThreads::Included } else { OwnThreads::LeftOut },
        ..Capture::default()
    };
    let run = RunPlan {
        capture,
        own_events,
        origin: match input {
            Some(input) => Origin::Recorded(Box::new(input)),
            None => Origin::Live(LivePlan { recording: record, duration: options.duration }),
        },
        others: Dialect::PerfProf.other_records(),
        symbols,
        naming: Naming::Own,
        interval: options.interval,
        limit: options.exit_n,
        usage_every: options.usage_self,
        // The process that merges the results writes to this file.
        output: if options.part.is_some() { None } else { options.output },
        face: Face::Script,
        verbosity: verbosity(options.verbose, options.quiet),
    };
    Ok(ScriptPlan {
        command_line: shell_quote_all(argv),
        run,
        python: options.python,
        dialect: Dialect::PerfProf,
        on_error: options.on_error.unwrap_or_default(),
        module,
        recordings,
        part: options.part,
    })
}

/// Returns the recording to replay and the selection of its samples, or `None` if there is no `--input`.
fn input(
    options: &Options,
    path: Option<&PathBuf>,
    has_workload: bool,
    events: &[EventSpec],
) -> Result<Option<Input>, PlanError> {
    let Some(path) = path else {
        return if options.time.is_some() { Err(OptionError::TimeWithoutInput.into()) } else { Ok(None) };
    };
    let of_live = [
        ("-m", options.mmap_pages.is_some()),
        ("-F", options.freq.is_some()),
        ("-c", options.count.is_some()),
        ("--cgroups", !options.cgroups.is_empty()),
        ("--exec", has_workload),
        ("--watermark", options.watermark.is_some()),
        ("--sampling-limit", options.sampling_limit.is_some()),
        ("--monotonic", options.monotonic),
        ("--duration", options.duration.is_some()),
    ];
    if let Some((option, _)) = of_live.into_iter().find(|(_, given)| *given) {
        return Err(OptionError::LiveOptionWithInput(option).into());
    }
    let ids = |ids: &Option<Ids>| ids.as_ref().map(|Ids(ids)| ids.clone());
    Ok(Some(Input {
        path: path.clone(),
        limits: ReadLimits { owner: owner(options.force), memory: options.buffer },
        names: Names::default(),
        max_stack: None,
        cpus: options.cpus.clone(),
        pids: ids(&options.pids),
        tids: ids(&options.tids),
        tasks: {
            let are_given = options.pids.is_some() || options.tids.is_some();
            let selected = recorded_tasks(events, are_given && !options.all_cpus, Coverage::of(&options.cpus));
            let selected = selected.map_err(OptionError::from)?;
            if options.all_cpus { TaskSelection::ForScript } else { selected }
        },
        times: options.time.clone(),
        guests: if options.guest { Switch::On } else { Switch::Off },
        jobs: jobs(options)?,
        processes: options.part.as_ref().map(|part| part.processes),
    }))
}

/// Returns the recording that `--record` requests, or `None`.
fn record(options: &Options, module: &Module, argv: &[OsString]) -> Result<Option<RecordingOutput>, PlanError> {
    let Some(path) = &options.record else { return Ok(None) };
    if !options.input.is_empty() {
        return Err(OptionError::LiveOptionWithInput("--record").into());
    }
    if *module == Module::Template {
        return Err(PlanError::RecordOfTemplate);
    }
    if path.as_os_str() == "-" {
        return Err(PlanError::RecordToStdout);
    }
    let command_line = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Some(RecordingOutput { path: path.clone(), command_line }))
}

fn jobs(options: &Options) -> Result<Option<Jobs>, PlanError> {
    let split = if options.split.as_deref() == Some("cpu") { SplitBy::Cpu } else { SplitBy::Time };
    if let Some(part) = &options.part {
        return Ok(Some(Jobs { count: part.count, split }));
    }
    if options.split.is_some() && options.jobs.is_none() {
        return Err(PlanError::SplitWithoutJobs);
    }
    let Some(count) = options.jobs.filter(|&count| count > 1) else { return Ok(None) };
    if options.input.iter().any(|path| path.as_os_str() == "-") {
        return Err(PlanError::ConflictWithJobs("a pipe"));
    }
    if options.exit_n.is_some() {
        return Err(PlanError::ConflictWithJobs("-N"));
    }
    Ok(Some(Jobs { count: count.into(), split }))
}

fn switch(on: bool, off: bool) -> Option<Switch> {
    match (on, off) {
        (true, _) => Some(Switch::On),
        (false, true) => Some(Switch::Off),
        (false, false) => None,
    }
}

fn target(
    cpus: Option<perf_prof_core::spec::CpuSet>,
    pids: Option<Ids>,
    tids: Option<Ids>,
    cgroups: Vec<String>,
    workload: Option<Vec<OsString>>,
) -> Result<Target, PlanError> {
    let given = [
        ("-C", cpus.is_some()),
        ("-p", pids.is_some()),
        ("-t", tids.is_some()),
        ("--cgroups", !cgroups.is_empty()),
        ("--exec", workload.is_some()),
    ];
    let given: Vec<&'static str> = given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
    match given[..] {
        // The events of a cgroup are opened on each CPU, so they can also be opened on some CPUs only.
        ["-C", "--cgroups"] | [] | [_] => {}
        [first, second, ..] => return Err(OptionError::TwoTargets(first, second).into()),
    }
    for (option, ids) in [("-p", &pids), ("-t", &tids)] {
        if ids.as_ref().is_some_and(|Ids(ids)| ids.contains(&0)) {
            return Err(OptionError::IdleTaskId(option).into());
        }
    }
    Ok(match (pids, tids, workload, cpus) {
        (Some(Ids(pids)), ..) => Target::Processes(pids),
        (_, Some(Ids(tids)), ..) => Target::Threads(tids),
        (_, _, Some(command), _) => Target::Workload(command),
        (.., cpus) if !cgroups.is_empty() => Target::Cgroups { cgroups, cpus },
        (.., Some(cpus)) => Target::Cpus(cpus),
        (.., None) => Target::AllCpus,
    })
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::cli::python::{options, split};

    fn parse(args: &[&str]) -> Result<ScriptPlan, PlanError> {
        let argv: Vec<OsString> = ["perf-prof", "python"].iter().chain(args).map(OsString::from).collect();
        let command = options::command();
        let mut split = split::split(&split::flags(&command), argv[2..].to_vec()).unwrap();
        let ours = [OsString::from("python")].into_iter().chain(std::mem::take(&mut split.options));
        let options = Options::from_arg_matches(&command.try_get_matches_from(ours).unwrap()).unwrap();
        plan(options, split, &argv)
    }

    /// Compares with `expected` those lines of the plan that differ from a plan without options.
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
