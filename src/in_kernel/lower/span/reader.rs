//! The values of spans that keys, sums and filters read. The values come from the event that ends the span, or are kept
//! from the event that began the span.

use std::sync::Arc;

use perf_prof_events::event::{
    Context, EventType, SpanFieldAt, SpanFieldKind, SpanFieldSource, SpanFormat, SpanOrigin, SpanPart, SpanTask,
    reader::Read,
};
use perf_prof_format::{
    record::SampleMember,
    tracefs::{Extent, FilterData, IntType, TextComparison},
};

use super::{COMM, DURATION, ERROR, FIRST_KEPT, LAST_KEPT, LoweredTask, OPEN_KEY, UNKNOWN_TASK, step::of_field};
use crate::{
    expression::{Number, Sign, Test, Text},
    lower::{
        Names, Part, Unsuited,
        filter::{self, Compared},
        named::Numbers,
        read::{Reader, fixed},
    },
};

/// Reads values of spans. `kept` collects the values that the program of the begin has to keep.
pub(super) struct SpanReader<'a> {
    pub event: &'a EventType,
    pub format: &'a Arc<SpanFormat>,
    /// The events that begin spans, each with its index.
    pub begin: Vec<(usize, Reader<'a>)>,
    /// The event that ends spans, with its index.
    pub end: (usize, Reader<'a>),
    pub kept: Vec<Part>,
    /// Knows the names of addresses. `None` if the run has no context.
    pub context: Option<&'a Arc<Context>>,
    /// What the program of the end puts on the stack for filters of spans.
    pub for_filters: ForFilters,
}

/// What a program puts on the stack for filters of spans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForFilters {
    Nothing,
    /// The name of the task, and the error number.
    CommAndError,
}

impl<'a> SpanReader<'a> {
    /// Returns a part of a key. `name` appears in errors.
    pub fn part(&mut self, read: &Read, name: &str) -> Result<Part, Unsuited> {
        match read {
            Read::Part(part) => match part.of_input(self.end.0) {
                (SpanPart::Begin, _) => {
                    let (input, reader) = self.only_begin()?;
                    let read = part.of_input(input).1.ok_or_else(|| Unsuited::Member(name.to_owned()))?;
                    let part = reader.part(read, name)?;
                    self.keep(without_chain(part, name)?)
                }
                (SpanPart::End, Some(read)) => without_chain(self.end.1.part(read, name)?, name),
                (SpanPart::End, None) => Err(Unsuited::Member(name.to_owned())),
            },
            Read::Comm => self.comm(name),
            Read::Event(_) => self.end.1.part(read, name),
            Read::Field(field) if field.kind.is_text() => self.field(field.offset, name),
            _ => self.number(read, name).map(Part::Number),
        }
    }

    /// Returns a number. `name` appears in errors.
    pub fn number(&mut self, read: &Read, name: &str) -> Result<Number, Unsuited> {
        let part = match read {
            Read::Number { at, ty } => match self.event.layout.raw_offset() {
                Some(raw) if *at >= raw => self.number_at(at - raw, *ty, name).map(Part::Number)?,
                _ => Part::Number(self.member(*at, read, name)?),
            },
            Read::Field(field) => self.field(field.offset, name)?,
            Read::Part(_) => self.part(read, name)?,
            Read::Tid => Part::Number(self.task()?.thread),
            Read::Pid => Part::Number(self.process(name)?),
            _ => Part::Number(self.end.1.number(read, name)?),
        };
        if let Part::Number(number) = part { Ok(number) } else { Err(Unsuited::Member(name.to_owned())) }
    }

    /// Returns the number for a member of the span's sample: an id of its task, or the CPU of its end.
    fn member(&mut self, at: usize, read: &Read, name: &str) -> Result<Number, Unsuited> {
        let is = |member| self.event.layout.fixed_offset(member) == Some(at);
        match () {
            () if is(SampleMember::Tid) => Ok(self.task()?.thread),
            () if is(SampleMember::Pid) => self.process(name),
            () => Reader { event: self.event, ..self.end.1 }.number(read, name),
        }
    }

    fn process(&mut self, name: &str) -> Result<Number, Unsuited> {
        self.task()?.process.ok_or_else(|| Unsuited::Member(name.to_owned()))
    }

