//! One dump: the recording that a trigger makes from the contents of the rings.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::Result;
use perf_prof_capture::{Capture, CopiedRing, Lost, LostRecords, Written};
use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{SampleLayout, TrailerLayout, record_type},
};
use perf_prof_recordings::write::{Dsos, Stream, Synthesis, WriteError, directory};
use perf_prof_system::{output, together::together};

use super::{
    in_order::InOrder,
    late_rings::{DumpTimes, FirstCopy, LateRing, late_rings},
    pieces::{Copies, Part, PartEnd, Pieces},
    rings,
    trigger_event::{self, Trigger},
};
use crate::recorder::{Destination, MadeEvent, OffTimes, RecordingWriter, Subject, Summary};

/// For this time, samples after a trigger belong to it: if the event that triggers is kept too, its sample is written right
/// after that of the trigger.
const ITSELF: Duration = Duration::from_micros(100);

/// The maximum length of a dump after its first trigger, as a multiple of `--after`. Later triggers extend a dump up to
/// this length.
const LONGEST: u32 = 10;

/// A dump that is being written.
pub struct Dump {
    writer: RecordingWriter,
    /// The files of the rings, if the recording is a directory.
    ring_streams: Vec<(u32, Stream)>,
    made: MadeEvent,
    layout: SampleLayout,
    trailer: TrailerLayout,
    /// The path of the recording.
    pub path: PathBuf,
    /// The first trigger.
    pub trigger: Trigger,
    /// The number of later triggers that are part of this dump.
    pub joined: u64,
    /// The dump contains all samples since this time.
    complete_from: u64,
    /// What is known about the rings if they held less than the wanted time before the trigger.
    short: Option<Short>,
    /// Samples at these times are written.
    window: Range<u64>,
    /// The last time that is asked for.
    until: u64,
    /// For each ring, the position up to which it was copied.
    since: Vec<Written>,
    /// Copies and records that are not written yet.
    pieces: Pieces<CopiedRing>,
    /// The copies that are being written, and what is written after them.
    in_order: Option<(InOrder, PartEnd)>,
    /// The mean size of the samples that were written last, in bytes.
    sample_size: u64,
    /// When the dump ends. Later triggers move this time.
    pub ends: Instant,
    ends_at_latest: Instant,
    /// For each ring, the estimated number of samples that were overwritten between two copies.
    overwritten: Vec<Lost>,
    /// The rings that begin later than the dump, whose trigger is a part of it.
    late: Vec<LateRing>,
    /// The approximate numbers of samples that are missing in late rings.
    before_late: Vec<Lost>,
    /// Threads and commands that wait for the path of the dump.
    pub replies: Vec<mpsc::Sender<Result<PathBuf, String>>>,
    failure_is_told: bool,
}

/// Where a dump ended, and the next one begins if no time before the trigger is asked for.
#[derive(Default)]
pub struct Continued {
    /// For each ring, the position up to which it was copied.
    pub written: Vec<Written>,
    /// When this copy began: all samples that were written before this time are in the dump.
    pub at: u64,
}

/// What is known about rings that held less than the wanted time.
#[derive(Clone, Copy)]
struct Short {
    /// The wanted time before the trigger; `None` for all time.
    before: Option<Duration>,
    /// The bytes in the largest ring that held less.
    bytes: u64,
    /// When the rings were copied.
    copied: u64,
}

/// What a new dump needs in addition to the description of the recording.
pub struct Start<'a> {
    /// The place of the dump.
    pub path: PathBuf,
    /// The first trigger.
    pub trigger: Trigger,
    /// The first copies of the rings.
    pub copies: &'a [CopiedRing],
    /// The time since which the rings keep events.
    pub began: u64,
    /// How much of the time before the trigger the dump contains; `None` for all.
    pub before: Option<Duration>,
    /// If `before` is `None`: the end of the last dump, at which the copies begin; 0 for the first dump.
    pub continued: u64,
    /// The last time that is asked for. With `before`, no sample after it is written.
    pub until: u64,
    /// How long the dump continues after the trigger.
    pub after: Duration,
    /// The present time of the events' clock.
    pub now: u64,
}

