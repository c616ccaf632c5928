//! Selects samples by the names of tasks, functions and files, before a sink gets them.

use std::{collections::BTreeSet, sync::Arc};

use perf_prof_format::spec::{did_you_mean, similar_names};

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

    /// Returns whether the name that a thread has at a time is selected.
    pub fn select_task(&self, tid: i32, time: u64, context: &Context) -> bool {
        let is_named = |name: &[u8]| self.comms.iter().any(|comm| comm.as_bytes() == name);
        self.comms.is_empty() || context.comm(tid, time).is_some_and(|name| is_named(&name))
    }

    fn select(&self, sample: &Sample<'_>, context: &Context) -> bool {
        self.select_task(sample.pid_tid().1, sample.time(), context)
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
    unselected: Unselected,
}

impl<'a> NamedSamples<'a> {
    /// Creates the sink. `events` are the event types of the samples.
    pub fn new(sink: &'a mut dyn Sink, names: &'a Names, events: &'a [EventType], context: Arc<Context>) -> Self {
        NamedSamples { sink, names, events, context, unselected: Unselected::default() }
    }

    /// Returns a message if there were samples, but none with the selected names.
    pub fn nothing_selected(&self) -> Option<String> {
        self.unselected.message(self.names)
    }
}

impl Sink for NamedSamples<'_> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        let Self { sink, names, events, context, unselected } = self;
        if names.are_all() {
            return sink.enter(body);
        }
        sink.enter(&mut |program| body(&mut Selecting { program, names, events, context, unselected }));
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
    unselected: &'a mut Unselected,
}

impl Deliver for Selecting<'_> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of) = self.events.get(event) else { return Flow::Continue(()) };
        let sample = Sample { event: of, record };
        if !self.names.select(&sample, self.context) {
            self.unselected.note(&sample, self.names, self.context);
            return Flow::Continue(());
        }
        self.unselected.some_selected = true;
        self.program.sample(event, record)
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

/// How many different names of samples are kept for suggestions.
const SUGGESTED_FROM: usize = 10_000;

/// The samples that were not selected, until one is selected.
#[derive(Default)]
struct Unselected {
    some_selected: bool,
    samples: u64,
    comms: BTreeSet<String>,
    symbols: BTreeSet<String>,
    /// Paths and names of files.
    dsos: BTreeSet<String>,
}

impl Unselected {
    #[cold]
    fn note(&mut self, sample: &Sample<'_>, names: &Names, context: &Context) {
        if self.some_selected {
            return;
        }
        self.samples += 1;
        let note = |set: &mut BTreeSet<String>, name: &str| {
            if set.len() < SUGGESTED_FROM && !set.contains(name) {
                set.insert(name.to_owned());
            }
        };
        if !names.comms.is_empty()
            && let Some(comm) = context.comm(sample.pid_tid().1, sample.time())
        {
            note(&mut self.comms, &String::from_utf8_lossy(&comm));
        }
        if !(names.symbols.is_empty() && names.dsos.is_empty()) {
            any_place(sample, context, |symbol, path| {
                symbol.iter().for_each(|symbol| note(&mut self.symbols, symbol));
                path.iter().flat_map(|path| [path, file_name(path)]).for_each(|name| note(&mut self.dsos, name));
                false
            });
        }
    }

    fn message(&self, names: &Names) -> Option<String> {
        if self.some_selected || self.samples == 0 {
            return None;
        }
        let lists = [
            ("--comms", &names.comms, &self.comms),
            ("-S", &names.symbols, &self.symbols),
            ("--dsos", &names.dsos, &self.dsos),
        ];
        let given = lists.iter().filter(|(_, typed, _)| !typed.is_empty());
        let options: Vec<_> = given.clone().map(|(option, typed, _)| format!("{option} {}", typed.join(","))).collect();
        let near = given.flat_map(|(_, typed, there)| {
            // A name that is there is no mistake: then it is the other options that no sample fulfils.
            typed.iter().filter(|name| !there.contains(*name)).flat_map(|name| similar_names(name, *there))
        });
        let near: Vec<String> = near.take(3).collect();
        Some(format!("none of {} samples is of `{}`{}", self.samples, options.join(" "), did_you_mean(&near)))
    }
}
