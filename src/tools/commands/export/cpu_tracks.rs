//! A timeline of a recording: the tasks on each CPU, the states of threads, and all other events as moments of their
//! threads.

use std::{collections::HashMap, io};

use perf_prof_events::{
    event::{Context, EventType, Sample, has_callchain},
    picture::{
        perfetto,
        timeline::{Argument, Shape, Timeline, TimelineError, TrackId},
    },
};
use perf_prof_format::{tracefs::Field, value::Value};

use super::{
    Destination, Exporter,
    rows::{Datum, Row, functions, text, values},
};

/// The timeline, and the current state of CPUs and threads.
pub struct CpuTracks<'a> {
    timeline: Timeline,
    to: &'a mut Destination,
    kinds: Vec<Kind>,
    /// The task on each CPU, with the time of the switch to it.
    running: HashMap<u32, Switched>,
    /// The state of each thread, with the time at which the state began.
    states: HashMap<i32, State>,
    /// The last name of each thread, and its track.
    threads: HashMap<i32, Thread>,
    last: u64,
}

/// The state of a thread that has a CPU.
const RUNNING: &str = "running";

/// The events that are interpreted: they change the states of tasks.
enum Kind {
    /// `sched:sched_switch`.
    Switch(Box<SwitchFields>),
    /// A wake-up of a task.
    Wakeup {
        comm: Field,
        pid: Field,
    },
    Other,
}

/// The fields of `sched:sched_switch`.
struct SwitchFields {
    prev_comm: Field,
    prev_pid: Field,
    prev_state: Field,
    next_comm: Field,
    next_pid: Field,
}

#[derive(Default)]
struct Thread {
    comm: String,
    track: Option<TrackId>,
}

struct Switched {
    comm: String,
    tid: i32,
    since: u64,
}

struct State {
    name: &'static str,
    since: u64,
    /// The functions that were called at the start, outermost first.
    stack: Vec<String>,
}

impl Kind {
    fn of(event: &EventType) -> Kind {
        let field = |name: &str| event.format.tracepoint().and_then(|format| format.field(name)).cloned();
        let switch = || {
            Some(Kind::Switch(Box::new(SwitchFields {
                prev_comm: field("prev_comm")?,
                prev_pid: field("prev_pid")?,
                prev_state: field("prev_state")?,
                next_comm: field("next_comm")?,
                next_pid: field("next_pid")?,
            })))
        };
        let wakeup = || Some(Kind::Wakeup { comm: field("comm")?, pid: field("pid")? });
        match event.real_name().as_str() {
            "sched:sched_switch" => switch(),
            "sched:sched_wakeup" | "sched:sched_wakeup_new" => wakeup(),
            _ => None,
        }
        .unwrap_or(Kind::Other)
    }
}

