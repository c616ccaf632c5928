//! The options that `top` and `hist` share: both commands add up events.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, builder::RangedU64ValueParser};
use perf_prof_events::event::reader::is_stack;
use perf_prof_format::spec::{CallGraph, EventKind, EventSpec, SpanStack, parse_events};
use perf_prof_session::{
    plan::{Origin, RunPlan},
    selectors::with_system_calls,
};
use perf_prof_tools::watch::{Earlier, Form, Place, TallyPlan};

use super::options::{Needs, WatchOptions};
use crate::{
    compared::{Part, earlier},
    option_error::OptionError,
    values::{self, PythonFramesOption},
};

/// The default interval between two drawings of the screen.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// Which events are added up, and how the sums are shown.
#[derive(Args, Clone, Debug)]
pub struct TallyOptions {
    /// Events: sources of spans, names of system calls, tracepoints as system:name[/FILTER/ATTR/.../], or profile,
    /// cycles:u,...
    #[arg(value_name = "EVENT,...", help_heading = "Events and targets", display_order = 0)]
    events: Vec<String>,
    #[command(flatten)]
    of: WatchOptions,
    /// The command to run, with its arguments
    #[arg(value_name = "CMD", last = true, help_heading = "Events and targets")]
    command: Vec<OsString>,

    /// Print once in each interval of this length, for example `500` (ms) or `1s`; on a terminal the default is 1s
    #[arg(short, long, value_name = "TIME", value_parser = values::parse_interval_not_file, help_heading = "Output")]
    interval: Option<Duration>,
    /// Show only the N keys with the most events [default: as many as fit on the terminal, else 20; with --json all]
    #[arg(short = 'n', long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..), help_heading = "Output")]
    rows: Option<usize>,
    /// Record a call chain with every event, with kernel and user frames; `--by stack` does so by itself
    #[arg(short = 'g', help_heading = "Output")]
    callchains: bool,
    /// Like -g. HOW selects how user frames are found: `fp` (frame pointers), or `dwarf[,SIZE]` for programs without
    /// frame pointers
    #[arg(long, value_name = "HOW", help_heading = "Output")]
    call_graph: Option<CallGraph>,
    #[command(flatten)]
    python: PythonFramesOption,
    /// Print JSON objects, one per line, for programs
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Compare with an earlier recording: what each key had before and after, the largest change first
    #[arg(long, value_name = "BEFORE", requires = "input", conflicts_with = "interval", help_heading = "Recordings")]
    diff: Option<PathBuf>,
    /// Compare with this part of the earlier recording, or, without --diff, of the same recording; written as for --time
    #[arg(long, value_name = "FROM,TO", requires = "input", conflicts_with = "interval", help_heading = "Recordings")]
    diff_time: Option<Part>,
}

impl TallyOptions {
    /// Returns the words that name events.
    pub fn words(&self) -> &[String] {
        &self.events
    }

