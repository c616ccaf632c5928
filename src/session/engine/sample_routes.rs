//! Decides three things about a recording: which selected events get each sample, when intervals end (according to the
//! times of the samples), and how many samples were lost.

use std::{sync::Arc, time::Duration};

use perf_prof_events::event::{Context, SelectedCgroups, Stats, Targets};
use perf_prof_format::{
    abi::{PERF_RECORD_LOST_SAMPLES, PERF_SAMPLE_READ},
    record::{Counters, LossCounts, Record, SampleLayout, SampleMember, is_of_guest, record_type},
    spec::CpuSet,
    tracefs::Filter,
};
use perf_prof_recordings::{DamagedSamples, Layouts, ring_of};
use rustc_hash::FxHashMap;

use crate::plan::{Input, Switch};

/// A selected event that gets samples of an attr, if they pass the limits `cpus` and `filter`.
#[derive(Clone, Debug)]
pub struct Route {
    /// The index of the event among the selected events.
    pub event: usize,
    /// The event gets only samples from these CPUs. `None` means all CPUs.
    pub cpus: Option<CpuSet>,
    /// The event gets only samples that pass this filter.
    pub filter: Option<Filter>,
}

impl Route {
    /// Returns whether the event gets a sample from this CPU with this raw data.
    #[inline]
    pub fn wants<'a>(&self, cpu: Option<u32>, raw: impl FnOnce() -> &'a [u8]) -> bool {
        let on_cpu = match (&self.cpus, cpu) {
            (None, _) => true,
            (Some(cpus), Some(cpu)) => cpus.contains(cpu),
            (Some(_), None) => false,
        };
        on_cpu && self.filter.as_ref().is_none_or(|filter| filter.passes(raw(), cpu))
    }
}

/// The state that a pump needs only for the replay of a recording.
#[derive(Debug)]
pub struct ReplayState {
    layouts: Arc<Layouts>,
    /// For each attr, the selected events that get its samples.
    routes: Vec<Vec<Route>>,
    /// For each attr, the event that gets all of its samples unchanged, if exactly one event gets them.
    sole_event: Vec<Option<usize>>,
    /// The number of selected events.
    events: usize,
    intervals: Option<Intervals>,
    /// For each counter id, the value of the counter when it was last read.
    counters: FxHashMap<u64, u64>,
    /// For each attr, the number of lost samples that perf wrote at the end of the recording.
    lost: Vec<u64>,
    /// The numbers in `lost`, by attr and ring. The ring may be wrong, because perf writes the records with these numbers
    /// always with CPU 0.
    lost_in_ring: FxHashMap<(usize, usize), u64>,
    loss_reporting: LossReporting,
    unknown_ids: u64,
    checks: Option<SampleChecks>,
    /// Whether samples of virtual machines are delivered, and how many were left out.
    with_guests: bool,
    guests: u64,
    /// The processes whose samples are delivered; `None` for all.
    processes: Option<Targets>,
    /// The cgroups whose samples are delivered; `None` for all.
    cgroups: Option<SelectedCgroups>,
    last: u64,
}

/// What samples of a recording have to fulfill. Others are damaged.
#[derive(Clone, Debug)]
pub struct SampleLimits {
    /// The minimum size of the raw data in the samples of each attr, in bytes; 0 if there is none.
    pub raw_sizes: Vec<usize>,
    /// The latest time that a sample can have; `u64::MAX` if it is not known.
    pub last: u64,
}

/// Finds damaged samples.
#[derive(Debug)]
struct SampleChecks {
    limits: SampleLimits,
    stats: Arc<Stats>,
    found: DamagedSamples,
}

impl SampleChecks {
    /// Counts a sample whose raw data is too short. Returns whether the sample's time can be right.
    #[inline]
    fn pass(&mut self, attr: usize, time: u64, layout: &SampleLayout, record: &[u8]) -> bool {
        let size = self.limits.raw_sizes[attr];
        if size != 0 && layout.raw(record).is_none_or(|raw| raw.len() < size) {
            self.found.short += 1;
            self.stats.note_damage();
        }
        if time > self.limits.last {
            self.found.late += 1;
            self.stats.note_damage();
        }
        time <= self.limits.last
    }
}

