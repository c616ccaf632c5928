//! Takes each record of a batch to where it belongs: samples and losses to the program, task names to the context.

use std::{ops::ControlFlow, sync::Arc};

use super::replayed::{Replayed, Taken};
use crate::{
    abi::PERF_RECORD_SAMPLE,
    event::{Context, Deliver, Stats, Stop},
    record::{Batch, EventIds, Record, SampleLayout, TrailerLayout, record_type},
};

/// Why delivery stopped within a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The program wants no more.
    Stop(Stop),
    /// As many samples as were asked for (`-N`) have been delivered.
    Limit,
    /// Somebody outside wants delivery to end at once.
    Now,
}

/// Whether samples' times are kept for `__lost__`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossWindow {
    /// `__lost__` gets the times around the gap.
    Times,
    /// `__lost__` gets 0 and 0: without order, times of different CPUs do not compare.
    Zero,
}

/// What a ring has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    /// Time of its last sample.
    last: u64,
    /// Records lost since that sample, not yet told.
    lost: u64,
}

/// Reads a record.
type Parse = for<'a> fn(&'a [u8]) -> Record<'a>;

/// The way of records to the program.
pub struct Pump {
    ids: EventIds,
    /// Ids and times lie at the same place in all samples of a run.
    layout: SampleLayout,
    trailer: TrailerLayout,
    context: Arc<Context>,
    stats: Arc<Stats>,
    window: LossWindow,
    rings: Vec<Ring>,
    left: u64,
    /// Whether some ring lost records that were not told.
    untold: bool,
    /// Losses told since the last [`Pump::take_losses`], per ring.
    told: Vec<u64>,
    /// How what is no sample is read.
    parse: Parse,
    /// What is done with the samples of a recording instead of with those of rings.
    replayed: Option<Box<Replayed>>,
}

impl Pump {
    /// A pump for so many rings that stops after `limit` samples.
    pub fn new(
        ids: EventIds,
        (layout, trailer): (SampleLayout, TrailerLayout),
        context: Arc<Context>,
        stats: Arc<Stats>,
        window: LossWindow,
        rings: usize,
        limit: Option<u64>,
    ) -> Self {
        let left = limit.unwrap_or(u64::MAX);
        let (rings, told) = (vec![Ring::default(); rings], vec![0; rings]);
        let parse: Parse = |record| Record::parse_without_build_ids(record);
        Self { ids, layout, trailer, context, stats, window, rings, left, untold: false, told, parse, replayed: None }
    }

    /// Takes records that tell the build ids of what is mapped.
    pub fn with_build_ids(mut self) -> Self {
        self.parse = |record| Record::parse(record);
        self
    }

    /// A pump for a recording, whose events need not look alike: where their ids and times lie, the replay knows.
    pub fn of_recording(
        replayed: Replayed,
        context: Arc<Context>,
        stats: Arc<Stats>,
        rings: usize,
        limit: Option<u64>,
    ) -> Self {
        let layouts = (SampleLayout::new(0, 0), TrailerLayout::new(0));
        let pump = Self::new(EventIds::new(&[]), layouts, context, stats, LossWindow::Times, rings, limit);
        Self { replayed: Some(Box::new(replayed)), ..pump }
    }

    /// What was done with the samples of a recording.
    pub fn replayed(&self) -> Option<&Replayed> {
        self.replayed.as_deref()
    }

    /// How many samples it may still deliver.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Of a batch within which delivery stopped, how many records it came to: those up to the last sample that was
    /// delivered. `left` is what it was before.
    #[cold]
    pub fn reached(&self, batch: &Batch, left: u64) -> usize {
        let mut samples = left - self.left;
        let mut records = 0;
        let _ = batch.for_each(|_, record| {
            if samples == 0 {
                return ControlFlow::Break(());
            }
            records += 1;
            samples -= u64::from(record_type(record) == PERF_RECORD_SAMPLE && self.delivers(record));
            ControlFlow::Continue(())
        });
        records
    }

