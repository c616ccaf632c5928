//! Decides which events are added up in the kernel, and starts the BPF programs that add them up. These events are then
//! not opened for samples.

use std::sync::Arc;

use anyhow::{Result, bail};
use perf_prof_capture::{Capture, EventRequest, Excluded, Owner, Sampling, Target};
use perf_prof_events::{
    derive::Derived,
    event::{Context, EventType, Stats},
};
use perf_prof_format::{
    abi::PERF_TYPE_TRACEPOINT,
    spec::Grouping,
    tracefs::{EventFormat, Filter},
};
use perf_prof_in_kernel::{
    instruction::{MapUse, Program},
    load::{MostOpen, Refusal, Room, SelectedTasks, StringWriters, TableInKernel, Tracepoint},
    lower::Unsuited,
    select::Selection,
    span::{Hook, SelectedInput, SelectedSpan, SpanPrograms, span_programs},
    table::{Shape, table_program},
};
use perf_prof_system::{budget::Budget, output, together::together, tracefs::Tracefs};

use super::{
    kernel_target::{self, KernelTarget, Reason},
    pairs::PreparedPairs,
    requests,
    select::{EventLocation, Selected},
    strings,
};
use crate::{
    engine::kernel_tables::{EventUse, KernelTable, KernelTables, TableUse},
    plan::{CgroupsOfEvents, Face, InKernel, RunPlan, Verbosity},
};

/// How often perf-prof reads the kernel's tables in two cases: the receiver looks at its tables without waiting for an
/// interval, or call chains need names.
const READ_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// The maximum number of tables in the kernel. Each table takes file descriptors, and memory from the start. For more
/// events, such as those of a pattern, samples cost less.
const MOST_TABLES: usize = 16;

/// The events of a run. They are open, but not enabled.
pub struct OpenEvents<'a> {
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The opened events.
    pub selected: &'a [Selected],
    /// The types of the opened events, followed by the types of the derived events.
    pub types: &'a [EventType],
    /// The derived events.
    pub derived: &'a [Derived],
    /// Which of the types the receiver gets.
    pub is_delivered: &'a [bool],
    /// The events that this kernel has.
    pub tracefs: &'a Tracefs,
    /// The pid of the command that is the target.
    pub workload: Option<u32>,
    /// The memory of the run.
    pub budget: &'a Budget,
    /// The context of the run, which knows tasks.
    pub context: &'a Arc<Context>,
    /// The counts of the run, to which the events in the kernel are added.
    pub stats: &'a Stats,
}

/// The compiled programs of an event.
struct Compiled<'a> {
    event: usize,
    /// The opened events that need no samples while these programs run.
    opened: Vec<usize>,
    /// The hook at which the programs of a span run.
    at: Hook,
    tables: Vec<(Programs, &'a TableUse)>,
}

/// The programs of a table.
enum Programs {
    OfEvent(Program, Shape),
    /// The programs of spans, and the maximum number of open spans.
    OfSpans(SpanPrograms, u32),
}

impl Programs {
    fn uses(&self, map: MapUse) -> bool {
        match self {
            Programs::OfEvent(program, _) => program.uses(map),
            Programs::OfSpans(..) => false,
        }
    }
}

/// The result of starting the programs.
#[derive(Default)]
struct Attempt {
    tables: KernelTables,
    /// The events that are added up in the kernel.
    in_kernel: Vec<usize>,
    /// The opened events that need no samples, because they are added up in the kernel.
    opened: Vec<usize>,
    /// The spans whose system calls are paired in the kernel.
    paired: Vec<usize>,
    /// The other events that the receiver gets, each with the reason why the kernel does not add it up.
    kept: Vec<(usize, Reason)>,
}

