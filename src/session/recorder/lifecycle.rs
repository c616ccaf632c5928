//! A recording that perf-prof writes: starts it, writes records, and finishes it. A script may receive the same events
//! at the same time. Does not know the loops that wait for events.

use std::{collections::BTreeMap, io};

use anyhow::{Result, bail};
use perf_prof_capture::{Capture, CommonMembers, EventRequest, Lost, LostRecords, MappingScope, Mappings, Options};
use perf_prof_format::{
    abi::{PERF_SAMPLE_ID, PERF_SAMPLE_IP},
    record::{Batch, EventAttr, EventIds, TrailerLayout},
    spec::{CallGraph, EventKind, Grouping},
};
use perf_prof_recordings::{
    OwnUpdate, RecordedFrame, RecordedFrames, StoredIndex,
    write::{
        Dsos, FINISHED_ROUND, Feature, Features, ForeignIdRule, ForeignIds, Known, Stream, Synthesis, Tally,
        WriteError, directory,
    },
};
use perf_prof_system::{folder::Folder, procfs, tracefs::Tracefs, workload::Workload};

use super::{
    container::{Container, Destination},
    existing_state, frame_names, machine,
    summary::Summary,
};
use crate::{
    live::{
        requests,
        select::{self, Selected},
        sharing,
    },
    plan::{self, Switch},
    selectors,
};

/// A recording that perf-prof is writing.
#[derive(Debug)]
pub struct RecordingWriter {
    container: Container,
    attrs: Vec<EventAttr>,
    /// The index of the event to which samples with the id of another program's event belong; `None` if it is not
    /// known.
    stray: Option<usize>,
    strays: Option<ForeignIds>,
    features: Features,
    /// The events with frames of interpreters, if there are any.
    frames: Option<RecordedFrames>,
    dsos: Dsos,
    trailer: TrailerLayout,
    /// The CPU of each ring.
    ring_cpus: Vec<Option<u32>>,
    failure: Option<WriteError>,
    /// When the events were turned off; `None` until then.
    end: Option<u64>,
    /// The times in which they were off before.
    off: Vec<(u64, u64)>,
    /// The filters of the events, each with an id of the event.
    filters: Vec<(u64, Vec<u8>)>,
}

/// The command line, events and options of a recording.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The command line that the user typed, one entry per word.
    pub command_line: &'a [String],
    /// The planned events and options.
    pub plan: &'a plan::Capture,
    /// The source of the records.
    pub capture: &'a Capture,
    /// The events of the capture.
    pub selected: &'a [Selected],
    /// The formats of tracepoints.
    pub tracefs: &'a Tracefs,
    /// The time of day minus the capture's clock in ns, if it is known.
    pub offset: Option<i64>,
    /// An event whose samples perf-prof itself writes, if there is one.
    pub made: Option<&'a MadeEvent>,
}

/// An event whose samples perf-prof itself writes into a recording. It has the form of a tracepoint.
#[derive(Clone, Debug)]
pub struct MadeEvent {
    /// The attr of the event.
    pub attr: EventAttr,
    /// The system of the tracepoint.
    pub system: &'static str,
    /// The format of the event, as in tracefs.
    pub format: &'static str,
}

/// Checks whether the events in `selected` can be recorded.
pub fn check(selected: &[Selected]) -> Result<()> {
    let is_probe = |event: &&Selected| matches!(event.spec.kind, EventKind::Probe(_));
    match selected.iter().find(|event| is_probe(event) && event.request.definition.is_none()) {
        Some(probe) => bail!(
            "{}: a probe at an address in the kernel cannot be recorded, because tracefs has no tracepoint for it; use a \
             function name instead of the address",
            probe.spec.selector
        ),
        None => Ok(()),
    }
}

/// Adds to the requests and options what a recording needs: addresses in samples, mappings with build ids, and the
/// sample members that perf expects.
pub fn with_members_of_recordings(
    plan: &plan::Capture,
    mut requests: Vec<EventRequest>,
    options: Options,
) -> (Vec<EventRequest>, Options) {
    requests.iter_mut().for_each(|request| request.samples.sample_type |= PERF_SAMPLE_IP);
    let mappings = Mappings::Identified(mapped(plan));
    (requests, Options { members: CommonMembers::Recording, mappings, ..options })
}

