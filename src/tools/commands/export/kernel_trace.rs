//! A trace for Perfetto. Perfetto fills tables from events of the scheduler, of tasks and of CPU counters. All other
//! events are instants on the tracks of their threads.

use std::io;

use perf_prof_events::{
    event::{Context, EventType, Sample, has_callchain},
    picture::{
        perfetto::{KernelEvent, KernelTrace, Machine, Place, Switches, Task, ThreadEnds, ThreadMoment},
        timeline::Argument,
    },
};
use perf_prof_format::{tracefs::Field, value::Value};

use super::{
    Destination, Exporter, Partial,
    rows::{Datum, Row, functions, text, values},
};

/// A trace that is being written, and the kind of each event in it.
pub struct PerfettoTrace<'a> {
    trace: KernelTrace<'a, Destination>,
    kinds: Vec<Kind>,
    dating: Dating,
    /// The time of the first event.
    first: Option<u64>,
}

/// Whether the time of day is still to be written into the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dating {
    /// The time of day is known. It is written with the first event.
    Known,
    /// The time of day is not known, or has been written.
    None,
}

/// An event that fills a table, with its fields in the order of [`KNOWN`], or another event.
enum Kind {
    Known(Known, Vec<Field>),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Switch,
    /// A task becomes runnable.
    Waking,
    Wakeup,
    WakeupNew,
    Free,
    NewTask,
    Rename,
    Frequency,
    Idle,
}

const TASK: &[&str] = &["comm", "pid", "prio"];
const WAKEUP: &[&str] = &["comm", "pid", "prio", "target_cpu"];

/// For each event that fills a table: the name, the kind, and the names of the fields.
const KNOWN: [(&str, Known, &[&str]); 9] = [
    (
        "sched:sched_switch",
        Known::Switch,
        &["prev_comm", "prev_pid", "prev_prio", "next_comm", "next_pid", "next_prio", "prev_state"],
    ),
    ("sched:sched_waking", Known::Waking, WAKEUP),
    ("sched:sched_wakeup", Known::Wakeup, WAKEUP),
    ("sched:sched_wakeup_new", Known::WakeupNew, WAKEUP),
    ("sched:sched_process_free", Known::Free, TASK),
    ("task:task_newtask", Known::NewTask, &["comm", "pid", "clone_flags"]),
    ("task:task_rename", Known::Rename, &["newcomm", "pid", "oldcomm"]),
    ("power:cpu_frequency", Known::Frequency, &["cpu_id", "state"]),
    ("power:cpu_idle", Known::Idle, &["cpu_id", "state"]),
];

impl Kind {
    fn of(event: &EventType, all: &[String]) -> Kind {
        let name = event.real_name();
        let Some((_, known, fields)) = KNOWN.iter().find(|(of, ..)| *of == name) else { return Kind::Other };
        let has = |name: &str| all.iter().any(|of| of == name);
        // In Perfetto, a task is runnable from `sched_waking` or `task_newtask` on. If these events were not recorded,
        // the later events of the same wakeup replace them.
        let known = match known {
            Known::Wakeup if !has("sched:sched_waking") => Known::Waking,
            Known::WakeupNew if !has("task:task_newtask") => Known::Waking,
            known => *known,
        };
        let format = event.format.tracepoint();
        let fields: Option<Vec<Field>> =
            fields.iter().map(|name| format.and_then(|format| format.field(name)).cloned()).collect();
        fields.map_or(Kind::Other, |fields| Kind::Known(known, fields))
    }
}

/// The fields of an event, and the record that contains their values.
struct Values<'a> {
    fields: &'a [Field],
    raw: &'a [u8],
}