impl OpenEvents<'_> {
    /// Adds up in the kernel what can be added up there, and closes the events that then need no samples. Also starts
    /// the programs that write records with strings, and the programs of `pairs`. `uses` says what the receiver does
    /// with each type of events; it is empty if the receiver needs all samples. After an error, the run cannot start.
    pub fn add_up(
        &self,
        uses: &[EventUse],
        mut pairs: PreparedPairs,
        capture: &mut Capture,
    ) -> (KernelTables, Result<()>) {
        let mut tables = KernelTables::default();
        let started = self.tables(uses, &mut pairs, capture).and_then(|added_up| {
            tables = added_up;
            tables.add_pairs(pairs.start(self.types, capture)?, self.budget);
            tables.add_writers(self.string_writers(capture)?, self.budget);
            Ok(())
        });
        (tables, started)
    }

    /// Starts the programs that write the records of events with strings.
    fn string_writers(&self, capture: &Capture) -> Result<StringWriters> {
        if !self.selected.iter().any(Selected::needs_program) {
            return Ok(StringWriters::default());
        }
        let target = requests::target(&self.plan.capture, self.workload)?;
        let requests = requests::requests(&self.plan.capture, self.selected)?;
        strings::start(&self.kernel_target(&target), self.selected, &requests, capture)
    }

    fn tables(&self, uses: &[EventUse], pairs: &mut PreparedPairs, capture: &mut Capture) -> Result<KernelTables> {
        let how = self.plan.capture.in_kernel;
        if uses.is_empty() && how != InKernel::Always || how == InKernel::Never {
            let attempt = Attempt { paired: pairs.events().collect(), kept: pairs.take_kept(), ..Attempt::default() };
            self.report(&attempt)?;
            return Ok(KernelTables::default());
        }
        let requests = requests::requests(&self.plan.capture, self.selected)?;
        let target = requests::target(&self.plan.capture, self.workload)?;
        let mut first = self.attempt(uses, &requests, &target);
        self.claim_pairs(&mut first, uses, pairs);
        self.report(&first)?;
        first.in_kernel.iter().for_each(|&event| self.stats.set_in_kernel(event));
        capture.close_events(&first.opened);
        let leaves_out_threads = |&event: &usize| matches!(requests[event].owner, Owner::Field(_));
        if self.workload.is_some() || !first.opened.iter().any(leaves_out_threads) {
            return Ok(first.tables);
        }
        // The programs contain the ids of perf-prof's threads, and this call adds a thread. So the programs are made again.
        // This is not needed if the target is a command, because none of these threads belongs to the command.
        capture.start_reader()?;
        let second = self.attempt(uses, &requests, &target);
        first.tables.close();
        match second.kept.iter().find(|(event, _)| first.in_kernel.contains(event)) {
            Some((event, Reason(reason))) => bail!("{}: {reason}", self.types[*event].shown_name()),
            None => Ok(second.tables),
        }
    }

    /// Removes the spans that are paired in the kernel from `attempt.kept`. A span with tables stays there, because
    /// perf-prof still adds up its tables.
    fn claim_pairs(&self, attempt: &mut Attempt, uses: &[EventUse], pairs: &mut PreparedPairs) {
        pairs.retain(|event| !attempt.in_kernel.contains(&event));
        attempt.paired = pairs.events().collect();
        let has_tables = |event: usize| matches!(uses.get(event), Some(EventUse::Tables(_)));
        attempt.kept.retain(|(event, _)| !attempt.paired.contains(event) || has_tables(*event));
        for (event, reason) in pairs.take_kept().into_iter().filter(|(event, _)| !has_tables(*event)) {
            if let Some((_, told)) = attempt.kept.iter_mut().find(|(kept, _)| *kept == event) {
                *told = reason;
            }
        }
    }

    /// Starts the programs of all events that can be added up in the kernel.
    fn attempt(&self, uses: &[EventUse], requests: &[EventRequest], target: &Target) -> Attempt {
        let (mut compiled, mut kept) = (Vec::new(), Vec::new());
        for event in (0..self.types.len()).filter(|&event| self.is_delivered[event]) {
            match self.compiled(event, uses.get(event), (requests, target)) {
                Ok(programs) => compiled.push(programs),
                Err(reason) => kept.push((event, reason)),
            }
        }
        let (mut tables, mut in_kernel, mut opened) = (KernelTables::default(), Vec::new(), Vec::new());
        let paired = Vec::new();
        let count: usize = compiled.iter().map(|programs| programs.tables.len()).sum();
        if count > MOST_TABLES {
            let reason = || Reason(format!("there would be more than {MOST_TABLES} tables in the kernel"));
            kept.extend(compiled.drain(..).map(|programs| (programs.event, reason())));
        }
        if compiled.is_empty() {
            return Attempt { tables, in_kernel, opened, paired, kept };
        }
        let target = self.kernel_target(target);
        let has_processes =
            compiled.iter().flat_map(|programs| &programs.tables).any(|(programs, _)| programs.uses(MapUse::Since));
        let selected = target.selected_tasks().and_then(|mut selected| {
            if has_processes {
                target.follow_mappings(&mut selected)?;
            }
            Ok(selected)
        });
        let refused = |event: usize, refusal: &Refusal| {
            kernel_target::refused(&self.types[event], "added up", refusal, self.plan.verbosity)
        };
        match selected {
            Ok(selected) => {
                // The frames of a process have to be named while the run still knows the process. It forgets processes
                // that ended long ago.
                let is_read_often = self.plan.face == Face::Program || has_processes;
                let every = is_read_often.then_some(READ_EVERY);
                tables = KernelTables::new(self.budget.clone(), selected, every, requests::clock(&self.plan.capture));
                let share = self.budget.share() / count.max(1);
                let selected = tables.selected();
                let loaded = together(&mut compiled, |programs| self.loaded(programs, selected, share));
                for (Compiled { event, opened: of, .. }, loaded) in compiled.into_iter().zip(loaded) {
                    match loaded.and_then(|loaded| self.attached(event, loaded, &mut tables)) {
                        Ok(()) => {
                            in_kernel.push(event);
                            opened.extend(of);
                        }
                        Err(refusal) => kept.push((event, refused(event, &refusal))),
                    }
                }
            }
            Err(refusal) => {
                let Reason(reason) = refused(compiled[0].event, &refusal);
                kept.extend(compiled.iter().map(|programs| (programs.event, Reason(reason.clone()))));
            }
        }
        Attempt { tables, in_kernel, opened, paired, kept }
    }

    /// Prints with `-v` where each event is added up. Fails if all events must be added up in the kernel, but one
    /// cannot be.
    fn report(&self, Attempt { in_kernel, paired, kept, .. }: &Attempt) -> Result<()> {
        let name = |event: usize| self.types[event].shown_name();
        paired.iter().for_each(|&event| self.stats.set_paired_in_kernel(event));
        if let (InKernel::Always, Some((event, Reason(reason)))) = (self.plan.capture.in_kernel, kept.first()) {
            let option = if self.plan.face == Face::Program { "in_kernel='always'" } else { "--in-kernel always" };
            bail!("{option}: {} cannot be added up in the kernel, because {reason}", name(*event));
        }
        if self.plan.verbosity >= Verbosity::Verbose {
            for event in 0..self.types.len() {
                let reason = kept.iter().find(|(kept, _)| *kept == event).map(|(_, Reason(reason))| reason);
                let text = match (in_kernel.contains(&event), paired.contains(&event), reason) {
                    (true, _, _) => "counted in the kernel".to_owned(),
                    (_, true, None) => "paired in the kernel".to_owned(),
                    (_, true, Some(reason)) => format!("in perf-prof, because {reason}; paired in the kernel"),
                    (_, false, Some(reason)) => format!("in perf-prof, because {reason}"),
                    (_, false, None) => continue,
                };
                output::say(format_args!("{}: {text}", name(event)));
            }
        }
        Ok(())
    }

    /// Compiles the tables of an event.
    fn compiled<'u>(
        &self,
        event: usize,
        event_use: Option<&'u EventUse>,
        (requests, target): (&[EventRequest], &Target),
    ) -> Result<Compiled<'u>, Reason> {
        let tables = match event_use {
            Some(EventUse::Tables(tables)) => tables,
            Some(EventUse::Samples(reason)) => return Err((*reason).into()),
            None => return Err("its samples are shown".into()),
        };
        self.check_run()?;
        let (Some(selected), Some(request)) = (self.selected.get(event), requests.get(event)) else {
            return self.compiled_span(event, tables, (requests, target));
        };
        check_event(selected, request)?;
        let Some(format) = self.types[event].format.tracepoint() else { return Err("it is no tracepoint".into()) };
        let filter = request.filter.as_ref().map(|text| Filter::parse(text, format)).transpose()?;
        let selection = self.selection(format, request, target)?;
        let compile = |table: &'u TableUse| {
            let TableUse { plan, definition, .. } = table;
            let (program, shape) = table_program(plan, definition, &self.types[event], filter.as_ref(), &selection)?;
            Ok((Programs::OfEvent(program, shape), table))
        };
        let tables = tables.iter().map(compile).collect::<Result<_, Reason>>()?;
        Ok(Compiled { event, opened: vec![event], at: Hook::Tracepoints, tables })
    }

    fn derived_at(&self, event: usize) -> Option<&Derived> {
        event.checked_sub(self.types.len() - self.derived.len()).and_then(|at| self.derived.get(at))
    }

    /// Compiles the tables of a span.
    fn compiled_span<'u>(
        &self,
        event: usize,
        tables: &'u [TableUse],
        (requests, target): (&[EventRequest], &Target),
    ) -> Result<Compiled<'u>, Reason> {
        let Derived { span, inputs } = self.derived_at(event).ok_or("it is made of several events")?;
        let is_used_elsewhere = |input: &usize| {
            let users = self.derived.iter().filter(|derived| derived.inputs.contains(input)).count();
            users != 1 || self.is_delivered.get(*input) != Some(&false)
        };
        if inputs.iter().any(is_used_elsewhere) {
            return Err("its events have other uses too".into());
        }
        let names: Vec<String> = inputs.iter().map(|&input| self.types[input].real_name()).collect();
        let at = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"] => Hook::SystemCalls,
            _ => Hook::Tracepoints,
        };
        let selected = |&input: &usize| self.selected_input(input, &requests[input], target);
        let selected = inputs.iter().map(selected).collect::<Result<Vec<_>, Reason>>()?;
        let of_tasks = self.kernel_target(target).span_tasks(span)?;
        let (tasks, context) = (&of_tasks, Some(self.context));
        let span_of = SelectedSpan { span, event: &self.types[event], inputs: &selected, tasks, context };
        let compile = |table: &'u TableUse| {
            let programs = span_programs(span_of, (&table.plan, &table.definition), at)?;
            Ok((Programs::OfSpans(programs, span.spec().max_open), table))
        };
        let tables = tables.iter().map(compile).collect::<Result<_, Reason>>()?;
        Ok(Compiled { event, opened: inputs.clone(), at, tables })
    }

    /// Returns which samples of a span's input are selected.
    fn selected_input(&self, input: usize, request: &EventRequest, target: &Target) -> Result<SelectedInput, Reason> {
        check_event(&self.selected[input], request)?;
        let Some(format) = self.types[input].format.tracepoint() else { return Err("it is no tracepoint".into()) };
        let filter = request.filter.as_ref().map(|text| Filter::parse(text, format)).transpose()?;
        Ok(SelectedInput { filter, selection: self.selection(format, request, target)? })
    }

    fn kernel_target<'t>(&'t self, target: &'t Target) -> KernelTarget<'t> {
        KernelTarget { capture: &self.plan.capture, tracefs: self.tracefs, target }
    }

    /// Returns which events of a tracepoint are added up. The program leaves out perf-prof's own events here, because no
    /// reader gets these events.
    fn selection(&self, format: &EventFormat, request: &EventRequest, target: &Target) -> Result<Selection, Reason> {
        let target = self.kernel_target(target);
        Ok(Selection { own: target.own(format, request)?, ..target.selection(Some(format), request)? })
    }

    /// Fails with the reason if this run needs samples.
    fn check_run(&self) -> Result<(), Reason> {
        let plan = self.plan;
        let capture = &plan.capture;
        let reasons = [
            (plan.live().is_some_and(|live| live.recording.is_some()), "it is recorded"),
            (plan.limit.is_some(), "the run ends after a number of samples"),
            (capture.sampling_limit.is_some(), "the number of samples is limited"),
            (capture.cgroups_of_events != CgroupsOfEvents::All, "each event has its own cgroups"),
        ];
        reasons.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, reason)| Err(reason.into()))
    }

    /// Loads the programs of an event. `share` is the maximum memory of a table. The open spans may take as much.
    fn loaded<'u>(
        &self,
        Compiled { event, opened, at, tables }: &mut Compiled<'u>,
        selected: &SelectedTasks,
        share: usize,
    ) -> Result<Vec<(TableInKernel, &'u TableUse)>, Refusal> {
        let load = |(programs, table): &(Programs, &'u TableUse)| {
            let room = |shape: &Shape| Room::new(shape, table.definition.limit, share);
            let most = |spans: u32| MostOpen { spans, bytes: share };
            let loaded = match (programs, &at) {
                (Programs::OfEvent(program, shape), _) => {
                    TableInKernel::load(self.tracepoint(*event)?, (program, shape.clone()), selected, room(shape))
                }
                (Programs::OfSpans(programs, most_open), Hook::SystemCalls) => {
                    TableInKernel::load_calls(programs, selected, room(&programs.shape), most(*most_open))
                }
                (Programs::OfSpans(programs, most_open), Hook::Tracepoints) => {
                    let tracepoints =
                        opened.iter().map(|&input| self.tracepoint(input)).collect::<Result<Vec<_>, _>>()?;
                    TableInKernel::load_spans(
                        programs,
                        &tracepoints,
                        selected,
                        (room(&programs.shape), most(*most_open)),
                    )
                }
            };
            Ok((loaded?, *table))
        };
        tables.iter().map(load).collect()
    }

    /// Attaches the programs of an event.
    fn attached(
        &self,
        event: usize,
        mut loaded: Vec<(TableInKernel, &TableUse)>,
        tables: &mut KernelTables,
    ) -> Result<(), Refusal> {
        let is_opened = event < self.selected.len();
        let tracepoint = is_opened.then(|| self.tracepoint(event)).transpose()?;
        loaded.iter_mut().try_for_each(|(in_kernel, _)| in_kernel.attach(tracepoint))?;
        for (in_kernel, table) in loaded {
            let target = tables.target(&table.table);
            let span = self.derived_at(event).map(|derived| (derived.span.clone(), self.context.clone()));
            tables.add(KernelTable { event, in_kernel, target, span, missed_before: 0 });
        }
        Ok(())
    }

    fn tracepoint(&self, event: usize) -> Result<Tracepoint<'_>, Refusal> {
        let format = self.types[event].format.tracepoint().ok_or(Refusal::Unsuited(Unsuited::NoTracepoint))?;
        Ok(Tracepoint { name: &format.name, id: format.id })
    }
}

/// Fails with the reason if the event's samples do not stand for all occurrences of its tracepoint.
pub(super) fn check_event(selected: &Selected, request: &EventRequest) -> Result<(), Reason> {
    let is_probe = request.definition.is_some() || selected.place != EventLocation::Kernel;
    let reasons = [
        (request.event.kind != PERF_TYPE_TRACEPOINT || is_probe, "it is no tracepoint"),
        (request.grouping != Grouping::Alone, "it is in a group"),
        (request.sampling != Sampling::Period(1), "not each occurrence is sampled"),
        (request.excluded != Excluded::default(), "only some of it is sampled"),
        (selected.limit.is_some(), "the run ends after a number of samples"),
    ];
    reasons.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, reason)| Err(reason.into()))
}
