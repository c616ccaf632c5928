//! `perf-prof trace`: prints a line for each event, as text or as JSON. No events are kept in memory.

use std::{io::Write as _, ops::ControlFlow, sync::Arc};

use anyhow::Result;
use perf_prof_events::event::{
    Context, Deliver, EventType, Flow, Format, LineContext, Sample, Sink, UNKNOWN_COMM, cgroup_text, frames,
    has_callchain, ip_frame, write_date, write_frames, write_json, write_text,
};
use perf_prof_format::control_characters::{for_terminal, put_in_one_line};
use perf_prof_session::{engine::ExitStatus, live::strings, plan::RunPlan, spine::Receiver};

use super::{
    events::{TimeFacts, deliver},
    span_text,
    system_call::SystemCallText,
};
use crate::output::{Colours, Destination, Form, Output, Reader};

/// The plan of a trace.
#[derive(Clone, Debug)]
pub struct TracePlan {
    /// The run that delivers the events.
    pub watch: RunPlan,
    /// Which time starts a line.
    pub times: LineTimes,
    /// The format of the lines.
    pub form: Form,
    /// Where the lines are printed.
    pub output: Destination,
}

/// The time at the start of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineTimes {
    /// The time since the first event.
    #[default]
    Start,
    /// The time since the event of the previous line.
    Delta,
    /// The time of the events' clock, as in `perf script`.
    Clock,
    /// The local date and time.
    Date,
}

/// Prints the events.
pub fn run(plan: &TracePlan) -> Result<ExitStatus> {
    let output = Output::open(&plan.output)?;
    let facts = match (plan.times, plan.form) {
        (LineTimes::Date, Form::Text) => TimeFacts::TimeOfDay,
        _ => TimeFacts::None,
    };
    let mut watch = plan.watch.clone();
    if watch.live().is_some() {
        // Strings that arguments point to are read too. So lines show the names of files instead of addresses.
        strings::add_where_possible(&mut watch.capture);
    }
    let (status, trace) = deliver(&watch, facts, |about| {
        let (events, context) = (about.events.clone(), about.context.clone());
        let names = events.iter().map(EventType::shown_name).collect();
        let Output { reader, .. } = output;
        let calls = SystemCallText::new(about.recording.as_ref());
        let lines = Lines { times: plan.times, reader, first: None, before: None, widest: 0, part: Vec::new(), calls };
        Ok(Trace { form: plan.form, events, names, context, lines, output })
    })?;
    trace.output.check()?;
    Ok(status)
}

/// The sink that prints events.
struct Trace {
    form: Form,
    events: Vec<EventType>,
    names: Vec<String>,
    context: Arc<Context>,
    lines: Lines,
    output: Output,
}

impl Receiver for Trace {}

impl Sink for Trace {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }

    fn collects_output(&self) -> bool {
        true
    }
}

impl Deliver for Trace {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let (Some(of_type), Some(name)) = (self.events.get(event), self.names.get(event)) else {
            return ControlFlow::Continue(());
        };
        let sample = Sample { event: of_type, record };
        match self.form {
            Form::Text => self.lines.write(name, &sample, &self.context, &mut self.output.waiting),
            Form::Json => write_json(name, &sample, &self.context, &mut self.output.waiting),
        }
        self.output.write_if_much()
    }

    fn flush(&mut self) -> Flow {
        self.output.write()
    }

    fn exit(&mut self) -> Flow {
        self.output.write()
    }
}

/// Formats lines, with the state that lines depend on besides their events.
struct Lines {
    times: LineTimes,
    reader: Reader,
    /// The time of the first event.
    first: Option<u64>,
    /// The time of the event of the previous line.
    before: Option<u64>,
    /// The width of the widest task so far. All tasks are padded to this width, so that the names of the events are
    /// aligned.
    widest: usize,
    /// The text of the part of the line that is being formatted.
    part: Vec<u8>,
    calls: SystemCallText,
}

/// The style of a part of a line: the number of its ECMA-48 sequence for a terminal with colours.
#[derive(Clone, Copy)]
enum Style {
    Dim = 2,
    Bold = 1,
    Cyan = 36,
    Plain = 0,
}

