//! The events of recordings from which Perfetto fills its tables.

use perf_prof_events::{
    event::{EventType, Sample},
    picture::perfetto::{KernelEvent, Task},
};
use perf_prof_format::{tracefs::Field, value::Value};

/// An event that fills a table, with its fields in the order of [`KNOWN`], or another event.
pub enum Kind {
    Known(Known, Vec<Field>),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
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
    /// Returns the kind of an event in a recording with all these events.
    pub fn of(event: &EventType, all: &[String]) -> Kind {
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

    /// Returns the event that a sample of this kind is. `None` for another event.
    pub fn event(&self, sample: &Sample<'_>) -> Option<KernelEvent> {
        let Kind::Known(known, fields) = self else { return None };
        Some(Values { fields, raw: sample.raw() }.event(*known))
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
