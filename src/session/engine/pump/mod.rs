//! Delivers the records of a batch. Samples and losses go to the program. Task names, mappings and kernel symbols go to
//! the context.

mod gaps;
mod handled;
mod shared;
mod task_cgroups;

use std::{ops::ControlFlow, sync::Arc};

use perf_prof_events::event::{Cgroups, Context, Deliver, Stats, Stop};
use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, perf_data::HOST_KERNEL_ID},
    record::{Batch, EventIds, OtherRecords, Record, ReplayMarker, RingRoom, SampleLayout, TrailerLayout, record_type},
};

use super::sample_routes::{ReplayState, SampleOrigin};

use gaps::{gap_changed, room_changed};
pub use shared::{SharedSamples, SharedTracepoint};
pub use task_cgroups::{MOVES, MoveEvent, TaskCgroups};

/// The reason why delivery stopped in the middle of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakReason {
    /// The program wants no more events.
    Stop(Stop),
    /// The maximum number of samples (`-N`) has been delivered.
    Limit,
    /// A second signal arrived, so delivery ends at once.
    Now,
}

/// Which times are passed to `__lost__`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossWindow {
    /// The times of the samples before and after the loss.
    Times,
    /// Both times are 0. Events that are not delivered in order of time need this, because times of different CPUs
    /// cannot be compared.
    Zero,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    /// The time of the last sample, in ns.
    last: u64,
    /// The number of records that were lost after the last sample and are not yet reported to the program.
    lost: u64,
}

type Parse = for<'a> fn(&'a [u8]) -> Record<'a>;

/// Delivers records to the program.
pub struct Pump {
    ids: EventIds,
    /// The offsets of the id and the time in a sample. They are the same in all samples of a run.
    layout: SampleLayout,
    trailer: TrailerLayout,
    context: Arc<Context>,
    stats: Arc<Stats>,
    window: LossWindow,
    rings: Vec<Ring>,
    samples_left: u64,
    /// True if a ring has losses that were not yet reported to the program.
    has_unreported_losses: bool,
    /// The number of records lost since the last [`Pump::take_recent_losses`], per ring.
    recent_losses: Vec<u64>,
    /// Parses records other than samples.
    parse: Parse,
    /// The types of records other than samples that the program receives.
    others: OtherRecords,
    /// The state of the replay, if the records come from a recording. It decides which events get the samples.
    replay_state: Option<Box<ReplayState>>,
    /// Follows the cgroups of tasks. `None` if only the cgroups of running tasks are needed.
    cgroups: Option<Box<TaskCgroups>>,
    /// The tracepoints that several selected events share, if there are any.
    shared: Option<Box<SharedSamples>>,
}

/// The settings of a pump.
pub struct PumpSettings {
    /// Maps the ids in samples to events.
    pub ids: EventIds,
    /// The offsets of the id and the time in all samples.
    pub layout: SampleLayout,
    /// The offset of the time in all other records, counted from the end of the record.
    pub trailer: TrailerLayout,
    /// Resolves tasks and addresses to names.
    pub context: Arc<Context>,
    /// The counts of delivered and lost events.
    pub stats: Arc<Stats>,
    /// The times that are passed to `__lost__`.
    pub window: LossWindow,
    /// The number of rings.
    pub rings: usize,
    /// The number of samples after which delivery stops (`-N`).
    pub limit: Option<u64>,
}

impl Pump {
    /// Makes a pump for live events.
    pub fn new(settings: PumpSettings) -> Self {
        let PumpSettings { ids, layout, trailer, context, stats, window, rings, limit } = settings;
        Self {
            ids,
            layout,
            trailer,
            context,
            stats,
            window,
            rings: vec![Ring::default(); rings],
            samples_left: limit.unwrap_or(u64::MAX),
            has_unreported_losses: false,
            recent_losses: vec![0; rings],
            parse: |record| Record::parse_without_build_ids(record),
            others: OtherRecords::NONE,
            replay_state: None,
            cgroups: None,
            shared: None,
        }
    }

    /// Makes the pump accept build ids in mapping records. By default, the build-id flag of these records is ignored.
    pub fn with_build_ids(mut self) -> Self {
        self.parse = |record| Record::parse(record);
        self
    }

