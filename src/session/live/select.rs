//! Resolves selectors to events of the running kernel.

use std::{slice, sync::Arc};

use anyhow::{Result, anyhow, bail};
use perf_prof_capture::{Counting, EventRequest, Frames, PerfEvent};
use perf_prof_events::{
    derive::{self, Derived, Presence, Span, SpanRule, source::ProgramBits},
    event::{EventType, Format, InterpreterFrameUse, OtherFormat, RawData},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_REGS_USER, PERF_TYPE_SOFTWARE},
    record::SampleLayout,
    spec::{
        Attrs, EventKind, EventSpec, Grouping, NamedEvent, Probe, SpanSpec, Stack, did_you_mean, handler_name, is_glob,
        similar_names,
    },
    tracefs::EventFormat,
};
use perf_prof_system::tracefs::Tracefs;

use super::{interpreter, sharing};
use crate::{
    engine::pump::MOVES,
    plan::{Capture, CgroupsOfEvents, Switch, Target, live_target},
    selectors::{self, Machine, ResolvedProbe, RunningMachine, SourceError, Stacks, Tasks, devices},
};

/// A selected event, with the format of its samples and the request for the kernel.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The selector that matched the event.
    pub spec: EventSpec,
    /// The format of the event's samples.
    pub format: Format,
    /// The request to the kernel. Settings that apply to all events (CPUs, call chains) are added when the event is
    /// opened.
    pub request: EventRequest,
    /// The call-chain settings in the event's own options.
    pub stacks: Stacks,
    /// Where the event happens. This decides which frames its call chains have by default.
    pub place: EventLocation,
    /// The number of samples after which the run ends (`-N` in the event's own options).
    pub limit: Option<u64>,
    /// A note about the event. It is printed with `-v`.
    pub note: Option<String>,
    /// What is missing in the event's samples, or what a recording contains beyond them, as texts for a message.
    pub lacks: Vec<String>,
    /// The index of the opened event whose samples this event gets. `None` if this event is opened itself. Only events
    /// that are recorded share samples.
    pub samples_of: Option<usize>,
}

/// Where an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLocation {
    /// In the kernel: tracepoints, and probes of kernel functions.
    Kernel,
    /// In programs, or both in programs and in the kernel.
    Anywhere,
}

impl Selected {
    /// Returns the index of the opened event whose samples this event gets. `own` is the index of this event.
    pub fn opened_at(&self, own: usize) -> usize {
        self.samples_of.unwrap_or(own)
    }

    /// Returns the event type with this sample layout.
    pub fn event_type(&self, layout: SampleLayout) -> EventType {
        let Attrs { alias, max_stack, .. } = &self.spec.attrs;
        EventType { alias: alias.clone(), format: self.format.clone(), layout, max_stack: *max_stack }
    }

    /// Returns whether the event's samples contain more than the kernel's own records, so that a BPF program has to
    /// write them.
    pub fn needs_program(&self) -> bool {
        let has_strings = |format: &Arc<EventFormat>| !format.strings().is_empty();
        self.format.has_interpreter_frames() || self.format.tracepoint().is_some_and(has_strings)
    }

    /// Adds the frames of Python functions to the event's call chain, if its samples can have them.
    pub(super) fn add_interpreter_frames(&mut self) -> Result<()> {
        let format = match &self.format {
            Format::Tracepoint(format) => format,
            Format::Other(format) => {
                if self.spec.grouping == Grouping::Alone && interpreter::can_be_written(&self.request) {
                    self.request = interpreter::written(&self.request);
                    self.format =
                        Format::Other(Arc::new(OtherFormat { raw: RawData::InterpreterFrames, ..(**format).clone() }));
                }
                return Ok(());
            }
            Format::Span(_) => return Ok(()),
        };
        if !interpreter::can_be_written_at(format, &self.request) {
            return Ok(());
        }
        match format.with_interpreter_frames() {
            Ok(Some(format)) if self.spec.grouping == Grouping::Alone => {
                self.format = Format::Tracepoint(format.into())
            }
            Ok(_) => {}
            Err(error) => bail!("{}: {error}", self.spec.selector),
        }
        Ok(())
    }

