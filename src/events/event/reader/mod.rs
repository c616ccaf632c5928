//! Resolves names: finds how to read the value with a given name from an event, for keys, filters, sums and columns. Only
//! this module resolves names.

mod input;
mod part;

use perf_prof_format::{
    record::{MemberType, SampleMember},
    tracefs::{Field, IntType},
    value::{Value, ValueType},
};

use super::{
    EventType, Format, Sample, UNKNOWN_COMM, has_callchain,
    stack_text::{StackDetail, folded},
};

pub use input::{Facts, Input, KeptFacts};
pub use part::PartRead;
use part::part_names;

/// How to read a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A number at the same offset in all records of the event type.
    Number {
        /// The offset in the record.
        at: usize,
        /// The type of the number.
        ty: IntType,
    },
    /// A field of a tracepoint.
    Field(Field),
    /// A member of a sample whose event is not a tracepoint.
    Member(SampleMember),
    /// The process id.
    Pid,
    /// The thread id.
    Tid,
    /// The time on the perf clock.
    Time,
    /// The CPU.
    Cpu,
    /// The period.
    Period,
    /// The time of day.
    Realtime,
    /// The name of the task.
    Comm,
    /// The path of the task's cgroup.
    Cgroup,
    /// The event's name.
    Event(Box<[u8]>),
    /// The text of the call chain.
    Stack(StackDetail),
    /// A value of the event that begins or ends a span: `begin.NAME` or `end.NAME`.
    Part(PartRead),
}

/// Why a name cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The event has no field or member with this name.
    Unknown,
    /// The samples have no call chain.
    NoCallchain,
    /// The samples have no cgroup.
    NoCgroup,
    /// The value is neither a number nor text nor bytes.
    Several,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Number,
    Text,
    Bytes,
}

/// The members that all kinds of events may have, and how to read them. An event without a period lacks `_period`, and an
/// event without a cgroup lacks `_cgroup`.
const OWN: [(&str, Read); 10] = [
    ("_pid", Read::Pid),
    ("_tid", Read::Tid),
    ("_time", Read::Time),
    ("_cpu", Read::Cpu),
    ("_period", Read::Period),
    ("_realtime", Read::Realtime),
    ("_comm", Read::Comm),
    ("_cgroup", Read::Cgroup),
    ("_stack", Read::Stack(StackDetail::Functions)),
    ("_stack_lines", Read::Stack(StackDetail::Lines)),
];
/// The member that holds the event's name.
const EVENT: &str = "_event";
/// The member that holds the name of a span's task. A span with a field named `comm` lacks this member.
const COMM: &str = "comm";
/// This many members at the start of `OWN` win over a field with the same name, as they do in event objects of scripts.
const NOT_REPLACED: usize = 4;

/// Returns how to read the value with this name from the samples of an event.
pub(crate) fn resolve(name: &str, event: &EventType) -> Result<Read, ReadError> {
    let own = OWN.iter().position(|(own, _)| *own == name).filter(|at| OWN[*at].1 != Read::Period || has_period(event));
    let field = event.format.tracepoint().and_then(|format| format.field(name));
    match (own, field) {
        (Some(at), None) => own_read(&OWN[at].1, event),
        (Some(at), Some(_)) if at < NOT_REPLACED => own_read(&OWN[at].1, event),
        (_, Some(field)) => Ok(fixed_field(field, event).unwrap_or_else(|| Read::Field(field.clone()))),
        (None, None) if name == EVENT => Ok(Read::Event(event.shown_name().into_bytes().into())),
        (None, None) => match event.members().find(|member| member.name() == name) {
            Some(SampleMember::Callchain) => own_read(&Read::Stack(StackDetail::Functions), event),
            Some(member) => match member.kind() {
                MemberType::Int => Ok(fixed_member(member, event).unwrap_or(Read::Member(member))),
                MemberType::Bytes => Ok(Read::Member(member)),
                _ => Err(ReadError::Several),
            },
            None if name == COMM && matches!(event.format, Format::Span(_)) => Ok(Read::Comm),
            None => PartRead::resolve(name, event).map_or(Err(ReadError::Unknown), |part| part.map(Read::Part)),
        },
    }
}

/// Returns all names that can be read from the samples of an event.
pub(crate) fn names(event: &EventType) -> Vec<String> {
    let is_read = |read: &Read| *read != Read::Cgroup || event.layout.has_cgroup();
    let own = OWN.iter().filter(|(_, read)| is_read(read)).map(|(name, _)| *name).chain([EVENT]).map(str::to_owned);
    let format = event.format.tracepoint().into_iter();
    let fields = format.flat_map(|format| format.common_fields().iter().chain(format.fields()));
    let members = event.members().map(|member| member.name().to_owned());
    let parts = if let Format::Span(span) = &event.format { part_names(span) } else { Vec::new() };
    own.chain(fields.map(|field| field.name.clone())).chain(members).chain(parts).collect()
}