    /// Makes the pump deliver records of these types to the program ([`Deliver::other_record`]). By default, it delivers
    /// only samples.
    pub fn with_other_records(self, others: OtherRecords) -> Self {
        Self { others, ..self }
    }

    /// Makes the pump follow the cgroups of tasks.
    pub fn with_cgroups(self, cgroups: Option<TaskCgroups>) -> Self {
        if cgroups.is_some() {
            self.context.with_cgroups(Cgroups::follow_tasks);
        }
        Self { cgroups: cgroups.map(Box::new), ..self }
    }

    /// Makes a pump for a recording. The events of a recording may have different layouts; `replay_state` contains all of
    /// these layouts.
    pub fn for_recording(
        replay_state: ReplayState,
        context: Arc<Context>,
        stats: Arc<Stats>,
        rings: usize,
        limit: Option<u64>,
    ) -> Self {
        let pump = Self::new(PumpSettings {
            ids: EventIds::new(&[]),
            layout: SampleLayout::new(0, 0),
            trailer: TrailerLayout::new(0),
            context,
            stats,
            window: LossWindow::Times,
            rings,
            limit,
        });
        Self { replay_state: Some(Box::new(replay_state)), ..pump }
    }

    /// Returns the state of the replay, if the records come from a recording.
    pub fn replay_state(&self) -> Option<&ReplayState> {
        self.replay_state.as_deref()
    }

    /// Returns the context, which resolves tasks and addresses to names.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns how many samples may still be delivered before the limit (`-N`) is reached.
    pub fn samples_left(&self) -> u64 {
        self.samples_left
    }