    /// Makes the samples tell calls of 32-bit programs from those of 64-bit programs. The kernel tells it with the registers of
    /// user space, so one register is sampled.
    fn tell_abi(&mut self) {
        if cfg!(target_arch = "x86_64") {
            let samples = &mut self.request.samples;
            samples.sample_type |= PERF_SAMPLE_REGS_USER;
            samples.regs_user |= 1;
        }
    }

    /// Leaves out what [`Selected::tell_abi`] added, because a BPF program tells it.
    pub(super) fn leave_out_abi(&mut self) {
        let samples = &mut self.request.samples;
        samples.sample_type &= !PERF_SAMPLE_REGS_USER;
        samples.regs_user = 0;
    }

    pub(super) fn tracepoint(spec: &EventSpec, format: Arc<EventFormat>, place: EventLocation) -> Selected {
        let name = format!("{}:{}", format.system, format.name);
        let counting = counting(&format.system);
        let request = EventRequest { counting, ..EventRequest::tracepoint(name, format.id) };
        let (spec, format) = (spec.clone(), Format::Tracepoint(format));
        let stacks = Stacks::default();
        Selected { spec, format, request, stacks, place, limit: None, note: None, lacks: Vec::new(), samples_of: None }
    }
}

/// Returns whether events of a system that have no sample are looked for. System calls happen in tasks alone. The events about
/// the time of tasks count nanoseconds (`__perf_count` in include/trace/events/sched.h), and the sources that are made of
/// scheduler events notice what is missing.
fn counting(system: &str) -> Counting {
    if matches!(system, "sched" | "syscalls" | "raw_syscalls") { Counting::Ignored } else { Counting::Compared }
}

/// The events and derived events that the selectors resolve to.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The events that are opened.
    pub events: Vec<Selected>,
    /// The selected derived events. Their inputs are in `events`.
    pub derived: Vec<Derived>,
    /// The index of the event about moves of tasks between cgroups, `cgroup:cgroup_attach_task`. It is the last event.
    /// No program receives it.
    pub moves: Option<usize>,
}

/// Resolves the selectors, in their order, to events of this machine that are sampled. Fails if two of the events are
/// the same software event, because the kernel gives the samples of both events the same id. If the plan needs the
/// moves of tasks between cgroups, adds the event about moves at the end.
pub fn select(plan: &Capture, tracefs: &Tracefs) -> Result<Selection> {
    let mut selection = resolve(plan, tracefs)?;
    refuse_repeated_software_events(&selection.events)?;
    if plan.callchain.live_python() != InterpreterFrameUse::No {
        interpreter::tell_missing(&selection.events, &selection.derived)?;
    }
    let (system, name) = MOVES;
    if plan.needs_moves() && tracefs.has_event(system, name) {
        let kind = EventKind::Tracepoint { system: system.to_owned(), name: name.to_owned() };
        let selector = format!("{system}:{name}");
        let spec = EventSpec { selector, kind, filter: None, attrs: Attrs::default(), grouping: Grouping::Alone };
        selection.moves = Some(selection.events.len());
        selection.events.push(tracepoint(&spec, tracefs, system, name)?);
    }
    Ok(selection)
}

/// Resolves the selectors, in their order, to events of this machine that are only counted. The same software event may
/// be selected several times, because counted events have no samples.
pub fn resolve(plan: &Capture, tracefs: &Tracefs) -> Result<Selection> {
    let mut selection = Selection::default();
    plan.events.iter().try_for_each(|spec| selection.add(plan, spec, tracefs))?;
    Ok(selection)
}

impl Selection {
    /// Returns the events that are opened for a recording. Spans are not included, because they are made when the
    /// recording is read.
    pub fn recorded(mut self, plan: &Capture) -> Result<Vec<Selected>> {
        let of_source = |spec: &&EventSpec| matches!(&spec.kind, EventKind::Span(span) if span.is_source());
        for source in plan.events.iter().filter(of_source) {
            let (_, selected_tasks) = live_target(slice::from_ref(source), plan.target.clone())?;
            if selected_tasks.is_some() {
                let name = &source.selector;
                let also = if let Target::Cgroups { .. } = plan.target { " --all-cgroups" } else { "" };
                bail!(
                    "{name} is made of events of all tasks; record with -a{also}, without -p or -t, and select the tasks \
                     when you read the recording"
                );
            }
        }
        self.share(plan)?;
        Ok(self.events)
    }