/// The maximum width for tasks: a comm of 15 bytes, a slash, and a tid of 7 digits.
const WIDEST_TASK: usize = 23;

impl Lines {
    fn write(&mut self, name: &str, sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
        let (time, tid) = (sample.time(), sample.task());
        let comm = context.comm(tid, time);
        let comm = comm.as_deref().unwrap_or(UNKNOWN_COMM);
        self.write_time(time, context);
        self.put(Style::Dim, out);
        out.push(b' ');

        match tid {
            // No event says which task the span belongs to.
            -1 => self.part.push(b'-'),
            tid => {
                self.part.extend_from_slice(comm);
                put_in_one_line(&mut self.part, 0);
                // Writing to a Vec cannot fail.
                let _ = write!(self.part, "/{tid}");
            }
        }
        self.widest = self.widest.max(self.part.len()).min(WIDEST_TASK);
        let padding = self.widest.saturating_sub(self.part.len()) + 1;
        self.put(Style::Cyan, out);
        out.extend(std::iter::repeat_n(b' ', padding));

        let is_call = SystemCallText::is_system_call(sample);
        if !is_call {
            self.part.extend_from_slice(name.as_bytes());
            self.put(Style::Bold, out);
            out.extend_from_slice(b": ");
        }

        let frames = if has_callchain(sample) { frames(sample, context) } else { Vec::new() };
        let cgroup = cgroup_text(sample, context);
        let line = LineContext {
            comm: Some(comm),
            realtime: None,
            frames: &frames,
            ip: ip_frame(sample, context),
            kernel: &*context.kernel,
            registers: context.registers(),
            cgroup: cgroup.as_deref(),
        };
        match &sample.event.format {
            _ if is_call => self.calls.write(sample, &mut self.part),
            Format::Span(span) => span_text::write(span, sample, line.kernel, &mut self.part),
            _ => write_text(sample, &line, &mut self.part),
        }
        // A message from the kernel or from a program (trace_marker) may end with a line break of its own.
        if self.part.ends_with(b"\n") {
            self.part.pop();
        }
        // Only tracepoints need this, because other events show the cgroup among their members.
        if let (Some(cgroup), Some(_)) = (&cgroup, sample.event.format.tracepoint()) {
            self.part.extend_from_slice(b" cgroup=");
            self.part.extend_from_slice(cgroup);
        }
        put_in_one_line(&mut self.part, 0);
        self.part.push(b'\n');
        write_frames(&frames, &mut self.part);
        self.put(Style::Plain, out);
    }

    fn write_time(&mut self, time: u64, context: &Context) {
        let first = *self.first.get_or_insert(time);
        let before = self.before.replace(time).unwrap_or(time);
        let since = match self.times {
            LineTimes::Start => time.saturating_sub(first),
            LineTimes::Delta => time.saturating_sub(before),
            LineTimes::Clock => time,
            LineTimes::Date => match context.realtime(time) {
                Some(realtime) => return write_date(realtime, &mut self.part),
                None => time,
            },
        };
        let (seconds, micros) = (since / 1_000_000_000, since % 1_000_000_000 / 1000);
        // Writing to a Vec cannot fail.
        let _ = write!(self.part, "{seconds:>4}.{micros:06}");
    }

    /// Appends `self.part` to `out` in this style, and clears `self.part`.
    fn put(&mut self, style: Style, out: &mut Vec<u8>) {
        let colours = match (self.reader, style) {
            (Reader::Program, _) => {
                out.append(&mut self.part);
                return;
            }
            (Reader::Terminal(colours), Style::Dim | Style::Bold | Style::Cyan) => colours,
            (Reader::Terminal(_), Style::Plain) => Colours::Off,
        };
        if colours == Colours::On {
            let _ = write!(out, "\x1b[{}m", style as u8);
        }
        out.extend_from_slice(&for_terminal(&self.part));
        if colours == Colours::On {
            out.extend_from_slice(b"\x1b[0m");
        }
        self.part.clear();
    }
}
