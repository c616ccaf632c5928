//! A trace for Perfetto. Perfetto fills tables from events of the scheduler, of tasks and of CPU counters. All other
//! events are instants on the tracks of their threads.

use std::io;

use perf_prof_events::{
    event::{Context, EventType, Sample, has_callchain},
    picture::{
        perfetto::{
            KernelEvent, KernelTrace, Machine, Place, Switches, Task, ThreadEnds, ThreadMoment, UNKNOWN_STATE, is_exit,
        },
        timeline::Argument,
    },
};
use perf_prof_format::value::Value;

use super::{
    Destination, Exporter, Partial,
    known_events::{Kind, Known},
    rows::{Datum, Row, functions, text, values},
    selected_tasks::SelectedTasks,
    window::Window,
};

/// A trace that is being written, and the kind of each event in it.
pub struct PerfettoTrace<'a> {
    trace: KernelTrace<'a, Destination>,
    kinds: Vec<Kind>,
    dating: Dating,
    tasks: SelectedTasks,
    /// The selected time, until it has begun.
    window: Option<Window>,
    /// The end of the selected time, if the recording goes on after it.
    end: Option<u64>,
    states: States,
    /// The number of samples of other tasks than the selected ones.
    left_out: u64,
    /// The time of the first event.
    first: Option<u64>,
}

/// What a trace shows of a recording.
pub struct Scope {
    /// The tasks that the user selected.
    pub tasks: SelectedTasks,
    /// The time that the user selected; `None` for all.
    pub window: Option<Window>,
    /// Whether the states of threads are known.
    pub states: States,
    /// Whether the recording has only the events of some tasks.
    pub of_some_tasks: bool,
}

/// Whether the states of threads are known while they are not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum States {
    Known,
    /// Some CPUs are selected or were recorded. A thread that left one of them may be on another one.
    Unknown,
}

impl States {
    /// Returns what is known of an event: of threads without known states, when they are on a CPU.
    fn known(self, event: KernelEvent) -> Option<KernelEvent> {
        match (self, event) {
            (States::Unknown, KernelEvent::Switch { prev, next, state }) if !is_exit(state) => {
                Some(KernelEvent::Switch { prev, next, state: UNKNOWN_STATE })
            }
            (
                States::Unknown,
                KernelEvent::Waking(..)
                | KernelEvent::Wakeup(..)
                | KernelEvent::WakeupNew(..)
                | KernelEvent::NewTask { .. },
            ) => None,
            (_, event) => Some(event),
        }
    }
}

/// Whether the time of day is still to be written into the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dating {
    /// The time of day is known. It is written with the first event.
    Known,
    /// The time of day is not known, or has been written.
    None,
}

impl<'a> PerfettoTrace<'a> {
    /// Writes the start of the trace.
    pub fn new(
        types: &[EventType],
        machine: Machine,
        dating: Dating,
        scope: Scope,
        to: &'a mut Destination,
    ) -> io::Result<PerfettoTrace<'a>> {
        let names: Vec<String> = types.iter().map(EventType::real_name).collect();
        let kinds: Vec<Kind> = types.iter().map(|event| Kind::of(event, &names)).collect();
        let is_free = |kind: &Kind| matches!(kind, Kind::Known(Known::Free, _));
        let ends = if kinds.iter().any(is_free) { ThreadEnds::Freed } else { ThreadEnds::LeftCpu };
        let is_switch = |kind: &Kind| matches!(kind, Kind::Known(Known::Switch, _));
        let Scope { tasks, window, states, of_some_tasks } = scope;
        let switches = match kinds.iter().any(is_switch) {
            true if of_some_tasks => Switches::OfSome,
            true => Switches::Recorded,
            false => Switches::None,
        };
        Ok(PerfettoTrace {
            trace: KernelTrace::new(to, machine, ends, switches)?,
            kinds,
            dating,
            tasks,
            end: window.as_ref().and_then(|window| window.end),
            window,
            states,
            left_out: 0,
            first: None,
        })
    }

    /// Writes the comm and the process of a thread, if they are known and were not written before.
    fn thread(&mut self, tid: i32, pid: Option<i32>, time: u64, context: &Context) -> io::Result<()> {
        // The idle task of each CPU is thread 0.
        let Some(pid) = pid.filter(|&pid| pid > 0 && tid > 0) else { return Ok(()) };
        let name = |tid| context.comm(tid, time).map(|comm| String::from_utf8_lossy(&comm).into_owned());
        let Some(comm) = name(tid) else { return Ok(()) };
        let main = name(pid).unwrap_or_else(|| comm.clone());
        self.trace.thread((tid, pid), &comm, &main, time)
    }
}