/// Returns the time of the last samples that belong to a trigger whose dump continues for `after`.
pub fn last_time(trigger: &Trigger, after: Duration) -> u64 {
    trigger.time.saturating_add(after.max(ITSELF).as_nanos() as u64)
}

impl Dump {
    /// Creates the recording.
    pub fn create(destination: Destination, subject: &Subject<'_>, made: &MadeEvent, start: Start<'_>) -> Result<Dump> {
        let Start { path, trigger, copies, began, before, continued, until, after, now } = start;
        let capture = subject.capture;
        let mut writer = RecordingWriter::create(destination, subject)?;
        let layout = capture.layout(0);
        let ring_streams = match writer.folder() {
            Some(folder) => {
                let level = writer.destination().level();
                let stream = |ring: u32| Ok((ring, directory::stream(folder, ring as usize, layout, level)?));
                copies.iter().map(|copied| stream(copied.ring)).collect::<Result<Vec<_>>>()?
            }
            None => Vec::new(),
        };
        writer.list_rings(capture);
        let from = before.map_or(continued, |before| trigger.time.saturating_sub(before.as_nanos() as u64));
        let times = DumpTimes { began, from, trigger: trigger.time, now };
        let first = |copied: &CopiedRing| FirstCopy::new(copied, now, |record| layout.time(record));
        let first: Vec<FirstCopy> = copies.iter().map(first).collect();
        let complete = first.iter().map(|copy| copy.complete_from(&times)).max().unwrap_or(began);
        let late = late_rings(&first, &times);
        let is_short = |copy: &&FirstCopy| copy.overwritten != 0 && copy.complete_from(&times) > from;
        let short = first.iter().filter(is_short).map(|copy| copy.bytes).max();
        let short = short.map(|bytes| Short { before, bytes, copied: now });
        let left = |after: Duration| Instant::now() + Duration::from_nanos(until.saturating_sub(now)).min(after);
        Ok(Dump {
            writer,
            ring_streams,
            made: made.clone(),
            layout,
            trailer: capture.trailer(),
            path,
            trigger,
            joined: 0,
            complete_from: complete.max(from),
            short,
            // After a resize, the rings begin to keep events one after another. From `began` on, all of them keep events.
            // A ring may be copied between the time of a sample and its writing. So only positions tell what a dump without
            // `before` continues, and where the next one begins.
            window: before.map_or(began..u64::MAX, |_| from.max(began)..until),
            until,
            since: Vec::new(),
            pieces: Pieces::default(),
            in_order: None,
            sample_size: if late.is_empty() { SAMPLE_SIZE } else { mean_size(copies) },
            ends: left(after),
            ends_at_latest: left(after) + after * (LONGEST - 1),
            overwritten: Vec::new(),
            late,
            before_late: Vec::new(),
            replies: Vec::new(),
            failure_is_told: false,
        })
    }

    /// Writes the records about late rings, about tasks and about the kernel's code. Adds the first trigger.
    pub fn begin(&mut self, dsos: &Dsos, side_band: &[u8], capture: &Capture) {
        self.writer.add_dsos(dsos);
        self.note_late(capture);
        self.writer.write_records(side_band);
        self.add_trigger(&self.trigger.clone());
    }

    fn add_trigger(&mut self, trigger: &Trigger) {
        let kept = trigger.time.saturating_sub(self.complete_from);
        // The texts of a trigger are shortened, so its record is never too large.
        if let Ok(record) = trigger_event::sample(&self.made.attr, trigger, kept) {
            self.pieces.add(&record);
        }
    }

    /// Adds a later trigger to the dump. The dump then continues until `after` has passed since this trigger, but not
    /// longer than `LONGEST` allows.
    pub fn join(&mut self, trigger: &Trigger, after: Duration) {
        self.joined += 1;
        self.add_trigger(trigger);
        let until = last_time(trigger, after);
        if until > self.until {
            let more = Duration::from_nanos(until - self.until);
            self.ends = (self.ends + more).min(self.ends_at_latest);
            self.until = until;
            self.window.end = self.window.end.max(until);
        }
    }

