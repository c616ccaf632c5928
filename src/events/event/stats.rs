//! Counts of delivered and lost samples. The run loop updates them, and the program reads them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use perf_prof_format::record::LossCounts;
use perf_prof_system::mutex::Mutex;

use super::{Provenance, SpanCounts};

/// The counts of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Samples that were delivered to the program, with or without a handler for them.
    pub delivered: u64,
    /// Samples that the kernel dropped; `None` if the kernel has no count for each event.
    pub lost: Option<u64>,
}

/// Counts by event and by ring. One thread writes most of them, and any thread may read them.
#[derive(Debug)]
pub struct Stats {
    rings: usize,
    delivered: Vec<AtomicU64>,
    /// The number of lost records of each ring, as PERF_RECORD_LOST reports them.
    lost_in_ring: Vec<AtomicU64>,
    /// The number of samples whose event is unknown.
    unattributed: AtomicU64,
    /// How often the kernel throttled an event.
    throttled: AtomicU64,
    /// How many processes found that records are missing, because the recording is damaged or truncated. Several processes
    /// may find the same damage.
    damaged: AtomicU64,
    /// Whether a table in the kernel could not be read at the end of the run.
    unread: AtomicBool,
    /// True if the recording lacks the events of other tasks, which a source needs.
    of_some_tasks: AtomicBool,
    /// True if the recording lacks events, because they did not pass a filter when they were recorded, or were sampled.
    filtered: AtomicBool,
    /// Whether only a part of a recording is read, by the times that the user selected.
    of_part: AtomicBool,
    /// Whether there are holes between the selected times of a recording. What happened in them is not read.
    has_holes: AtomicBool,
    /// Whether the events of a recording were off for some of the selected times.
    was_off: AtomicBool,
    /// The number of samples of perf-prof's own threads. These samples are not delivered.
    own: Arc<AtomicU64>,
    /// The kernel's own counts of lost samples, as they were last read.
    kernel: Mutex<Option<LossCounts>>,
    /// The ring whose loss is being reported to the program, or [`NO_RING`].
    reported_ring: AtomicUsize,
    /// The counts of BPF programs, for each event.
    in_kernel: Vec<InKernel>,
    /// The counts of spans. The event types of spans are the last ones of the run.
    spans: Vec<Arc<SpanCounts>>,
    /// The index of the first event type that is a span.
    first_span: usize,
    provenance: Mutex<Provenance>,
    /// The largest number of missing spans that was told so far.
    most_missing: AtomicU64,
}

/// The counts of an event that BPF programs handle in the kernel.
#[derive(Debug, Default)]
struct InKernel {
    /// Whether BPF programs add up the event. The event then has no samples.
    is_there: AtomicBool,
    /// Whether the event is a span whose begins and ends BPF programs pair. The event still has samples.
    is_paired: AtomicBool,
    added: AtomicU64,
    /// How often the event happened while its program could not run.
    missed: AtomicU64,
}

/// The value of `reported_ring` while no loss is being reported.
const NO_RING: usize = usize::MAX;

impl Stats {
    /// Creates the counts for this many events and rings.
    pub fn new(events: usize, rings: usize) -> Self {
        let zeros = |count| std::iter::repeat_with(|| AtomicU64::new(0)).take(count).collect();
        Self {
            rings,
            delivered: zeros(events * rings),
            lost_in_ring: zeros(rings),
            unattributed: 0.into(),
            throttled: 0.into(),
            damaged: 0.into(),
            unread: false.into(),
            of_some_tasks: false.into(),
            filtered: false.into(),
            of_part: false.into(),
            has_holes: false.into(),
            was_off: false.into(),
            own: Arc::default(),
            kernel: Mutex::new(None),
            reported_ring: NO_RING.into(),
            in_kernel: std::iter::repeat_with(InKernel::default).take(events).collect(),
            spans: Vec::new(),
            first_span: events,
            provenance: Mutex::default(),
            most_missing: 0.into(),
        }
    }

    /// Adds the counts of spans, whose event types are the last `count` event types of the run.
    pub fn with_spans(self, count: usize) -> Self {
        let spans = std::iter::repeat_with(Arc::default).take(count).collect();
        Self { spans, first_span: self.first_span.saturating_sub(count), ..self }
    }

    /// Sets where and when the events happened.
    pub fn set_provenance(&self, of: Provenance) {
        *self.provenance.lock() = of;
    }

    /// Returns where and when the events happened. The duration of a live run that goes on is not known.
    pub fn provenance(&self) -> Provenance {
        self.provenance.lock().clone()
    }

