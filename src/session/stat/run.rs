//! From plan to counts: open, run, read, show.

use std::{ffi::OsString, time::Instant};

use anyhow::{Result, bail};

use super::{
    plan::{Plan, Rows, Totals},
    result::{Event, Run, Span, Table, Tally},
};
use crate::{
    capture::{Count, Counters, Ends, EventRequest, Reading, Waited},
    parallel::shell_quote,
    session::{
        ExitStatus,
        events::{self, Selected},
        interval::Interval,
        plan::{Target, Verbosity},
        rights::{self, Limits},
        start, target,
    },
    spec::{Attrs, EventKind, EventSpec, Stack, parse_events},
    sys::{output, signals::Signals, usage::CpuTime, workload::Workload},
};

/// What is counted when nothing is named, of tasks and of CPUs: what a program asks of the machine, and what it makes of it.
const USUAL: [&str; 2] = [
    "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses",
    "cpu-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses",
];

/// Carries a plan out; `show` is called with each table. The result is the exit status.
pub fn run(plan: &Plan, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<ExitStatus> {
    let mut plan = plan.clone();
    let of_cpus = matches!(plan.capture.target, Target::AllCpus | Target::Cpus(_) | Target::Cgroups { .. });
    let is_usual = plan.capture.events.is_empty();
    if is_usual {
        plan.capture.events = parse_events(USUAL[usize::from(of_cpus)])?;
    }
    if plan.rows == Rows::Cpus && !of_cpus {
        bail!("--per-cpu: tasks are counted wherever they run; count what CPUs do (-a or -C)");
    }
    plan.capture.events.iter().try_for_each(only_counted)?;
    let tracefs = rights::tracefs(&plan.capture)?;
    let mut selected = events::resolve(&plan.capture, &tracefs)?;
    if is_usual {
        rights::leave_out(&mut selected);
    }
    let limits = rights::limit(&mut selected);
    // Whoever named no side got no less than he asked for, and the names tell.
    let limits = if is_usual { Limits::default() } else { limits };
    let requests = target::requests(&plan.capture, &selected)?;
    let events = described(&selected);
    let subject = subject(&plan.capture.target);
    let signals = Signals::install()?;
    let session =
        Session { plan: &plan, selected: &selected, limits, requests, events: &events, subject: &subject, signals };
    session.run(show)
}

struct Session<'a> {
    plan: &'a Plan,
    selected: &'a [Selected],
    limits: Limits,
    requests: Vec<EventRequest>,
    events: &'a [Event],
    subject: &'a str,
    signals: Signals,
}

/// How a run ended.
struct Ended {
    run: Run,
    signal: Option<i32>,
    status: u8,
}