    /// Delivers a batch. Calls `attend` before each sample, so that signals are handled before the end of the batch. If
    /// `attend` returns `Break`, delivery stops.
    pub fn deliver(
        &mut self,
        batch: &Batch,
        program: &mut dyn Deliver,
        mut attend: impl FnMut(&mut dyn Deliver) -> ControlFlow<BreakReason>,
    ) -> ControlFlow<BreakReason> {
        if let Some(mut replay_state) = self.replay_state.take() {
            let flow = self.deliver_recorded(batch, &mut replay_state, program, &mut attend);
            self.replay_state = Some(replay_state);
            return flow;
        }
        // Each kind of batch has a loop of its own, so that the body is inlined in both loops. A closure that both
        // loops call would not be inlined, and each record would cost a call.
        match batch {
            Batch::Ring(chunk) => {
                for record in chunk.records() {
                    self.record(chunk.ring as usize, record, program, &mut attend)?;
                }
            }
            Batch::Sorted(sorted) => {
                for (ring, record) in sorted.in_order() {
                    self.record(ring as usize, record, program, &mut attend)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn record(
        &mut self,
        ring: usize,
        record: &[u8],
        program: &mut dyn Deliver,
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<BreakReason>,
    ) -> ControlFlow<BreakReason> {
        if record_type(record) == PERF_RECORD_SAMPLE {
            attend(program)?;
            return self.sample(ring, record, program);
        }
        let time = self.trailer.time(record).unwrap_or(0);
        if let Some(room) = RingRoom::of_record(record) {
            return room_changed(room, 0, program);
        }
        let was_losing = self.is_losing(ring);
        self.side_band(ring, (self.parse)(record), time, program);
        if !was_losing && self.is_losing(ring) {
            program.loss_begins().map_break(BreakReason::Stop)?;
        }
        if !self.others.contains(record_type(record)) {
            return ControlFlow::Continue(());
        }
        attend(program)?;
        other_record(record, time, program)
    }

    fn deliver_recorded(
        &mut self,
        batch: &Batch,
        replay_state: &mut ReplayState,
        program: &mut dyn Deliver,
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<BreakReason>,
    ) -> ControlFlow<BreakReason> {
        match batch {
            Batch::Ring(chunk) => {
                for record in chunk.records() {
                    self.deliver_record_of_recording(replay_state, chunk.ring, record, program, attend)?;
                }
            }
            Batch::Sorted(sorted) => {
                for (ring, record) in sorted.in_order() {
                    self.deliver_record_of_recording(replay_state, ring, record, program, attend)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn deliver_record_of_recording(
        &mut self,
        replay_state: &mut ReplayState,
        chunk_ring: u32,
        record: &[u8],
        program: &mut dyn Deliver,
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<BreakReason>,
    ) -> ControlFlow<BreakReason> {
        if record_type(record) != PERF_RECORD_SAMPLE {
            if chunk_ring == RingRoom::IN_REPLAY {
                return ReplayMarker::read(record)
                    .map_or(ControlFlow::Continue(()), |marker| gap_changed(marker, program));
            }
            self.recorded_side_band(replay_state, record, program)?;
            if !self.others.contains(record_type(record)) {
                return ControlFlow::Continue(());
            }
            attend(program)?;
            return self.recorded_other(replay_state, record, program);
        }
        attend(program)?;
        if replay_state.leaves_out(record) {
            return ControlFlow::Continue(());
        }
        let Some(sample) = replay_state.sample(record, self.rings.len()) else { return ControlFlow::Continue(()) };
        if let Some(cgroups) = &self.cgroups
            && cgroups.are_moves(sample.attr)
        {
            cgroups.note_move(record, &self.context);
        }
        if replay_state.is_of_other_task(&sample, record, &self.context) {
            return ControlFlow::Continue(());
        }
        while let Some(end) = replay_state.interval_passed(sample.time) {
            self.interval(end, program)?;
        }
        if self.has_unreported_losses {
            self.report_losses_without_cpu(sample.time, program)?;
        }
        if let Some(event) = replay_state.only_event(&sample) {
            self.report_loss_before(sample.ring, sample.time, program)?;
            return self.deliver_sample(event, sample.ring, record, program);
        }
        if let Some(samples) = replay_state.split_readings(&sample, record) {
            return samples.iter().try_for_each(|(sample, record)| self.routed(replay_state, sample, record, program));
        }
        self.routed(replay_state, &sample, record, program)
    }

    /// Handles a record of a recording that is not a sample.
    #[inline(never)]
    fn recorded_side_band(
        &mut self,
        replay_state: &mut ReplayState,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        let (ring, time) = replay_state.ring_and_time(record, self.rings.len());
        if !replay_state.add_loss_count(record, ring) {
            let parsed = Record::parse(record);
            replay_state.note_fork(&parsed, time);
            self.side_band(ring, parsed, time, program);
        }
        if !self.has_unreported_losses || time == 0 {
            return ControlFlow::Continue(());
        }
        // The loss is reported here, at the time of its record. The next sample of the ring may be in another part of
        // the recording, so reporting does not wait for it.
        while let Some(end) = replay_state.interval_passed(time) {
            self.interval(end, program)?;
        }
        self.report_loss_before(ring, time, program)
    }

    /// Delivers a record of a recording that is not a sample.
    #[inline(never)]
    fn recorded_other(
        &self,
        replay_state: &mut ReplayState,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        let (_, time) = replay_state.ring_and_time(record, self.rings.len());
        // A record without a time gets the time of the last sample before it.
        let time = if time == 0 { replay_state.last() } else { time };
        while time != 0
            && let Some(end) = replay_state.interval_passed(time)
        {
            self.interval(end, program)?;
        }
        other_record(record, time, program)
    }

    /// Reports to the program that an interval of a recording ended at time `end`.
    #[cold]
    fn interval(&self, end: u64, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        self.context.note_reached(end);
        program.interval().map_break(BreakReason::Stop)
    }

    /// Delivers a sample of a recording to all selected events that get it.
    fn routed(
        &mut self,
        replay_state: &ReplayState,
        sample: &SampleOrigin,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        for event in replay_state.events(sample, record) {
            self.report_loss_before(sample.ring, sample.time, program)?;
            self.deliver_sample(event, sample.ring, record, program)?;
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn sample(&mut self, ring: usize, record: &[u8], program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        let event = self.event(record);
        let Some(event) = event.or_else(|| self.foreign_event(record)) else { return ControlFlow::Continue(()) };
        if self.shared.is_some() {
            return self.shared_sample((event, ring), record, program);
        }
        self.sample_of(event, ring, record, program)
    }

    #[inline(always)]
    fn sample_of(
        &mut self,
        event: usize,
        ring: usize,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        if let Some(cgroups) = &self.cgroups
            && cgroups.are_moves(event)
        {
            cgroups.note_move(record, &self.context);
            return ControlFlow::Continue(());
        }
        if self.window == LossWindow::Times || self.has_unreported_losses {
            self.report_loss_before(ring, self.layout.time(record).unwrap_or(0), program)?;
        }
        self.deliver_sample(event, ring, record, program)
    }

    #[inline(always)]
    fn event(&self, record: &[u8]) -> Option<usize> {
        self.layout.id(record).and_then(|id| self.ids.event(id))
    }

    #[inline(always)]
    fn deliver_sample(
        &mut self,
        event: usize,
        ring: usize,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<BreakReason> {
        if let Some(cgroups) = &self.cgroups {
            cgroups.note(event, record, &self.context);
        }
        self.stats.count_delivered(event, ring);
        self.samples_left -= 1;
        program.sample(event, record).map_break(BreakReason::Stop)?;
        if self.samples_left == 0 { ControlFlow::Break(BreakReason::Limit) } else { ControlFlow::Continue(()) }
    }

    /// Returns the event that gets a sample with the id of another program's event: see [`EventIds::with_foreign_event`].
    #[cold]
    fn foreign_event(&self, record: &[u8]) -> Option<usize> {
        // A truncated record has no id. It does not count as unattributed.
        let id = self.layout.id(record)?;
        if self.ids.is_closed(id) {
            return None;
        } else if self.ids.foreign_event().is_none() {
            self.stats.count_unattributed();
        }
        self.ids.foreign_event()
    }

    /// If the ring has lost records since its last sample, reports the loss to the program. The loss happened between
    /// the time of the last sample and the time `after`. Then stores `after` as the time of the ring's last sample.
    #[inline(always)]
    fn report_loss_before(&mut self, ring: usize, after: u64, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        let Some(seen) = self.rings.get_mut(ring) else { return ControlFlow::Continue(()) };
        let before = std::mem::replace(&mut seen.last, after);
        if std::mem::take(&mut seen.lost) == 0 {
            return ControlFlow::Continue(());
        }
        self.report_ring_loss(ring, program, before, after)
    }

    /// Reports losses whose records contain no CPU and no time. Such losses end at `after`, the time of the next sample in
    /// any ring.
    #[cold]
    fn report_losses_without_cpu(&mut self, after: u64, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
        // The loss is reported right away, so tell the program first that it begins.
        program.loss_begins().map_break(BreakReason::Stop)?;
        self.report_loss_before(self.rings.len() - 1, after, program)
    }

    #[cold]
    fn report_ring_loss(
        &mut self,
        ring: usize,
        program: &mut dyn Deliver,
        start: u64,
        end: u64,
    ) -> ControlFlow<BreakReason> {
        self.has_unreported_losses = self.rings.iter().any(|ring| ring.lost != 0);
        self.report_loss(ring, program, start, end)
    }

    #[cold]
    fn report_loss(&self, ring: usize, program: &mut dyn Deliver, start: u64, end: u64) -> ControlFlow<BreakReason> {
        let (start, end) = if self.window == LossWindow::Times { (start, end) } else { (0, 0) };
        self.stats.set_reported_ring(Some(ring));
        let flow = program.lost(start, end);
        self.stats.set_reported_ring(None);
        flow.map_break(BreakReason::Stop)
    }

    #[cold]
    fn side_band(&mut self, ring: usize, record: Record<'_>, time: u64, program: &mut dyn Deliver) {
        match record {
            Record::Lost { lost } => self.lost(ring, lost),
            Record::Comm { pid, tid, comm, exec } => {
                self.context.with_tasks(|tasks| {
                    tasks.named(tid as i32, time, comm);
                    tasks.belongs(tid as i32, pid as i32);
                });
                if exec {
                    self.context.program_ended(pid, |symbols| symbols.processes().exec(pid, time));
                }
            }
            Record::Fork { pid, ppid, tid, ptid } => {
                self.context.forked((ppid, ptid), (pid, tid), time);
                program.task_created(tid as i32, time);
                self.context.with_followed(|symbols| symbols.processes().forked(ppid, pid, time));
            }
            Record::Exit { pid, tid } => {
                self.context.with_tasks(|tasks| tasks.exited(tid as i32));
                program.task_exited(tid as i32, time);
                if pid == tid {
                    self.context.program_ended(pid, |symbols| symbols.processes().exited(pid, time));
                }
            }
            Record::Mmap2(mmap) if mmap.pid == HOST_KERNEL_ID => self.context.kernel.code_mapped(&mmap),
            Record::Mmap2(mmap) => self.context.with_followed(|symbols| symbols.mmap(mmap.pid, time, &mmap.into())),
            Record::Ksymbol(symbol) => self.context.kernel.symbol_changed(&symbol),
            Record::Cgroup { id, path } => self.context.with_cgroups(|cgroups| cgroups.named(id, path)),
            Record::Throttle => self.stats.count_throttled(),
            Record::Sample | Record::Other(_) => {}
        }
    }

    /// Returns whether records of this ring were lost after its last sample.
    fn is_losing(&self, ring: usize) -> bool {
        self.rings.get(ring).is_some_and(|seen| seen.lost != 0)
    }

    fn lost(&mut self, ring: usize, lost: u64) {
        // A recorder says with a loss of 0 records where a loss begins: if it could not write all records, and at the end of
        // a ring's own file.
        if lost == 0 {
            return;
        }
        self.stats.count_lost(ring, lost);
        if let (Some(seen), Some(recent_losses)) = (self.rings.get_mut(ring), self.recent_losses.get_mut(ring)) {
            seen.lost += lost;
            self.has_unreported_losses = true;
            *recent_losses += lost;
        }
    }

    /// Reports to the program the intervals and losses after the last sample. `kernel` contains the number of lost
    /// records of each ring, if the kernel counts lost records.
    pub fn report_remaining(
        &mut self,
        program: &mut dyn Deliver,
        kernel: Option<&[u64]>,
        now: u64,
    ) -> ControlFlow<BreakReason> {
        while let Some(end) = self.replay_state.as_mut().and_then(|replay_state| replay_state.interval_left()) {
            self.interval(end, program)?;
        }
        if let Some(replay_state) = &self.replay_state
            && let Some(counts) = replay_state.losses(self.rings.len(), |ring| self.stats.lost_records(ring))
        {
            // The recording has no PERF_RECORD_LOST for samples that were lost at the end of a ring. perf's own counts
            // include them.
            let unsaid = counts.per_event.iter().sum::<u64>().saturating_sub(self.stats.total_lost());
            if unsaid != 0 {
                self.lost(self.rings.len() - 1, unsaid);
            }
            self.stats.set_kernel_counts(Some(counts));
        }
        for ring in 0..self.rings.len() {
            let unsaid = kernel
                .and_then(|totals| totals.get(ring))
                .map_or(0, |total| total.saturating_sub(self.stats.lost_records(ring)));
            self.stats.count_lost(ring, unsaid);
            self.recent_losses[ring] += unsaid;
            let seen = std::mem::take(&mut self.rings[ring]);
            if seen.lost + unsaid != 0 {
                self.report_loss(ring, program, seen.last, now.max(seen.last))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns whether records were lost since the last call of [`Pump::take_recent_losses`].
    pub fn has_recent_losses(&self) -> bool {
        self.recent_losses.iter().any(|&lost| lost != 0)
    }

    /// Returns the number of records lost since the last call, per ring.
    pub fn take_recent_losses(&mut self) -> Vec<u64> {
        let rings = self.recent_losses.len();
        std::mem::replace(&mut self.recent_losses, vec![0; rings])
    }
}

/// Delivers a record other than a sample. It is a separate function, so that the loops over samples stay small.
#[inline(never)]
fn other_record(record: &[u8], time: u64, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
    program.other_record(record, time).map_break(BreakReason::Stop)
}

#[cfg(test)]
mod tests;
