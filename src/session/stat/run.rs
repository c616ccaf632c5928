//! Carries out a plan of counting: opens the counters, runs the command, reads the counters, and shows tables.

use std::time::Instant;

use anyhow::{Result, bail};
use perf_prof_capture::{Count, CounterReading, Counters, EndCondition, EventRequest, Waited};
use perf_prof_format::spec::{Attrs, EventKind, EventSpec, Stack, parse_events};
use perf_prof_system::{
    cgroup, close_in_child::ClosingHeldOff, output, shell::shell_quote_all, signals::Signals, usage::CpuTime,
    workload::Workload,
};

use super::{
    plan::{Rows, StatPlan, Totals},
    result::{self, Event, RowTally, Run, Span, Subject, Table, Tally},
};
use crate::{
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        interval::Interval,
        losses,
        run_loop::Ending,
    },
    live::{
        refusal, requests,
        select::{self, Selected},
        unprivileged::{self, LimitedEvents},
        workload_end,
    },
    plan::{self, CgroupsOfEvents, Target, Verbosity},
};

/// The default events: the first list if tasks are counted, the second list if CPUs are counted. They show how much CPU
/// time a program uses, and how efficient the program is.
const USUAL: [&str; 2] = [
    "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses",
    "cpu-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses",
];