/// Adds the sample id to all requests if an event is not a tracepoint. Scripts see the sample id as a member of such
/// events.
pub fn with_members_of_scripts(mut requests: Vec<EventRequest>, selected: &[Selected]) -> Vec<EventRequest> {
    if selected.iter().any(|event| event.format.tracepoint().is_none()) {
        requests.iter_mut().for_each(|request| request.samples.sample_type |= PERF_SAMPLE_ID);
    }
    requests
}

/// Gives each probe the name that it has in recordings. Returns the systems and formats of the probes with these names.
/// In tracefs, probes have other, temporary names.
fn probes(attrs: &mut [EventAttr], selected: &[Selected]) -> Vec<(String, String)> {
    let mut formats = Vec::new();
    for (event, attr) in selected.iter().zip(attrs).filter(|(event, _)| event.samples_of.is_none()) {
        if let (EventKind::Probe(probe), Some(format)) = (&event.spec.kind, event.format.tracepoint()) {
            let (system, name) = probe.recorded_name();
            attr.name = format!("{system}:{name}");
            formats.push((system, selectors::with_name(format.text(), &name, attr.attr.config as u32)));
        }
    }
    formats
}

/// Decides how to handle samples with the id of another program's event. Returns the event to which these samples
/// belong (an index among the events that can be sampled) and the rule for the recorder. With this rule, the recording
/// contains the samples that a script would get.
fn strays(
    attrs: &[EventAttr],
    selected: &[Selected],
    destination: &Destination,
    capture: &Capture,
) -> (Option<usize>, Option<ForeignIds>) {
    if !select::may_have_foreign_ids(selected) {
        return (None, None);
    }
    let event = select::event_of_foreign_ids(selected).and_then(|event| Some((event, *attrs.get(event)?.ids.first()?)));
    let claim = match (event, destination) {
        (None, _) => ForeignIdRule::LeftOut,
        (Some((event, id)), Destination::Pipe(_)) => ForeignIdRule::Renamed { id, layout: capture.layout(event) },
        (Some(_), Destination::File(..) | Destination::Directory(..)) => ForeignIdRule::Listed,
    };
    let ids = attrs.iter().enumerate().flat_map(|(at, attr)| attr.ids.iter().map(move |&id| (id, at)));
    let strays = ForeignIds::new(EventIds::new(&ids.collect::<Vec<_>>()), claim);
    let number = |(event, _)| attrs[..event].iter().filter(|attr| !attr.ids.is_empty()).count();
    (event.map(number), Some(strays))
}

/// Returns which mappings are recorded: those of code, or all of them.
fn mapped(plan: &plan::Capture) -> MappingScope {
    match plan.callchain.how {
        CallGraph::Dwarf(_) => MappingScope::All,
        CallGraph::FramePointer | CallGraph::LastBranches => MappingScope::Code,
    }
}

/// Returns records of the kernel and of the existing tasks and mappings. `workload` is the pid of a command that has
/// not called exec yet.
pub fn existing(plan: &plan::Capture, trailer: TrailerLayout, workload: Option<u32>, dsos: &mut Dsos) -> Synthesis {
    let mut synthesis = Synthesis::new(trailer);
    existing_state::kernel(&mut synthesis, dsos);
    let mut pids = match &plan.target {
        plan::Target::Workload(_) => Vec::new(),
        plan::Target::Processes(pids) => pids.clone(),
        plan::Target::Threads(tids) => tids.iter().map(|&tid| procfs::process_of(tid).unwrap_or(tid)).collect(),
        plan::Target::AllCpus | plan::Target::Cpus(_) | plan::Target::Cgroups { .. } => procfs::processes(),
    };
    if let Some(workload) = workload {
        // The exec of the workload replaces its current mappings, so they are not written. perf would keep them after
        // the exec, use them for the new program, and could not unwind its stacks.
        pids.retain(|&pid| pid != workload);
        existing_state::task(&mut synthesis, workload);
    }
    existing_state::processes(&mut synthesis, dsos, mapped(plan), &pids);
    if plan.namespaces == Switch::On {
        pids.extend(workload);
        existing_state::namespaces(&mut synthesis, &pids);
    }
    if plan.cgroups == Switch::On {
        existing_state::cgroups(&mut synthesis);
    }
    synthesis
}

