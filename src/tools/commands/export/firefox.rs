//! A profile for the Firefox Profiler (profiler.firefox.com). Samples with call chains are samples of their threads,
//! and tracepoints are markers.

use std::{
    collections::HashMap,
    io,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame as ProfileFrame, FrameFlags, FrameInfo, MarkerFieldFlags,
    MarkerFieldFormat, MarkerTiming, ProcessHandle, Profile, SamplingInterval, StackHandle, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};
use perf_prof_events::{
    event::{
        Context, EventType, Frame, Origin, Sample, UNKNOWN, frames, frames_without_inlined, has_callchain, ip_frame,
    },
    picture::LongChains,
};

use super::{super::period::PeriodUnit, Destination, Exporter, Partial, rows::Row};

/// The profile. Its memory grows with the number of samples.
pub struct FirefoxProfile<'a> {
    /// The path of the recording.
    name: String,
    profile: Profile,
    to: &'a mut Destination,
    kernel: CategoryHandle,
    user: CategoryHandle,
    processes: HashMap<i32, ProcessHandle>,
    /// The threads, by their ids and the events of their samples. The profiler adds up the samples of a thread, whatever they
    /// are of, so the samples of each event are a thread of their own.
    threads: HashMap<(i32, Option<usize>), Thread>,
    /// The names of the events that were sampled, if there are several.
    sampled: HashMap<usize, String>,
    /// What the periods of each event's samples count.
    units: Vec<PeriodUnit>,
    /// The period of the samples of a clock. `None` before the first.
    period: Option<u64>,
    /// The time of the first sample, which is the start of the profile.
    first: Option<u64>,
    chains: LongChains,
}

/// A thread of the profile, with the name that the profile has for it.
struct Thread {
    handle: ThreadHandle,
    name: Option<String>,
    /// Its CPU time in ns, as far as samples of a clock tell.
    cpu_time: u64,
}

/// A tracepoint: its name, and the text of its print format.
struct Tracepoint {
    name: StringHandle,
    text: StringHandle,
    category: CategoryHandle,
}

impl StaticSchemaMarker for Tracepoint {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "tracepoint";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "text",
        label: "Fields",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

impl<'a> FirefoxProfile<'a> {
    pub fn new(
        recording: &Path,
        types: &[EventType],
        units: Vec<PeriodUnit>,
        to: &'a mut Destination,
    ) -> FirefoxProfile<'a> {
        let name = recording.display().to_string();
        let mut profile = Profile::new(&name, UNIX_EPOCH.into(), SamplingInterval::from_millis(1));
        profile.set_os_name("Linux");
        profile.set_symbolicated(true);
        let kernel = profile.add_category("Kernel", CategoryColor::Orange);
        let user = profile.add_category("User", CategoryColor::Yellow);
        let is_sampled = |(_, event): &(usize, &EventType)| event.format.tracepoint().is_none();
        let sampled: HashMap<usize, String> =
            types.iter().enumerate().filter(is_sampled).map(|(at, event)| (at, event.real_name())).collect();
        FirefoxProfile {
            name,
            profile,
            to,
            kernel,
            user,
            processes: HashMap::new(),
            threads: HashMap::new(),
            sampled: if sampled.len() < 2 { HashMap::new() } else { sampled },
            units,
            period: None,
            first: None,
            chains: LongChains::default(),
        }
    }

    /// Returns the thread of a sample of the event with the index `event`. The profile shows the last name of the thread.
    fn thread(&mut self, event: usize, row: &Row, time: Timestamp) -> &mut Thread {
        let &Row { pid, tid, ref comm, .. } = row;
        let Self { profile, processes, threads, sampled, .. } = self;
        let name = || comm.clone().unwrap_or_else(|| tid.to_string());
        let process = *processes.entry(pid).or_insert_with(|| profile.add_process(&name(), pid.max(0) as u32, time));
        let of = sampled.get(&event);
        // The profiler has a main thread for each process, which it does not show by its name.
        let is_main = pid == tid && of.is_none();
        let thread = threads.entry((tid, of.map(|_| event))).or_insert_with(|| {
            let handle = profile.add_thread(process, tid.max(0) as u32, time, is_main);
            Thread { handle, name: None, cpu_time: 0 }
        });
        if thread.name != *comm {
            thread.name.clone_from(comm);
            let shown = of.map_or_else(name, |of| format!("{} ({of})", name()));
            profile.set_thread_name(thread.handle, &shown);
            if pid == tid {
                profile.set_process_name(process, &name());
            }
        }
        thread
    }