impl PerfettoTrace<'_> {
    /// Notes that the trace has an event at `time`. Writes the time of day with the first one.
    fn begin(&mut self, time: u64, context: &Context) -> io::Result<()> {
        self.first.get_or_insert(time);
        match context.realtime(time).filter(|_| self.dating == Dating::Known) {
            Some(realtime) => {
                self.dating = Dating::None;
                self.trace.date(time, realtime as u64)
            }
            None => Ok(()),
        }
    }

    /// Begins the window: the tasks that were on the CPUs before it begins are there from then on.
    fn begin_window(&mut self, context: &Context) -> io::Result<()> {
        let Some(Window { first, running, .. }) = self.window.take() else { return Ok(()) };
        for (cpu, task) in running {
            let place = Place { cpu, time: first, tid: 0 };
            let switch = KernelEvent::Switch { prev: Task::idle(), state: 0, next: task };
            if let Some(switch) = self.tasks.narrowed(switch, place, context) {
                self.begin(first, context)?;
                self.known_event(switch, place, context)?;
            }
        }
        Ok(())
    }

    /// Writes an event that fills a table, if it concerns the selected tasks.
    fn known_event(&mut self, event: KernelEvent, place: Place, context: &Context) -> io::Result<()> {
        let task = match &event {
            KernelEvent::Switch { next: task, .. } | KernelEvent::Waking(task, _) => task.tid,
            KernelEvent::Free(task) if !self.trace.knows(task.tid) && self.tasks.is_any() => return Ok(()),
            _ => place.tid,
        };
        self.thread(task, context.process(task), place.time, context)?;
        self.trace.event(place, event)
    }
}

impl Exporter for PerfettoTrace<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        self.begin_window(context)?;
        let of = Place { cpu: sample.cpu(), time: sample.time(), tid: sample.task() };
        let is_selected = self.tasks.has(of.tid, of.time, context);
        self.left_out += u64::from(!is_selected);
        let is_shown = is_selected || self.tasks.shows(of.cpu, of.tid);
        let place = Place { tid: if is_shown { of.tid } else { 0 }, ..of };
        let Place { time, tid, .. } = place;
        if is_selected && let Some((time, switch)) = self.tasks.earlier_switch(of.cpu, of.tid) {
            self.known_event(switch, Place { time, tid: 0, ..of }, context)?;
        }
        let known =
            self.kinds.get(event).and_then(|kind| kind.event(sample)).and_then(|known| self.states.known(known));
        let known = known.and_then(|known| self.tasks.narrowed(known, of, context));
        if known.is_none() && !is_selected {
            return Ok(());
        }
        self.begin(time, context)?;
        // If the thread of the event has exited, the sample contains the pid -1.
        self.thread(tid, Some(sample.pid_tid().0), time, context)?;
        let is_known = matches!(self.kinds.get(event), Some(Kind::Known(..)));
        match known {
            Some(known) => self.known_event(known, place, context)?,
            // The event is about other tasks, and shows that its own task is on the CPU.
            None if is_known => self.trace.seen(place),
            None => {}
        }
        // Perfetto's tables contain no call chains. So an event with a call chain is also written as an instant.
        if !is_selected || (is_known && !has_callchain(sample)) {
            return Ok(());
        }
        let Row { name, .. } = Row::of(sample, context);
        let argument = |(name, datum): (String, Datum<'_>)| {
            let value = match datum {
                Datum::One(Value::Int(value)) => Argument::Int(value),
                Datum::One(Value::Uint(value)) => Argument::Uint(value),
                Datum::One(Value::Bool(value)) => Argument::Bool(value),
                datum => Argument::Text(text(&datum)),
            };
            (name, value)
        };
        let arguments = values(sample).map(argument).collect();
        let stack = if has_callchain(sample) { functions(sample, context).collect() } else { Vec::new() };
        let moment = ThreadMoment { name, arguments, stack };
        if is_known { self.trace.moment_of_event(place, moment) } else { self.trace.moment(place, moment) }
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }

    fn unseen(&self) -> u64 {
        self.trace.unseen()
    }

    fn lost(&mut self) {
        self.trace.lost();
    }

    fn finish(mut self, context: &Context, partial: Option<&Partial>) -> io::Result<()> {
        self.begin_window(context)?;
        if let Some(end) = self.end {
            self.trace.leave_cpus(end)?;
        }
        if let Some(partial) = partial {
            self.trace.partial(&partial.text(), self.first.unwrap_or(0))?;
        }
        self.trace.finish()
    }
}