impl Values<'_> {
    fn text(&self, at: usize) -> String {
        match self.fields.get(at).and_then(|field| field.value(self.raw)) {
            Some(Value::Str(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    fn number(&self, at: usize) -> i64 {
        match self.fields.get(at).and_then(|field| field.value(self.raw)) {
            Some(Value::Int(number)) => number,
            Some(Value::Uint(number)) => number as i64,
            _ => 0,
        }
    }

    /// Returns a task. `at` is the index of the field with its comm. The next two fields are its tid and its priority.
    fn task(&self, at: usize) -> Task {
        Task { comm: self.text(at), tid: self.number(at + 1) as i32, prio: self.number(at + 2) as i32 }
    }

    fn event(&self, known: Known) -> KernelEvent {
        let (cpu, state) = (self.number(0) as u32, self.number(1) as u32);
        match known {
            Known::Switch => KernelEvent::Switch { prev: self.task(0), next: self.task(3), state: self.number(6) },
            Known::Waking => KernelEvent::Waking(self.task(0), self.number(3) as i32),
            Known::Wakeup => KernelEvent::Wakeup(self.task(0), self.number(3) as i32),
            Known::WakeupNew => KernelEvent::WakeupNew(self.task(0), self.number(3) as i32),
            Known::Free => KernelEvent::Free(self.task(0)),
            Known::NewTask => {
                let task = Task { prio: 0, ..self.task(0) };
                KernelEvent::NewTask { task, clone_flags: self.number(2) as u64 }
            }
            Known::Rename => KernelEvent::Rename { task: Task { prio: 0, ..self.task(0) }, old: self.text(2) },
            Known::Frequency => KernelEvent::Frequency { cpu, khz: state },
            Known::Idle => KernelEvent::Idle { cpu, state },
        }
    }
}

impl<'a> PerfettoTrace<'a> {
    /// Writes the start of the trace.
    pub fn new(
        types: &[EventType],
        machine: Machine,
        dating: Dating,
        to: &'a mut Destination,
    ) -> io::Result<PerfettoTrace<'a>> {
        let names: Vec<String> = types.iter().map(EventType::real_name).collect();
        let kinds: Vec<Kind> = types.iter().map(|event| Kind::of(event, &names)).collect();
        let is_free = |kind: &Kind| matches!(kind, Kind::Known(Known::Free, _));
        let ends = if kinds.iter().any(is_free) { ThreadEnds::Freed } else { ThreadEnds::LeftCpu };
        let is_switch = |kind: &Kind| matches!(kind, Kind::Known(Known::Switch, _));
        let switches = if kinds.iter().any(is_switch) { Switches::Recorded } else { Switches::None };
        Ok(PerfettoTrace { trace: KernelTrace::new(to, machine, ends, switches)?, kinds, dating, first: None })
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

impl Exporter for PerfettoTrace<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        let place = Place { cpu: sample.cpu(), time: sample.time(), tid: sample.task() };
        let (Place { time, tid, .. }, (pid, _)) = (place, sample.pid_tid());
        self.first.get_or_insert(time);
        if self.dating == Dating::Known
            && let Some(realtime) = context.realtime(time)
        {
            self.dating = Dating::None;
            self.trace.date(time, realtime as u64)?;
        }
        // If the thread of the event has exited, the sample contains the pid -1.
        self.thread(tid, Some(pid), time, context)?;
        if let Some(Kind::Known(known, fields)) = self.kinds.get(event) {
            let known = Values { fields, raw: sample.raw() }.event(*known);
            let task = match &known {
                KernelEvent::Switch { next: task, .. } | KernelEvent::Waking(task, _) => task.tid,
                _ => tid,
            };
            self.thread(task, context.process(task), time, context)?;
            self.trace.event(place, known)?;
            // Perfetto's tables contain no call chains. So an event with a call chain is also written as an instant.
            if !has_callchain(sample) {
                return Ok(());
            }
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
        match self.kinds.get(event) {
            Some(Kind::Known(..)) => self.trace.moment_of_event(place, moment),
            _ => self.trace.moment(place, moment),
        }
    }

    fn lost(&mut self) {
        self.trace.lost();
    }

    fn finish(mut self, _: &Context, partial: Option<&Partial>) -> io::Result<()> {
        if let Some(partial) = partial {
            self.trace.partial(&partial.text(), self.first.unwrap_or(0))?;
        }
        self.trace.finish()
    }
}
