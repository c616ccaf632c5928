//! How one key or value is read from an event. Names are resolved here, and nowhere else.

use std::{hash::Hasher, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};

use super::{
    input::Input,
    key::Word,
    part::{PartRead, part_names},
    stack::folded,
    texts::Texts,
};
use crate::{
    event::{EventType, Format, Frame, Sample, UNKNOWN_COMM, has_callchain},
    record::{MemberType, SampleMember},
    tracefs::{Field, IntType},
    value::Value,
};

/// How a value is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A number at the same offset in all records.
    Number {
        at: usize,
        ty: IntType,
    },
    Field(Field),
    Member(SampleMember),
    Pid,
    Tid,
    Time,
    Cpu,
    Period,
    Realtime,
    Comm,
    Event(Box<[u8]>),
    Stack,
    /// A value of the event that begins or ends a span.
    Part(PartRead),
}

/// Why a name cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The event has nothing of this name.
    Unknown,
    /// The samples of the event have no call chain.
    NoCallchain,
    /// The value is neither a number nor text nor bytes.
    Several,
}

/// What kind of value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Number,
    Text,
    Bytes,
}

/// The names of what every event has.
const OWN: [(&str, Read); 8] = [
    ("_pid", Read::Pid),
    ("_tid", Read::Tid),
    ("_time", Read::Time),
    ("_cpu", Read::Cpu),
    ("_period", Read::Period),
    ("_realtime", Read::Realtime),
    ("_comm", Read::Comm),
    ("_stack", Read::Stack),
];
/// The name of the event's name.
const EVENT: &str = "_event";
/// The name of the task of a span. Spans have the member `comm`, unless they have a field of this name.
const COMM: &str = "comm";
/// The number of names at the start of `OWN` that a field of the same name does not replace, as for event objects.
const NOT_REPLACED: usize = 4;

