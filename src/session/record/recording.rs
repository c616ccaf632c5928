//! A recording as it is made: begun, fed, finished; whether a script gets the events too or not. Knows nothing of who waits
//! for them.

use std::{collections::BTreeMap, io};

use anyhow::{Result, bail};

use super::{
    container::{Container, Form},
    machine, running,
};
use crate::{
    abi::{PERF_SAMPLE_ID, PERF_SAMPLE_IP},
    capture::{Capture, EventAttr, EventRequest, Lost, LostRecords, Mapped, Mappings, Members, Options},
    perfdata::{
        StoredIndex,
        write::{
            Claim, Dsos, FINISHED_ROUND, Feature, Features, Strays, Stream, Synthesis, Tally, WriteError, directory,
        },
    },
    profiler,
    record::{Batch, EventIds, TrailerLayout},
    session::{
        events::{self, Selected},
        plan::{self, Switch, Verbosity},
        target,
    },
    spec::{CallGraph, EventKind, Grouping, ProbeKind},
    sys::{output, procfs, tracefs::Tracefs, workload::Workload},
};

/// A recording that is being made.
#[derive(Debug)]
pub struct Recording {
    container: Container,
    attrs: Vec<EventAttr>,
    /// The event that samples belong to which have an id of another program, if there is one.
    stray: Option<usize>,
    strays: Option<Strays>,
    features: Features,
    dsos: Dsos,
    trailer: TrailerLayout,
    failure: Option<WriteError>,
}

/// What became of a recording.
#[derive(Debug)]
pub struct Summary {
    name: String,
    /// How many samples it holds.
    samples: u64,
    /// How many the kernel dropped.
    lost: u64,
    /// How many came when it could not be written any more.
    dropped: u64,
    /// How many are not in it because they have an id of another program, and nobody can tell whose they are.
    left_out: u64,
    bytes: u64,
    /// Whether it is all that it was to hold.
    pub is_whole: bool,
}

/// Whether these events can be recorded.
pub fn check(selected: &[Selected]) -> Result<()> {
    let is_probe = |event: &&Selected| matches!(event.spec.kind, EventKind::Probe(_));
    match selected.iter().find(|event| is_probe(event) && event.request.definition.is_none()) {
        Some(probe) => bail!(
            "{}: a recording holds probes as the tracepoints that tracefs makes of them, and of an address in the kernel \
             it makes none here; name a function",
            probe.spec.selector
        ),
        None => Ok(()),
    }
}

/// What has to be captured so that it can be recorded, of what is captured anyway.
pub fn recordable(
    plan: &plan::Capture,
    mut requests: Vec<EventRequest>,
    options: Options,
) -> (Vec<EventRequest>, Options) {
    requests.iter_mut().for_each(|request| request.samples.sample_type |= PERF_SAMPLE_IP);
    let mappings = Mappings::Identified(mapped(plan));
    (requests, Options { members: Members::Recorded, mappings, ..options })
}

/// Has samples hold the members that scripts see of events that are no tracepoints.
pub fn with_members_of_scripts(mut requests: Vec<EventRequest>, selected: &[Selected]) -> Vec<EventRequest> {
    if selected.iter().any(|event| event.format.tracepoint().is_none()) {
        requests.iter_mut().for_each(|request| request.samples.sample_type |= PERF_SAMPLE_ID);
    }
    requests
}

/// The formats of probes, which their events' definitions in tracefs have under other names; those are soon gone.
fn probes(attrs: &mut [EventAttr], selected: &[Selected]) -> Vec<(ProbeKind, String)> {
    let mut formats = Vec::new();
    for (event, attr) in selected.iter().zip(attrs) {
        if let EventKind::Probe(probe) = &event.spec.kind {
            let (system, name) = (probe.kind.name(), probe.recorded_name());
            formats.push((probe.kind, profiler::format_text(probe.kind, &name, attr.attr.config as u32)));
            attr.name = format!("{system}:{name}");
        }
    }
    formats
}

