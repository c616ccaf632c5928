//! Options and the split arguments to a session's plan: what fits together and what does not.

use std::ffi::{OsStr, OsString};

use super::{
    first_line,
    options::{Ids, Options},
    split::Split,
};
use crate::{
    parallel::shell_quote,
    session::plan::{
        Callchain, Capture, Clock, Input, Jobs, Module, Order, Plan, Recorded, SplitBy, Switch, Target, Verbosity,
    },
    spec::{EventSpec, Grouping, Rate, SpecError, parse_events},
    symbol::{self, Demangle, Inline, Srcline},
};

/// Options that do not make a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No `-e`.
    #[error(
        "no event: name some with -e, as in `perf-prof python -e sched:sched_wakeup script.py` (`perf-prof list` shows \
         them)"
    )]
    NoEvent,
    /// No `-e` of a recording.
    #[error(
        "no event: name some with -e, as in `perf-prof record -e sched:sched_wakeup -a` (`perf-prof list` shows them)"
    )]
    NothingToRecord,
    /// No script.
    #[error(
        "no script: name one after the options, as in `perf-prof python {0} script.py`; `help` in its place prints \
         a template"
    )]
    NoModule(String),
    /// `help` with arguments.
    #[error("`help` prints a template and takes no arguments, `{0}` was given (a script of that name is ./help)")]
    TemplateArguments(String),
    /// A selector is wrong.
    #[error("-e {0}")]
    Event(#[from] SpecError),
    /// A group where each event is on its own.
    #[error(
        "-e {0}: groups are for recording and counting: `perf-prof record -e '{{...}}'`, and then `perf-prof python \
         --input FILE`"
    )]
    Group(String),
    /// Two options that name different things to attach to.
    #[error("{0} and {1} cannot be combined: events are attached to one or the other")]
    Conflict(&'static str, &'static str),
    /// Options for live events.
    #[error("{0} says how events are recorded, and cannot be combined with --input, where they have been")]
    OfLive(&'static str),
    /// A range of time of events that did not happen yet.
    #[error("--time chooses from a recording; name one with --input")]
    TimeOfLive,
    /// What `--jobs` cannot do.
    #[error("--jobs and {0} cannot be combined: each process reads its own part of a file")]
    NotDivided(&'static str),
    /// `--record` with `help`.
    #[error(
        "--record and `help` cannot be combined: a template is printed, and nothing happens that could be recorded"
    )]
    NothingHappens,
    /// `--record -`.
    #[error("--record writes a file: the standard output is the script's (./- is a file of that name)")]
    TwoOutputs,
    /// The idle task's number, for live events.
    #[error(
        "{0} 0: events cannot be attached to the idle tasks, which have that number; -C watches them with all others"
    )]
    Idle(&'static str),
    /// Both of two ways to say how often.
    #[error("-c and -F cannot be combined: events are sampled by their number or by time")]
    TwoRates,
}