    /// Returns the plan. `name` is the name of the command, `example` is an event for its messages, and `by` contains
    /// the keys.
    pub fn plan(self, name: &'static str, example: &'static str, by: &[String]) -> Result<TallyPlan, OptionError> {
        let mut events = Vec::new();
        for list in &self.events {
            events.extend(parse_events(list)?);
        }
        let mut events = with_system_calls(events)?;
        if events.is_empty() && !self.of.is_of_recording() {
            return Err(OptionError::NoEventToCount(name, example));
        }
        let command = self.of.command(self.command);
        // If there is a command, no screen is drawn, because the command writes to the same terminal.
        let is_screen = !self.json && !self.of.is_of_recording() && command.is_empty() && io::stdout().is_terminal();
        let interval = self.interval.or(is_screen.then_some(DRAWN_EVERY));
        let has_stacks = !self.of.is_of_recording() && request_stacks(&mut events, by) == Stacks::OfEveryEvent;
        let chains = self.call_graph.or((self.callchains || has_stacks).then(CallGraph::default));
        // Only a live run can request that samples contain cgroups. The samples of a recording cannot be changed.
        let has_cgroup =
            by.iter().any(|key| key.rsplit('.').next().is_some_and(|name| ["cgroup", "_cgroup"].contains(&name)));
        let cgroups = (has_cgroup && !self.of.is_of_recording()).into();
        let needs = Needs { chains, python: self.python.python_frames, interval, cgroups };
        let watch = self.of.plan(events, command, needs)?;
        let earlier = watch.input().and_then(|input| earlier(self.diff, self.diff_time, input));
        let earlier = earlier.map(|(input, name)| {
            let origin = Origin::Recorded(Box::new(input));
            Earlier { watch: RunPlan { origin, ..watch.clone() }, name }
        });
        let place = match &earlier {
            Some(_) => Place::Nowhere,
            None if is_screen => Place::Screen,
            None => Place::Lines,
        };
        let form = if self.json { Form::Json } else { Form::Text };
        Ok(TallyPlan { watch, rows: self.rows, form, place, earlier })
    }
}

/// Which events of a live run get callchains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stacks {
    /// The events with an attribute `stack`.
    AsWritten,
    /// All events.
    OfEveryEvent,
}

/// Requests the callchains that the keys need. A span gets an attribute that says which of its two events gets a
/// callchain. Usually only one of the two events needs a callchain.
fn request_stacks(events: &mut [EventSpec], by: &[String]) -> Stacks {
    let has = |part: &str| {
        let of_part = |key: &String| key.split_once('.').is_some_and(|(of, name)| of == part && is_stack(name));
        by.iter().any(of_part)
    };
    let of_begin = has("begin") || by.iter().any(|key| is_stack(key));
    let wanted = match (of_begin, has("end")) {
        (false, false) => return Stacks::AsWritten,
        (true, false) => SpanStack::Begin,
        (false, true) => SpanStack::End,
        (true, true) => SpanStack::Both,
    };
    let mut stacks = Stacks::AsWritten;
    for event in events {
        match &mut event.kind {
            EventKind::Span(span) if span.stack == SpanStack::Inherit => span.stack = wanted,
            EventKind::Span(_) => {}
            _ => stacks = Stacks::OfEveryEvent,
        }
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_call_chains_request_them() {
        let requested = |events: &str, by: &[&str]| {
            let mut events = parse_events(events).unwrap();
            let by: Vec<String> = by.iter().map(|key| (*key).to_owned()).collect();
            let stacks = request_stacks(&mut events, &by);
            let of_event = |event: &EventSpec| match &event.kind {
                EventKind::Span(span) => span.stack,
                _ => SpanStack::Inherit,
            };
            (stacks, of_event(&events[0]))
        };
        use SpanStack::{Begin, Both, End, Inherit};
        for (events, by, expected) in [
            ("offcpu", &["comm"][..], (Stacks::AsWritten, Inherit)),
            ("offcpu", &["comm", "stack"], (Stacks::AsWritten, Begin)),
            ("offcpu", &["end._stack"], (Stacks::AsWritten, End)),
            ("offcpu", &["stack", "end.stack"], (Stacks::AsWritten, Both)),
            ("offcpu//stack=end/", &["stack"], (Stacks::AsWritten, End)),
            ("a:b", &["stack"], (Stacks::OfEveryEvent, Inherit)),
            ("a:b", &["stack_lines"], (Stacks::OfEveryEvent, Inherit)),
            // The attribute alone would give only kernel frames.
            ("a:b//stack/", &["stack"], (Stacks::OfEveryEvent, Inherit)),
            ("a:b//max-stack=5/", &["stack"], (Stacks::OfEveryEvent, Inherit)),
            ("a:b", &["begin"], (Stacks::AsWritten, Inherit)),
        ] {
            assert_eq!(requested(events, by), expected, "{events} {by:?}");
        }
    }
}