/// The intervals of a replay. The times of the samples decide when `__interval__` is called, not a timer.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    every: u64,
    /// The end of the current interval; `None` before the first sample.
    next: Option<u64>,
    /// The time, in ns, up to which intervals are reported after the last sample.
    end: u64,
    /// The maximum number of intervals between two samples that are reported one by one. If there are more, only the
    /// last of them is reported.
    most_between_samples: u64,
}

/// The time range of a recording that is replayed, and the time range within it that one part of the replay handles.
/// All times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start of the whole replay. The first interval starts here.
    pub start: u64,
    /// The end of the whole replay.
    pub last: u64,
    /// This part reports only intervals that end after this time.
    pub intervals_after: u64,
    /// The end of this part.
    pub end: u64,
}

impl Span {
    /// Returns how many intervals of length `every` the whole replay has.
    pub fn intervals(&self, every: Duration) -> u64 {
        self.last.saturating_sub(self.start) / nanos(every)
    }
}

fn nanos(every: Duration) -> u64 {
    u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Which process reports the loss counts that are stored at the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReporting {
    /// This process, because it replays the whole recording.
    Here,
    /// The process that merges the parts, because the counts apply to all parts together.
    AfterMerge,
    /// No process. Only some CPUs are replayed, and the recording does not say how many samples these CPUs lost.
    Never,
}

impl LossReporting {
    /// Returns which process reports the stored loss counts if one process does the whole replay. `cpus` are the CPUs that
    /// are replayed; `None` means all CPUs.
    pub fn for_cpus(cpus: Option<&CpuSet>) -> LossReporting {
        if cpus.is_none() { LossReporting::Here } else { LossReporting::Never }
    }

    /// Like [`LossReporting::for_cpus`], if this process replays a part of the recording.
    pub fn for_part(cpus: Option<&CpuSet>) -> LossReporting {
        if cpus.is_none() { LossReporting::AfterMerge } else { LossReporting::Never }
    }
}

/// The maximum number of intervals of a replay in which every interval is reported. Up to this number, several processes
/// that each replay a part report the same intervals as a single process. A damaged time, or short intervals in a long
/// recording, may give any number of intervals.
pub const MAX_INTERVALS: u64 = 10_000_000;

/// The maximum number of intervals between two samples that are reported one by one. If there are more between two
/// samples, only the last of them is reported. The limit applies only to replays of more than [`MAX_INTERVALS`]
/// intervals.
const MAX_INTERVALS_BETWEEN_SAMPLES: u64 = 100_000;

impl Intervals {
    /// Returns the intervals of length `every` in `span`. If the span is not known, the first interval starts at the
    /// first sample, and no intervals are reported after the last sample.
    pub fn new(every: Duration, span: Option<Span>) -> Self {
        let most_between_samples =
            span.map(|span| span.intervals(every)).filter(|&intervals| intervals <= MAX_INTERVALS);
        let (every, most_between_samples) =
            (nanos(every), most_between_samples.unwrap_or(0).max(MAX_INTERVALS_BETWEEN_SAMPLES));
        let Some(Span { start, intervals_after, end, .. }) = span else {
            return Self { every, next: None, end: 0, most_between_samples };
        };
        let passed = intervals_after.saturating_sub(start) / every;
        let next = start.saturating_add(every.saturating_mul(passed.saturating_add(1)));
        Self { every, next: Some(next), end, most_between_samples }
    }

    /// Returns the end of the next interval, if this end is not after `time`. The caller repeats the call until it
    /// returns `None`.
    #[inline]
    pub fn passed(&mut self, time: u64) -> Option<u64> {
        let Intervals { every, next: due, most_between_samples, .. } = self;
        let next = *due.get_or_insert(time.saturating_add(*every));
        if next > time || next == u64::MAX {
            return None;
        }
        let ahead = (time - next) / *every;
        let skipped = if ahead > *most_between_samples { ahead } else { 0 };
        let passed = next.saturating_add(every.saturating_mul(skipped));
        *due = Some(passed.saturating_add(*every));
        Some(passed)
    }

    /// Like [`Intervals::passed`], for the intervals after the last sample.
    pub fn left(&mut self) -> Option<u64> {
        self.next?;
        self.passed(self.end)
    }
}

/// The numbers of lost samples, as perf counted them, for the selected events.
#[derive(Clone, Debug, Default)]
pub struct CountedLosses {
    /// The number of lost samples of each event. Empty if perf counted no losses.
    pub per_event: Vec<u64>,
    /// The number of lost samples of each ring, as far as perf stored the CPU.
    pub per_ring: Vec<u64>,
}

/// The attr, time, ring and CPU of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleOrigin {
    /// The index of the sample's attr.
    pub attr: usize,
    /// The time of the sample, in ns.
    pub time: u64,
    /// The index of the ring to which the sample belongs: the ring of its CPU.
    pub ring: usize,
    cpu: Option<u32>,
}