    /// Returns the task of the span.
    pub fn task(&mut self) -> Result<LoweredTask, Unsuited> {
        let of = |reader: Reader<'_>| -> Result<[Number; 2], Unsuited> {
            Ok([reader.number(&Read::Pid, "_pid")?, reader.number(&Read::Tid, "_tid")?])
        };
        match self.format.task {
            SpanTask::OfEnd | SpanTask::Interrupted | SpanTask::OfEndOrKey => {
                let [process, thread] = of(self.end.1)?;
                Ok(LoweredTask { process: Some(process), thread })
            }
            SpanTask::OfBegin | SpanTask::OfBeginOrKey => {
                let [process, thread] = of(self.only_begin()?.1)?;
                let (process, thread) = (self.keep_number(process)?, self.keep_number(thread)?);
                Ok(LoweredTask { process: Some(process), thread })
            }
            SpanTask::OfKey => Ok(LoweredTask { process: None, thread: key_part(0, Sign::Signed) }),
            SpanTask::OfNoted(_) | SpanTask::Computed(_) => Err(UNKNOWN_TASK),
        }
    }

    /// Returns the name of the span's task.
    fn comm(&mut self, name: &str) -> Result<Part, Unsuited> {
        if let SpanTask::OfEnd | SpanTask::Interrupted | SpanTask::OfEndOrKey = self.format.task {
            return self.end.1.part(&Read::Comm, name);
        }
        // The task of the span does not run when the span ends, so its name comes from a field.
        let field = self.format.format.field("comm").ok_or_else(|| Unsuited::Member(name.to_owned()))?;
        self.field(field.offset, name)
    }

    /// Returns the event that begins spans. Fails if there are several.
    fn only_begin(&self) -> Result<(usize, Reader<'a>), Unsuited> {
        match self.begin.as_slice() {
            &[begin] => Ok(begin),
            _ => Err(Unsuited::Spans("several events begin its spans")),
        }
    }

    /// Returns the number at an offset in the raw data of the span.
    fn number_at(&mut self, offset: usize, ty: IntType, name: &str) -> Result<Number, Unsuited> {
        if self.format.format.common_fields().iter().any(|field| field.offset == offset) {
            return self.end.1.field(offset, ty);
        }
        match self.field(offset, name)? {
            Part::Number(number) => Ok(number),
            _ => Err(Unsuited::Member(name.to_owned())),
        }
    }

    /// Returns the value of the field at an offset in the raw data of the span.
    fn field(&mut self, offset: usize, name: &str) -> Result<Part, Unsuited> {
        let unknown = || Unsuited::Member(name.to_owned());
        let at = match self.format.field_at(offset).ok_or_else(unknown)? {
            SpanFieldAt::Duration => return Ok(Part::Number(DURATION)),
            SpanFieldAt::Open => return Ok(Part::Number(Number::Constant(0))),
            SpanFieldAt::Field(at) => at,
        };
        let field = self.format.fields.get(at).ok_or_else(unknown)?;
        let (number, numbers) = match (&field.source, field.origin) {
            (SpanFieldSource::Begin(fields), _) => {
                let (input, reader) = self.only_begin()?;
                let field = fields.get(input).and_then(Option::as_ref).ok_or_else(unknown)?;
                let part = reader.part(&Read::Field(field.clone()), name)?;
                return self.keep(part);
            }
            (SpanFieldSource::Computed(_), Some(SpanOrigin::Comm)) => return Ok(Part::Text(Text::Comm)),
            (SpanFieldSource::Computed(_), Some(SpanOrigin::Key(part))) => (
                key_part(part, if field.kind == SpanFieldKind::Address { Sign::Unsigned } else { Sign::Signed }),
                Numbers::Few,
            ),
            (SpanFieldSource::Computed(_), Some(SpanOrigin::Begin(name))) => {
                let reader = self.only_begin()?.1;
                let number = of_field(reader, reader.format.field(name).ok_or_else(unknown)?)?;
                (self.keep_number(number)?, Numbers::Addresses)
            }
            (SpanFieldSource::Computed(_), Some(SpanOrigin::End(name))) => {
                let field = self.end.1.format.field(name).ok_or_else(unknown)?;
                if field.kind.is_text() {
                    return self.end.1.part(&Read::Field(field.clone()), name);
                }
                (of_field(self.end.1, field)?, Numbers::Few)
            }
            (SpanFieldSource::Computed(_), Some(SpanOrigin::EndBits(name, bits))) => {
                (bits_of(self.end.1, name, bits)?, Numbers::UpTo(bits))
            }
            (SpanFieldSource::Computed(_), Some(SpanOrigin::BeginBits(name, bits))) => {
                let number = bits_of(self.only_begin()?.1, name, bits)?;
                (self.keep_number(number)?, Numbers::UpTo(bits))
            }
            (SpanFieldSource::Computed(_), Some(SpanOrigin::Error(_)))
                if self.for_filters == ForFilters::CommAndError =>
            {
                (ERROR, Numbers::Few)
            }
            (SpanFieldSource::Computed(_), _) => return Err(unknown()),
        };
        if field.kind == SpanFieldKind::Text {
            let names = Names::new(self.format, at, numbers, self.context);
            return Ok(Part::Named { number, names });
        }
        Ok(Part::Number(number))
    }

    fn keep_number(&mut self, number: Number) -> Result<Number, Unsuited> {
        match self.keep(Part::Number(number))? {
            Part::Number(number) => Ok(number),
            _ => Ok(number),
        }
    }

    /// Keeps a value of the event that begins a span. Returns how the program of the end reads it.
    fn keep(&mut self, part: Part) -> Result<Part, Unsuited> {
        let of = |parts: &[Part]| parts.iter().map(Part::bytes).sum::<usize>();
        let at = self.kept.iter().position(|kept| *kept == part).unwrap_or(self.kept.len());
        let offset = FIRST_KEPT + of(&self.kept[..at]) as i16;
        if offset as isize + part.bytes() as isize > LAST_KEPT.into() {
            return Err(Unsuited::Spans("too many values of the event that begins a span would have to be kept"));
        }
        let text = |text: Text| Text::Kept { offset, size: text.bytes() };
        let kept = match &part {
            Part::Constant(_) | Part::Chain | Part::Named { .. } | Part::Number(Number::Constant(_)) => {
                return Ok(part);
            }
            Part::Number(number) => {
                Part::Number(Number::Kept { offset, is_signed: number.is_signed(), is_wide: number.is_wide() })
            }
            Part::Text(of) => Part::Text(text(*of)),
            Part::Bytes { from, size } => Part::Bytes { from: text(*from), size: *size },
        };
        if at == self.kept.len() {
            self.kept.push(part);
        }
        Ok(kept)
    }
}

