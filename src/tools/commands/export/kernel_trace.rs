//! A trace for Perfetto. Perfetto fills tables from events of the scheduler, of tasks and of CPU counters. All other
//! events are instants on the tracks of their threads.

use std::{collections::HashMap, io, mem};

use perf_prof_events::{
    event::{Context, EventType, Names, Sample, has_callchain},
    picture::{
        perfetto::{KernelEvent, KernelTrace, Machine, Place, Switches, Task, ThreadEnds, ThreadMoment},
        timeline::Argument,
    },
};
use perf_prof_format::{tracefs::Field, value::Value};
use perf_prof_session::plan::{Input, TaskSelection};

use super::{
    Destination, Exporter, Partial,
    rows::{Datum, Row, functions, text, values},
};

/// A trace that is being written, and the kind of each event in it.
pub struct PerfettoTrace<'a> {
    trace: KernelTrace<'a, Destination>,
    kinds: Vec<Kind>,
    dating: Dating,
    tasks: SelectedTasks,
    /// The number of samples of other tasks than the selected ones.
    left_out: u64,
    /// The time of the first event.
    first: Option<u64>,
}

/// The tasks that the user selected. The trace shows only these. Switches to them, and what wakes them, are events of other
/// tasks. So the samples of all tasks are read.
#[derive(Default)]
pub struct SelectedTasks {
    pids: Option<Vec<u32>>,
    names: Names,
    is_any: bool,
    /// The last switch of each CPU.
    switches: HashMap<u32, LastSwitch>,
}

/// The last switch of a CPU.
struct LastSwitch {
    /// The task that came to the CPU.
    task: Task,
    time: u64,
    /// Whether the trace has the switch. A task may be selected only later: its name changes, or its first own event tells its
    /// cgroup.
    is_written: bool,
}

impl SelectedTasks {
    /// Returns the selected tasks, and lets `input` read the samples of all tasks.
    pub fn of(input: &mut Input) -> SelectedTasks {
        let has_ids = input.pids.is_some() || input.tids.is_some() || !input.cgroups.is_empty();
        if has_ids {
            input.tasks = TaskSelection::OfSpans;
        }
        let names = Names { comms: mem::take(&mut input.names.comms), ..Names::default() };
        let is_any = has_ids || !names.are_all();
        SelectedTasks { pids: input.pids.clone(), is_any, names, switches: HashMap::new() }
    }

    /// Returns whether tasks were selected.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Returns whether a thread is selected. `context` follows the children of processes, which the trace leaves out.
    fn has(&self, tid: i32, time: u64, context: &Context) -> bool {
        let is_named = |pid: i32| self.pids.as_ref().is_none_or(|pids| pids.contains(&pid.cast_unsigned()));
        !self.is_any
            || (context.is_target(tid)
                && (self.pids.is_none() || context.process(tid).is_some_and(is_named))
                && self.names.select_task(tid, time, context))
    }

    /// Returns whether the trace shows a thread on a CPU.
    fn shows(&self, cpu: u32, tid: i32) -> bool {
        self.switches.get(&cpu).is_some_and(|last| last.is_written && last.task.tid == tid)
    }

    /// Returns the switch to the selected thread `tid`, which is on the CPU, if the trace does not have it yet.
    fn earlier_switch(&mut self, cpu: u32, tid: i32) -> Option<(u64, KernelEvent)> {
        let last = self.switches.get_mut(&cpu).filter(|last| !last.is_written && last.task.tid == tid)?;
        last.is_written = true;
        Some((last.time, KernelEvent::Switch { prev: Task::idle(), state: 0, next: last.task.clone() }))
    }

    /// Returns an event as it concerns the selected tasks: instead of other tasks, the idle task is on the CPU. Returns `None`
    /// if it does not concern them.
    fn narrowed(&mut self, event: KernelEvent, of: Place, context: &Context) -> Option<KernelEvent> {
        if let KernelEvent::Switch { prev, state, next } = event {
            let has = |tid: i32| self.has(tid, of.time, context);
            let (has_prev, has_next) = (self.shows(of.cpu, prev.tid) || has(prev.tid), has(next.tid));
            let last = LastSwitch { task: next.clone(), time: of.time, is_written: has_next };
            let before = self.switches.insert(of.cpu, last);
            // The switch away from a task that the trace shows was not seen.
            let is_unseen = before.is_some_and(|before| before.is_written && before.task.tid != prev.tid);
            let (prev, state) = if has_prev { (prev, state) } else { (Task::idle(), 0) };
            let next = if has_next { next } else { Task::idle() };
            return (has_prev || has_next || is_unseen).then_some(KernelEvent::Switch { prev, state, next });
        }
        let has = |tid: i32| self.has(tid, of.time, context);
        match event {
            KernelEvent::Switch { .. } => None,
            KernelEvent::Waking(ref task, _)
            | KernelEvent::Wakeup(ref task, _)
            | KernelEvent::WakeupNew(ref task, _)
            | KernelEvent::NewTask { ref task, .. }
            | KernelEvent::Rename { ref task, .. } => has(task.tid).then_some(event),
            KernelEvent::Free(_) => Some(event),
            KernelEvent::Frequency { .. } | KernelEvent::Idle { .. } => has(of.tid).then_some(event),
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
        tasks: SelectedTasks,
        to: &'a mut Destination,
    ) -> io::Result<PerfettoTrace<'a>> {
        let names: Vec<String> = types.iter().map(EventType::real_name).collect();
        let kinds: Vec<Kind> = types.iter().map(|event| Kind::of(event, &names)).collect();
        let is_free = |kind: &Kind| matches!(kind, Kind::Known(Known::Free, _));
        let ends = if kinds.iter().any(is_free) { ThreadEnds::Freed } else { ThreadEnds::LeftCpu };
        let is_switch = |kind: &Kind| matches!(kind, Kind::Known(Known::Switch, _));
        let switches = if kinds.iter().any(is_switch) { Switches::Recorded } else { Switches::None };
        Ok(PerfettoTrace {
            trace: KernelTrace::new(to, machine, ends, switches)?,
            kinds,
            dating,
            tasks,
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
        let of = Place { cpu: sample.cpu(), time: sample.time(), tid: sample.task() };
        let is_selected = self.tasks.has(of.tid, of.time, context);
        self.left_out += u64::from(!is_selected);
        let is_shown = is_selected || self.tasks.shows(of.cpu, of.tid);
        let place = Place { tid: if is_shown { of.tid } else { 0 }, ..of };
        let Place { time, tid, .. } = place;
        if is_selected && let Some((time, switch)) = self.tasks.earlier_switch(of.cpu, of.tid) {
            self.known_event(switch, Place { time, tid: 0, ..of }, context)?;
        }
        let known = match self.kinds.get(event) {
            Some(Kind::Known(known, fields)) => {
                let known = Values { fields, raw: sample.raw() }.event(*known);
                if self.tasks.is_any() { self.tasks.narrowed(known, of, context) } else { Some(known) }
            }
            _ => None,
        };
        if known.is_none() && !is_selected {
            return Ok(());
        }
        self.first.get_or_insert(time);
        if self.dating == Dating::Known
            && let Some(realtime) = context.realtime(time)
        {
            self.dating = Dating::None;
            self.trace.date(time, realtime as u64)?;
        }
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

    fn finish(mut self, _: &Context, partial: Option<&Partial>) -> io::Result<()> {
        if let Some(partial) = partial {
            self.trace.partial(&partial.text(), self.first.unwrap_or(0))?;
        }
        self.trace.finish()
    }
}