/// Returns whether samples with this layout contain counter values.
fn has_readings(layout: &SampleLayout) -> bool {
    layout.format.sample_type & PERF_SAMPLE_READ != 0
}

impl ReplayState {
    /// Returns the state at the start of a replay. `routes` contains, for each attr, the selected events that get its
    /// samples.
    pub fn new(
        layouts: Arc<Layouts>,
        routes: Vec<Vec<Route>>,
        intervals: Option<Intervals>,
        loss_reporting: LossReporting,
    ) -> Self {
        let events = routes.iter().map(Vec::len).sum();
        let lost = vec![0; layouts.len()];
        let counters = FxHashMap::default();
        let sole_event = |(attr, routes): (usize, &Vec<Route>)| match routes.as_slice() {
            [Route { event, cpus: None, filter: None }] if !has_readings(layouts.sample(attr)) => Some(*event),
            _ => None,
        };
        let sole_event = routes.iter().enumerate().map(sole_event).collect();
        Self {
            layouts,
            routes,
            sole_event,
            events,
            intervals,
            counters,
            lost,
            lost_in_ring: FxHashMap::default(),
            loss_reporting,
            unknown_ids: 0,
            checks: None,
            with_guests: false,
            guests: 0,
            processes: None,
            cgroups: None,
            last: 0,
        }
    }

    /// Makes the state count the samples whose raw data is shorter than their format says, and count and leave out those
    /// whose time is after the end of the recording. The first of them is reported to `stats` at once.
    pub fn with_limits(self, limits: SampleLimits, stats: Arc<Stats>) -> Self {
        Self { checks: Some(SampleChecks { limits, stats, found: DamagedSamples::default() }), ..self }
    }

    /// Returns the numbers of damaged samples.
    pub fn damaged_samples(&self) -> DamagedSamples {
        self.checks.as_ref().map(|checks| checks.found).unwrap_or_default()
    }

    /// Makes the state deliver only those of the read samples that the user selected: of which processes and cgroups, and
    /// whether also of virtual machines.
    pub fn selecting(self, input: &Input) -> Self {
        let processes = input.processes_with_children().map(|pids| Targets::recorded(pids, &[]));
        let names = input.cgroups_of_samples();
        let cgroups = (!names.is_empty()).then(|| SelectedCgroups::new(names.iter().cloned()));
        Self { with_guests: input.guests == Switch::On, processes, cgroups, ..self }
    }

    /// Selects a process that a selected process creates. At the time 0, recorders write a fork record for each task that
    /// exists already.
    pub fn note_fork(&mut self, record: &Record<'_>, time: u64) {
        if let (Some(processes), &Record::Fork { pid, ppid, .. }) = (&mut self.processes, record)
            && time != 0
        {
            processes.forked(ppid as i32, pid as i32);
        }
    }

    /// Returns whether a sample is left out because its process or its cgroup is not selected.
    #[inline]
    pub fn is_of_other_task(&mut self, sample: &SampleOrigin, record: &[u8], context: &Context) -> bool {
        let layout = self.layouts.sample(sample.attr);
        if let Some(processes) = &self.processes
            && !layout.pid_tid(record).is_some_and(|(pid, tid)| processes.contains(tid as i32, || Some(pid as i32)))
        {
            return true;
        }
        let Some(cgroups) = &mut self.cgroups else { return false };
        !layout.cgroup(record).is_some_and(|id| cgroups.contains(id, || context.cgroup_path(id)))
    }

    /// Returns whether a sample is left out because it was taken in a virtual machine. If so, counts it. perf leaves
    /// out these samples too (`thread__find_map()` in `tools/perf/util/event.c`), because a recording does not contain
    /// the mappings of a virtual machine.
    #[inline]
    pub fn leaves_out(&mut self, record: &[u8]) -> bool {
        let is_left_out = !self.with_guests && is_of_guest(record);
        self.guests += u64::from(is_left_out);
        is_left_out
    }