/// Returns a part of the span's key. The program of the end has the key on the stack.
fn key_part(part: usize, sign: Sign) -> Number {
    Number::Kept { offset: OPEN_KEY + 8 * part as i16, is_signed: sign == Sign::Signed, is_wide: true }
}

fn bits_of(reader: Reader<'_>, name: &str, bits: u32) -> Result<Number, Unsuited> {
    let unknown = || Unsuited::Member(name.to_owned());
    match of_field(reader, reader.format.field(name).ok_or_else(unknown)?)? {
        Number::Field { offset, ty } => Ok(Number::Bits { offset, ty, bits }),
        _ => Err(unknown()),
    }
}

/// Which [`FilterData`] stands for the raw data of the span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordOfSpan {
    /// `FilterData::Sample` is the raw data of the span.
    Sample,
    /// `FilterData::Span` is the raw data of the span, and `FilterData::Sample` is the data of the event that ends the span.
    Span,
    /// `FilterData::Span` is only the duration of the span.
    Duration,
}

/// Makes expressions of the values that a filter of spans compares.
pub(super) struct InSpan<'r, 'a> {
    pub reader: &'r mut SpanReader<'a>,
    pub record: RecordOfSpan,
}

impl Compared for InSpan<'_, '_> {
    fn number(&mut self, data: FilterData, offset: usize, ty: IntType) -> Result<Number, Unsuited> {
        match (data, self.record) {
            (FilterData::Sample, RecordOfSpan::Sample) | (FilterData::Span, RecordOfSpan::Span) => {
                self.reader.number_at(offset, ty, "a field of the filter")
            }
            (FilterData::Span, _) => Ok(DURATION),
            (FilterData::Sample, _) => self.reader.end.1.field(offset, ty),
            (FilterData::Begin, _) => {
                let number = self.reader.only_begin()?.1.field(offset, ty)?;
                self.reader.keep_number(number)
            }
        }
    }

    fn text(&mut self, data: FilterData, extent: Extent, test: (TextComparison, &str)) -> Result<Test, Unsuited> {
        let part = match (data, self.record) {
            (FilterData::Sample, RecordOfSpan::Sample) | (FilterData::Span, _) => {
                self.reader.field(extent.offset(), "a text of the filter")?
            }
            (FilterData::Sample, _) => return self.reader.end.1.text(data, extent, test),
            (FilterData::Begin, _) => {
                let text = fixed(Some(extent)).ok_or(Unsuited::TwoEvents)?;
                self.reader.keep(Part::Text(text))?
            }
        };
        match part {
            Part::Text(Text::Comm) if self.reader.for_filters == ForFilters::CommAndError => {
                filter::text_test(COMM, test)
            }
            Part::Text(text) => filter::text_test(text, test),
            Part::Named { number, names } => names.test(number, test),
            _ => Err(Unsuited::TwoEvents),
        }
    }
}

/// Fails if the part is a call chain: programs of spans take no call chains.
fn without_chain(part: Part, name: &str) -> Result<Part, Unsuited> {
    if part == Part::Chain { Err(Unsuited::Member(name.to_owned())) } else { Ok(part) }
}