/// Carries out a plan. Calls `show` with each table. Returns the exit status.
pub fn run(plan: &StatPlan, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<ExitStatus> {
    run_with(plan, || Ok(Signals::install()?), show)
}

/// Like [`run`], for a program that has signal handlers of its own. `signals` returns the signals that end the counting.
pub fn run_with(
    plan: &StatPlan,
    signals: impl FnOnce() -> Result<Signals>,
    show: &mut dyn FnMut(&Table<'_>) -> Result<()>,
) -> Result<ExitStatus> {
    let mut plan = plan.clone();
    let of_cpus = matches!(plan.capture.target, Target::AllCpus | Target::Cpus(_) | Target::Cgroups { .. });
    let is_usual = plan.capture.events.is_empty();
    if is_usual {
        plan.capture.events = parse_events(USUAL[usize::from(of_cpus)])?;
    }
    if plan.rows == Rows::Cpus && !of_cpus {
        bail!("--per-cpu: counts of tasks are not known for each CPU; count all tasks of the CPUs instead (-a or -C)");
    }
    plan.capture.events.iter().try_for_each(only_counted)?;
    let closing = ClosingHeldOff::new();
    let tracefs = unprivileged::tracefs(&plan.capture)?;
    let mut selected = select::resolve(&plan.capture, &tracefs)?.without_derived()?;
    if is_usual {
        unprivileged::remove_kernel_only_events(&mut selected);
    }
    let limits = unprivileged::limit_to_user_space(&mut selected);
    // The limit to user space is not reported for the default events, because their names show it (`:u`).
    let limits = if is_usual { LimitedEvents::default() } else { limits };
    let requests = requests::requests(&plan.capture, &selected)?;
    drop(closing);
    let events = named_events(&selected);
    let (name, cgroups) = (subject(&plan.capture.target), cgroups_of_rows(&plan.capture)?);
    let subject = Subject { name: &name, events: &events, cgroups: &cgroups };
    let signals = signals()?;
    let session = Session { plan: &plan, selected: &selected, limits, requests, subject, signals };
    session.run(show)
}

struct Session<'a> {
    plan: &'a StatPlan,
    selected: &'a [Selected],
    limits: LimitedEvents,
    requests: Vec<EventRequest>,
    subject: Subject<'a>,
    signals: Signals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// The command or the tasks exited.
    ByItself,
    /// The time of `--duration` was over.
    Duration,
    /// This signal arrived.
    Signal(i32),
}

struct RunOutcome {
    run: Run,
    signal: Option<i32>,
    status: u8,
}

impl Session<'_> {
    fn run(&self, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<ExitStatus> {
        let (mut runs, mut status) = (Vec::new(), 0);
        for nr in 0..self.plan.runs {
            let RunOutcome { run, signal, status: of_run } = self.once(nr == 0, show)?;
            // The counts of a run that a signal cut off would distort the mean of the other runs.
            if signal.is_none() || runs.is_empty() {
                runs.push(run);
            }
            status = if signal.is_some() || status == 0 { of_run } else { status };
            if signal.is_some() {
                break;
            }
        }
        if self.plan.interval.is_none() || self.plan.totals == Totals::Shown {
            show(&Table::from_runs(self.subject, Span::Whole, &runs))?;
        }
        self.say_what_was_not_counted(&runs);
        Ok(ExitStatus(status))
    }

    fn once(&self, is_first: bool, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<RunOutcome> {
        let StatPlan { capture, untraced_command, .. } = self.plan;
        let command = match &capture.target {
            Target::Workload(command) => Some(command),
            _ => untraced_command.as_ref(),
        };
        let wake = self.signals.wake_fd();
        let mut workload = command.map(|command| Workload::fork(command)).transpose()?;
        // With another target, the command only runs while events are counted and is not counted itself.
        let counted = workload.as_ref().filter(|_| matches!(capture.target, Target::Workload(_)));
        let target = requests::target(capture, counted.map(Workload::pid))?;
        let ends =
            workload.as_ref().map_or(EndCondition::WithTasks, |workload| EndCondition::WithProcess(workload.pid()));
        let closing = ClosingHeldOff::new();
        let mut counters = Counters::open(&target, &self.requests, ends, wake)
            .map_err(|error| refusal::open_error(error, self.selected))?;
        drop(closing);
        if is_first {
            self.limits.report();
            requests::report_missing_cpus(capture, self.selected)?;
            requests::report_missing_calls_of_children(counters.of_children());
        }
        if is_first && self.plan.verbosity >= Verbosity::Verbose {
            self.say_what_is_open(&counters);
        }
        let cpu_time = CpuTime::of_children();
        counters.begin()?;
        let begun = Instant::now();
        let mut shown = LastTable { begun, at: begun, readings: Vec::new() };
        if let Some(workload) = &mut workload {
            workload.start()?;
        }
        let waited = self.wait(&mut counters, &mut shown, show);
        let has_ended = Instant::now();
        // A command that still runs when counting ends gets SIGTERM.
        let to_end = if let Ok(RunEnd::ByItself) = waited { None } else { Some(libc::SIGTERM) };
        let status = workload.and_then(|workload| workload_end::end_workload(workload, to_end));
        let end = waited?;
        let signal = if let RunEnd::Signal(signal) = end { Some(signal) } else { None };
        let until = if signal.is_some() { Instant::now() } else { has_ended };
        let readings = counters.read()?;
        if self.plan.interval.is_some() {
            self.show_since(&readings, until, &mut shown, show)?;
        }
        if matches!(capture.target, Target::AllCpus | Target::Cpus(_)) {
            result::cpus_cut_off(&readings, until - begun).into_iter().for_each(losses::report_offline_cpu);
        }
        // The CPU time of the command is shown only if the events of the command were counted.
        let of_command = matches!(capture.target, Target::Workload(_));
        let cpu_time = of_command.then(|| CpuTime::of_children().since(cpu_time));
        let run = Run { tallies: self.tallies(&readings, &[]), elapsed: until - begun, cpu_time };
        if self.plan.verbosity >= Verbosity::Verbose {
            self.say_times(&run);
        }
        let ending = Ending::of_tasks(signal, end == RunEnd::ByItself);
        let status = exit_status(ending, None, Callbacks::Returned, status);
        Ok(RunOutcome { run, signal, status })
    }

    /// Waits until the counting ends, and shows the counts of each interval. Returns why the counting ended.
    fn wait(
        &self,
        counters: &mut Counters,
        shown: &mut LastTable,
        show: &mut dyn FnMut(&Table<'_>) -> Result<()>,
    ) -> Result<RunEnd> {
        let mut interval = self.plan.interval.map(|every| Interval::new(every, shown.begun));
        let end = self.plan.duration.and_then(|duration| shown.begun.checked_add(duration));
        loop {
            let next = interval.as_ref().map(Interval::next).into_iter().chain(end).min();
            match counters.wait(next)? {
                Waited::TasksExited => return Ok(RunEnd::ByItself),
                Waited::Woken => {
                    if let Some((_, signal)) = self.signals.take_pending().end_requests().next() {
                        return Ok(RunEnd::Signal(signal));
                    }
                }
                Waited::Timeout => {}
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(RunEnd::Duration);
            }
            if interval.as_mut().is_some_and(|interval| interval.expired(now)) {
                self.show_since(&counters.read()?, Instant::now(), shown, show)?;
            }
        }
    }

    /// Shows the counts since the previous table.
    fn show_since(
        &self,
        readings: &[CounterReading],
        now: Instant,
        shown: &mut LastTable,
        show: &mut dyn FnMut(&Table<'_>) -> Result<()>,
    ) -> Result<()> {
        let tallies = self.tallies(readings, &shown.readings);
        let run = Run { tallies, elapsed: now.saturating_duration_since(shown.at), cpu_time: None };
        (shown.at, shown.readings) = (now, readings.to_vec());
        show(&Table::from_runs(self.subject, Span::Interval(now - shown.begun), &[run]))
    }

    /// Returns the counts between two readings of the same descriptors. If `before` is empty, returns the counts since
    /// the start.
    fn tallies(&self, readings: &[CounterReading], before: &[CounterReading]) -> Vec<RowTally> {
        let (events, cgroups) = (self.subject.events.len(), self.subject.cgroups.len());
        let rows: Vec<(Option<usize>, usize)> = match self.plan.capture.cgroups_of_events {
            CgroupsOfEvents::All => (0..events).map(|event| (None, event)).collect(),
            CgroupsOfEvents::Each => {
                (0..cgroups).flat_map(|cgroup| (0..events).map(move |event| (Some(cgroup), event))).collect()
            }
            CgroupsOfEvents::OneEach => (0..events).map(|event| (Some(event), event)).collect(),
        };
        let mut tallies = Vec::new();
        for (cgroup, event) in rows {
            let is_own = move |reading: &CounterReading| {
                reading.event == event && (cgroup.is_none() || reading.cgroup == cgroup)
            };
            let own = || readings.iter().enumerate().filter(move |(_, reading)| is_own(reading));
            let count = |(at, reading): (usize, &CounterReading)| {
                reading.count.since(before.get(at).map_or(Count::default(), |before| before.count))
            };
            let mut cpus: Vec<Option<u32>> = match self.plan.rows {
                Rows::Events => vec![None],
                Rows::Cpus => own().map(|(_, reading)| reading.cpu).collect(),
            };
            cpus.sort_unstable();
            cpus.dedup();
            if cpus.is_empty() {
                cpus.push(None);
            }
            for cpu in cpus {
                let of_row = own().filter(|(_, reading)| cpu.is_none() || reading.cpu == cpu);
                tallies.push(RowTally { event, cgroup, cpu, tally: Tally::sum(of_row.map(count)) });
            }
        }
        tallies
    }

    fn say_what_is_open(&self, counters: &Counters) {
        let events = self.subject.events;
        output::say(format_args!("{} events, {} descriptors", events.len(), counters.descriptor_count()));
        self.selected.iter().filter_map(|event| event.note.as_ref()).for_each(output::say);
        for (at, event) in events.iter().enumerate() {
            if let Some(why) = counters.unsupported(at) {
                output::say(format_args!("{} is not supported: {why}", event.name));
            }
        }
    }

    fn say_what_was_not_counted(&self, runs: &[Run]) {
        let mut rows = runs.iter().flat_map(|run| &run.tallies);
        if self.plan.verbosity == Verbosity::Quiet {
            return;
        }
        if let Some(row) = rows.find(|row| row.tally == Tally::NotCounted) {
            output::say(format_args!(
                "{}: other events used all counters of the CPU all the time; count fewer events at once, or count \
                 for longer",
                self.subject.events[row.event].name
            ));
        }
    }

    fn say_times(&self, run: &Run) {
        for &RowTally { event, cgroup, cpu, tally } in &run.tallies {
            if let Tally::Counted(counted) = tally {
                let cpu = cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
                let (enabled, running) = (counted.enabled, counted.running);
                let name = &self.subject.events[event].name;
                let path = cgroup.and_then(|cgroup| self.subject.cgroups.get(cgroup));
                let cgroup = path.map(|path| format!(" in {path}")).unwrap_or_default();
                output::say(format_args!(
                    "{name}{cgroup}{cpu}: {}, enabled for {enabled} ns, running for {running} ns",
                    counted.value
                ));
            }
        }
    }
}

/// The time and the readings of the previous table, and the start of the counting.
struct LastTable {
    begun: Instant,
    at: Instant,
    readings: Vec<CounterReading>,
}

/// Fails if the event has an attribute that only applies to samples. The attribute would have no effect.
fn only_counted(spec: &EventSpec) -> Result<()> {
    let Attrs { stack, max_stack, rate, sample, .. } = &spec.attrs;
    let of_samples = [
        ("stack", *stack == Stack::On && max_stack.is_none()),
        ("max-stack", max_stack.is_some()),
        ("period or freq", rate.is_some()),
        ("sample", !sample.is_empty()),
    ];
    match of_samples.into_iter().find(|(_, given)| *given) {
        Some((attribute, _)) => bail!("{}: events are only counted, not sampled; remove {attribute}", spec.selector),
        None => Ok(()),
    }
}

/// Returns the events with their names. If several events have the same name, their selectors are used instead.
fn named_events(selected: &[Selected]) -> Vec<Event> {
    let name = |event: &Selected| match (&event.spec.attrs.alias, &event.spec.kind) {
        (Some(alias), _) => alias.clone(),
        (None, EventKind::Breakpoint { .. }) => event.spec.selector.clone(),
        _ => event.format.name(),
    };
    let names: Vec<String> = selected.iter().map(name).collect();
    let described = selected.iter().zip(&names).map(|(event, name)| {
        let is_alone = names.iter().filter(|other| *other == name).count() == 1;
        let name = if is_alone || event.spec.is_pattern() { name } else { &event.spec.selector };
        let request = &event.request;
        Event { name: name.clone(), kind: request.event.kind, config: request.event.config, excluded: request.excluded }
    });
    described.collect()
}

/// Returns the paths of the cgroups that have rows of their own.
fn cgroups_of_rows(capture: &plan::Capture) -> Result<Vec<String>> {
    match &capture.target {
        Target::Cgroups { cgroups, .. } if capture.cgroups_of_events != CgroupsOfEvents::All => {
            let folders = requests::cgroups(cgroups)?;
            Ok(folders.iter().map(|folder| cgroup::path_in_hierarchy(folder).display().to_string()).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns a description of the target, for the heading of the table.
fn subject(target: &Target) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    match target {
        Target::AllCpus => "all CPUs".to_owned(),
        Target::Cpus(cpus) => format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" }),
        Target::Processes(pids) => format!("process {}", list(pids)),
        Target::Threads(tids) => format!("thread {}", list(tids)),
        Target::Cgroups { cgroups, cpus: None } => format!("cgroups {}", cgroups.join(",")),
        Target::Cgroups { cgroups, cpus: Some(cpus) } => format!("cgroups {} on CPUs {cpus}", cgroups.join(",")),
        Target::Workload(command) => shell_quote_all(command),
    }
}