/// Which event samples with an id belong to that none of these events has, as a number among those that can be sampled; and
/// what is done with them: a recording holds what a script is given.
fn strays(
    attrs: &[EventAttr],
    selected: &[Selected],
    form: &Form,
    capture: &Capture,
) -> (Option<usize>, Option<Strays>) {
    if !events::may_have_strays(selected) {
        return (None, None);
    }
    let event = events::stray(selected).and_then(|event| Some((event, *attrs.get(event)?.ids.first()?)));
    let claim = match (event, form) {
        (None, _) => Claim::LeftOut,
        (Some((event, id)), Form::Pipe(_)) => Claim::Renamed { id, layout: capture.layout(event) },
        (Some(_), Form::File(..) | Form::Directory(..)) => Claim::Listed,
    };
    let ids = attrs.iter().enumerate().flat_map(|(at, attr)| attr.ids.iter().map(move |&id| (id, at)));
    let strays = Strays::new(EventIds::new(&ids.collect::<Vec<_>>()), claim);
    let number = |(event, _)| attrs[..event].iter().filter(|attr| !attr.ids.is_empty()).count();
    (event.map(number), Some(strays))
}

/// Which mappings have to be known.
fn mapped(plan: &plan::Capture) -> Mapped {
    match plan.callchain.how {
        CallGraph::Dwarf(_) => Mapped::All,
        CallGraph::FramePointer | CallGraph::LastBranches => Mapped::Code,
    }
}

impl Recording {
    /// Begins the recording of a capture, of which it says what is known by now. `offset` is how far the capture's clock is
    /// from the time of day.
    pub fn create(
        form: Form,
        command_line: &[String],
        plan: &plan::Capture,
        (capture, selected): (&Capture, &[Selected]),
        tracefs: &Tracefs,
        offset: Option<i64>,
    ) -> Result<Recording> {
        let mut attrs = capture.attrs().to_vec();
        let probes = probes(&mut attrs, selected);
        let (stray, strays) = strays(&attrs, selected, &form, capture);
        attrs.retain(|event| !event.ids.is_empty());
        let mut features = machine::features(command_line, target::clock(plan), offset);
        features.set(&Feature::EventDesc(&attrs));
        if attrs.iter().any(|event| event.grouping != Grouping::Alone) {
            features.set(&Feature::Groups(&attrs));
        }
        let tracepoints = selected.iter().filter(|event| !matches!(event.spec.kind, EventKind::Probe(_)));
        let tracepoints = tracepoints.filter_map(|event| event.format.tracepoint());
        let tracepoints: Vec<(&str, &str)> = tracepoints.map(|format| (&*format.system, &*format.name)).collect();
        if !tracepoints.is_empty() || !probes.is_empty() {
            let mut data = machine::tracing_data(tracefs, tracepoints.into_iter())?;
            for (kind, text) in probes {
                data.formats.entry(kind.name().to_owned()).or_default().push(text.into_bytes());
            }
            features.set(&Feature::TracingData(&data));
        }
        match &form {
            // How much smaller records will be is not known yet.
            Form::Pipe(Some(level)) => features.set(&Feature::Compressed { level: *level, ratio: 1 }),
            Form::Directory(..) => features.set(&Feature::Directory),
            _ => {}
        }
        let mut container = Container::create(form, &attrs, capture.layout(0), &features)?;
        if let Some(strays) = &strays {
            container.stream().adopt(strays.clone());
        }
        let (dsos, trailer) = (Dsos::default(), capture.trailer());
        Ok(Recording { container, attrs, stray, strays, features, dsos, trailer, failure: None })
    }

    /// Gathers so many bytes before they are written.
    pub fn gather(&mut self, bytes: usize) {
        self.container.stream().gather(bytes);
    }

    /// Writes what there is before the first event, and starts the events.
    pub fn begin(
        &mut self,
        plan: &plan::Capture,
        capture: &mut Capture,
        workload: Option<&mut Workload>,
    ) -> Result<()> {
        // What begins while the tasks are listed is told by the kernel.
        capture.follow_tasks()?;
        if let Form::Directory(..) = self.form() {
            let rings = self.container.stream().own(&directory::rings(capture.rings()));
            self.note(rings);
        }
        self.describe(plan, workload.as_deref());
        capture.enable()?;
        workload.map_or(Ok(()), Workload::start)?;
        Ok(())
    }