    /// Returns the counts of a span; `None` if the event is not a span.
    pub fn span(&self, event: usize) -> Option<&Arc<SpanCounts>> {
        self.spans.get(event.checked_sub(self.first_span)?)
    }

    /// Returns the counts of all spans, in the order of their event types.
    pub fn spans(&self) -> &[Arc<SpanCounts>] {
        &self.spans
    }

    /// Sets the counter for samples of perf-prof's own threads. The owner of `own` may add to it too.
    pub fn with_own_samples(self, own: Arc<AtomicU64>) -> Self {
        Self { own, ..self }
    }

    /// Notes that BPF programs add up an event, so that it has no samples.
    pub fn set_in_kernel(&self, event: usize) {
        self.in_kernel.get(event).into_iter().for_each(|counts| counts.is_there.store(true, Relaxed));
    }

    /// Notes that BPF programs pair the begins and ends of a span. The span still has samples.
    pub fn set_paired_in_kernel(&self, event: usize) {
        self.in_kernel.get(event).into_iter().for_each(|counts| counts.is_paired.store(true, Relaxed));
    }

    /// Returns whether BPF programs add up or pair an event.
    pub fn is_worked_out_in_kernel(&self, event: usize) -> bool {
        self.in_kernel.get(event).is_some_and(|counts| counts.is_there.load(Relaxed) || counts.is_paired.load(Relaxed))
    }

    /// Returns whether BPF programs add up an event.
    pub fn is_in_kernel(&self, event: usize) -> bool {
        self.in_kernel.get(event).is_some_and(|counts| counts.is_there.load(Relaxed))
    }

    /// Adds to the counts of an event: how many samples BPF programs added up, and how many they skipped because they belong
    /// to perf-prof.
    pub fn count_in_kernel(&self, event: usize, added: u64, own: u64) {
        self.in_kernel.get(event).into_iter().for_each(|counts| _ = counts.added.fetch_add(added, Relaxed));
        self.own.fetch_add(own, Relaxed);
    }

    /// Sets how often an event happened while its BPF program could not run.
    pub fn set_missed_in_kernel(&self, event: usize, missed: u64) {
        self.in_kernel.get(event).into_iter().for_each(|counts| counts.missed.store(missed, Relaxed));
    }

    /// Returns the number of events that BPF programs added up.
    pub fn total_in_kernel(&self) -> u64 {
        self.sum_in_kernel(|counts| &counts.added)
    }

    /// Returns the sum of a count of BPF programs over all events.
    fn sum_in_kernel(&self, count: impl Fn(&InKernel) -> &AtomicU64) -> u64 {
        self.in_kernel.iter().map(|counts| count(counts).load(Relaxed)).sum()
    }

    /// Returns the number of samples of perf-prof's own threads. These samples count as neither delivered nor lost.
    pub fn own_samples(&self) -> u64 {
        self.own.load(Relaxed)
    }

    /// Counts a delivered sample.
    #[inline]
    pub fn count_delivered(&self, event: usize, ring: usize) {
        // Only one thread writes, so no atomic addition is needed.
        if let Some(count) = self.delivered.get(event * self.rings + ring) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Adds to the lost records of a ring, as the kernel reported them.
    pub fn count_lost(&self, ring: usize, count: u64) {
        if let Some(lost) = self.lost_in_ring.get(ring) {
            lost.fetch_add(count, Relaxed);
        }
    }

    /// Notes which ring's loss is being reported to the program. `None` after the report.
    pub fn set_reported_ring(&self, ring: Option<usize>) {
        self.reported_ring.store(ring.unwrap_or(NO_RING), Relaxed);
    }

    /// Returns the ring whose loss is being reported to the program.
    pub fn reported_ring(&self) -> Option<usize> {
        Some(self.reported_ring.load(Relaxed)).filter(|&ring| ring != NO_RING)
    }

    /// Counts a sample whose event is unknown.
    pub fn count_unattributed(&self) {
        self.unattributed.fetch_add(1, Relaxed);
    }

    /// Returns the number of samples whose event is unknown.
    pub fn total_unattributed(&self) -> u64 {
        self.unattributed.load(Relaxed)
    }

    /// Counts that the kernel throttled an event.
    pub fn count_throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// Returns how often the kernel throttled events.
    pub fn total_throttled(&self) -> u64 {
        self.throttled.load(Relaxed)
    }

    /// Notes that records are missing because the recording is damaged or truncated.
    pub fn note_damage(&self) {
        self.damaged.store(1, Relaxed);
    }

    /// Returns whether records are missing because the recording is damaged or truncated.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed) != 0
    }