    /// Makes the events that are the same tracepoint share its samples, because a recording contains each event once.
    pub fn share(&mut self, plan: &Capture) -> Result<()> {
        // Events do not share samples if each of them has a cgroup of its own.
        match plan.cgroups_of_events {
            CgroupsOfEvents::OneEach => Ok(()),
            CgroupsOfEvents::All | CgroupsOfEvents::Each => sharing::share(&mut self.events, &self.derived),
        }
    }

    /// Returns the events that are opened, for commands that cannot run derived events.
    pub fn without_derived(self) -> Result<Vec<Selected>> {
        if let Some(Derived { span, .. }) = self.derived.first() {
            bail!(
                "{}: spans cannot be counted by the kernel; use `perf-prof top`, or select the events that begin and end it",
                span.name()
            );
        }
        Ok(self.events)
    }

    /// Adds the events that a selector resolves to. A pattern or a span resolves to several events.
    fn add(&mut self, plan: &Capture, spec: &EventSpec, tracefs: &Tracefs) -> Result<()> {
        match &spec.kind {
            EventKind::Tracepoint { system, name } => {
                let before = self.events.len();
                self.add_tracepoints(spec, tracefs, system, name)?;
                self.add_interpreter_frames(plan, spec, before)?;
            }
            EventKind::Probe(probe) => {
                let before = self.events.len();
                self.events.extend(probes(plan, spec, probe)?);
                self.add_interpreter_frames(plan, spec, before)?;
            }
            EventKind::Span(span) => self.add_span(plan, spec, &devices::with_numbers(span)?, tracefs)?,
            EventKind::Source { .. } | EventKind::Breakpoint { .. } => {
                self.events.push(source(plan, spec, tracefs)?);
                self.add_interpreter_frames(plan, spec, self.events.len() - 1)?;
            }
        }
        Ok(())
    }

    /// Adds the frames of Python functions to the events from the index `from` on, if the call chains of these events
    /// contain such frames.
    fn add_interpreter_frames(&mut self, plan: &Capture, spec: &EventSpec, from: usize) -> Result<()> {
        let has_chain = plan.callchain.every_event == Switch::On || spec.attrs.stack == Stack::On;
        match has_chain && plan.callchain.live_python() != InterpreterFrameUse::No {
            true => self.events[from..].iter_mut().try_for_each(Selected::add_interpreter_frames),
            false => Ok(()),
        }
    }

    fn add_tracepoints(&mut self, spec: &EventSpec, tracefs: &Tracefs, system: &str, name: &str) -> Result<()> {
        if !spec.is_pattern() {
            if !tracefs.has_event(system, name) {
                bail!("{}", unknown(system, name, &tracefs.events()?));
            }
            self.events.push(tracepoint(spec, tracefs, system, name)?);
            return Ok(());
        }
        let all = tracefs.events()?;
        let matching: Vec<_> = all.iter().filter(|(system, name)| spec.matches(system, name)).collect();
        if matching.is_empty() {
            bail!("no event of this kernel matches {system}:{name}; `perf-prof list` shows all events");
        }
        let mut spec = spec.clone();
        for (system, name) in matching {
            match tracepoint(&spec, tracefs, system, name) {
                // Another program had defined this probe, and has removed it since the list was read.
                Err(_) if !tracefs.has_event(system, name) => continue,
                found => self.events.push(found?),
            }
            spec.grouping = spec.grouping.next_role();
        }
        Ok(())
    }