    /// Returns the number of samples that were left out because they were taken in virtual machines.
    pub fn guests(&self) -> u64 {
        self.guests
    }

    /// Returns the number of samples whose id belongs to no event in the recording.
    pub fn unknown_ids(&self) -> u64 {
        self.unknown_ids
    }

    /// Counts a sample whose id belongs to no event in the recording. Its event lacks the sample, so the recording is damaged.
    #[cold]
    fn count_unknown_id(&mut self) {
        self.unknown_ids += 1;
        self.checks.iter().for_each(|checks| checks.stats.note_damage());
    }

    /// Returns the time of the last sample, in ns.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the attr, time, ring and CPU of a sample. Returns `None` if the sample belongs to no event, or if its time
    /// is wrong. Inlined always: returning these values through memory costs more than finding them.
    #[inline(always)]
    pub fn sample(&mut self, record: &[u8], rings: usize) -> Option<SampleOrigin> {
        let Some(attr) = self.layouts.attr_of(record) else {
            self.count_unknown_id();
            return None;
        };
        let layout = self.layouts.sample(attr);
        let (time, cpu) = (layout.time(record).unwrap_or(self.last), layout.cpu(record));
        if let Some(checks) = &mut self.checks
            && !checks.pass(attr, time, layout, record)
        {
            return None;
        }
        self.last = time;
        Some(SampleOrigin { attr, time, ring: ring_of(cpu, rings), cpu })
    }

    /// Returns the ring and the time of a record that is not a sample.
    pub fn ring_and_time(&self, record: &[u8], rings: usize) -> (usize, u64) {
        (ring_of(self.layouts.cpu(record), rings), self.layouts.time(record).unwrap_or(0))
    }

    /// Returns the event that gets all samples of this sample's attr unchanged, if exactly one event gets them.
    #[inline]
    pub fn only_event(&self, taken: &SampleOrigin) -> Option<usize> {
        self.sole_event[taken.attr]
    }