    /// Notes that a part of a recording is read, or that a live run ended early. A loss has no time in the counts at the end of
    /// a recording or of a run, and no event in PERF_RECORD_LOST. So the number of losses is an upper bound.
    pub fn note_of_part(&self) {
        self.of_part.store(true, Relaxed);
    }

    /// Returns whether the number of losses is an upper bound.
    pub fn is_of_part(&self) -> bool {
        self.of_part.load(Relaxed)
    }

    /// Notes that there are holes between the selected times of a recording.
    pub fn note_holes(&self) {
        self.has_holes.store(true, Relaxed);
    }

    /// Returns whether there are holes between the selected times of a recording. Spans that are open at a hole are dropped.
    pub fn has_holes(&self) -> bool {
        self.has_holes.load(Relaxed)
    }

    /// Notes that the events of a recording were off for some of the selected times.
    pub fn note_off(&self) {
        self.was_off.store(true, Relaxed);
    }

    /// Returns whether the events of a recording were off for some of the selected times. Spans that were open when they
    /// were turned off are dropped.
    pub fn was_off(&self) -> bool {
        self.was_off.load(Relaxed)
    }

    /// Notes that a table in the kernel could not be read, so that what it has added up is missing.
    pub fn note_unread(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Returns whether a table in the kernel could not be read.
    pub fn has_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }

    /// Notes that the recording lacks the events of other tasks, which a source needs.
    pub fn note_of_some_tasks(&self) {
        self.of_some_tasks.store(true, Relaxed);
    }

    /// Returns whether the recording lacks the events of other tasks, which a source needs.
    pub fn is_of_some_tasks(&self) -> bool {
        self.of_some_tasks.load(Relaxed)
    }

    /// Notes that the recording lacks events, because they did not pass a filter when they were recorded, or were sampled.
    pub fn note_filtered(&self) {
        self.filtered.store(true, Relaxed);
    }

    /// Returns whether the recording lacks events, because they did not pass a filter, or were sampled.
    pub fn is_filtered(&self) -> bool {
        self.filtered.load(Relaxed)
    }

    /// Returns whether events are missing whose number is unknown.
    pub fn lacks_events(&self) -> bool {
        self.is_damaged() || self.has_unread() || self.is_of_some_tasks() || self.is_filtered()
    }

    /// Sets the kernel's own counts of lost samples. `None` changes nothing.
    pub fn set_kernel_counts(&self, counts: Option<LossCounts>) {
        if counts.is_some() {
            *self.kernel.lock() = counts;
        }
    }

    /// Returns the largest number of missing spans that was told so far: `missing`, or an earlier one. A span that was told to
    /// be missing may end after all, but a counter must not go back.
    pub fn most_missing(&self, missing: u64) -> u64 {
        self.most_missing.fetch_max(missing, Relaxed).max(missing)
    }

    /// Returns the counts that are summed up over the processes that replay parts of a recording.
    fn summed(&self) -> impl Iterator<Item = &AtomicU64> {
        let spans = self.spans.iter().flat_map(|span| span.summed());
        self.delivered.iter().chain(&self.lost_in_ring).chain([&self.throttled]).chain(spans).chain([&self.damaged])
    }

    /// Returns the counts of this process. Another process adds them with [`Stats::add`].
    pub fn counts(&self) -> Vec<u64> {
        self.summed().map(|count| count.load(Relaxed)).collect()
    }

    /// Returns the gaps of this process, encoded as numbers. Another process adds them with [`Stats::add_incomplete`].
    /// `name` returns the name that a task had at a time.
    pub fn incomplete(&self, name: impl Fn(i32, u64) -> Option<Vec<u8>>) -> Vec<u64> {
        self.spans.iter().flat_map(|span| span.incomplete().encode(&name)).collect()
    }

    /// Adds the gaps of another process, as [`Stats::incomplete`] encodes them.
    pub fn add_incomplete(&self, mut numbers: &[u64]) {
        while !numbers.is_empty() && !self.spans.is_empty() {
            for span in &self.spans {
                numbers = span.incomplete().merge(numbers);
            }
        }
    }

    /// Adds the counts of another process, as [`Stats::counts`] returns them. Both processes must have the same numbers of
    /// events, rings and spans.
    pub fn add(&self, counts: &[u64]) {
        for (count, more) in self.summed().zip(counts) {
            count.fetch_add(*more, Relaxed);
        }
    }

