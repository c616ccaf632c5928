//! Profiles for pprof of the samples of a recording, for `export` and `report --pprof`.

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use perf_prof_events::{
    event::{Context, Frame, Origin, Provenance, Sample, UNKNOWN, frames_without_inlined},
    picture::{
        LongChains,
        pprof::{
            About, FunctionLine, Label, LabelValue, LocationId, Packing, Profile, Quantity, TextId, Values, Weight,
        },
    },
};
use perf_prof_recordings::AttrFlag;
use perf_prof_session::spine::ChosenRecording;
use perf_prof_symbols::symbol::{Inline, Options, Srcline};
use perf_prof_system::budget::Budget;

use super::{period::PeriodUnit, script_text::names, task_names::TaskNames};

/// Returns how addresses of a profile are resolved: with inlined functions, source files and lines.
pub fn symbols() -> Options {
    Options { inline: Inline::Yes, srcline: Srcline::Yes, ..Options::default() }
}

/// Returns how a profile is compressed in a file with this name.
pub fn packing(path: &Path) -> Packing {
    if path.extension().is_some_and(|end| end == "gz") { Packing::Gzip } else { Packing::Plain }
}

/// The names and units of a recording's events, and the period if there is only one event.
#[derive(Clone, Debug)]
pub struct SampledEvents {
    names: Vec<String>,
    units: Vec<PeriodUnit>,
    /// The fixed period, if there is only one event and it has a fixed period.
    period: Option<i64>,
}

impl SampledEvents {
    pub fn of(chosen: &ChosenRecording) -> SampledEvents {
        let (all, attrs) = (names(chosen), chosen.selected().attr_of_each_type());
        let period = match attrs[..] {
            [only] => Some(&chosen.recording().events[only].attr).filter(|attr| !attr.has(AttrFlag::Freq)),
            _ => None,
        };
        let period = period.and_then(|attr| i64::try_from(attr.sample_period).ok());
        let units = PeriodUnit::of_events(chosen, &all);
        SampledEvents { units, names: attrs.into_iter().map(|attr| all[attr].clone()).collect(), period }
    }
}

/// The labels of a sample in the profile.
struct Keys {
    comm: TextId,
    pid: TextId,
    cpu: TextId,
}

/// A profile to which samples are added.
pub struct SampledProfile {
    profile: Profile,
    keys: Keys,
    period: Option<i64>,
    /// The times of the first and the last sample.
    times: Option<(u64, u64)>,
    task_names: TaskNames,
    chains: LongChains,
}

impl SampledProfile {
    pub fn new(events: &SampledEvents, budget: &Budget) -> SampledProfile {
        let quantities = events.names.iter().zip(&events.units);
        let quantity =
            |(name, unit): (&String, &PeriodUnit)| Quantity { name: name.clone(), unit: unit.in_pprof().to_owned() };
        let mut profile = Profile::new(quantities.map(quantity).collect(), Values::SamplesAndPeriods, budget);
        let keys = Keys { comm: profile.text("comm"), pid: profile.text("pid"), cpu: profile.text("cpu") };
        SampledProfile {
            profile,
            keys,
            period: events.period,
            times: None,
            task_names: TaskNames::default(),
            chains: LongChains::default(),
        }
    }

    /// Adds a sample of the event with the index `event`. `chain` is the sample's call chain, innermost first and with
    /// inlined functions. A sample without a call chain has one frame.
    pub fn add(&mut self, event: usize, sample: &Sample<'_>, chain: &[Arc<Frame>], context: &Context) {
        let (time, (pid, _)) = (sample.time(), sample.pid_tid());
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        let name = self.task_names.of(sample, context);
        let Keys { comm, pid: pid_key, cpu } = self.keys;
        let number = |key, number: i64| Label { key, value: LabelValue::Number(number) };
        let cpu = sample.event.layout.cpu(sample.record).map(|of| number(cpu, of.into()));
        let named = Label { key: comm, value: LabelValue::Text(self.profile.text(&name)) };
        let labels: Vec<Label> = [named, number(pid_key, pid.into())].into_iter().chain(cpu).collect();
        // Inlined functions and the function that contains them have the same address, so they are one location.
        let places: Vec<_> = chain
            .chunk_by(|inner, _| matches!(inner.origin, Origin::Inlined { .. }))
            .map(|frames| self.location(frames, sample, context))
            .collect();
        // Periods of different events have different units.
        self.chains.add(frames_without_inlined(chain), 1);
        let weight = Weight { samples: 1, periods: i64::try_from(sample.period()).unwrap_or(i64::MAX) };
        self.profile.add(event, places.into_iter().rev(), &labels, weight);
    }

    /// Returns the location for the functions at an address. The location is cached in the frame of the last function,
    /// which is not inlined.
    fn location(&mut self, frames: &[Arc<Frame>], sample: &Sample<'_>, context: &Context) -> Option<LocationId> {
        let own = frames.last()?;
        if let Some(known) = own.slot.get().and_then(|slot| slot.downcast_ref::<LocationId>()) {
            return Some(*known);
        }
        let build_id = match own.origin {
            Origin::Python { .. } => None,
            Origin::Kernel => context.kernel.build_id(&own.dso),
            Origin::User { pid } | Origin::Inlined { pid } => {
                context.with_symbols(|symbols| symbols.build_id(pid as u32, own.addr, sample.time()))
            }
        };
        let mapping = self.profile.mapping(&own.dso, build_id.as_deref().unwrap_or_default());
        let named = frames.iter().filter(|frame| *frame.symbol != *UNKNOWN);
        let functions: Vec<FunctionLine<'_>> = named
            .map(|frame| FunctionLine {
                name: &frame.symbol,
                source: frame.srcline.as_ref().map(|(file, line)| (&**file, *line)),
            })
            .collect();
        let location = self.profile.location(Some(mapping), own.dso_offset, &functions)?;
        own.slot.put(Box::new(location));
        Some(location)
    }

    /// Writes the profile of the events that happened where and when `of` says. `partial` describes the missing samples.
    pub fn write(
        mut self,
        of: &Provenance,
        partial: Option<&str>,
        context: &Context,
        packing: Packing,
        to: &mut impl Write,
    ) -> io::Result<()> {
        self.profile.rename(self.keys.comm, &self.task_names.later(context));
        let lacks = [partial.map(str::to_owned), context.endings().summary(), self.chains.note()];
        let about = About {
            time: of.began.or_else(|| context.realtime_unseen(self.times?.0)),
            duration: of.duration.unwrap_or_else(|| self.times.map_or(0, |(first, last)| last - first)),
            period: self.period,
            comments: lacks.into_iter().flatten().map(|lack| format!("partial: {lack}")).collect(),
        };
        self.profile.write(&about, packing, to)
    }
}
