//! `perf-prof script`: a recording's events as lines of text, as they come. Holds nothing of what was printed.

use std::{
    io::{self, StdoutLock, Write},
    ops::ControlFlow,
    sync::Arc,
};

use anyhow::{Context as _, Result};

use super::{
    ExitStatus,
    plan::{Input, Verbosity},
    reading::Reading,
};
use crate::{
    event::{Chains, Context, Deliver, Digits, EventType, Fields, Flow, PerfEvent, PerfLines, Sample, Sink, Stop},
    symbol,
};

/// What is to be printed of which recording.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The recording, and what is wanted of it.
    pub input: Input,
    /// The columns.
    pub fields: Fields,
    /// How exact times are.
    pub digits: Digits,
    /// Whether call chains are shown.
    pub chains: Chains,
    /// How names of functions are looked up.
    pub symbols: symbol::Options,
    /// How much is said of what is wrong with the recording.
    pub verbosity: Verbosity,
}

/// So much text is written at once.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// Prints.
pub fn run(plan: &Plan) -> Result<ExitStatus> {
    let reading = Reading::open(&plan.input, plan.symbols, plan.verbosity)?;
    let names = names(&reading);
    let of_attr = |(event, name): (&crate::perfdata::RecordedEvent, String)| PerfEvent {
        name,
        kind: event.attr.kind,
        sample_type: event.attr.format.sample_type,
    };
    let events = reading.recording().events.iter().zip(names).map(of_attr).collect();
    let mut text = Text {
        lines: PerfLines::new(events, plan.fields, plan.digits, plan.chains),
        attrs: reading.attrs(),
        types: reading.types().to_vec(),
        context: reading.context.clone(),
        written: Written { waiting: Vec::with_capacity(2 * WRITTEN_AT_ONCE), to: io::stdout().lock(), failure: None },
    };
    let status = reading.run(&mut text)?.status;
    match text.written.failure {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
        _ => Ok(status),
    }
}

/// The name of each event, whether it can have samples or not.
pub(super) fn names(reading: &Reading) -> Vec<String> {
    let mut names: Vec<String> =
        reading.recording().events.iter().map(|event| event.name.clone().unwrap_or_default()).collect();
    for (attr, event) in reading.attrs().into_iter().zip(reading.types()) {
        if names[attr].is_empty() {
            names[attr] = event.real_name();
        }
    }
    names
}

/// A sink that prints.
struct Text {
    lines: PerfLines,
    /// Of each event type, which of the lines' events it is.
    attrs: Vec<usize>,
    types: Vec<EventType>,
    context: Arc<Context>,
    written: Written,
}

/// What was printed, some of which waits for more.
struct Written {
    waiting: Vec<u8>,
    to: StdoutLock<'static>,
    failure: Option<io::Error>,
}

impl Written {
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

impl Deliver for Text {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let (Some(of_type), Some(&attr)) = (self.types.get(event), self.attrs.get(event)) else {
            return ControlFlow::Continue(());
        };
        let sample = Sample { event: of_type, record };
        self.lines.write(attr, &sample, &self.context, &mut self.written.waiting);
        if self.written.waiting.len() < WRITTEN_AT_ONCE {
            return ControlFlow::Continue(());
        }
        self.written.write()
    }

    /// As with perf, lines are of events alone; the run's last words count what was lost.
    fn lost(&mut self, _: u64, _: u64) -> Flow {
        ControlFlow::Continue(())
    }

    fn interval(&mut self) -> Flow {
        ControlFlow::Continue(())
    }

    fn print_stat(&mut self, _: u32) -> Flow {
        ControlFlow::Continue(())
    }

    fn kept(&self) -> usize {
        0
    }

    fn exit(&mut self) -> Flow {
        if self.written.failure.is_some() { ControlFlow::Continue(()) } else { self.written.write() }
    }
}