    /// Delivers a batch. `attend` is asked before each sample whether to go on: signals do not wait for a batch's end.
    pub fn deliver(
        &mut self,
        batch: &Batch,
        program: &mut dyn Deliver,
        mut attend: impl FnMut(&mut dyn Deliver) -> ControlFlow<Break>,
    ) -> ControlFlow<Break> {
        if let Some(mut replayed) = self.replayed.take() {
            let flow = self.deliver_recorded(batch, &mut replayed, program, &mut attend);
            self.replayed = Some(replayed);
            return flow;
        }
        // Each kind of batch has a loop of its own around the inlined body: one closure for both would be called out of
        // line for every record.
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
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<Break>,
    ) -> ControlFlow<Break> {
        if record_type(record) == PERF_RECORD_SAMPLE {
            attend(program)?;
            return self.sample(ring, record, program);
        }
        self.side_band(ring, (self.parse)(record), self.trailer.time(record).unwrap_or(0));
        ControlFlow::Continue(())
    }

    fn deliver_recorded(
        &mut self,
        batch: &Batch,
        replayed: &mut Replayed,
        program: &mut dyn Deliver,
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<Break>,
    ) -> ControlFlow<Break> {
        match batch {
            Batch::Ring(chunk) => {
                for record in chunk.records() {
                    self.recorded(replayed, record, program, attend)?;
                }
            }
            Batch::Sorted(sorted) => {
                for (_, record) in sorted.in_order() {
                    self.recorded(replayed, record, program, attend)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// A record of a recording.
    #[inline(always)]
    fn recorded(
        &mut self,
        replayed: &mut Replayed,
        record: &[u8],
        program: &mut dyn Deliver,
        attend: &mut impl FnMut(&mut dyn Deliver) -> ControlFlow<Break>,
    ) -> ControlFlow<Break> {
        if record_type(record) != PERF_RECORD_SAMPLE {
            return self.recorded_side_band(replayed, record, program);
        }
        attend(program)?;
        let Some(sample) = replayed.sample(record, self.rings.len()) else { return ControlFlow::Continue(()) };
        while let Some(end) = replayed.interval_passed(sample.time) {
            self.interval(end, program)?;
        }
        if let Some(event) = replayed.only_event(&sample) {
            self.tell_before(sample.ring, sample.time, program)?;
            return self.deliver_sample(event, sample.ring, record, program);
        }
        if let Some(samples) = replayed.readings(&sample, record) {
            return samples.iter().try_for_each(|(sample, record)| self.routed(replayed, sample, record, program));
        }
        self.routed(replayed, &sample, record, program)
    }

    /// A record of a recording that is no sample.
    #[inline(never)]
    fn recorded_side_band(
        &mut self,
        replayed: &mut Replayed,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<Break> {
        let rings = self.rings.len();
        let (ring, time) = replayed.place(record, rings);
        if !replayed.counts(record) {
            self.side_band(ring, Record::parse(record), time);
        }
        if !self.untold || time == 0 {
            return ControlFlow::Continue(());
        }
        // At its own place, not before the ring's next sample: that may be in another part of the recording.
        while let Some(end) = replayed.interval_passed(time) {
            self.interval(end, program)?;
        }
        self.tell_before(ring, time, program)
    }

    /// Tells of the end of an interval of a recording.
    #[cold]
    fn interval(&self, end: u64, program: &mut dyn Deliver) -> ControlFlow<Break> {
        self.context.come_to(end);
        program.interval().map_break(Break::Stop)
    }

    /// Delivers a recording's sample to the events that get it.
    fn routed(
        &mut self,
        replayed: &Replayed,
        sample: &Taken,
        record: &[u8],
        program: &mut dyn Deliver,
    ) -> ControlFlow<Break> {
        for event in replayed.events(sample, record) {
            self.tell_before(sample.ring, sample.time, program)?;
            self.deliver_sample(event, sample.ring, record, program)?;
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn sample(&mut self, ring: usize, record: &[u8], program: &mut dyn Deliver) -> ControlFlow<Break> {
        let event = self.event(record);
        let Some(event) = event.or_else(|| self.stray(record)) else { return ControlFlow::Continue(()) };
        if self.window == LossWindow::Times || self.untold {
            self.tell_before(ring, self.layout.time(record).unwrap_or(0), program)?;
        }
        self.deliver_sample(event, ring, record, program)
    }

    /// Whether a sample is some event's, be it as a stray.
    fn delivers(&self, record: &[u8]) -> bool {
        self.layout.id(record).is_some_and(|id| self.ids.event(id).or(self.ids.stray()).is_some())
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
    ) -> ControlFlow<Break> {
        self.stats.delivered(event, ring);
        self.left -= 1;
        program.sample(event, record).map_break(Break::Stop)?;
        if self.left == 0 { ControlFlow::Break(Break::Limit) } else { ControlFlow::Continue(()) }
    }

    /// The event of a sample that has the id of another program's event: see [`events::stray`](super::events::stray).
    #[cold]
    fn stray(&self, record: &[u8]) -> Option<usize> {
        // A record that is cut off has no id.
        self.layout.id(record)?;
        if self.ids.stray().is_none() {
            self.stats.unattributed();
        }
        self.ids.stray()
    }

    /// Tells of what was lost in the ring before a sample of this time.
    #[inline(always)]
    fn tell_before(&mut self, ring: usize, after: u64, program: &mut dyn Deliver) -> ControlFlow<Break> {
        let Some(seen) = self.rings.get_mut(ring) else { return ControlFlow::Continue(()) };
        let before = std::mem::replace(&mut seen.last, after);
        if std::mem::take(&mut seen.lost) == 0 {
            return ControlFlow::Continue(());
        }
        self.tell_ring(program, before, after)
    }

    #[cold]
    fn tell_ring(&mut self, program: &mut dyn Deliver, start: u64, end: u64) -> ControlFlow<Break> {
        self.untold = self.rings.iter().any(|ring| ring.lost != 0);
        self.tell(program, start, end)
    }

    #[cold]
    fn tell(&self, program: &mut dyn Deliver, start: u64, end: u64) -> ControlFlow<Break> {
        let (start, end) = if self.window == LossWindow::Times { (start, end) } else { (0, 0) };
        program.lost(start, end).map_break(Break::Stop)
    }

    #[cold]
    fn side_band(&mut self, ring: usize, record: Record<'_>, time: u64) {
        match record {
            Record::Lost { lost } => self.lost(ring, lost),
            Record::Comm { pid, tid, comm, exec } => {
                self.context.with_tasks(|tasks| tasks.named(tid as i32, time, comm));
                if exec {
                    self.context.image_ended(pid, |symbols| symbols.processes().exec(pid, time));
                }
            }
            Record::Fork { pid, ppid, tid, ptid } => {
                self.context.with_tasks(|tasks| tasks.forked(ptid as i32, tid as i32, time));
                self.context.with_followed(|symbols| symbols.processes().forked(ppid, pid, time));
            }
            Record::Exit { pid, tid } => {
                self.context.with_tasks(|tasks| tasks.exited(tid as i32));
                if pid == tid {
                    self.context.image_ended(pid, |symbols| symbols.processes().exited(pid, time));
                }
            }
            Record::Mmap2(mmap) => {
                self.context.with_followed(|symbols| symbols.mmap(mmap.pid, time, &mmap.into()));
            }
            Record::Ksymbol(symbol) => self.context.kernel.symbol_changed(&symbol),
            Record::Throttle => self.stats.throttled(),
            Record::Sample | Record::Other(_) => {}
        }
    }

    fn lost(&mut self, ring: usize, lost: u64) {
        self.stats.lost(ring, lost);
        if let (Some(seen), Some(told)) = (self.rings.get_mut(ring), self.told.get_mut(ring)) {
            seen.lost += lost;
            self.untold = true;
            *told += lost;
        }
    }

    /// Tells the program of intervals and losses that no sample came after. `kernel` has each ring's total where the kernel
    /// counts.
    pub fn tell_the_rest(&mut self, program: &mut dyn Deliver, kernel: Option<&[u64]>, now: u64) -> ControlFlow<Break> {
        while let Some(end) = self.replayed.as_mut().and_then(|replayed| replayed.interval_left()) {
            self.interval(end, program)?;
        }
        if let Some(replayed) = &self.replayed
            && let Some(counts) = replayed.losses(self.rings.len())
        {
            // What was lost at a ring's end has no record of its own there.
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
            self.stats.lost(ring, unsaid);
            self.told[ring] += unsaid;
            let seen = std::mem::take(&mut self.rings[ring]);
            if seen.lost + unsaid != 0 {
                self.tell(program, seen.last, now.max(seen.last))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Losses since this was last asked, per ring.
    pub fn take_losses(&mut self) -> Vec<u64> {
        let rings = self.told.len();
        std::mem::replace(&mut self.told, vec![0; rings])
    }
}

#[cfg(test)]
mod tests;