impl RecordingWriter {
    /// Creates the recording of a capture and writes its header.
    pub fn create(destination: Destination, subject: &Subject<'_>) -> Result<RecordingWriter> {
        let &Subject { command_line, plan, capture, selected, tracefs, offset, made } = subject;
        let mut attrs = capture.attrs().to_vec();
        let mut formats = probes(&mut attrs, selected);
        attrs.extend(made.map(|made| made.attr.clone()));
        formats.extend(made.map(|made| (made.system.to_owned(), made.format.to_owned())));
        let (stray, strays) = strays(&attrs, selected, &destination, capture);
        let frames = frame_names::without_names(selected, |at| attrs.get(at)?.ids.first().copied());
        let filter = |(at, attr): (usize, &EventAttr)| {
            Some((*attr.ids.first()?, sharing::recorded_filter(selected, at)?.into_bytes()))
        };
        let filters = attrs.iter().enumerate().filter_map(filter).collect();
        attrs.retain(|event| !event.ids.is_empty());
        let mut features = machine::features(command_line, requests::clock(plan), offset);
        features.set(&Feature::EventDesc(&attrs));
        if let Some(frames) = &frames {
            features.set(&Feature::InterpreterFrames(frames));
        }
        if attrs.iter().any(|event| event.grouping != Grouping::Alone) {
            features.set(&Feature::Groups(&attrs));
        }
        let tracepoints = selected.iter().filter(|event| !matches!(event.spec.kind, EventKind::Probe(_)));
        let tracepoints: Vec<_> =
            tracepoints.filter_map(|event| event.format.tracepoint().map(|format| &**format)).collect();
        if !tracepoints.is_empty() || !formats.is_empty() {
            let mut data = machine::tracing_data(tracefs, tracepoints.into_iter())?;
            for (system, text) in formats {
                data.formats.entry(system).or_default().push(text.into_bytes());
            }
            features.set(&Feature::TracingData(&data));
        }
        match &destination {
            // The compression ratio is not known yet.
            Destination::Pipe(Some(level)) => features.set(&Feature::Compressed { level: *level, ratio: 1 }),
            Destination::Directory(..) => features.set(&Feature::Directory),
            _ => {}
        }
        let mut container =
            Container::create(destination, &Known { events: &attrs, layout: capture.layout(0), features: &features })?;
        if let Some(strays) = &strays {
            container.stream().set_foreign_ids(strays.clone());
        }
        let (dsos, trailer) = (Dsos::default(), capture.trailer());
        Ok(RecordingWriter {
            container,
            attrs,
            stray,
            strays,
            features,
            frames,
            dsos,
            trailer,
            ring_cpus: Vec::new(),
            failure: None,
            end: None,
            off: Vec::new(),
            filters,
        })
    }

    /// Sets what the frames of interpreters stand for.
    pub fn name_frames(&mut self, named: Vec<RecordedFrame>) {
        if let Some(frames) = &mut self.frames {
            frames.frames = named;
            self.features.set(&Feature::InterpreterFrames(frames));
        }
    }

    /// Sets how many bytes are collected before they are written.
    pub fn gather(&mut self, bytes: usize) {
        self.container.stream().gather(bytes);
    }

    /// Writes records of the existing tasks and mappings. Then starts the events.
    pub fn begin(
        &mut self,
        plan: &plan::Capture,
        capture: &mut Capture,
        workload: Option<&mut Workload>,
    ) -> Result<()> {
        // From now on, the kernel reports new tasks. So a task that is created while the existing tasks are listed is
        // not missed.
        capture.follow_tasks()?;
        self.list_rings(capture);
        self.describe(plan, workload.as_deref());
        capture.enable()?;
        workload.map_or(Ok(()), Workload::start)?;
        Ok(())
    }