    /// Sets all counts to 0, because the run starts again.
    pub fn clear(&self) {
        let in_kernel = self.in_kernel.iter().flat_map(|counts| [&counts.added, &counts.missed]);
        self.summed().chain(in_kernel).for_each(|count| count.store(0, Relaxed));
        self.spans.iter().for_each(|span| *span.incomplete() = Default::default());
        self.unread.store(false, Relaxed);
        *self.kernel.lock() = None;
    }

    /// Creates the counts of a run whose events other processes delivered.
    pub fn of_other_processes(delivered: u64, lost: u64) -> Stats {
        let stats = Stats::new(1, 1);
        stats.delivered.iter().for_each(|count| count.store(delivered, Relaxed));
        stats.count_lost(0, lost);
        stats
    }

    /// Returns the counts of each event, in the order of selection.
    pub fn per_event(&self) -> Vec<EventCounts> {
        let kernel = self.kernel();
        let lost = |event: usize| kernel.as_ref().and_then(|counts| counts.per_event.get(event).copied());
        let rows = self.delivered.chunks(self.rings.max(1)).zip(&self.in_kernel);
        rows.enumerate()
            .map(|(event, (row, in_kernel))| match self.is_in_kernel(event) {
                true => {
                    EventCounts { delivered: in_kernel.added.load(Relaxed), lost: Some(in_kernel.missed.load(Relaxed)) }
                }
                false => {
                    EventCounts { delivered: row.iter().map(|count| count.load(Relaxed)).sum(), lost: lost(event) }
                }
            })
            .collect()
    }

    /// Returns the numbers of delivered and of lost samples of each ring.
    pub fn per_ring(&self) -> Vec<(u64, u64)> {
        let column =
            |ring| self.delivered.iter().skip(ring).step_by(self.rings.max(1)).map(|count| count.load(Relaxed)).sum();
        // Prefer the kernel's own counts of lost samples: PERF_RECORD_LOST also counts lost side-band records.
        let kernel = self.kernel();
        let counted = |ring: usize| kernel.as_ref().and_then(|counts| counts.samples_per_ring.get(ring).copied());
        (0..self.rings).map(|ring| (column(ring), counted(ring).unwrap_or_else(|| self.lost_records(ring)))).collect()
    }

    /// Returns the number of lost records of a ring, as PERF_RECORD_LOST reports them.
    pub fn lost_records(&self, ring: usize) -> u64 {
        self.lost_in_ring.get(ring).map_or(0, |lost| lost.load(Relaxed))
    }

    /// Returns the number of all delivered samples, and of all samples that BPF programs added up.
    pub fn total_delivered(&self) -> u64 {
        let samples: u64 = self.delivered.iter().map(|count| count.load(Relaxed)).sum();
        samples + self.total_in_kernel()
    }

    /// Returns the number of all lost samples. The number is the kernel's own count if there is one, and otherwise the
    /// number in the PERF_RECORD_LOST records. The kernel's count is read only from time to time, so it may be lower than
    /// the number in the records.
    pub fn total_lost(&self) -> u64 {
        let samples = match self.kernel() {
            Some(counts) => counts.per_event.iter().sum(),
            None => self.lost_in_records(),
        };
        samples + self.total_missed_in_kernel()
    }

    /// Returns how many of the lost samples BPF programs missed. Some of them may not be selected: a program that does not run
    /// selects nothing.
    pub fn total_missed_in_kernel(&self) -> u64 {
        self.sum_in_kernel(|counts| &counts.missed)
    }

    /// Returns the number of events that BPF programs did not add up, because they could not run.
    pub fn missed_by_tables(&self) -> u64 {
        let added_up = self.in_kernel.iter().filter(|counts| counts.is_there.load(Relaxed));
        added_up.map(|counts| counts.missed.load(Relaxed)).sum()
    }

    /// Returns whether there were PERF_RECORD_LOST records, or events while BPF programs could not run.
    pub fn has_reported_losses(&self) -> bool {
        self.lost_in_records() + self.total_missed_in_kernel() != 0
    }

    /// Returns how many of the lost samples the kernel never tried to write into a ring, as far as this is known.
    pub fn total_unwritten(&self) -> u64 {
        self.kernel().map_or(0, |counts| counts.unwritten)
    }

    fn lost_in_records(&self) -> u64 {
        self.lost_in_ring.iter().map(|lost| lost.load(Relaxed)).sum()
    }

    /// Returns the kernel's own counts of lost samples, as they were last read.
    pub fn kernel(&self) -> Option<LossCounts> {
        self.kernel.lock().clone()
    }
}
