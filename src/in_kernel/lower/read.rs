//! The values that keys and sums read from an event.

use perf_prof_events::event::{EventType, StackDetail, reader::Read};
use perf_prof_format::{
    record::SampleMember,
    tracefs::{EventFormat, Extent, Field, FieldKind, IntType},
    value::ValueType,
};

use super::{Part, PidNamespace, Unsuited};
use crate::expression::{Number, Text};

/// The maximum size of a tracepoint's record that programs can read: the kernel's `PERF_MAX_TRACE_SIZE`.
const MAX_RECORD: usize = 8192;

/// Makes expressions of fields and members of an event.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub event: &'a EventType,
    pub format: &'a EventFormat,
    pub ids: PidNamespace,
}

impl Reader<'_> {
    /// Returns a part of a key. `name` appears in errors.
    pub fn part(&self, read: &Read, name: &str) -> Result<Part, Unsuited> {
        match read {
            Read::Comm => Ok(Part::Text(Text::Comm)),
            Read::Stack(StackDetail::Functions) => Ok(Part::Chain),
            Read::Event(name) => Ok(Part::Constant(name.clone())),
            Read::Field(field) => match field.kind {
                FieldKind::Bool | FieldKind::Int { .. } | FieldKind::Pointer => {
                    self.number(read, name).map(Part::Number)
                }
                FieldKind::NumberIfKnown => Err(Unsuited::Member(name.to_owned())),
                FieldKind::Array(_) | FieldKind::DataLoc(_) | FieldKind::RelLoc(_) => self.array(field),
            },
            _ => self.number(read, name).map(Part::Number),
        }
    }

    /// Returns a number. `name` appears in errors.
    pub fn number(&self, read: &Read, name: &str) -> Result<Number, Unsuited> {
        let unknown = || Unsuited::Member(name.to_owned());
        match read {
            Read::Number { at, ty } => match self.event.layout.raw_offset() {
                Some(raw) if *at >= raw => self.field(at - raw, *ty),
                _ => self.member(*at).ok_or_else(unknown)?,
            },
            Read::Field(field) if field.kind == FieldKind::Bool => self.bool(field),
            Read::Field(field) => {
                let ty = field.number().ok_or_else(unknown)?;
                self.integer(field.offset, ty, field.size)
            }
            Read::Pid => self.id(Number::Process),
            Read::Tid => self.id(Number::Thread),
            Read::Cpu => Ok(Number::Cpu),
            _ => Err(unknown()),
        }
    }

    /// Returns the number at an offset of the tracepoint's data.
    pub fn field(&self, offset: usize, ty: IntType) -> Result<Number, Unsuited> {
        let name = || {
            let field = self.format.fields().iter().find(|field| field.offset == offset);
            field.map_or_else(|| offset.to_string(), |field| field.name.clone())
        };
        if let Some(common) = self.format.common_fields().iter().find(|field| field.offset == offset) {
            return match common.name.as_str() {
                // The field contains the id in the initial PID namespace, whatever namespace perf-prof runs in.
                "common_pid" => Ok(Number::Thread),
                "common_type" => Ok(Number::Constant(self.format.id.into())),
                name => Err(Unsuited::CommonField(name.to_owned())),
            };
        }
        let width = usize::from(ty.width);
        let is_loadable = offset.is_multiple_of(width) && [1, 2, 4, 8].contains(&width) && offset + width <= MAX_RECORD;
        if is_loadable { Ok(Number::Field { offset: offset as i16, ty }) } else { Err(Unsuited::Place(name())) }
    }

    /// Returns a number that can be narrower than its field.
    fn integer(&self, offset: usize, ty: IntType, size: usize) -> Result<Number, Unsuited> {
        let is_at_start = usize::from(ty.width) == size || cfg!(target_endian = "little");
        if is_at_start { self.field(offset, ty) } else { Err(Unsuited::Place(offset.to_string())) }
    }

    fn bool(&self, field: &Field) -> Result<Number, Unsuited> {
        match self.field(field.offset, IntType { width: 1, signed: false })? {
            Number::Field { offset, .. } => Ok(Number::Bool { offset }),
            number => Ok(number),
        }
    }

    fn array(&self, field: &Field) -> Result<Part, Unsuited> {
        let Some(from) = fixed(field.extent()) else { return Err(Unsuited::Length(field.name.clone())) };
        if field.kind.value_type() == ValueType::Words {
            return Err(Unsuited::Place(field.name.clone()));
        }
        Ok(if field.kind.is_text() { Part::Text(from) } else { Part::Bytes { from, size: field.size } })
    }

    /// Returns the expression for the sample member at this offset; `None` if programs do not know this member.
    fn member(&self, at: usize) -> Option<Result<Number, Unsuited>> {
        let is = |member| self.event.layout.fixed_offset(member) == Some(at);
        match () {
            () if is(SampleMember::Pid) => Some(self.id(Number::Process)),
            () if is(SampleMember::Tid) => Some(self.id(Number::Thread)),
            () if is(SampleMember::Cpu) => Some(Ok(Number::Cpu)),
            () => None,
        }
    }

    fn id(&self, number: Number) -> Result<Number, Unsuited> {
        match self.ids {
            PidNamespace::First => Ok(number),
            PidNamespace::Other => Err(Unsuited::PidNamespace),
        }
    }
}

/// Returns the text at a fixed place; `None` if the place varies.
pub(super) fn fixed(extent: Option<Extent>) -> Option<Text> {
    match extent {
        Some(Extent::Fixed { offset, size }) if offset + size <= MAX_RECORD => {
            Some(Text::Field { offset: offset as i16, size })
        }
        _ => None,
    }
}