    /// Writes records of the kernel and of the existing tasks and mappings.
    fn describe(&mut self, plan: &plan::Capture, workload: Option<&Workload>) {
        let existing = existing(plan, self.trailer, workload.map(Workload::pid), &mut self.dsos);
        let stream = self.container.stream();
        // These records are written at once. If the disk becomes full later, the names are more useful than the last
        // samples.
        let result = stream.own(existing.bytes()).and_then(|()| stream.flush());
        self.keep_failure(result);
    }

    /// Writes records that list the rings and the filters of events. A reader needs the rings to find missing files of a
    /// directory, and to know whether only some CPUs were recorded.
    pub fn list_rings(&mut self, capture: &Capture) {
        self.ring_cpus = capture.rings().map(|(_, cpu)| cpu).collect();
        let mut records = directory::rings(capture.rings());
        let filters = self.filters.drain(..).map(|(id, filter)| OwnUpdate::Filter(id, filter).record(id));
        records.extend(filters.flatten());
        let result = self.container.stream().own(&records);
        self.keep_failure(result);
    }

    /// Writes at once what is known of the times in which the events are off. So a reader knows it even if the recorder is
    /// killed.
    pub fn tell(&mut self, update: &OwnUpdate) {
        let Some(&id) = self.attrs.iter().find_map(|event| event.ids.first()) else { return };
        let stream = self.container.stream();
        let result = stream.own(&update.record(id)).and_then(|()| stream.flush());
        self.keep_failure(result);
    }

    /// Adds files of the kernel's code, with their build ids.
    pub fn add_dsos(&mut self, dsos: &Dsos) {
        self.dsos.extend(dsos.iter().map(|(path, dso)| (path.clone(), dso.clone())));
    }

    /// Writes whole records.
    pub fn write_records(&mut self, records: &[u8]) {
        let result = self.container.stream().records(records);
        self.keep_failure(result);
    }

    /// Writes the first `count` records of a batch.
    pub fn write_batch(&mut self, batch: &Batch, count: usize) {
        let stream = self.container.stream();
        let mut result = Ok(());
        batch.for_each_run(count, |run| {
            if let Err(error) = stream.records(run) {
                result = Err(error);
            }
        });
        self.keep_failure(result);
    }

    /// Writes the end of a round (PERF_RECORD_FINISHED_ROUND). No record after it is older than a record before the
    /// previous end of a round.
    pub fn mark_round(&mut self) {
        let stream = self.container.stream();
        let result = stream.own(&FINISHED_ROUND).and_then(|()| stream.flush());
        self.keep_failure(result);
    }