    /// Writes what there is before the first event.
    fn describe(&mut self, plan: &plan::Capture, workload: Option<&Workload>) {
        let mut synthesis = Synthesis::new(self.trailer);
        running::kernel(&mut synthesis, &mut self.dsos);
        let mut pids = match &plan.target {
            plan::Target::Workload(_) => Vec::new(),
            plan::Target::Processes(pids) => pids.clone(),
            plan::Target::Threads(tids) => tids.iter().map(|&tid| procfs::process_of(tid).unwrap_or(tid)).collect(),
            plan::Target::AllCpus | plan::Target::Cpus(_) | plan::Target::Cgroups { .. } => procfs::processes(),
        };
        if let Some(workload) = workload {
            // It will be another program when it begins. perf, which keeps what one had mapped before its exec, would take
            // that for its own, and unwind no stack of it.
            pids.retain(|&pid| pid != workload.pid());
            running::task(&mut synthesis, workload.pid());
        }
        running::processes(&mut synthesis, &mut self.dsos, mapped(plan), &pids);
        if plan.namespaces == Switch::On {
            pids.extend(workload.map(Workload::pid));
            running::namespaces(&mut synthesis, &pids);
        }
        if plan.cgroups == Switch::On {
            running::cgroups(&mut synthesis);
        }
        let stream = self.container.stream();
        // Names are of more use than anything that the disk may still have room for later.
        let result = stream.own(synthesis.bytes()).and_then(|()| stream.flush());
        self.note(result);
    }

    /// Takes the first `count` records of a batch.
    pub fn take(&mut self, batch: &Batch, count: usize) {
        let stream = self.container.stream();
        let mut result = Ok(());
        batch.for_each_run(count, |run| {
            if let Err(error) = stream.records(run) {
                result = Err(error);
            }
        });
        self.note(result);
    }

    /// Marks that behind this nothing comes that is older than what is in front of the mark before.
    pub fn mark_round(&mut self) {
        let stream = self.container.stream();
        let result = stream.own(&FINISHED_ROUND).and_then(|()| stream.flush());
        self.note(result);
    }