    /// Adds the events that a span is made of, and the span itself.
    fn add_span(&mut self, plan: &Capture, spec: &EventSpec, span: &SpanSpec, tracefs: &Tracefs) -> Result<()> {
        let wrong = |error| anyhow!("{}: {error}", spec.selector);
        let rules = SpanRule::all(span).map_err(wrong)?;
        let narrow = derive::source::source_of(span).map_err(wrong)?.and_then(|source| source.narrow);
        let first = self.events.len();
        let mut of_inputs: Vec<Vec<usize>> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            let own: Vec<usize> = (0..rules.len()).filter(|&other| rules[other].event == rule.event).collect();
            if own[0] != at {
                continue;
            }
            let is_missing = match &rule.event {
                EventKind::Tracepoint { system, name } => {
                    rule.presence != Presence::Needed && !is_glob(name) && !tracefs.has_event(system, name)
                }
                _ => false,
            };
            if is_missing || rule.presence == Presence::OnlyRecorded {
                continue;
            }
            let has_chain = own.iter().any(|&rule| rules[rule].action.has_chain(span.stack));
            let attrs = Attrs {
                stack: if has_chain { Stack::On } else { Stack::Inherit },
                max_stack: spec.attrs.max_stack.filter(|_| has_chain),
                cpus: spec.attrs.cpus.clone(),
                arguments: rule.arguments.clone(),
                strings: derive::source::strings_of(span, &rule.event),
                ..Attrs::default()
            };
            let (selector, kind) = (spec.selector.clone(), rule.event.clone());
            let filter = narrow.and_then(|narrow| narrow(&span.options, ProgramBits::Any));
            let before = self.events.len();
            self.add(plan, &EventSpec { selector, kind, filter, attrs, grouping: Grouping::Alone }, tracefs)?;
            // The call chain of a span shows why the span began. So it includes the program's functions, even if the
            // event happens in the kernel.
            if has_chain && plan.callchain.user.is_none() {
                self.events[before..].iter_mut().for_each(|event| event.stacks.user = Some(Frames::Sampled));
            }
            if is_of_calls(span) {
                self.events[before..].iter_mut().for_each(Selected::tell_abi);
            }
            of_inputs.resize(self.events.len() - first, own);
        }
        let inputs: Vec<_> = self.events[first..].iter().map(|event| event.format.clone()).zip(of_inputs).collect();
        let made = Span::new(span, spec.filter.as_deref(), spec.attrs.alias.clone(), &inputs).map_err(wrong)?;
        self.derived.push(Derived { span: Arc::new(made), inputs: (first..self.events.len()).collect() });
        Ok(())
    }
}

/// Returns whether a span is made of the tracepoints of all system calls.
pub(super) fn is_of_calls(span: &SpanSpec) -> bool {
    span.is_source() && span.name == "syscall"
}

/// Returns whether the event is a software event that counts occurrences. When such an occurrence happens, the kernel
/// prepares one sample for all events that count it. The sample keeps the id of the first of these events
/// (`do_perf_sw_event()` and `perf_prepare_sample()` in kernel/events/core.c). So the samples of all these events have
/// the same id. Clock events are not affected, because each of them has its own timer.
fn is_software_counter(event: &Selected) -> bool {
    let PerfEvent { kind, config, .. } = event.request.event;
    kind == PERF_TYPE_SOFTWARE && !NamedEvent { kind, config }.is_clock()
}

fn refuse_repeated_software_events(selected: &[Selected]) -> Result<()> {
    let mut seen: Vec<&Selected> = Vec::new();
    for event in selected.iter().filter(|event| is_software_counter(event)) {
        if let Some(other) = seen.iter().find(|other| other.request.event.config == event.request.event.config) {
            let (one, other) = (&event.spec.selector, &other.spec.selector);
            bail!(
                "{other} and {one} are the same software event; only one of them would get the samples; select the \
                 event once"
            );
        }
        seen.push(event);
    }
    Ok(())
}

/// Returns whether samples may have an id that none of the selected events has. This happens if another program counts
/// the same software event: the samples may then have the id of that program's event.
pub fn may_have_foreign_ids(selected: &[Selected]) -> bool {
    selected.iter().any(is_software_counter)
}