impl<'a> CpuTracks<'a> {
    pub fn new(types: &[EventType], to: &'a mut Destination) -> CpuTracks<'a> {
        CpuTracks {
            timeline: Timeline::default(),
            to,
            kinds: types.iter().map(Kind::of).collect(),
            running: HashMap::new(),
            states: HashMap::new(),
            threads: HashMap::new(),
            last: 0,
        }
    }

    /// The task of a CPU has changed.
    fn switched(&mut self, cpu: u32, time: u64, next: Option<(String, i32)>) -> Result<(), TimelineError> {
        let next = next.map(|(comm, tid)| Switched { comm, tid, since: time });
        let before = match next {
            Some(next) => self.running.insert(cpu, next),
            None => self.running.remove(&cpu),
        };
        // The idle task gets no slice.
        let Some(Switched { comm, tid, since }) = before.filter(|task| task.tid != 0) else { return Ok(()) };
        let parent = self.timeline.track("CPUs", None)?;
        let track = self.timeline.track(&format!("CPU {cpu}"), Some(parent))?;
        let arguments = vec![("tid".to_owned(), Argument::Int(tid.into()))];
        self.timeline.add(track, Some(&comm), since, Shape::Slice(time.saturating_sub(since)), arguments)?;
        Ok(())
    }

    /// A thread is in this state from now on; `None` if the recording ends.
    fn state(&mut self, tid: i32, time: u64, state: Option<State>) -> Result<(), TimelineError> {
        let before = match state {
            Some(state) => self.states.insert(tid, state),
            None => self.states.remove(&tid),
        };
        let Some(State { name, since, stack }) = before.filter(|_| tid != 0) else { return Ok(()) };
        let track = self.thread(tid)?;
        let shape = Shape::Slice(time.saturating_sub(since));
        let slice = self.timeline.add(track, Some(name), since, shape, Vec::new())?;
        self.timeline.set_stack(slice, stack.iter().map(String::as_str))
    }

    /// Returns the track of a thread. It has the thread's id as its name until the thread's last name is known.
    fn thread(&mut self, tid: i32) -> Result<TrackId, TimelineError> {
        let thread = self.threads.entry(tid).or_default();
        match thread.track {
            Some(track) => Ok(track),
            None => {
                let parent = self.timeline.track("threads", None)?;
                Ok(*thread.track.insert(self.timeline.track(&tid.to_string(), Some(parent))?))
            }
        }
    }

    fn named(&mut self, tid: i32, comm: String) {
        self.threads.entry(tid).or_default().comm = comm;
    }

    fn add(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> Result<(), TimelineError> {
        let (time, cpu, raw) = (sample.time(), sample.cpu(), sample.raw());
        self.last = self.last.max(time);
        let string = |field: &Field| match field.value(raw) {
            Some(Value::Str(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let number = |field: &Field| match field.value(raw) {
            Some(Value::Int(number)) => number,
            Some(Value::Uint(number)) => number as i64,
            _ => 0,
        };
        match self.kinds.get(event) {
            Some(Kind::Switch(fields)) => {
                let SwitchFields { prev_comm, prev_pid, prev_state, next_comm, next_pid } = &**fields;
                let (prev, state) = (number(prev_pid) as i32, number(prev_state));
                let (prev_comm, next) = (string(prev_comm), (string(next_comm), number(next_pid) as i32));
                self.named(prev, prev_comm);
                self.named(next.1, next.0.clone());
                let tid = next.1;
                self.switched(cpu, time, Some(next))?;
                let stack = if has_callchain(sample) { functions(sample, context).collect() } else { Vec::new() };
                self.state(prev, time, Some(State { name: state_name(state), since: time, stack }))?;
                self.state(tid, time, Some(State { name: RUNNING, since: time, stack: Vec::new() }))
            }
            Some(Kind::Wakeup { comm, pid }) => {
                let (comm, tid) = (string(comm), number(pid) as i32);
                self.named(tid, comm);
                // A task that is about to sleep may be woken before it leaves its CPU.
                if self.states.get(&tid).is_some_and(|state| state.name == RUNNING) {
                    return Ok(());
                }
                self.state(tid, time, Some(State { name: "runnable", since: time, stack: Vec::new() }))
            }
            _ => self.moment(sample, context),
        }
    }

    /// Adds an event as a moment of its thread.
    fn moment(&mut self, sample: &Sample<'_>, context: &Context) -> Result<(), TimelineError> {
        let Row { name, time, tid, comm, .. } = Row::of(sample, context);
        if let Some(comm) = comm {
            self.named(tid, comm);
        }
        // A recording of single tasks has no switches to them, because these happen in other tasks.
        if self.states.get(&tid).is_some_and(|state| state.name != RUNNING) {
            self.state(tid, time, Some(State { name: RUNNING, since: time, stack: Vec::new() }))?;
        }
        let track = self.thread(tid)?;
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
        let entry = self.timeline.add(track, Some(&name), time, Shape::Instant, arguments)?;
        if has_callchain(sample) {
            let functions: Vec<String> = functions(sample, context).collect();
            self.timeline.set_stack(entry, functions.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// Returns the name of the state in which a task leaves the CPU. The bits are those of `__TASK_STATE` in
/// `include/linux/sched.h`, as `sched:sched_switch` reports them.
fn state_name(state: i64) -> &'static str {
    match state & 0xff {
        0 => "preempted",
        bits if bits & 0x1 != 0 => "sleeping",
        bits if bits & 0x2 != 0 => "uninterruptible sleep",
        bits if bits & 0x4 != 0 => "stopped",
        bits if bits & 0x8 != 0 => "traced",
        bits if bits & 0x10 != 0 => "dead",
        bits if bits & 0x20 != 0 => "zombie",
        bits if bits & 0x40 != 0 => "parked",
        _ => "idle",
    }
}

impl Exporter for CpuTracks<'_> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        self.add(event, sample, context).map_err(io::Error::other)
    }

    fn finish(mut self) -> io::Result<()> {
        let (mut cpus, mut tids): (Vec<u32>, Vec<i32>) =
            (self.running.keys().copied().collect(), self.states.keys().copied().collect());
        cpus.sort_unstable();
        tids.sort_unstable();
        cpus.into_iter().try_for_each(|cpu| self.switched(cpu, self.last, None)).map_err(io::Error::other)?;
        tids.into_iter().try_for_each(|tid| self.state(tid, self.last, None)).map_err(io::Error::other)?;
        for (tid, Thread { comm, track }) in &self.threads {
            if let (Some(track), false) = (track, comm.is_empty()) {
                self.timeline.rename(*track, &format!("{comm} {tid}")).map_err(io::Error::other)?;
            }
        }
        perfetto::write(&self.timeline, self.to)
    }
}