    /// Adds records about tasks that arrived since the start of the dump.
    pub fn add_side_band(&mut self, records: &[u8]) {
        self.pieces.add(records);
    }

    /// Returns which share of a ring was written since the last copy, for the ring with the largest share.
    pub fn fill(&self, capture: &Capture) -> f64 {
        let (written, sizes) = (capture.written(), capture.overwritten_sizes());
        let part = |(ring, (written, size)): (usize, (&Written, &usize))| {
            let since = self.since.get(ring).copied().unwrap_or_default();
            written.0.saturating_sub(since.0) as f64 / (*size).max(1) as f64
        };
        written.iter().zip(&sizes).enumerate().map(part).fold(0.0, f64::max)
    }

    /// Takes new copies, which begin where the last copies ended. [`Dump::write_some`] writes them later.
    pub fn take(&mut self, copies: Vec<CopiedRing>, which: Copies) {
        for copied in &copies {
            let ring = copied.ring as usize;
            self.since.resize(self.since.len().max(ring + 1), Written::default());
            self.since[ring] = copied.until;
        }
        self.pieces.take(copies, which, Instant::now());
    }

    /// Returns for each ring the position up to which it was copied.
    pub fn written(&self) -> &[Written] {
        &self.since
    }

    /// Returns how much memory the copies take that are not written yet, in bytes. The result is at least 1 if anything is
    /// left to write.
    pub fn backlog(&self) -> usize {
        self.pieces.memory() + self.in_order.as_ref().map_or(0, |(in_order, _)| in_order.memory().max(1))
    }

    /// Returns whether the unwritten copies and one more copy of the rings fit into `room` bytes.
    pub fn has_room(&self, room: usize, capture: &Capture) -> bool {
        let (written, sizes) = (capture.written(), capture.overwritten_sizes());
        let due = |(ring, (written, &size)): (usize, (&Written, &usize))| {
            let since = self.since.get(ring).copied().unwrap_or_default();
            (written.0.saturating_sub(since.0)).min(size as u64) as usize
        };
        self.backlog() + written.iter().zip(&sizes).enumerate().map(due).sum::<usize>() <= room
    }

    /// Writes some records of the copies. If several threads write the recording, writes the copies of one moment.
    pub fn write_some(&mut self, capture: &Capture) {
        let (mut in_order, end) = match self.in_order.take() {
            Some(begun) => begun,
            None => {
                let Some(part) = self.pieces.next() else { return };
                self.begin_part(part, capture)
            }
        };
        let (layout, trailer) = (self.layout, self.trailer);
        let mut left = AT_ONCE;
        while left > 0 {
            let Some(chunk) = in_order.next_chunk(|record| time(record, layout, trailer)) else { break };
            self.writer.write_records(&chunk);
            left = left.saturating_sub(chunk.len());
        }
        if left == 0 {
            self.in_order = Some((in_order, end));
        } else if end == PartEnd::Mark && self.ring_streams.is_empty() {
            // The file `data` of a directory gets no end of a round. Otherwise perf would sort the records of this file
            // alone.
            self.writer.mark_round();
        }
        self.tell_failure();
    }

    /// Writes what comes before the records of the copies. Returns these records; none are left if several threads write
    /// the recording.
    fn begin_part(&mut self, part: Part<CopiedRing>, capture: &Capture) -> (InOrder, PartEnd) {
        let Part { beside, mut copies, which, end } = part;
        if which == Copies::Later {
            copies
                .iter()
                .filter(|copied| copied.overwritten != 0)
                .for_each(|copied| self.note_overwritten(capture, copied));
        }
        self.writer.write_records(&beside);
        self.sample_size = match copies.iter().map(CopiedRing::count).sum() {
            0 => self.sample_size,
            records => copies.iter().map(CopiedRing::size).sum::<usize>() as u64 / records as u64,
        };
        if !self.ring_streams.is_empty() {
            self.write_by_threads(std::mem::take(&mut copies));
        }
        let (layout, trailer) = (self.layout, self.trailer);
        (InOrder::new(copies, &self.window, |record| time(record, layout, trailer)), end)
    }

