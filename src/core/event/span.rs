//! The events of spans: their format, their records and their counts. A record contains the whole records of the two
//! samples that begin and end the span.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{EventType, Sample};
use crate::{
    abi::{
        PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_STACK_USER,
        PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
    tracefs::{EventFormat, Field, FieldKind, FormatError},
    value::Value,
};

/// The offsets in the raw data of a span. The common fields, which have 8 bytes, come first.
const DURATION: usize = 8;
const OPEN: usize = 16;
/// The indices of the two events, with 2 bytes each.
const EVENTS: usize = 20;
/// The places of the two records, with 4 bytes each: the offset, and the size in the upper half.
const RECORDS: usize = 24;
/// The fields of the key, with 8 bytes each.
const KEY: usize = 32;

/// The size of the largest record. It is a multiple of 8 that fits into the 16 bits of a header.
const LARGEST: usize = 0xfff8;

/// The system of the events of spans, as in `span:fsync`.
pub const SPAN_SYSTEM: &str = "span";

/// The format of a span's event.
#[derive(Clone, Debug)]
pub struct SpanFormat {
    /// The fields: `duration`, `open` and the key, as in the format of a tracepoint.
    pub format: Arc<EventFormat>,
    /// The events that begin and end the spans.
    pub inputs: Vec<EventType>,
    /// The part whose call chain is that of the span.
    pub chain: SpanPart,
    /// The fields of the key.
    pub key: Vec<SpanKey>,
}

/// A part of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanPart {
    /// The sample that begins the span.
    Begin,
    /// The sample that ends the span.
    End,
}

/// A field of a span's key.
#[derive(Clone, Debug)]
pub struct SpanKey {
    /// Its name.
    pub name: String,
    /// The field in each of the inputs; `None` in those that only end spans.
    pub fields: Vec<Option<Field>>,
}