    /// Keeps the first failure; what comes after it is counted, and not written.
    pub fn note(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Whether it cannot be written any more because nobody reads it.
    pub fn was_closed(&self) -> bool {
        self.failure.as_ref().is_some_and(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Why it cannot be written any more, if it cannot.
    pub fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// What it is written into.
    pub fn form(&self) -> &Form {
        self.container.form()
    }

    /// What is done with samples that have an id of another program, for those that write beside it.
    pub fn strays(&self) -> Option<&Strays> {
        self.strays.as_ref()
    }

    /// Leaves nothing of it: it never began.
    pub fn discard(self) {
        self.container.discard();
    }

    /// Where the records lie. Where they could not be written, there may be no room for this either.
    fn blocks(&mut self, asides: &mut [(u32, Stream)]) -> StoredIndex {
        if self.failure.is_some() {
            return StoredIndex::default();
        }
        let own = self.container.stream().take_index().map(|index| (StoredIndex::DATA, index));
        let asides = asides.iter_mut().filter_map(|(ring, aside)| Some((u64::from(*ring), aside.take_index()?)));
        own.into_iter().chain(asides).collect()
    }

    /// Writes its end. `lost` are the kernel's own counts, and `asides` have the records of rings that threads wrote
    /// beside it.
    pub fn finish(mut self, lost: Option<&[Lost]>, asides: &mut [(u32, Stream)]) -> Result<Summary> {
        let stream = self.container.stream();
        let result = stream.flush();
        let (mut tally, mut dropped, (mut raw, mut packed)) =
            (stream.written().clone(), stream.dropped(), stream.packed());
        self.note(result);
        for (_, aside) in &*asides {
            tally.take(&mut aside.written().clone());
            dropped += aside.dropped();
            raw += aside.packed().0;
            packed += aside.packed().1;
        }
        if let Some(lost) = lost {
            let mut synthesis = Synthesis::new(self.trailer);
            losses(&mut synthesis, lost, &tally);
            let stream = self.container.stream();
            let result = stream.own(synthesis.bytes()).and_then(|()| stream.flush());
            self.note(result);
        }
        let blocks = self.blocks(asides);
        if let Some((first, last)) = tally.times {
            self.features.set(&Feature::SampleTime(first, last));
        }
        if let Some(level) = self.form().level() {
            let ratio = raw.checked_div(packed).unwrap_or(1) as u32;
            self.features.set(&Feature::Compressed { level, ratio });
        }
        let is_whole = self.failure.is_none() || self.was_closed();
        let Recording { container, mut attrs, stray, mut features, mut dsos, .. } = self;
        dsos.extend(tally.dsos);
        running::look_up(&mut dsos);
        features.set(&Feature::BuildIds(&dsos));
        let name = container.form().to_string();
        let stray = stray.filter(|_| !tally.strays.ids.is_empty());
        if let Some(event) = stray {
            attrs[event].ids.extend(tally.strays.ids);
            features.set(&Feature::EventDesc(&attrs));
        }
        let ids = stray.map(|event| (event, &*attrs[event].ids));
        let bytes = container.finish(&features, &dsos, &blocks, ids)?
            + asides.iter().map(|(_, aside)| aside.end()).sum::<u64>();
        let samples =
            |lost: &[Lost]| lost.iter().filter(|lost| lost.what == LostRecords::Samples).map(|lost| lost.count).sum();
        let left_out = tally.strays.left_out;
        let lost = lost.map_or(tally.lost.values().sum(), samples);
        Ok(Summary { name, samples: tally.samples, lost, dropped, left_out, bytes, is_whole })
    }
}

impl Summary {
    /// Says what was left out of it, where no script was told.
    pub fn say_left_out(&self) {
        if self.left_out != 0 {
            output::say(format_args!(
                "{} samples are not in {}: another program counts the same software event, and the kernel gave them the number \
                 of its event; with one software event a recording they can be told apart",
                self.left_out, self.name
            ));
        }
    }

    /// Says what became of it; `more` is what helps against losses beside larger rings.
    pub fn say(&self, more: &str, verbosity: Verbosity) {
        let Summary { name, samples, lost, dropped, .. } = self;
        if *dropped != 0 && !self.is_whole {
            output::say(format_args!("{name} is not whole: {dropped} samples that had been taken are not in it"));
        }
        if verbosity > Verbosity::Quiet {
            let share = match lost {
                0 => "0 lost".to_owned(),
                lost => {
                    let percent = 100.0 * *lost as f64 / (samples + lost) as f64;
                    format!("{lost} lost ({percent:.1} %): a larger -m{more} or fewer events help")
                }
            };
            let what = if *samples == 1 { "sample" } else { "samples" };
            output::say(format_args!("{name}: {samples} {what} in {}, {share}", bytes(self.bytes)));
        }
    }
}

/// Writes what the records do not tell of losses: those at a ring's end, behind which no record came that could tell, and
/// which events' samples they were.
fn losses(out: &mut Synthesis, lost: &[Lost], tally: &Tally) {
    // Rings of threads have no CPU of their own.
    const NO_CPU: u32 = u32::MAX;
    let mut told = tally.lost.clone();
    let mut rings: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
    for lost in lost {
        rings.entry(lost.cpu).or_insert((0, lost.id)).0 += lost.count;
    }
    let last = tally.times.map_or(0, |(_, last)| last);
    // Last those without a CPU: what other rings have not told was theirs.
    for (cpu, (count, id)) in rings.into_iter().rev() {
        let told = match cpu {
            Some(cpu) => told.remove(&cpu).unwrap_or(0),
            None => told.values().sum(),
        };
        if count > told {
            out.lost(count - told, id, cpu.unwrap_or(NO_CPU), last);
        }
    }
    for lost in lost.iter().filter(|lost| lost.what == LostRecords::Samples) {
        out.lost_samples(lost.count, lost.id, lost.cpu.unwrap_or(NO_CPU));
    }
}

/// A size, for people.
fn bytes(size: u64) -> String {
    match size {
        0..10_240 => format!("{size} bytes"),
        10_240..10_485_760 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}