    /// Writes copies into the files of their rings.
    fn write_by_threads(&mut self, copies: Vec<CopiedRing>) {
        let (layout, trailer, window) = (self.layout, self.trailer, self.window.clone());
        let time = |record: &[u8]| time(record, layout, trailer);
        let mut copies: BTreeMap<u32, CopiedRing> = copies.into_iter().map(|copied| (copied.ring, copied)).collect();
        let mut pairs: Vec<(&mut Stream, Option<CopiedRing>)> =
            self.ring_streams.iter_mut().map(|(ring, stream)| (stream, copies.remove(&*ring))).collect();
        let write = |(stream, copied): &mut (&mut Stream, Option<CopiedRing>)| -> Result<(), WriteError> {
            let mut in_order = InOrder::new(copied.take().into_iter().collect(), &window, time);
            let mut result = Ok(());
            while let Some(chunk) = in_order.next_chunk(time) {
                // After an error, the stream only counts the records.
                result = std::mem::replace(&mut result, Ok(())).and(stream.records(&chunk));
            }
            result.and_then(|()| stream.flush())
        };
        together(&mut pairs, write).into_iter().for_each(|result| self.writer.keep_failure(result));
    }

    /// Writes a PERF_RECORD_LOST for samples that were overwritten between two copies. The approximate number of these
    /// samples is computed from the size of other samples. A reader takes the record for the end of a loss that began after
    /// the previous record of the CPU in the same file. So the PERF_RECORD_LOST is in the file of the ring, before all
    /// records that follow the loss.
    fn note_overwritten(&mut self, capture: &Capture, copied: &CopiedRing) {
        let (layout, trailer) = (self.layout, self.trailer);
        let time = copied.oldest(|record| time(record, layout, trailer)).unwrap_or(self.trigger.time);
        let lost = self.note_lost(capture, copied.ring, copied.overwritten, time);
        self.overwritten.extend(lost);
    }

    /// Writes a PERF_RECORD_LOST for the samples that are missing in each ring that begins later than the dump. No record
    /// of the CPU comes before this PERF_RECORD_LOST, so a reader makes no span of samples from before its time.
    fn note_late(&mut self, capture: &Capture) {
        for LateRing { ring, begins, missing } in std::mem::take(&mut self.late) {
            let lost = self.note_lost(capture, ring, missing, begins);
            self.before_late.extend(lost);
        }
    }

    fn note_lost(&mut self, capture: &Capture, ring: u32, bytes: u64, time: u64) -> Option<Lost> {
        let (id, cpu) = capture.rings().nth(ring as usize)?;
        // A sample of which only a part was overwritten is missing too.
        let count = bytes.div_ceil(self.sample_size.max(1)).max(1);
        let mut out = Synthesis::new(self.trailer);
        out.lost(count, id, cpu.unwrap_or(u32::MAX), time);
        match self.ring_streams.iter_mut().find(|(of, _)| *of == ring) {
            Some((_, stream)) => {
                let result = stream.records(out.bytes());
                self.writer.keep_failure(result);
            }
            None => self.writer.write_records(out.bytes()),
        }
        Some(Lost { id, cpu, what: LostRecords::Overwritten, count })
    }

    fn tell_failure(&mut self) {
        if let (Some(error), false) = (self.writer.failure(), self.failure_is_told) {
            self.failure_is_told = true;
            let place = self.writer.destination();
            output::say(format_args!(
                "cannot write {place}: {error}; this dump ends here, and the next trigger tries again"
            ));
        }
    }

    /// Returns whether the dump cannot be written any more.
    pub fn has_failed(&self) -> bool {
        self.writer.failure().is_some()
    }