/// The two samples of a span, and its duration.
#[derive(Clone, Copy, Debug)]
pub struct SpanSamples<'a> {
    /// The index of the event that begins the span, and its record.
    pub begin: (usize, &'a [u8]),
    /// The index of the event that ends the span, and its record. `None` if the span is still open.
    pub end: Option<(usize, &'a [u8])>,
    /// The time from the begin to the end in ns.
    pub duration: u64,
}

impl SpanKey {
    /// Returns the field in the first input that has it.
    fn any(&self) -> Option<&Field> {
        self.fields.iter().flatten().next()
    }

    fn is_text(&self) -> bool {
        self.any().is_some_and(|field| field.kind.is_text())
    }
}

impl SpanFormat {
    /// Creates the format of the spans with this name.
    pub fn new(name: &str, inputs: Vec<EventType>, chain: SpanPart, key: Vec<SpanKey>) -> Result<Self, FormatError> {
        let mut text = format!(
            "name: {name}\nID: 0\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:u64 duration;\toffset:{DURATION};\tsize:8;\tsigned:0;\n\
             \tfield:bool open;\toffset:{OPEN};\tsize:1;\tsigned:0;\n"
        );
        let (mut print, mut arguments) = (String::new(), String::new());
        for (at, key) in key.iter().enumerate() {
            let (name, offset) = (&key.name, KEY + 8 * at);
            // The arguments of system calls say `signed:0`, whatever their type is.
            let is_signed = key.any().is_some_and(|field| matches!(field.kind, FieldKind::Int { signed: true, .. }));
            let (c_type, form, argument) = match (key.is_text(), is_signed) {
                (true, _) => ("__data_loc char[]", "%s", format!("__get_str({name})")),
                (false, true) => ("s64", "%lld", format!("REC->{name}")),
                (false, false) => ("u64", "%llu", format!("REC->{name}")),
            };
            let size = if key.is_text() { 4 } else { 8 };
            let signed = u8::from(is_signed && !key.is_text());
            text += &format!("\tfield:{c_type} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
            print += &format!(" {name}={form}");
            arguments += &format!(", {argument}");
        }
        text += &format!(
            "\nprint fmt: \"%llu.%06llu ms%s{print}\", REC->duration / 1000000, REC->duration % 1000000, \
             REC->open ? \" (open)\" : \"\"{arguments}\n"
        );
        Ok(SpanFormat { format: Arc::new(EventFormat::parse(SPAN_SYSTEM, &text)?), inputs, chain, key })
    }

    /// Returns the layout of the records. A span has a call chain if the sample has one from which it is taken.
    pub fn layout(&self) -> SampleLayout {
        let has_chain =
            |input: &EventType| input.layout.format.sample_type & (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_STACK_USER) != 0;
        let chain = if self.inputs.iter().any(has_chain) { PERF_SAMPLE_CALLCHAIN } else { 0 };
        SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | chain | PERF_SAMPLE_RAW, 0)
    }

    /// Writes the record of a span to `out`, which is cleared before. The task, the time and the CPU are those of the
    /// end. If the two records are larger than a record can be, their ends are cut off: there are the copies of user
    /// stacks.
    pub fn write(&self, layout: &SampleLayout, span: &SpanSamples<'_>, out: &mut Vec<u8>) {
        let (of, record) = span.end.unwrap_or(span.begin);
        let Some(last) = self.inputs.get(of).map(|event| Sample { event, record }) else { return };
        out.clear();
        out.extend(PERF_RECORD_SAMPLE.to_ne_bytes());
        out.extend_from_slice(record.get(4..6).unwrap_or(&[0, 0]));
        out.extend([0, 0]);
        let (pid, tid) = last.pid_tid();
        out.extend(pid.to_ne_bytes());
        out.extend(tid.to_ne_bytes());
        out.extend(last.time().to_ne_bytes());
        out.extend(u64::from(last.cpu()).to_le_bytes());
        if layout.format.sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
            out.extend(0u64.to_ne_bytes());
        }
        out.extend([0; 4]);
        let start = out.len();
        self.write_fields(&last, span, out);
        let room = LARGEST.saturating_sub(out.len() + 8);
        let (begin, end) = (span.begin.1, span.end.map_or(&[][..], |(_, record)| record));
        let of_end = end.len().min(room.saturating_sub(begin.len()).max(room / 2)) & !7;
        let of_begin = begin.len().min(room - of_end) & !7;
        for (at, record) in [(0, &begin[..of_begin]), (1, &end[..of_end])] {
            // The records are at multiples of 8.
            out.resize(start + (out.len() - start).next_multiple_of(8), 0);
            let place = (out.len() - start) as u32 | (record.len() as u32) << 16;
            let first = out.len();
            out.extend_from_slice(record);
            if let Some(size) = out.get_mut(first + 6..first + 8) {
                size.copy_from_slice(&(record.len() as u16).to_ne_bytes());
            }
            put(out, start + RECORDS + 4 * at, &place.to_ne_bytes());
        }
        // The size and the raw data together are a multiple of 8.
        let end = (out.len() - start + 4).next_multiple_of(8) - 4;
        out.resize(start + end, 0);
        put(out, start - 4, &(end as u32).to_ne_bytes());
        let size = out.len() as u16;
        put(out, 6, &size.to_ne_bytes());
    }

    /// Writes the fields of the raw data, up to the records.
    fn write_fields(&self, last: &Sample<'_>, span: &SpanSamples<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + KEY + 8 * self.key.len(), 0);
        put(out, start, last.raw().get(..DURATION).unwrap_or(&[]));
        put(out, start + DURATION, &span.duration.to_ne_bytes());
        put(out, start + OPEN, &[u8::from(span.end.is_none())]);
        let end = span.end.map_or(u16::MAX, |(event, _)| event as u16);
        put(out, start + EVENTS, &(span.begin.0 as u16).to_ne_bytes());
        put(out, start + EVENTS + 2, &end.to_ne_bytes());
        let (of_begin, begin) = span.begin;
        let raw = self.inputs.get(of_begin).and_then(|input| input.layout.raw(begin)).unwrap_or(&[]);
        for (at, key) in self.key.iter().enumerate() {
            let field = key.fields.get(of_begin).and_then(Option::as_ref);
            let value = match field.and_then(|field| field.value(raw)) {
                Some(Value::Int(value)) => (value as u64).to_ne_bytes(),
                Some(Value::Uint(value)) => value.to_ne_bytes(),
                Some(Value::Bool(value)) => u64::from(value).to_ne_bytes(),
                Some(Value::Str(text)) => {
                    // With its NUL.
                    let place = (out.len() - start) as u32 | (text.len() as u32 + 1) << 16;
                    out.extend_from_slice(text);
                    out.push(0);
                    u64::from(place).to_le_bytes()
                }
                _ => [0; 8],
            };
            put(out, start + KEY + 8 * at, &value);
        }
    }

    /// Returns the index of the event and the record of a part of the span with this raw data. Returns `None` if the
    /// span has not ended, or if the raw data is damaged.
    pub fn part<'a>(&self, part: SpanPart, raw: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let at = part as usize;
        let event = u16::from_ne_bytes(*raw.get(EVENTS + 2 * at..)?.first_chunk()?);
        let place = u32::from_ne_bytes(*raw.get(RECORDS + 4 * at..)?.first_chunk()?);
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
        let record = raw.get(offset..)?.get(..size).filter(|record| record.len() >= 8)?;
        Some((event.into(), record))
    }

    /// Returns the sample of a part of the span with this raw data.
    pub fn sample<'a>(&'a self, part: SpanPart, raw: &'a [u8]) -> Option<Sample<'a>> {
        let (event, record) = self.part(part, raw)?;
        Some(Sample { event: self.inputs.get(event)?, record })
    }

    /// Returns the sample with the call chain of the span.
    pub fn sample_with_chain<'a>(&'a self, raw: &'a [u8]) -> Option<Sample<'a>> {
        self.sample(self.chain, raw)
    }
}

/// Writes bytes to a place that exists already.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// The counts of a selected span. `opened` is the sum of `ended`, `dropped` and the spans that are open.
#[derive(Debug, Default)]
pub struct SpanCounts {
    opened: AtomicU64,
    ended: AtomicU64,
    dropped: AtomicU64,
    without_begin: AtomicU64,
    delivered: AtomicU64,
}

macro_rules! counts {
    ($($name:ident $count:ident $text:literal;)*) => {
        impl SpanCounts {
            $(
                #[doc = concat!("Returns the number of ", $text)]
                pub fn $name(&self) -> u64 {
                    self.$name.load(Relaxed)
                }

                /// Adds to this number. Only one thread writes, so no locked instruction is needed.
                #[inline]
                pub fn $count(&self, more: u64) {
                    self.$name.store(self.$name.load(Relaxed) + more, Relaxed);
                }
            )*
        }
    };
}

counts! {
    opened add_opened "spans that began.";
    ended add_ended "spans that ended, whether they were delivered or not.";
    dropped add_dropped "spans that began and were dropped: after a loss, because the key began again, or because too many were open.";
    without_begin add_without_begin "events that end a span, but no span with their key was open.";
    delivered add_delivered "spans that passed the filter, and were delivered unless the run ended before.";
}

impl SpanCounts {
    /// Returns the number of spans that are open.
    pub fn open(&self) -> u64 {
        self.opened().saturating_sub(self.ended() + self.dropped())
    }
}