impl Session<'_> {
    fn run(&self, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<ExitStatus> {
        let (mut runs, mut status) = (Vec::new(), 0);
        for nr in 0..self.plan.runs {
            let Ended { run, signal, status: of_run } = self.once(nr == 0, show)?;
            // One that was cut off is not like the others.
            if signal.is_none() || runs.is_empty() {
                runs.push(run);
            }
            status = if signal.is_some() || status == 0 { of_run } else { status };
            if signal.is_some() {
                break;
            }
        }
        if self.plan.interval.is_none() || self.plan.totals == Totals::Shown {
            show(&Table::of(self.subject, self.events, Span::Whole, &runs))?;
        }
        self.say_what_was_not_counted(&runs);
        Ok(ExitStatus(status))
    }

    fn once(&self, is_first: bool, show: &mut dyn FnMut(&Table<'_>) -> Result<()>) -> Result<Ended> {
        let Plan { capture, meanwhile, .. } = self.plan;
        let command = match &capture.target {
            Target::Workload(command) => Some(command),
            _ => meanwhile.as_ref(),
        };
        let wake = self.signals.wake_fd();
        let mut workload = command.map(|command| Workload::fork(command)).transpose()?;
        // A command that is only run meanwhile is no target.
        let counted = workload.as_ref().filter(|_| matches!(capture.target, Target::Workload(_)));
        let target = target::target(capture, counted.map(Workload::pid))?;
        let ends = if workload.is_some() { Ends::Never } else { Ends::WithTasks };
        let mut counters = Counters::open(&target, &self.requests, ends, wake)
            .map_err(|error| start::explained(error, self.selected))?;
        if is_first {
            self.limits.say();
            target::say_what_may_be_missing(counters.of_children());
        }
        if is_first && self.plan.verbosity >= Verbosity::Verbose {
            self.say_what_is_open(&counters);
        }
        let cpu_time = CpuTime::of_children();
        counters.begin()?;
        let begun = Instant::now();
        let mut shown = Shown { begun, at: begun, readings: Vec::new() };
        if let Some(workload) = &mut workload {
            workload.start()?;
            workload.wake_at_exit(wake);
        }
        let waited = self.wait(&mut counters, workload.as_mut(), &mut shown, show);
        let has_ended = Instant::now();
        // Nobody waits for a command that is not counted any more, whatever the reason.
        let to_end = if let Ok(None) = waited { None } else { Some(libc::SIGTERM) };
        let status = workload.and_then(|workload| start::end_workload(workload, to_end));
        let signal = waited?;
        let until = if signal.is_some() { Instant::now() } else { has_ended };
        let readings = counters.read()?;
        if self.plan.interval.is_some() {
            self.show_since(&readings, until, &mut shown, show)?;
        }
        // Beside counts of something else, what the command took is out of place.
        let of_command = matches!(capture.target, Target::Workload(_));
        let cpu_time = of_command.then(|| CpuTime::of_children().since(cpu_time));
        let run = Run { tallies: self.tallies(&readings, &[]), elapsed: until - begun, cpu_time };
        if self.plan.verbosity >= Verbosity::Verbose {
            self.say_times(&run);
        }
        let status = match (signal, status) {
            (Some(libc::SIGINT), _) => 0,
            (Some(signal), _) => 128 + signal as u8,
            (None, status) => status.unwrap_or(0),
        };
        Ok(Ended { run, signal, status })
    }

    /// Shows the intervals until something ends the counting: the signal that did.
    fn wait(
        &self,
        counters: &mut Counters,
        mut workload: Option<&mut Workload>,
        shown: &mut Shown,
        show: &mut dyn FnMut(&Table<'_>) -> Result<()>,
    ) -> Result<Option<i32>> {
        let mut interval = self.plan.interval.map(|every| Interval::new(every, shown.begun));
        loop {
            match counters.wait(interval.as_ref().map(Interval::next))? {
                Waited::TasksExited => return Ok(None),
                Waited::Woken => {
                    if let Some((_, signal)) = self.signals.take().to_end().next() {
                        return Ok(Some(signal));
                    }
                    if workload.as_mut().is_some_and(|workload| matches!(workload.try_wait(), Ok(Some(_)))) {
                        return Ok(None);
                    }
                }
                Waited::Timeout => {}
            }
            let now = Instant::now();
            if interval.as_mut().is_some_and(|interval| interval.take(now)) {
                self.show_since(&counters.read()?, Instant::now(), shown, show)?;
            }
        }
    }

    /// Shows what was counted since the last time.
    fn show_since(
        &self,
        readings: &[Reading],
        now: Instant,
        shown: &mut Shown,
        show: &mut dyn FnMut(&Table<'_>) -> Result<()>,
    ) -> Result<()> {
        let tallies = self.tallies(readings, &shown.readings);
        let run = Run { tallies, elapsed: now.saturating_duration_since(shown.at), cpu_time: None };
        (shown.at, shown.readings) = (now, readings.to_vec());
        show(&Table::of(self.subject, self.events, Span::Interval(now - shown.begun), &[run]))
    }

    /// What was counted between two readings of the same descriptors; without the first, since the beginning.
    fn tallies(&self, readings: &[Reading], before: &[Reading]) -> Vec<(usize, Option<u32>, Tally)> {
        let mut tallies = Vec::new();
        for event in 0..self.events.len() {
            let own = || readings.iter().enumerate().filter(move |(_, reading)| reading.event == event);
            let count = |(at, reading): (usize, &Reading)| {
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
                tallies.push((event, cpu, Tally::of(of_row.map(count))));
            }
        }
        tallies
    }

    fn say_what_is_open(&self, counters: &Counters) {
        output::say(format_args!("{} events, {} descriptors", self.events.len(), counters.descriptor_count()));
        self.selected.iter().filter_map(|event| event.note.as_ref()).for_each(output::say);
        for (at, event) in self.events.iter().enumerate() {
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
        if let Some((event, ..)) = rows.find(|(_, _, tally)| *tally == Tally::NotCounted) {
            output::say(format_args!(
                "{}: the CPU's counters were taken by others all the time; count fewer events at once, or for longer",
                self.events[*event].name
            ));
        }
    }

    fn say_times(&self, run: &Run) {
        for (event, cpu, tally) in &run.tallies {
            if let Tally::Counted(counted) = tally {
                let cpu = cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
                let (enabled, running) = (counted.enabled, counted.running);
                let name = &self.events[*event].name;
                output::say(format_args!(
                    "{name}{cpu}: {}, enabled for {enabled} ns, running for {running} ns",
                    counted.value
                ));
            }
        }
    }
}

/// What has been shown already.
struct Shown {
    begun: Instant,
    at: Instant,
    readings: Vec<Reading>,
}

/// What an event says of samples would do nothing.
fn only_counted(spec: &EventSpec) -> Result<()> {
    let Attrs { stack, max_stack, rate, sample, .. } = &spec.attrs;
    let of_samples = [
        ("stack", *stack == Stack::On && max_stack.is_none()),
        ("max-stack", max_stack.is_some()),
        ("period or freq", rate.is_some()),
        ("sample", !sample.is_empty()),
    ];
    match of_samples.into_iter().find(|(_, given)| *given) {
        Some((attribute, _)) => bail!("{}: events are counted here, not sampled; leave {attribute} out", spec.selector),
        None => Ok(()),
    }
}

/// The events, by names that tell them apart.
fn described(selected: &[Selected]) -> Vec<Event> {
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

/// What is counted, for people.
fn subject(target: &Target) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let words = |words: &[OsString]| words.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" ");
    match target {
        Target::AllCpus => "all CPUs".to_owned(),
        Target::Cpus(cpus) => format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" }),
        Target::Processes(pids) => format!("process {}", list(pids)),
        Target::Threads(tids) => format!("thread {}", list(tids)),
        Target::Cgroups { cgroups, cpus: None } => format!("cgroups {}", cgroups.join(",")),
        Target::Cgroups { cgroups, cpus: Some(cpus) } => format!("cgroups {} on CPUs {cpus}", cgroups.join(",")),
        Target::Workload(command) => words(command),
    }
}