/// Returns how a name is read from the samples of an event.
pub(crate) fn resolve(name: &str, event: &EventType) -> Result<Read, ReadError> {
    let own = OWN.iter().position(|(own, _)| *own == name).filter(|at| OWN[*at].1 != Read::Period || has_period(event));
    let field = event.format.tracepoint().and_then(|format| format.field(name));
    match (own, field) {
        (Some(at), None) => own_read(&OWN[at].1, event),
        (Some(at), Some(_)) if at < NOT_REPLACED => own_read(&OWN[at].1, event),
        (_, Some(field)) => Ok(fixed_field(field, event).unwrap_or_else(|| Read::Field(field.clone()))),
        (None, None) if name == EVENT => Ok(Read::Event(event.shown_name().into_bytes().into())),
        (None, None) => match event.members().find(|member| member.name() == name) {
            Some(SampleMember::Callchain) => own_read(&Read::Stack, event),
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
    let own = OWN.iter().map(|(name, _)| *name).chain([EVENT]).map(str::to_owned);
    let format = event.format.tracepoint().into_iter();
    let fields = format.flat_map(|format| format.common_fields().iter().chain(format.fields()));
    let members = event.members().map(|member| member.name().to_owned());
    let parts = if let Format::Span(span) = &event.format { part_names(span) } else { Vec::new() };
    own.chain(fields.map(|field| field.name.clone())).chain(members).chain(parts).collect()
}

/// Events other than tracepoints have the member `period` instead.
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
        Read::Stack if !has_callchain(&Sample { event, record: &[] }) => return Err(ReadError::NoCallchain),
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
    // The offset of a value that is narrower than its slot is the offset of the slot only on little-endian machines.
    let is_whole = usize::from(ty.width) == field.size;
    (is_whole || cfg!(target_endian = "little")).then_some(Read::Number { at, ty })
}

impl Read {
    /// Returns the kind of the values.
    pub fn kind(&self) -> ReadKind {
        let of_field = |field: &Field| match field.kind.value_type() {
            crate::value::ValueType::Bool | crate::value::ValueType::Int => ReadKind::Number,
            crate::value::ValueType::Str => ReadKind::Text,
            crate::value::ValueType::Bytes | crate::value::ValueType::Words => ReadKind::Bytes,
        };
        match self {
            Read::Field(field) => of_field(field),
            Read::Member(member) if member.kind() == MemberType::Bytes => ReadKind::Bytes,
            Read::Comm | Read::Event(_) | Read::Stack => ReadKind::Text,
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

    /// Returns the value as a word of a key.
    #[inline]
    pub fn word(&self, input: &Input<'_>, texts: &mut Texts, memo: &mut Memo) -> Word {
        match self {
            Read::Number { at, ty } => match ty.load(input.sample.record, *at) {
                Some(number) if ty.signed => Word::signed(number as i64),
                Some(number) => Word::unsigned(number),
                None => Word::MISSING,
            },
            Read::Comm => Word::text(memo.comm(input, texts)),
            Read::Stack => Word::text(memo.stack(input, texts)),
            Read::Event(name) => Word::text(texts.intern(name)),
            Read::Part(part) => match part.of(input) {
                // The name at the begin may be an older one, which the events that follow must not get.
                Some((Read::Comm, input)) => Word::text(texts.intern(&input.comm().unwrap_or(UNKNOWN_COMM.to_vec()))),
                Some((read, input)) => read.word(&input, texts, memo),
                None => Word::MISSING,
            },
            _ => match self.value(input) {
                Some(Value::Bool(on)) => Word::unsigned(on.into()),
                Some(Value::Int(number)) => Word::signed(number),
                Some(Value::Uint(number)) => Word::unsigned(number),
                Some(Value::Str(text)) => Word::text(texts.intern(text)),
                Some(Value::Bytes(bytes) | Value::Words(bytes)) => Word::bytes(texts.intern(bytes)),
                None => Word::MISSING,
            },
        }
    }

    /// Returns whether the value is found by the names of addresses.
    pub fn needs_symbols(&self) -> bool {
        match self {
            Read::Stack => true,
            Read::Part(part) => part.reads().any(Read::needs_symbols),
            _ => false,
        }
    }

    /// Returns the text of a value that no record contains as it is; `None` for other values.
    pub fn made_text(&self, input: &Input<'_>) -> Option<Vec<u8>> {
        match self {
            Read::Comm => Some(input.comm().unwrap_or(UNKNOWN_COMM.to_vec())),
            Read::Stack => Some(folded(&input.frames()).into_bytes()),
            Read::Event(name) => Some(name.to_vec()),
            _ => None,
        }
    }

    /// Returns the value if a record contains it; `None` too if the record ends before it.
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
            Read::Number { .. } | Read::Comm | Read::Event(_) | Read::Stack | Read::Part(_) => None,
        }
    }
}

/// The maximum number of tasks and of call chains that are remembered.
const TASKS: usize = 1 << 14;
const CHAINS: usize = 1 << 14;

/// What is remembered from event to event while one table gets the events of one run, because it is costly to look up.
#[derive(Default)]
pub struct Memo {
    /// The state of the table to which the indexes of texts belong.
    generation: u64,
    /// For each thread, its name at some time.
    comms: FxHashMap<i32, KnownName>,
    /// The thread whose name was found last: the next event is often of the same.
    last: Option<(i32, KnownName)>,
    /// The latest time for which a name was looked up.
    latest: u64,
    /// For the hash of a chain's frames: the frames and the index of their text. The frames are kept, so no other frame
    /// can get their addresses.
    chains: FxHashMap<u64, (Vec<Arc<Frame>>, u32)>,
}

/// The name of a thread between two times.
#[derive(Clone, Copy)]
struct KnownName {
    /// The number of changes of task names before.
    changes: u64,
    since: u64,
    /// The end of the time. Events may be added long after they were read, so later names may be known.
    until: u64,
    text: u32,
}

impl Memo {
    /// Forgets everything if the indexes of texts have changed since.
    #[inline]
    pub(crate) fn check(&mut self, generation: u64) {
        if self.generation != generation {
            *self = Memo { generation, ..Memo::default() };
        }
    }

    fn comm(&mut self, input: &Input<'_>, texts: &mut Texts) -> u32 {
        let named = |comm: Option<Vec<u8>>, texts: &mut Texts| texts.intern(comm.as_deref().unwrap_or(UNKNOWN_COMM));
        let super::Facts::Run(context) = input.facts else { return named(input.comm(), texts) };
        let (task, time) = (input.sample.task(), input.sample.time());
        let changes = context.task_changes();
        let is_now = |known: &KnownName| known.changes == changes && (known.since..known.until).contains(&time);
        if let Some((last, known)) = &self.last
            && *last == task
            && is_now(known)
        {
            return known.text;
        }
        if let Some(known) = self.comms.get(&task)
            && is_now(known)
        {
            self.last = Some((task, *known));
            return known.text;
        }
        let (comm, until) = context.comm_until(task, time).unzip();
        // A late event may be older than the last change of the name. Those that follow are newer.
        let is_kept = comm.is_some() && time >= self.latest;
        self.latest = self.latest.max(time);
        let text = named(comm, texts);
        if is_kept {
            if self.comms.len() >= TASKS {
                self.comms.clear();
            }
            let until = until.unwrap_or(u64::MAX);
            self.comms.insert(task, KnownName { changes, since: time, until, text });
        }
        text
    }

    fn stack(&mut self, input: &Input<'_>, texts: &mut Texts) -> u32 {
        let frames = input.frames();
        let mut hasher = FxHasher::default();
        frames.iter().for_each(|frame| hasher.write_usize(Arc::as_ptr(frame) as usize));
        let hash = hasher.finish();
        if let Some((known, text)) = self.chains.get(&hash)
            && known.len() == frames.len()
            && known.iter().zip(&frames).all(|(known, frame)| Arc::ptr_eq(known, frame))
        {
            return *text;
        }
        let text = texts.intern(folded(&frames).as_bytes());
        if self.chains.len() >= CHAINS {
            self.chains.clear();
        }
        self.chains.insert(hash, (frames, text));
        text
    }
}