    /// If `result` is the first failure, stores it. Records that arrive after a failure are counted, but not written.
    pub fn keep_failure(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Returns whether the recording is a pipe and the reader of the pipe has closed it.
    pub fn was_closed(&self) -> bool {
        self.failure.as_ref().is_some_and(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns the reason if the recording cannot be written any more.
    pub fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// Returns the destination of the output: a file, a directory or a pipe.
    pub fn destination(&self) -> &Destination {
        self.container.destination()
    }

    /// Returns the folder of a recording that is a directory.
    pub fn folder(&self) -> Option<&Folder> {
        self.container.folder()
    }

    /// Returns the rule for samples with the id of another program's event, for other threads that write a part of the
    /// recording.
    pub fn strays(&self) -> Option<&ForeignIds> {
        self.strays.as_ref()
    }

    /// Removes the recording, because it could not be started.
    pub fn discard(self) {
        self.container.discard();
    }

    /// Returns the index of the blocks of records, the time of the end, and the block devices if requests to them were
    /// recorded. All are empty after a failure, because the disk may be full.
    fn blocks(&mut self, ring_streams: &mut [(u32, Stream)]) -> StoredIndex {
        if self.failure.is_some() {
            return StoredIndex::default();
        }
        let own = self.container.stream().take_index().map(|index| (StoredIndex::DATA, index));
        let of_rings =
            ring_streams.iter_mut().filter_map(|(ring, aside)| Some((u64::from(*ring), aside.take_index()?)));
        let mut index: StoredIndex = own.into_iter().chain(of_rings).collect();
        let compressed = ring_streams.iter().filter(|(_, aside)| aside.is_compressed());
        index.sizes = compressed.map(|(ring, aside)| (u64::from(*ring), aside.end())).collect();
        index.end = self.end;
        index.off = std::mem::take(&mut self.off);
        if self.attrs.iter().any(|event| event.name.starts_with("block:")) {
            index.devices = machine::block_devices();
        }
        index
    }

    /// Adds records about samples that could not be written, in the form of the kernel's records about lost samples.
    fn unwritten(&mut self, ring_streams: &[(u32, Stream)], dropped: u64, tally: &Tally, out: &mut Synthesis) {
        let mut by_id = self.container.stream().unwritten().clone();
        for (id, count) in ring_streams.iter().flat_map(|(_, stream)| stream.unwritten()) {
            *by_id.entry(*id).or_default() += count;
        }
        // The reserved space is small, so one record counts the samples of all CPUs.
        let of_event = |attr: &EventAttr| attr.ids.iter().filter_map(|id| by_id.get(id)).sum::<u64>();
        let mut events: Vec<(u64, u64)> =
            self.attrs.iter().filter_map(|attr| Some((*attr.ids.first()?, of_event(attr)))).collect();
        // The ids of the other dropped samples are not known. These samples are counted for the first event, so that the
        // sum is right.
        let known: u64 = events.iter().map(|(_, count)| count).sum();
        events.iter_mut().take(1).for_each(|(_, count)| *count += dropped.saturating_sub(known));
        if let (Some((id, _)), 1..) = (events.first(), dropped) {
            // A loss begins after the previous record of its ring. This loss belongs to no ring, so a record with a loss of
            // 0 says where this loss begins: everything before that record was written.
            let streams = ring_streams.iter().map(|(_, stream)| stream).chain([&*self.container.stream()]);
            if let Some(since) = streams.filter_map(Stream::dropped_since).min() {
                out.lost(0, *id, NO_CPU, since.saturating_sub(1));
            }
            out.lost(dropped, *id, NO_CPU, tally.times.map_or(0, |(_, last)| last));
        }
        events.iter().filter(|(_, count)| *count != 0).for_each(|&(id, count)| out.lost_samples(count, id, NO_CPU));
    }

    /// Returns the time of the last sample of a CPU, if the CPU's ring has a file of its own.
    fn last_of_own_file(&self, cpu: u32, ring_streams: &[(u32, Stream)]) -> Option<u64> {
        let ring = self.ring_cpus.iter().position(|of| *of == Some(cpu))?;
        let (_, stream) = ring_streams.iter().find(|(of, _)| *of as usize == ring)?;
        stream.written().times.map(|(_, last)| last)
    }

    /// Sets when the events were turned off, by the clock of the records. Spans that have not ended last until then.
    pub fn ended_at(&mut self, time: u64) {
        self.end = Some(time);
    }

    /// Sets in which times the events were off, by the clock of the records. No span goes on over such a time.
    pub fn turned_off(&mut self, times: &[(u64, u64)]) {
        self.off = times.to_vec();
    }

    /// Writes the end of the recording. `lost` contains the kernel's counts of losses. `ring_streams` contains the
    /// streams of the writer threads, each with the number of its ring.
    pub fn finish(mut self, lost: Option<&[Lost]>, ring_streams: &mut [(u32, Stream)]) -> Result<Summary> {
        let stream = self.container.stream();
        let result = stream.flush();
        let (mut tally, mut dropped, (mut raw, mut packed)) =
            (stream.written().clone(), stream.dropped(), stream.packed());
        self.keep_failure(result);
        for (_, aside) in &*ring_streams {
            tally.absorb(&mut aside.written().clone());
            dropped += aside.dropped();
            raw += aside.packed().0;
            packed += aside.packed().1;
        }
        let mut about_losses = Synthesis::new(self.trailer);
        losses(&mut about_losses, lost.unwrap_or_default(), &tally, |cpu| self.last_of_own_file(cpu, ring_streams));
        if self.failure.is_none() {
            let stream = self.container.stream();
            let result = stream.own(about_losses.bytes()).and_then(|()| stream.flush());
            self.keep_failure(result);
        }
        // After a failure, these records go into the reserved space at the end of the recording.
        if self.failure.is_some() {
            self.unwritten(ring_streams, dropped, &tally, &mut about_losses);
        }
        let about_losses = if self.failure.is_some() { about_losses.bytes() } else { &[] };
        let blocks = self.blocks(ring_streams);
        if let Some((first, last)) = tally.times {
            self.features.set(&Feature::SampleTime(first, last));
        }
        if let Some(level) = self.destination().level() {
            let ratio = raw.checked_div(packed).unwrap_or(1) as u32;
            self.features.set(&Feature::Compressed { level, ratio });
        }
        let was_closed = self.was_closed();
        let RecordingWriter { container, mut attrs, stray, mut features, mut dsos, failure, .. } = self;
        let failure = failure.filter(|_| !was_closed);
        dsos.extend(tally.dsos);
        existing_state::fill_in_build_ids(&mut dsos);
        features.set(&Feature::BuildIds(&dsos));
        let name = container.destination().to_string();
        let stray = stray.filter(|_| !tally.strays.ids.is_empty());
        if let Some(event) = stray {
            attrs[event].ids.extend(tally.strays.ids);
            features.set(&Feature::EventDesc(&attrs));
        }
        let ids = stray.map(|event| (event, &*attrs[event].ids));
        let bytes = container.finish(about_losses, &features, &dsos, &blocks, ids)?
            + ring_streams.iter().map(|(_, aside)| aside.end()).sum::<u64>();
        let are_samples = |lost: &&Lost| lost.what != LostRecords::SideBand;
        let samples = |lost: &[Lost]| lost.iter().filter(are_samples).map(|lost| lost.count).sum();
        let left_out = tally.strays.left_out;
        let is_unwritten = |lost: &&Lost| lost.what == LostRecords::Unwritten;
        let unwritten = lost.iter().copied().flatten().filter(is_unwritten).map(|lost| lost.count).sum();
        let lost = lost.map_or(tally.lost.values().sum(), samples);
        Ok(Summary { name, samples: tally.samples, lost, unwritten, dropped, left_out, bytes, failure })
    }
}

/// The CPU in records about losses of rings without a CPU, such as the ring of a thread.
const NO_CPU: u32 = u32::MAX;

/// Writes records of losses that are missing in the kernel's own records. The kernel reports a loss together with the
/// next record in the ring, so it does not report losses at the end of a ring. The kernel also does not say which
/// events the lost samples belong to. `last_of_own_file` returns the time of the last sample of a CPU whose ring has a file of
/// its own.
fn losses(out: &mut Synthesis, lost: &[Lost], tally: &Tally, last_of_own_file: impl Fn(u32) -> Option<u64>) {
    let mut told = tally.lost.clone();
    let mut rings: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
    // Events that have no sample were lost at unknown times.
    for lost in lost.iter().filter(|lost| lost.what != LostRecords::Unwritten) {
        rings.entry(lost.cpu).or_insert((0, lost.id)).0 += lost.count;
    }
    let last = tally.times.map_or(0, |(_, last)| last);
    // Rings without a CPU come last. They get the reported losses that belong to no other ring.
    for (cpu, (count, id)) in rings.into_iter().rev() {
        let told = match cpu {
            Some(cpu) => told.remove(&cpu).unwrap_or(0),
            None => told.values().sum(),
        };
        if count > told {
            // A loss begins after the previous record of its CPU in the same file. This file has none of them, so a record
            // without a loss says where it begins.
            if let Some((cpu, since)) = cpu.and_then(|cpu| Some((cpu, last_of_own_file(cpu)?))) {
                out.lost(0, id, cpu, since);
            }
            out.lost(count - told, id, cpu.unwrap_or(NO_CPU), last);
        }
    }
    for lost in lost.iter().filter(|lost| matches!(lost.what, LostRecords::Samples | LostRecords::Unwritten)) {
        out.lost_samples(lost.count, lost.id, lost.cpu.unwrap_or(NO_CPU));
    }
}
