//! Selects samples by the names of tasks, functions and files, before a sink gets them.

use std::sync::Arc;

use super::{Context, Deliver, EventType, Flow, Frame, Origin, Sample, Sink, frames, perf_ip, sampled_function};

/// The selected names of tasks, functions and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names of tasks (`--comms`); empty for all tasks.
    pub comms: Vec<String>,
    /// The names of functions (`--symbols`), compared with the function of the sample's instruction, and with the Python
    /// function that the interpreter runs there; empty for all functions.
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
        (self.comms.is_empty() || of_task())
            && ((self.symbols.is_empty() && self.dsos.is_empty())
                || any_place(sample, context, |symbol, path| self.select_place(symbol, path)))
    }

    /// Returns whether a function and its file are selected.
    fn select_place(&self, symbol: Option<&str>, path: Option<&str>) -> bool {
        let file = path.map(file_name);
        let is_any = |list: &[String], name: Option<&str>| list.iter().any(|one| Some(one.as_str()) == name);
        (self.symbols.is_empty() || is_any(&self.symbols, symbol))
            && (self.dsos.is_empty() || is_any(&self.dsos, path) || is_any(&self.dsos, file))
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Calls `is` with the function and the file of a sample's instruction, and then with those of the Python function that the
/// interpreter runs there. Returns true as soon as `is` does.
fn any_place(sample: &Sample<'_>, context: &Context, mut is: impl FnMut(Option<&str>, Option<&str>) -> bool) -> bool {
    let is_native = perf_ip(sample, context).is_some_and(|frame| {
        is(frame.symbol.as_ref().map(|symbol| &*symbol.name), frame.map.as_ref().map(|map| &*map.dso))
    });
    is_native
        || python_function(sample, context).is_some_and(|frame| {
            let path = frame.srcline.as_ref().map_or(&frame.dso, |(path, _)| path);
            is(Some(&frame.symbol), Some(path))
        })
}

/// Returns the function in which a sample was taken if it is a Python function.
fn python_function(sample: &Sample<'_>, context: &Context) -> Option<Arc<Frame>> {
    let chain = sample.event.format.has_interpreter_frames().then(|| frames(sample, context))?;
    sampled_function(sample, &chain, context).filter(|frame| matches!(frame.origin, Origin::Python { .. }))
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