    /// Returns since when the dump contains all samples, as the start of a text about the first trigger: `from 5.0 s
    /// before`.
    pub fn start(&self) -> String {
        let seconds = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from)).as_secs_f64();
        let (trigger, complete) = (self.trigger.time, self.complete_from);
        match complete > trigger {
            // The rings were overwritten after the trigger, before they were copied.
            true => format!("from {:.1} s after", seconds(trigger, complete)),
            false => format!("from {:.1} s before", seconds(complete, trigger)),
        }
    }

    /// Returns a text about the later triggers that are part of the dump.
    pub fn further_triggers(&self) -> String {
        match self.joined {
            0 => String::new(),
            1 => " and another trigger".to_owned(),
            more => format!(" and {more} more triggers"),
        }
    }

    /// Returns a text about what the dump lacks, if it lacks anything. `can_set_size` is whether `-m` is the size of its rings.
    pub fn lack(&self, can_set_size: bool) -> String {
        let text = self.shortfall(can_set_size);
        match self.overwritten.iter().map(|lost| lost.count).sum() {
            0 => text,
            count => {
                let samples = output::counted(count, "sample was", "samples were");
                format!("{text}; about {samples} overwritten before they were copied")
            }
        }
    }

    /// Returns a text about the wanted time if the rings held less than that: `; of 10.0 s asked: the rings held no more`.
    fn shortfall(&self, can_set_size: bool) -> String {
        let Some(Short { before, bytes, copied }) = self.short else { return String::new() };
        // How large rings for all time must be is not known.
        let Some(before) = before else { return "; the rings held no more; a larger -m keeps more".to_owned() };
        // A burst before the rings were copied may have overwritten all that was before the trigger.
        let until_copied = |from: u64| Duration::from_nanos(copied.saturating_sub(from));
        let (wanted, kept) = (before + until_copied(self.trigger.time), until_copied(self.complete_from));
        let way_out = match rings::size_that_holds(wanted, (bytes, kept)).filter(|_| can_set_size) {
            Some(size) => format!("-m {}M would hold them", size >> 20),
            None => "use fewer events".to_owned(),
        };
        format!("; of {:.1} s asked: the rings held no more; {way_out}", before.as_secs_f64())
    }

    /// Returns the time from the first trigger to the end of the dump, or to `now` if the dump still continues.
    pub fn lasted(&self, now: u64) -> Duration {
        Duration::from_nanos(self.until.min(now).saturating_sub(self.trigger.time))
    }

    /// Writes the end of the recording. `side_band` contains the losses of records about tasks since the recorder
    /// began, because the facts in these records are missing in all later dumps. `None` if the kernel does not count
    /// these losses. `off` contains the times in which the events were off.
    pub fn finish(self, side_band: Option<&[Lost]>, off: &OffTimes) -> Result<Summary> {
        let Dump { mut writer, mut ring_streams, overwritten, before_late, window, .. } = self;
        let within: Vec<_> = off.over().iter().copied().filter(|&(_, to)| to >= window.start).collect();
        writer.turned_off(&within);
        let lost = side_band.map(|side_band| [side_band, &overwritten, &before_late].concat());
        writer.finish(lost.as_deref(), &mut ring_streams)
    }
}

/// The assumed size of a sample, in bytes, before a sample was written.
const SAMPLE_SIZE: u64 = 100;

/// About how many bytes are written before the next look at the rings.
const AT_ONCE: usize = 8 << 20;

/// Returns the mean size of the samples in copies, in bytes.
fn mean_size(copies: &[CopiedRing]) -> u64 {
    let bytes: usize = copies.iter().map(CopiedRing::size).sum();
    let records: usize = copies.iter().map(CopiedRing::count).sum();
    (bytes as u64).checked_div(records as u64).unwrap_or(SAMPLE_SIZE)
}

/// Returns the time of a record.
fn time(record: &[u8], layout: SampleLayout, trailer: TrailerLayout) -> Option<u64> {
    match record_type(record) {
        PERF_RECORD_SAMPLE => layout.time(record),
        _ => trailer.time(record),
    }
}