/// Makes the plan. `argv` is the whole command line, for the template's header.
pub fn plan(options: Options, split: Split, argv: &[OsString]) -> Result<Plan, PlanError> {
    let mut events: Vec<EventSpec> = Vec::new();
    for list in &options.events {
        events.extend(parse_events(list)?);
    }
    // Of a recording braces choose the events within: whether these were a group was decided when it was made.
    if options.input.is_none() {
        no_groups(&events)?;
    }
    let first = match (events.first(), &options.input) {
        (None, None) => return Err(PlanError::NoEvent),
        (_, Some(path)) => format!("--input {}", shell_quote(path.as_os_str())),
        (Some(first), None) => format!("-e {}", shell_quote(OsStr::new(&first.selector))),
    };
    let module = match split.module {
        None => return Err(PlanError::NoModule(first)),
        Some(module) if module == "help" => match split.script.first() {
            None => Module::Template,
            Some(arg) => return Err(PlanError::TemplateArguments(arg.to_string_lossy().into_owned())),
        },
        Some(module) => Module::Script { module, args: split.script },
    };
    let own_events = match &module {
        Module::Script { module, .. } if options.input.is_some() => first_line::events(argv, module),
        _ => 0,
    };
    let callchain = Callchain {
        every_event: if options.callchains || options.call_graph.is_some() { Switch::On } else { Switch::Off },
        how: options.call_graph.flatten().unwrap_or_default(),
        user: switch(options.user_callchain, options.no_user_callchain),
        kernel: switch(options.kernel_callchain, options.no_kernel_callchain),
    };
    let symbols = symbol::Options {
        cache_bytes: options.symbol_cache.unwrap_or(symbol::Options::default().cache_bytes),
        demangle: if options.no_demangle { Demangle::No } else { Demangle::Yes },
        inline: if options.inline { Inline::Yes } else { Inline::No },
        srcline: if options.srcline { Srcline::Yes } else { Srcline::No },
    };
    let input = input(&options, split.workload.is_some())?;
    let record = record(&options, &module, argv)?;
    let target = match input {
        Some(_) => Target::AllCpus,
        None => target(options.cpus, options.pids, options.tids, options.cgroups, split.workload)?,
    };
    Ok(Plan {
        command_line: argv.iter().map(|arg| shell_quote(arg)).collect::<Vec<_>>().join(" "),
        capture: Capture {
            events,
            target,
            callchain,
            registers: Switch::Off,
            switches: Switch::Off,
            namespaces: Switch::Off,
            cgroups: Switch::Off,
            rate: rate(options.count, options.freq)?,
            ring_size: options.mmap_pages,
            buffer: options.buffer,
            watermark: options.watermark,
            clock: if options.monotonic { Clock::Monotonic } else { Clock::Perf },
            order: if options.order { Order::Time } else { Order::PerCpu },
            sampling_limit: options.sampling_limit,
        },
        own_events,
        input,
        record,
        interval: options.interval,
        symbols,
        exit_n: options.exit_n,
        output: options.output,
        usage_self: options.usage_self,
        verbosity: verbosity(options.verbose, options.quiet),
        python: options.python,
        on_error: options.on_error.unwrap_or_default(),
        module,
    })
}

/// Groups are for recording.
fn no_groups(events: &[EventSpec]) -> Result<(), PlanError> {
    match events.iter().find(|event| event.grouping != Grouping::Alone) {
        Some(event) => Err(PlanError::Group(event.selector.clone())),
        None => Ok(()),
    }
}

/// The recording, and what is wanted of it.
fn input(options: &Options, has_workload: bool) -> Result<Option<Input>, PlanError> {
    let Some(path) = &options.input else {
        return if options.time.is_some() { Err(PlanError::TimeOfLive) } else { Ok(None) };
    };
    let of_live = [
        ("-m", options.mmap_pages.is_some()),
        ("-F", options.freq.is_some()),
        ("-c", options.count.is_some()),
        ("--cgroups", !options.cgroups.is_empty()),
        ("--exec", has_workload),
        ("--buffer", options.buffer.is_some()),
        ("--watermark", options.watermark.is_some()),
        ("--sampling-limit", options.sampling_limit.is_some()),
        ("--monotonic", options.monotonic),
    ];
    if let Some((option, _)) = of_live.into_iter().find(|(_, given)| *given) {
        return Err(PlanError::OfLive(option));
    }
    let ids = |ids: &Option<Ids>| ids.as_ref().map(|Ids(ids)| ids.clone());
    Ok(Some(Input {
        path: path.clone(),
        cpus: options.cpus.clone(),
        pids: ids(&options.pids),
        tids: ids(&options.tids),
        times: options.time.clone(),
        jobs: jobs(options)?,
    }))
}

/// The recording that is made.
fn record(options: &Options, module: &Module, argv: &[OsString]) -> Result<Option<Recorded>, PlanError> {
    let Some(path) = &options.record else { return Ok(None) };
    if options.input.is_some() {
        return Err(PlanError::OfLive("--record"));
    }
    if *module == Module::Template {
        return Err(PlanError::NothingHappens);
    }
    if path.as_os_str() == "-" {
        return Err(PlanError::TwoOutputs);
    }
    let command_line = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Some(Recorded { path: path.clone(), command_line }))
}

