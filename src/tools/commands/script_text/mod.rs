//! `perf-prof script`: prints the events of a recording as lines of text. No events are kept in memory.

mod counts;

use std::{ops::ControlFlow, sync::Arc};

use anyhow::Result;
use perf_prof_events::event::{
    AlwaysEntered, Chains, Context, Deliver, Digits, EventType, FieldList, Flow, PerfEvent, PerfLines, Sample,
};
use perf_prof_format::{abi::perf_data::PERF_RECORD_STAT_ROUND, record::record_type};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, InterpreterFrameUse, RunPlan, Verbosity},
    recording::stat_counts::StatCounts,
    spine::ChosenRecording,
};
use perf_prof_symbols::symbol;
use perf_prof_system::output;

use self::counts::CountLines;
use crate::output::Output;

/// The plan of `script`: the recording, and the columns to print.
#[derive(Clone, Debug)]
pub struct ScriptTextPlan {
    /// The recording, and the part of it that is read.
    pub input: Input,
    /// The changes to the default columns.
    pub fields: Vec<FieldList>,
    /// The number of digits of times.
    pub digits: Digits,
    /// Says whether call chains are shown.
    pub chains: Chains,
    /// Whether call chains have the frames of Python functions.
    pub python: InterpreterFrameUse,
    /// How function names are looked up.
    pub symbols: symbol::Options,
    /// How many messages about problems with the recording are printed.
    pub verbosity: Verbosity,
}

/// Prints the events.
pub fn run(plan: &ScriptTextPlan) -> Result<ExitStatus> {
    let mut run = RunPlan { symbols: plan.symbols, ..RunPlan::of_recording(&plan.input, &[], plan.verbosity) };
    run.capture.callchain.python = Some(plan.python);
    let mut chosen = ChosenRecording::select(&run, &plan.input)?;
    let names = names(&chosen);
    let recording = chosen.recording();
    let counts = recording.holds_counts().then(|| {
        let counts = StatCounts::new(recording.layouts().clone());
        CountLines::new(counts, names.clone())
    });
    let of_attr = |(event, name): (&perf_prof_recordings::RecordedEvent, String)| PerfEvent {
        name,
        kind: event.attr.kind,
        sample_type: event.attr.format.sample_type,
    };
    let events = recording.events.iter().zip(names).map(of_attr).collect();
    if counts.is_some() {
        chosen.request_records(StatCounts::records());
    }
    let attrs = chosen.selected().attr_of_each_type();
    let delivered = chosen.deliver(|about| {
        Ok(Text {
            lines: PerfLines::new(events, &plan.fields, plan.digits, plan.chains),
            attrs,
            types: about.events.clone(),
            context: about.context.clone(),
            counts,
            written: Output::shown_on_stdout(),
        })
    })?;
    if let Some(why) = delivered.sink.counts.as_ref().and_then(|counts| counts.failure) {
        output::say(format_args!("warning: {}: {why}; it is left out", plan.input.path.display()));
    }
    let status = delivered.status();
    delivered.sink.written.check()?;
    Ok(status)
}

/// Returns the names of all events, including events without samples.
pub fn names(chosen: &ChosenRecording) -> Vec<String> {
    let events = &chosen.recording().events;
    let mut names: Vec<String> = events.iter().map(|event| event.name.clone().unwrap_or_default()).collect();
    let selected = chosen.selected();
    for (attr, event) in selected.attr_of_each_type().into_iter().zip(&selected.types) {
        if names[attr].is_empty() {
            names[attr] = event.real_name();
        }
    }
    names
}

/// A sink that prints samples as lines.
struct Text {
    lines: PerfLines,
    /// For each event type, the index of the event in `lines`.
    attrs: Vec<usize>,
    types: Vec<EventType>,
    context: Arc<Context>,
    /// The lines of counts, if the recording contains counts instead of samples.
    counts: Option<CountLines>,
    written: Output,
}

impl AlwaysEntered for Text {}

/// Only samples are printed as lines, as in perf. The number of lost events is printed at the end of the run.
impl Deliver for Text {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let (Some(of_type), Some(&attr)) = (self.types.get(event), self.attrs.get(event)) else {
            return ControlFlow::Continue(());
        };
        let sample = Sample { event: of_type, record };
        self.lines.write(attr, &sample, &self.context, &mut self.written.waiting);
        self.written.write_if_much()
    }

    fn other_record(&mut self, record: &[u8], _time: u64) -> Flow {
        let Some(counts) = &mut self.counts else { return ControlFlow::Continue(()) };
        counts.add(record, &mut self.written.waiting);
        // The text is written after each round. If the recording is still being written, the next round follows only
        // after an interval.
        if record_type(record) == PERF_RECORD_STAT_ROUND { self.written.write() } else { ControlFlow::Continue(()) }
    }

    fn exit(&mut self) -> Flow {
        self.written.write()
    }
}