/// Returns the index of the selected event that gets the samples with the id of another program's event. Returns `None`
/// if these samples may belong to several selected events.
pub fn event_of_foreign_ids(selected: &[Selected]) -> Option<usize> {
    let mut counted = selected.iter().enumerate().filter(|(_, event)| is_software_counter(event));
    match (counted.next(), counted.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// Returns the end of a message about a probe whose file is the name of a folder in the working directory. Without
/// `./`, the `/` after the name begins a filter.
fn path_meant(file: &str) -> String {
    let is_folder = !file.is_empty() && !file.contains('/') && std::path::Path::new(file).is_dir();
    if is_folder { format!("; write a path below the folder {file} as ./{file}/NAME") } else { String::new() }
}

/// Resolves a probe. The path of the probed file is looked up as the traced processes see it. A static probe may be several
/// events.
fn probes(plan: &Capture, spec: &EventSpec, probe: &Probe) -> Result<Vec<Selected>> {
    let processes = match &plan.target {
        Target::Processes(ids) | Target::Threads(ids) => ids.as_slice(),
        _ => &[],
    };
    let found = selectors::probe(probe, &spec.attrs.arguments, processes, &RunningMachine);
    let found = found.map_err(|error| anyhow!("{}: {error}{}", spec.selector, path_meant(&probe.file)))?;
    let place = if probe.kind.is_user() { EventLocation::Anywhere } else { EventLocation::Kernel };
    let mut spec = spec.clone();
    let selected = found.into_iter().map(|ResolvedProbe { probe, request, format, note, lacks }| {
        let (format, stacks) = (Format::Tracepoint(Arc::new(format)), Stacks::default());
        spec.kind = EventKind::Probe(probe);
        let (spec_of_event, samples_of) = (spec.clone(), None);
        let selected =
            Selected { spec: spec_of_event, format, request, stacks, place, limit: None, note, lacks, samples_of };
        spec.grouping = spec.grouping.next_role();
        selected
    });
    Ok(selected.collect())
}

/// Resolves an event that is neither a tracepoint nor a probe.
fn source(plan: &Capture, spec: &EventSpec, tracefs: &Tracefs) -> Result<Selected> {
    let machine = RunningMachine;
    let source = match selectors::source(spec, plan.rate, &machine) {
        Ok(source) => source,
        Err(SourceError::Unknown { name }) => bail!("{}", unknown_source(&name, &machine, tracefs)),
        Err(error) => return Err(error.into()),
    };
    // All events of a run use the same rings, and a ring belongs to a CPU or a thread. So all events must have the same
    // target.
    let name = &source.request.name;
    match (&source.tasks, &plan.target) {
        (Tasks::Inherit, _) => {}
        (Tasks::Processes(own), Target::Processes(all)) if own == all => {}
        (Tasks::Threads(own), Target::Threads(all)) if own == all => {}
        (Tasks::Processes(_), _) => {
            bail!("{name}: -p applies to all events of a run; use it as an option of perf-prof: `-p PID`")
        }
        (Tasks::Threads(_), _) => {
            bail!("{name}: -t applies to all events of a run; use it as an option of perf-prof: `-t TID`")
        }
    }
    // A run has one limit, which counts the samples of all events.
    if source.limit.is_some() && plan.events.len() > 1 {
        bail!("{name}: -N applies to all events of a run; use it as an option of perf-prof: `-N N`");
    }
    // Samples of events other than tracepoints have only a name.
    let format = Format::other(source.request.name.clone());
    let (spec, place) = (spec.clone(), EventLocation::Anywhere);
    Ok(Selected {
        spec,
        format,
        request: source.request,
        stacks: source.stacks,
        place,
        limit: source.limit,
        note: source.note,
        lacks: Vec::new(),
        samples_of: None,
    })
}

fn unknown_source(name: &str, machine: &dyn Machine, tracefs: &Tracefs) -> String {
    // If tracefs cannot be read, the suggestions contain no tracepoints.
    let tracepoints = tracefs.events().unwrap_or_default();
    let mut names: Vec<String> = tracepoints.iter().map(|(system, name)| format!("{system}:{name}")).collect();
    names.extend(selectors::names(machine).into_iter().map(|(name, _)| name));
    names.extend(derive::source::SOURCES.iter().map(|source| source.name.to_owned()));
    names.extend(selectors::system_call_names().map(str::to_owned));
    match similar_names(name, names.iter().map(String::as_str))[..] {
        [] => format!(
            "unknown event {name}: it is neither a built-in source nor an event that perf has a name for; write \
             tracepoints as system:name; `perf-prof list` shows all events"
        ),
        ref near => format!("unknown event {name}; did you mean {}?", near.join(" or ")),
    }
}

fn tracepoint(spec: &EventSpec, tracefs: &Tracefs, system: &str, name: &str) -> Result<Selected> {
    let text = tracefs.format(system, name)?;
    let format =
        EventFormat::parse(system, &text).map_err(|error| anyhow!("the format of {system}:{name}: {error}"))?;
    // The format of a probe in tracefs does not say whether the probe is in the kernel or in a program.
    let format = format.with_strings(&spec.attrs.strings).map_err(|error| anyhow!("{}: {error}", spec.selector))?;
    let is_probe = ["__probe_ip", "__probe_func"].iter().any(|field| format.field(field).is_some());
    let place =
        if is_probe && tracefs.is_uprobe(system, name) { EventLocation::Anywhere } else { EventLocation::Kernel };
    Ok(Selected::tracepoint(spec, Arc::new(format), place))
}

fn unknown(system: &str, name: &str, all: &[(String, String)]) -> String {
    let typed = format!("{system}:{name}");
    if ["uprobe", "uretprobe"].contains(&system) {
        return format!("{typed}: a probe in user space needs a file; write {typed}@\"/path/or/name\"");
    }
    let mut names: Vec<String> = all.iter().map(|(system, name)| format!("{system}:{name}")).collect();
    // The user may have typed a wrong system and the right name.
    let elsewhere = all.iter().filter(|(_, n)| n == name).map(|(system, name)| format!("{system}:{name}"));
    let mut guesses: Vec<String> = elsewhere.collect();
    if guesses.is_empty() {
        names.extend(selectors::names(&RunningMachine).into_iter().map(|(name, _)| name));
        guesses = similar_names(&typed, names);
    }
    // `syscall:openat` may mean the source with one of its values.
    let source = derive::source::SOURCES.iter().find(|source| source.name == system);
    match guesses.as_slice() {
        [] if source.is_some() => format!(
            "unknown event {typed}: {system} is a source, whose events are selected by options; `perf-prof list -v \
             {system}` shows them, for example {system}/FIELD=VALUE/"
        ),
        [] => format!("unknown event {typed}; `perf-prof list '{system}:*'` shows which events exist"),
        guesses => format!("unknown event {typed}; did you mean {}?", guesses.join(" or ")),
    }
}

/// Returns the functions in `names` that are never called, each with the reason. These are functions with the name of a
/// handler of an event in `all`, and functions with nearly the name of a callback in `called` that the script does not
/// have. `names` contains all functions of the script whose names look like callbacks.
pub fn uncalled_handlers(
    names: &[String],
    called: &[String],
    selected: &[EventType],
    all: &dyn Fn() -> Vec<(String, String)>,
) -> Vec<(String, String)> {
    let open: Vec<&String> = names.iter().filter(|name| !called.contains(name)).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let events = all();
    let event_of = |name: &str| events.iter().find(|(system, event)| handler_name(system, event) == *name);
    let why = |(system, name): &(String, String)| {
        let aliased = selected.iter().find(|event| event.real_name() == format!("{system}:{name}"));
        match aliased {
            Some(event) => format!("{system}:{name} has an alias and calls {}() instead", event.handler_name()),
            None => format!("{system}:{name} is not selected (use -e {system}:{name})"),
        }
    };
    let absent: Vec<&String> = called.iter().filter(|name| !names.contains(name)).collect();
    let misspelt = |name: &str| {
        let near = similar_names(name, &absent);
        (!near.is_empty()).then(|| format!("no event or callback has this name{}", did_you_mean(&near)))
    };
    let reason = |name: &str| event_of(name).map(why).or_else(|| misspelt(name));
    open.into_iter().filter_map(|name| Some((name.clone(), reason(name)?))).collect()
}