fn jobs(options: &Options) -> Result<Option<Jobs>, PlanError> {
    let Some(count) = options.jobs.filter(|&count| count > 1) else { return Ok(None) };
    if options.input.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(PlanError::NotDivided("a pipe"));
    }
    if options.exit_n.is_some() {
        return Err(PlanError::NotDivided("-N"));
    }
    let split = if options.split == "cpu" { SplitBy::Cpu } else { SplitBy::Time };
    Ok(Some(Jobs { count: count.into(), split }))
}

pub(super) fn rate(period: Option<Rate>, frequency: Option<Rate>) -> Result<Option<Rate>, PlanError> {
    match (period, frequency) {
        (Some(_), Some(_)) => Err(PlanError::TwoRates),
        (period, frequency) => Ok(period.or(frequency)),
    }
}

pub(super) fn verbosity(verbose: u8, quiet: bool) -> Verbosity {
    match (verbose, quiet) {
        (0, true) => Verbosity::Quiet,
        (0, false) => Verbosity::Normal,
        (1, _) => Verbosity::Verbose,
        (2.., _) => Verbosity::Debug,
    }
}

fn switch(on: bool, off: bool) -> Option<Switch> {
    match (on, off) {
        (true, _) => Some(Switch::On),
        (false, true) => Some(Switch::Off),
        (false, false) => None,
    }
}

fn target(
    cpus: Option<crate::spec::CpuSet>,
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
        // A cgroup is watched CPU by CPU, so it can be watched on some.
        ["-C", "--cgroups"] | [] | [_] => {}
        [first, second, ..] => return Err(PlanError::Conflict(first, second)),
    }
    for (option, ids) in [("-p", &pids), ("-t", &tids)] {
        if ids.as_ref().is_some_and(|Ids(ids)| ids.contains(&0)) {
            return Err(PlanError::Idle(option));
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
    use crate::cli::{options, split};

    fn parse(args: &[&str]) -> Result<Plan, PlanError> {
        let argv: Vec<OsString> = ["perf-prof", "python"].iter().chain(args).map(OsString::from).collect();
        let command = options::command();
        let mut split = split::split(&split::flags(&command), argv[2..].to_vec()).unwrap();
        let ours = [OsString::from("python")].into_iter().chain(std::mem::take(&mut split.ours));
        let options = Options::from_arg_matches(&command.try_get_matches_from(ours).unwrap()).unwrap();
        plan(options, split, &argv)
    }

    /// Shows the plan's parts that differ from those of a plan without options.
    #[track_caller]
    fn check(args: &[&str], expected: Expect) {
        let unindented = |line: &str| line.strip_prefix("    ").unwrap_or(line).to_owned();
        let lines = |plan: &Plan| format!("{plan:#?}").lines().map(unindented).collect::<Vec<_>>();
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
                interval: Some(
                    20ms,
                ),
                verbosity: Debug,
                    args: [
                        "it's","#]],
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
                exit_n: Some(
                    3,
                ),"#]],
        );
        check(
            &["-qe", "a:b", "--monotonic", "-o", "f", "--usage-self=5s", "--sampling-limit=9", "x.py"],
            expect![[r#"
                command_line: "perf-prof python -qe a:b --monotonic -o f --usage-self=5s --sampling-limit=9 x.py",
                    clock: Monotonic,
                    sampling_limit: Some(
                        9,
                    ),
                output: Some(
                    "f",
                ),
                usage_self: Some(
                    5s,
                ),
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
                        "-v","#]],
        );
    }

    #[test]
    fn groups_are_not_for_scripts() {
        check(
            &["-e", "c:d,{a:b,cs}:S", "x.py"],
            expect![
                "error: -e a:b: groups are for recording and counting: `perf-prof record -e '{...}'`, and then `perf-prof python --input FILE`"
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
            expect!["error: -p and -t cannot be combined: events are attached to one or the other"],
        );
        check(
            &["-e", "a:b", "-C0", "x.py", "--exec", "true"],
            expect!["error: -C and --exec cannot be combined: events are attached to one or the other"],
        );
    }
}