    fn stack(&mut self, thread: ThreadHandle, sample: &Sample<'_>, context: &Context) -> Option<StackHandle> {
        let chain = match has_callchain(sample) {
            true => frames(sample, context),
            false => ip_frame(sample, context).into_iter().collect(),
        };
        self.chains.add(frames_without_inlined(&chain), 1);
        let Self { profile, kernel, user, .. } = self;
        let infos: Vec<FrameInfo> = chain
            .iter()
            .rev()
            .map(|frame| FrameInfo {
                frame: ProfileFrame::Label(profile.intern_string(&name_of(frame))),
                category_pair: if frame.origin == Origin::Kernel { *kernel } else { *user }.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        profile.intern_stack_frames(thread, infos.into_iter())
    }
}

/// Returns the name of a function with the name of its file, in the profiler's format: `main (in ls)`.
fn name_of(frame: &Frame) -> String {
    let file = frame.dso.rsplit('/').next().unwrap_or_default();
    match &*frame.symbol {
        UNKNOWN => format!("{:#x} (in {file})", frame.addr),
        name => format!("{name} (in {file})"),
    }
}

impl Exporter for FirefoxProfile<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        let row = Row::of(sample, context);
        let first = match self.first {
            Some(first) => first,
            None => {
                // The time of day of the first sample. If the offset to the time of day is not known, the time of the
                // recording's clock is used.
                let start = context.realtime(row.time).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(row.time);
                self.profile.set_reference_timestamp((UNIX_EPOCH + Duration::from_nanos(start)).into());
                *self.first.insert(row.time)
            }
        };
        let time = Timestamp::from_nanos_since_reference(row.time.saturating_sub(first));
        let is_of_clock = self.units.get(event) == Some(&PeriodUnit::Nanoseconds);
        let period = if is_of_clock { sample.period() } else { 0 };
        if is_of_clock && self.period.is_none() {
            self.period = Some(period);
            self.profile.set_interval(SamplingInterval::from_nanos(period));
        }
        let thread = self.thread(event, &row, time);
        let before = thread.cpu_time;
        thread.cpu_time = before.saturating_add(period);
        // The profile has whole microseconds. Their sum must not be shorter than the time.
        let cpu_delta = CpuDelta::from_micros(thread.cpu_time / 1000 - before / 1000);
        let thread = thread.handle;
        let stack = self.stack(thread, sample, context);
        match sample.event.format.tracepoint() {
            None => self.profile.add_sample(thread, time, stack, cpu_delta, 1),
            Some(format) => {
                let mut text = Vec::new();
                format.render(sample.raw(), &*context.kernel, &mut text);
                let marker = Tracepoint {
                    name: self.profile.intern_string(&row.name),
                    text: self.profile.intern_string(&String::from_utf8_lossy(&text)),
                    category: CategoryHandle::OTHER,
                };
                let marker = self.profile.add_marker(thread, MarkerTiming::Instant(time), marker);
                self.profile.set_marker_stack(thread, marker, stack);
            }
        }
        Ok(())
    }

    fn finish(mut self, context: &Context, partial: Option<&Partial>) -> io::Result<()> {
        let lacks = [partial.map(Partial::text), context.endings().summary(), self.chains.note()];
        let lacks: Vec<String> = lacks.into_iter().flatten().collect();
        // The profiler shows it above the profile.
        if !lacks.is_empty() {
            self.profile.set_product(&format!("{} (partial: {})", self.name, lacks.join("; ")));
        }
        Ok(serde_json::to_writer(self.to, &self.profile)?)
    }
}
