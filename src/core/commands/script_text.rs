//! `perf-prof script`: prints the events of a recording as lines of text. Keeps no events in memory.

mod counts;

use std::{
    io::{self, StdoutLock, Write},
    ops::ControlFlow,
    sync::Arc,
};

use anyhow::{Context as _, Result};

use self::counts::CountLines;
use super::recording_view::OpenRecording;
use crate::{
    abi::perf_data::PERF_RECORD_STAT_ROUND,
    engine::ExitStatus,
    event::{Chains, Context, Deliver, Digits, EventType, FieldList, Flow, PerfEvent, PerfLines, Sample, Sink, Stop},
    plan::{Input, Verbosity},
    record::{OtherRecords, record_type},
    recording::stat_counts::StatCounts,
    symbol,
    sys::{output, terminal::ShownOnStdout},
};

/// The plan of a text output: the recording, and the columns to print.
#[derive(Clone, Debug)]
pub struct ScriptTextPlan {
    /// The recording, and which part of it is read.
    pub input: Input,
    /// The changes to the columns.
    pub fields: Vec<FieldList>,
    /// How many digits are printed for times.
    pub digits: Digits,
    /// Says whether call chains are shown.
    pub chains: Chains,
    /// How function names are looked up.
    pub symbols: symbol::Options,
    /// How many messages about problems with the recording are printed.
    pub verbosity: Verbosity,
}

/// How many bytes of text are collected before they are written.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// Prints the events.
pub fn run(plan: &ScriptTextPlan) -> Result<ExitStatus> {
    let reading = OpenRecording::open(&plan.input, &[], plan.symbols, plan.verbosity)?;
    let names = names(&reading);
    let recording = reading.recording();
    let (counts, others) = match recording.holds_counts() {
        true => {
            let counts = StatCounts::new(recording.layouts().clone());
            (Some(CountLines::new(counts, names.clone())), StatCounts::records())
        }
        false => (None, OtherRecords::NONE),
    };
    let of_attr = |(event, name): (&crate::perfdata::RecordedEvent, String)| PerfEvent {
        name,
        kind: event.attr.kind,
        sample_type: event.attr.format.sample_type,
    };
    let events = reading.recording().events.iter().zip(names).map(of_attr).collect();
    let mut text = Text {
        lines: PerfLines::new(events, &plan.fields, plan.digits, plan.chains),
        attrs: reading.attrs(),
        types: reading.types().to_vec(),
        context: reading.context.clone(),
        counts,
        written: BufferedStdout {
            waiting: Vec::with_capacity(2 * WRITTEN_AT_ONCE),
            to: ShownOnStdout::new(io::stdout().lock()),
            failure: None,
        },
    };
    let status = reading.with_other_records(others).run(&mut text)?.status;
    if let Some(why) = text.counts.as_ref().and_then(|counts| counts.failure) {
        output::say(format_args!("warning: {}: {why}; it is left out", plan.input.path.display()));
    }
    match text.written.failure {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
        _ => Ok(status),
    }
}

/// Returns the names of all events, including those that cannot have samples.
pub fn names(reading: &OpenRecording) -> Vec<String> {
    let mut names: Vec<String> =
        reading.recording().events.iter().map(|event| event.name.clone().unwrap_or_default()).collect();
    for (attr, event) in reading.attrs().into_iter().zip(reading.types()) {
        if names[attr].is_empty() {
            names[attr] = event.real_name();
        }
    }
    names
}

/// A sink that prints samples as lines.
struct Text {
    lines: PerfLines,
    /// For each event type, its index among the events of `lines`.
    attrs: Vec<usize>,
    types: Vec<EventType>,
    context: Arc<Context>,
    /// The counts, if the recording has counts instead of samples.
    counts: Option<CountLines>,
    written: BufferedStdout,
}

/// The standard output, with text that was not written yet.
struct BufferedStdout {
    waiting: Vec<u8>,
    to: ShownOnStdout<StdoutLock<'static>>,
    failure: Option<io::Error>,
}

impl BufferedStdout {
    fn write_if_much(&mut self) -> Flow {
        if self.waiting.len() < WRITTEN_AT_ONCE { ControlFlow::Continue(()) } else { self.write() }
    }

    fn write(&mut self) -> Flow {
        let result = self.to.write_all(&self.waiting).and_then(|()| self.to.flush());
        self.waiting.clear();
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let closed = error.kind() == io::ErrorKind::BrokenPipe;
                self.failure.get_or_insert(error);
                ControlFlow::Break(if closed { Stop::ClosedPipe } else { Stop::Failed })
            }
        }
    }
}

impl Sink for Text {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

/// As in perf, only events are printed as lines. The number of lost events is printed at the end of the run.
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
        // The next round may come an interval later, if the recording is still being made.
        if record_type(record) == PERF_RECORD_STAT_ROUND { self.written.write() } else { ControlFlow::Continue(()) }
    }

    fn exit(&mut self) -> Flow {
        if self.written.failure.is_some() { ControlFlow::Continue(()) } else { self.written.write() }
    }
}
