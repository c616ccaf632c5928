//! The events that cause dumps. A live run in a thread of its own receives them, and its sink asks for a dump at each
//! event.

use std::{ops::ControlFlow, sync::Arc, thread::JoinHandle, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use perf_prof_events::event::{
    Context, Deliver, EventType, Flow, Format, LineContext, Sample, Sink, UNKNOWN_COMM, write_text,
};
use perf_prof_format::value::Value;
use perf_prof_system::{
    output, own_threads,
    signals::{EndRequests, Signals},
};

use super::{
    request::{Asking, Origin, Request},
    trigger_event::Trigger,
};
use crate::{
    plan::{Draft, RunPlan},
    spine::{About, Chosen, Slice},
};

/// For how long the last events are delivered when the recorder ends.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// A run whose events cause dumps.
#[derive(Debug)]
pub struct Triggers {
    end: Arc<EndRequests>,
    /// Starts the events.
    start: Sender<()>,
    /// Receives a message when the events are on.
    begun: Receiver<()>,
    /// Its sender is dropped when the run is over.
    over: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Triggers {
    /// Opens the events of `draft`. From [`Triggers::start`] on, the run asks for a dump at each event.
    pub fn open(draft: Draft, asking: Asking) -> Result<Triggers> {
        let plan = draft.checked().map_err(|error| anyhow!("--trigger: {}", error.message(|_| "a target option")))?;
        let end = Arc::new(EndRequests::new()?);
        let (start, started) = bounded(1);
        let (tell, told) = bounded(1);
        let (begin, begun) = bounded(1);
        let (running, over) = bounded::<()>(0);
        let of_program = Signals::of_program(Arc::clone(&end));
        let body = move || {
            let _running = running;
            run(&plan, &of_program, (&tell, &started), |about| TriggerSink::new(about, asking, begin));
        };
        let thread = own_threads::spawn("perf-prof-triggers", body).context("--trigger")?;
        let opened = told.recv().unwrap_or_else(|_| Err(anyhow!("its thread ended")));
        opened.context("--trigger")?;
        Ok(Triggers { end, start, begun, over, thread: Some(thread) })
    }

    /// Starts the events, and returns when they are on. If they cannot be started, this was printed.
    pub fn start(&self) {
        let _ = self.start.send(());
        let _ = self.begun.recv();
    }
}

impl Drop for Triggers {
    fn drop(&mut self) {
        // The last events that the kernel recorded are still delivered, and may ask for a dump. Very many would take too long.
        self.end.end();
        // If the thread still waits for its start, it ends when this sender is dropped.
        self.start = bounded(0).0;
        if self.over.recv_timeout(LAST_EVENTS) == Err(RecvTimeoutError::Timeout) {
            self.end.end_now();
        }
        if let Some(thread) = self.thread.take() {
            // A panicked thread has already printed why.
            let _ = thread.join();
        }
    }
}

/// Opens the events, reports whether this succeeded, and delivers them until something ends the run.
fn run(
    plan: &RunPlan,
    signals: &Signals,
    (tell, started): (&Sender<Result<()>>, &Receiver<()>),
    sink: impl FnOnce(&Arc<About>) -> TriggerSink,
) {
    let opened = Chosen::select(plan).and_then(Chosen::arm).and_then(|armed| armed.open(Slice::Whole, signals));
    let session = match opened {
        Ok(session) => session,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    if started.recv().is_err() {
        session.abandon().close();
        return;
    }
    let mut sink = sink(session.about());
    let mut outcome = session.run(&mut sink, signals);
    std::mem::take(&mut outcome.closing).close();
    if let Err(error) = outcome.report(plan) {
        output::say(format_args!("--trigger: {error:#}; events cause no more dumps"));
    }
}

/// A sink that asks for a dump at each event.
struct TriggerSink {
    events: Vec<EventType>,
    names: Vec<String>,
    context: Arc<Context>,
    asking: Asking,
    begin: Sender<()>,
}

impl TriggerSink {
    fn new(about: &Arc<About>, asking: Asking, begin: Sender<()>) -> TriggerSink {
        let names = about.events.iter().map(EventType::shown_name).collect();
        TriggerSink { events: about.events.clone(), names, context: about.context.clone(), asking, begin }
    }

    fn text(&self, sample: &Sample<'_>) -> String {
        let comm = self.context.comm(sample.task(), sample.time());
        let line = LineContext {
            comm: comm.as_deref(),
            realtime: None,
            frames: &[],
            ip: None,
            kernel: &*self.context.kernel,
            registers: self.context.registers(),
            cgroup: None,
        };
        let mut text = Vec::new();
        text.extend_from_slice(comm.as_deref().unwrap_or(UNKNOWN_COMM));
        text.extend_from_slice(format!("/{} ", sample.task()).as_bytes());
        write_text(sample, &line, &mut text);
        String::from_utf8_lossy(&text).trim_end().to_owned()
    }
}

/// Returns the name of the system call if this is an event of the source `syscall`.
fn system_call(sample: &Sample<'_>) -> Option<String> {
    let Format::Span(span) = &sample.event.format else { return None };
    if !span.is_source() || span.format.name != "syscall" {
        return None;
    }
    match sample.field(span.format.field("name")?) {
        Some(Value::Str(name)) => Some(String::from_utf8_lossy(name).into_owned()),
        _ => None,
    }
}

impl Sink for TriggerSink {
    fn begin(&mut self) {
        let _ = self.begin.send(());
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

impl Deliver for TriggerSink {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        if let (Some(of_type), Some(name)) = (self.events.get(event), self.names.get(event)) {
            let sample = Sample { event: of_type, record };
            let (pid, tid) = sample.pid_tid();
            let trigger = Trigger {
                reason: system_call(&sample).unwrap_or_else(|| name.clone()),
                event: self.text(&sample),
                time: sample.time(),
                task: (pid as u32, tid as u32),
                cpu: sample.cpu(),
            };
            self.asking.send(Request { origin: Origin::Event(trigger), path: None, reply: None });
        }
        ControlFlow::Continue(())
    }
}
