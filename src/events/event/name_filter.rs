//! Selects samples by the names of tasks, functions and files, before a sink gets them.

use std::sync::Arc;

use super::{Context, Deliver, EventType, Flow, Sample, Sink, perf_ip};

/// The selected names of tasks, functions and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names of tasks (`--comms`); empty for all tasks.
    pub comms: Vec<String>,
    /// The names of functions (`--symbols`), compared with the function of the sample's instruction; empty for all
    /// functions.
    pub symbols: Vec<String>,
    /// The files (`--dsos`) by path or name, compared with the file of the sample's instruction; empty for all files.
    pub dsos: Vec<String>,
}

impl Names {
    /// Returns whether every sample is selected.
    pub fn are_all(&self) -> bool {
        self.comms.is_empty() && self.symbols.is_empty() && self.dsos.is_empty()
    }

    fn select(&self, sample: &Sample<'_>, context: &Context) -> bool {
        let is_named = |name: &[u8]| self.comms.iter().any(|comm| comm.as_bytes() == name);
        let of_task = || context.comm(sample.pid_tid().1, sample.time()).is_some_and(|name| is_named(&name));
        let of_place = || {
            let Some(frame) = perf_ip(sample, context) else { return false };
            let symbol = frame.symbol.as_ref().map(|symbol| &*symbol.name);
            let path = frame.map.as_ref().map(|map| &*map.dso);
            let file = path.map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name));
            let is_any = |list: &[String], name: Option<&str>| list.iter().any(|one| Some(one.as_str()) == name);
            (self.symbols.is_empty() || is_any(&self.symbols, symbol))
                && (self.dsos.is_empty() || is_any(&self.dsos, path) || is_any(&self.dsos, file))
        };
        (self.comms.is_empty() || of_task()) && ((self.symbols.is_empty() && self.dsos.is_empty()) || of_place())
    }
}

/// Passes only samples with the selected names to another sink.
pub struct NamedSamples<'a> {
    sink: &'a mut dyn Sink,
    names: &'a Names,
    events: &'a [EventType],
    context: Arc<Context>,
}

impl<'a> NamedSamples<'a> {
    /// Creates the sink. `events` are the event types of the samples.
    pub fn new(sink: &'a mut dyn Sink, names: &'a Names, events: &'a [EventType], context: Arc<Context>) -> Self {
        NamedSamples { sink, names, events, context }
    }
}

impl Sink for NamedSamples<'_> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        let Self { sink, names, events, context } = self;
        if names.are_all() {
            return sink.enter(body);
        }
        sink.enter(&mut |program| body(&mut Selecting { program, names, events, context }));
    }

    fn collects_output(&self) -> bool {
        self.sink.collects_output()
    }

    fn counts_missing(&self) -> bool {
        self.sink.counts_missing()
    }
}

/// The receiver while the sink is entered: passes on the selected samples.
struct Selecting<'a> {
    program: &'a mut dyn Deliver,
    names: &'a Names,
    events: &'a [EventType],
    context: &'a Context,
}

impl Deliver for Selecting<'_> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of) = self.events.get(event) else { return Flow::Continue(()) };
        match self.names.select(&Sample { event: of, record }, self.context) {
            true => self.program.sample(event, record),
            false => Flow::Continue(()),
        }
    }

    fn missing(&mut self, event: usize, record: &[u8]) {
        let of = self.events.get(event);
        if of.is_some_and(|event| self.names.select(&Sample { event, record }, self.context)) {
            self.program.missing(event, record);
        }
    }

    fn inner(&mut self) -> Option<&mut dyn Deliver> {
        Some(self.program)
    }
}