    /// Returns the selected events that get the sample `record`.
    pub fn events<'a>(&'a self, taken: &SampleOrigin, record: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
        let &SampleOrigin { attr, cpu, .. } = taken;
        let raw = move || self.layouts.sample(attr).for_counter_readings().raw(record).unwrap_or(&[]);
        self.routes[attr].iter().filter(move |route| route.wants(cpu, raw)).map(|route| route.event)
    }

    /// Splits a sample that contains counter values (PERF_SAMPLE_READ). Returns one sample for each counter that has
    /// increased since the previous reading. The increase is the period of the new sample. perf does the same
    /// (`deliver_sample_group()` in `tools/perf/util/session.c`). This is how the members of a group get samples if
    /// only the leader samples. Returns `None` if the sample contains no counter values.
    #[inline]
    pub fn split_readings(&mut self, taken: &SampleOrigin, record: &[u8]) -> Option<Vec<(SampleOrigin, Vec<u8>)>> {
        let layout = *self.layouts.sample(taken.attr);
        if !has_readings(&layout) {
            return None;
        }
        Some(self.read(taken, &layout, record))
    }

    fn read(&mut self, taken: &SampleOrigin, layout: &SampleLayout, record: &[u8]) -> Vec<(SampleOrigin, Vec<u8>)> {
        let counters = match layout.reading(record).unwrap_or_default().counters {
            Counters::One(counter) => vec![counter],
            Counters::Group(counters) => counters,
        };
        let for_counter_readings = layout.for_counter_readings();
        let mut samples = Vec::new();
        for counter in counters {
            let Some(id) = counter.id.or_else(|| layout.id(record)) else { continue };
            let Some(attr) = self.layouts.attr_with(id) else {
                self.count_unknown_id();
                continue;
            };
            let before = self.counters.insert(id, counter.value).unwrap_or(0);
            let period = counter.value.wrapping_sub(before);
            if period == 0 {
                continue;
            }
            let mut own = layout.with_room_for_period(record);
            let mut put = |member: SampleMember, value: u64| {
                let at = for_counter_readings.fixed_offset(member);
                if let Some(place) = at.and_then(|at| own.get_mut(at..at + 8)) {
                    place.copy_from_slice(&value.to_ne_bytes());
                }
            };
            put(SampleMember::Identifier, id);
            put(SampleMember::Id, id);
            put(SampleMember::Period, period);
            samples.push((SampleOrigin { attr, ..*taken }, own));
        }
        samples
    }

    /// Like [`Intervals::passed`]. Returns `None` if there are no intervals, or if the time is after the end of the
    /// recording.
    #[inline]
    pub fn interval_passed(&mut self, time: u64) -> Option<u64> {
        let intervals = self.intervals.as_mut()?;
        let last = self.checks.as_ref().map_or(u64::MAX, |checks| checks.limits.last);
        if time > last { None } else { intervals.passed(time) }
    }

    /// Like [`Intervals::left`]. Returns `None` if there are no intervals.
    pub fn interval_left(&mut self) -> Option<u64> {
        self.intervals.as_mut()?.left()
    }

    /// If the record contains perf's own count of an event's lost samples (PERF_FORMAT_LOST), adds this count and
    /// returns true. Otherwise returns false. perf writes these records at the end of the recording, without a time.
    /// PERF_RECORD_LOST also reports these losses, with the times at which they happened.
    pub fn add_loss_count(&mut self, record: &[u8], ring: usize) -> bool {
        if record_type(record) != PERF_RECORD_LOST_SAMPLES || self.layouts.time(record).is_some() {
            return false;
        }
        let (Some(attr), Record::Lost { lost }) = (self.layouts.attr_of_ring(record), Record::parse(record)) else {
            return false;
        };
        if self.loss_reporting != LossReporting::Never {
            self.lost[attr] = self.lost[attr].saturating_add(lost);
            let in_ring = self.lost_in_ring.entry((attr, ring)).or_default();
            *in_ring = in_ring.saturating_add(lost);
        }
        true
    }

    /// Returns the numbers of lost samples of the selected events. Returns `None` if perf counted no losses, or if this
    /// process does not report them. `told` returns the number of records that a ring lost according to
    /// PERF_RECORD_LOST.
    pub fn losses(&self, rings: usize, told: impl Fn(usize) -> u64) -> Option<LossCounts> {
        let counted = self.loss_reporting == LossReporting::Here && self.lost.iter().any(|&lost| lost != 0);
        counted.then(|| {
            let samples_per_ring = self.lost_per_ring(rings, told).unwrap_or_default();
            let (per_event, per_ring) = (self.lost_per_event(), vec![0; rings]);
            LossCounts { per_event, per_ring, samples_per_ring, unwritten: 0 }
        })
    }

    /// Returns how many samples of the selected events each ring lost. Uses perf's counts, because PERF_RECORD_LOST
    /// counts the other events of the recording too. Returns `None` if the recording does not say which CPU lost the samples.
    fn lost_per_ring(&self, rings: usize, told: impl Fn(usize) -> u64) -> Option<Vec<u64>> {
        let mut all = vec![0u64; rings];
        for (&(_, ring), &lost) in &self.lost_in_ring {
            *all.get_mut(ring)? |= lost;
        }
        let is_known = all.iter().enumerate().all(|(ring, &lost)| lost != 0 || told(ring) == 0);
        is_known.then(|| self.counted_per_ring(rings))
    }

    /// Returns the numbers of lost samples of the selected events, as perf counted them.
    pub fn counted_losses(&self, rings: usize) -> CountedLosses {
        CountedLosses { per_event: self.lost_per_event(), per_ring: self.counted_per_ring(rings) }
    }

    fn counted_per_ring(&self, rings: usize) -> Vec<u64> {
        let mut selected = vec![0u64; rings];
        for (&(attr, ring), &lost) in &self.lost_in_ring {
            let events = self.routes.get(attr).map_or(0, Vec::len) as u64;
            if let Some(sum) = selected.get_mut(ring) {
                *sum = sum.saturating_add(lost.saturating_mul(events));
            }
        }
        selected
    }

    /// Returns the number of lost samples of each selected event, as perf counted them. Returns an empty list if perf
    /// counted no losses at all. If perf counted only losses of other events, all numbers are 0.
    pub fn lost_per_event(&self) -> Vec<u64> {
        if self.lost.iter().all(|&lost| lost == 0) {
            return Vec::new();
        }
        let mut per_event = vec![0; self.events];
        for (routes, &lost) in self.routes.iter().zip(&self.lost) {
            for route in routes {
                per_event[route.event] = lost;
            }
        }
        per_event
    }
}