/// Returns whether a name stands for the text of a call chain. Users may leave out the underscore.
pub fn is_stack(name: &str) -> bool {
    matches!(name.trim_start_matches('_'), "stack" | "stack_lines")
}

/// Returns whether an event has the member `_period`. Events other than tracepoints have `period` instead.
fn has_period(event: &EventType) -> bool {
    event.format.tracepoint().is_some()
}

fn own_read(read: &Read, event: &EventType) -> Result<Read, ReadError> {
    let member = match read {
        Read::Pid => SampleMember::Pid,
        Read::Tid => SampleMember::Tid,
        Read::Time => SampleMember::Time,
        Read::Cpu => SampleMember::Cpu,
        Read::Period => SampleMember::Period,
        Read::Stack(_) if !has_callchain(&Sample { event, record: &[] }) => return Err(ReadError::NoCallchain),
        Read::Cgroup if !event.layout.has_cgroup() => return Err(ReadError::NoCgroup),
        _ => return Ok(read.clone()),
    };
    Ok(fixed_member(member, event).unwrap_or_else(|| read.clone()))
}

fn fixed_member(member: SampleMember, event: &EventType) -> Option<Read> {
    let at = event.layout.fixed_offset(member)?;
    let ty = match member {
        SampleMember::Pid | SampleMember::Tid => IntType { width: 4, signed: true },
        SampleMember::Cpu => IntType { width: 4, signed: false },
        _ => IntType { width: 8, signed: false },
    };
    Some(Read::Number { at, ty })
}

fn fixed_field(field: &Field, event: &EventType) -> Option<Read> {
    let at = event.layout.raw_offset()?.checked_add(field.offset)?;
    let ty = field.number()?;
    // A value that is narrower than its field starts at the field's offset only on little-endian machines.
    let is_whole = usize::from(ty.width) == field.size;
    (is_whole || cfg!(target_endian = "little")).then_some(Read::Number { at, ty })
}

impl Read {
    /// Returns the kind of the value.
    pub(crate) fn kind(&self) -> ReadKind {
        let of_field = |field: &Field| match field.kind.value_type() {
            ValueType::Bool | ValueType::Int => ReadKind::Number,
            ValueType::Str => ReadKind::Text,
            ValueType::Bytes | ValueType::Words => ReadKind::Bytes,
        };
        match self {
            Read::Field(field) => of_field(field),
            Read::Member(member) if member.kind() == MemberType::Bytes => ReadKind::Bytes,
            Read::Comm | Read::Cgroup | Read::Event(_) | Read::Stack(_) => ReadKind::Text,
            Read::Part(part) => part.kind(),
            _ => ReadKind::Number,
        }
    }

    /// Returns the value as a number; `None` if the record ends before it.
    #[inline]
    pub fn number(&self, input: &Input<'_>) -> Option<i128> {
        match self {
            Read::Number { at, ty } => {
                let number = ty.load(input.sample.record, *at)?;
                Some(if ty.signed { i128::from(number as i64) } else { number.into() })
            }
            Read::Part(part) => part.of(input).and_then(|(read, input)| read.number(&input)),
            _ => match self.value(input)? {
                Value::Bool(on) => Some(on.into()),
                Value::Int(number) => Some(number.into()),
                Value::Uint(number) => Some(number.into()),
                Value::Str(_) | Value::Bytes(_) | Value::Words(_) => None,
            },
        }
    }

    /// Returns whether reading the value needs the functions of addresses.
    pub fn needs_symbols(&self) -> bool {
        match self {
            Read::Stack(_) => true,
            Read::Part(part) => part.reads().any(Read::needs_symbols),
            _ => false,
        }
    }

    /// Returns the value if it is a text that the record does not contain. Returns `None` for any other value.
    pub fn made_text(&self, input: &Input<'_>) -> Option<Vec<u8>> {
        match self {
            Read::Comm => Some(input.comm().unwrap_or(UNKNOWN_COMM.to_vec())),
            Read::Cgroup => Some(input.cgroup()),
            Read::Stack(detail) => Some(folded(&input.frames(), *detail).into_bytes()),
            Read::Event(name) => Some(name.to_vec()),
            _ => None,
        }
    }

    /// Returns the value if the record contains it. Returns `None` if it does not, or if the record ends before the value.
    #[inline]
    pub fn value<'a>(&self, input: &Input<'a>) -> Option<Value<'a>> {
        let sample = &input.sample;
        match self {
            Read::Field(field) => sample.field(field),
            Read::Member(member) => sample.event.layout.value(*member, sample.record),
            Read::Pid => Some(Value::Int(sample.pid_tid().0.into())),
            Read::Tid => Some(Value::Int(sample.pid_tid().1.into())),
            Read::Time => Some(Value::Uint(sample.time())),
            Read::Cpu => Some(Value::Uint(sample.cpu().into())),
            Read::Period => Some(Value::Uint(sample.period())),
            Read::Realtime => input.realtime().map(Value::Int),
            Read::Number { .. } | Read::Comm | Read::Cgroup | Read::Event(_) | Read::Stack(_) | Read::Part(_) => None,
        }
    }
}
